//! Making this database's installation speak for an inbox, resumable at every step.

use futures::future::BoxFuture;
use highwater_identity::{Address, AssociationState, MemberIdentifier, Verdicts, sign};
use highwater_mls::Installation;
use highwater_store::{ReadTx, Store, WriteTx};
use highwater_wire::proto::associations::{
    IdentityUpdate, RecoverableEcdsaSignature, Signature, identity_action, signature,
};
use highwater_wire::proto::backend::{ClientEnvelope, client_envelope};
use highwater_wire::{InboxId, InstallationKey};
use prost::Message as _;

use crate::network::Network;
use crate::{Error, Signer, SignerError};

/// Who this client is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Me {
    pub(crate) inbox: InboxId,
    pub(crate) installation: InstallationKey,
}

/// A [`Signer`] behind a pointer.
pub(crate) trait AnySigner: Send + Sync {
    fn address(&self) -> BoxFuture<'_, Result<String, SignerError>>;
    fn sign<'a>(&'a self, text: &'a str) -> BoxFuture<'a, Result<[u8; 65], SignerError>>;
}

impl<S: Signer> AnySigner for S {
    fn address(&self) -> BoxFuture<'_, Result<String, SignerError>> {
        Box::pin(Signer::address(self))
    }

    fn sign<'a>(&'a self, text: &'a str) -> BoxFuture<'a, Result<[u8; 65], SignerError>> {
        Box::pin(Signer::sign(self, text))
    }
}

/// Returns who this client is, registering it first if that hasn't been done.
pub(crate) async fn ensure(
    store: &Store,
    network: &Network,
    signer: Option<&dyn AnySigner>,
    nonce: u64,
) -> Result<Me, Error> {
    if let Some(installation) = stored(store).await?
        && installation.registered
    {
        return me(&installation);
    }
    let signer = signer.ok_or(Error::NotRegistered)?;
    if !network.has_backend() {
        return Err(Error::NotRegistered);
    }
    let address = signer.address().await.map_err(Error::Signer)?.to_ascii_lowercase();
    let address: Address = address
        .parse()
        .map_err(|invalid: highwater_identity::Invalid| Error::Signature(invalid.to_string()))?;
    let inbox = highwater_identity::inbox_id(&address.to_string(), nonce);
    let created = store
        .write("create installation", |tx: &mut WriteTx| {
            Box::pin(async move { highwater_mls::create_installation(tx).await })
        })
        .await?;
    if let Some(other) = created.inbox
        && other != inbox
    {
        return Err(Error::WrongWallet(other));
    }
    let registration = Registration { store, network, signer, address, nonce, inbox };
    registration.run(created).await
}

struct Registration<'a> {
    store: &'a Store,
    network: &'a Network,
    signer: &'a dyn AnySigner,
    address: Address,
    nonce: u64,
    inbox: InboxId,
}

impl Registration<'_> {
    async fn run(&self, installation: Installation) -> Result<Me, Error> {
        let engine = self.network.engine().await?;
        if installation.registration.is_none() {
            self.prepare(&installation).await?;
        }
        let Err(failure) = engine.register().await else {
            return self.registered().await;
        };
        // A wallet that registers two installations at once creates the inbox once: the update that came second can
        // never apply, and is replaced by one that adds the installation to the inbox there is.
        let head = engine.inbox_head(self.inbox).await;
        let lost = match head {
            Ok(Some((_, state))) => !state.installations().contains(&installation.key),
            _ => false,
        };
        let current = stored(self.store).await?;
        if !lost || !current.as_ref().is_some_and(creates_inbox) {
            return Err(Error::Registration(failure));
        }
        self.prepare(&installation).await?;
        engine.register().await.map_err(Error::Registration)?;
        self.registered().await
    }

    async fn registered(&self) -> Result<Me, Error> {
        match stored(self.store).await? {
            Some(installation) if installation.registered => me(&installation),
            _ => Err(Error::NotRegistered),
        }
    }

    /// Signs the update that this installation needs, by what the backend knows of the inbox, and makes it durable.
    async fn prepare(&self, installation: &Installation) -> Result<(), Error> {
        let engine = self.network.engine().await?;
        let head = engine.inbox_head(self.inbox).await.map_err(Error::Registration)?;
        let head = head.map(|(_, state)| state);
        let now = self.store.now_ns();
        let update = match &head {
            None => {
                let unsigned = sign::registration(self.address, self.nonce, installation.key, now);
                let (wallet, own) = self.signatures(unsigned.text(), installation).await?;
                unsigned.finish(wallet, own)
            }
            Some(state) => {
                self.check_member(state)?;
                let unsigned = sign::add_installation(self.inbox, installation.key, now);
                let (wallet, own) = self.signatures(unsigned.text(), installation).await?;
                unsigned.finish(wallet, own)
            }
        };
        self.check(head.as_ref(), &update)?;
        let envelope = ClientEnvelope { payload: Some(client_envelope::Payload::IdentityUpdate(update)) };
        let (inbox, bytes) = (self.inbox, envelope.encode_to_vec().into());
        self.store
            .write("registration", move |tx: &mut WriteTx| {
                Box::pin(async move { highwater_mls::set_registration(tx, inbox, bytes).await })
            })
            .await?;
        Ok(())
    }

    /// The update must apply here as it will have to everywhere, before it is made durable: a wrong signature would
    /// otherwise be published again and again.
    fn check(&self, head: Option<&AssociationState>, update: &IdentityUpdate) -> Result<(), Error> {
        AssociationState::apply(head, self.inbox, update, &Verdicts::default())
            .map(|_| ())
            .map_err(|invalid| Error::Signature(invalid.to_string()))
    }

    fn check_member(&self, state: &AssociationState) -> Result<(), Error> {
        if state.is_member(&MemberIdentifier::Ethereum(self.address)) {
            Ok(())
        } else {
            Err(Error::WrongWallet(self.inbox))
        }
    }

    /// Both sides' signatures of a text. The wallet's is checked where the update is applied, here as anywhere.
    async fn signatures(
        &self,
        text: &str,
        installation: &Installation,
    ) -> Result<(Signature, Signature), Error> {
        let bytes = self.signer.sign(text).await.map_err(Error::Signer)?.to_vec();
        let wallet =
            Signature { signature: Some(signature::Signature::Erc191(RecoverableEcdsaSignature { bytes })) };
        Ok((wallet, installation.sign(text)))
    }
}

/// Whether the stored registration is one that creates the inbox.
fn creates_inbox(installation: &Installation) -> bool {
    let update = installation.registration.as_ref().and_then(|bytes| {
        match ClientEnvelope::decode(bytes.as_ref()).ok()?.payload? {
            client_envelope::Payload::IdentityUpdate(update) => Some(update),
            _ => None,
        }
    });
    update.is_some_and(|update: IdentityUpdate| {
        let first = update.actions.first().and_then(|action| action.kind.as_ref());
        matches!(first, Some(identity_action::Kind::CreateInbox(_)))
    })
}

async fn stored(store: &Store) -> Result<Option<Installation>, Error> {
    Ok(store
        .read("installation", |tx: &mut ReadTx| {
            Box::pin(async move { highwater_mls::installation(tx).await })
        })
        .await?)
}

fn me(installation: &Installation) -> Result<Me, Error> {
    let inbox = installation.inbox.ok_or(Error::NotRegistered)?;
    Ok(Me { inbox, installation: installation.key })
}
