use chacha20poly1305::aead::Aead as _;
use chacha20poly1305::{ChaCha20Poly1305, KeyInit as _};
use highwater_wire::SequenceId;
use highwater_wire::proto::backend::{WelcomeMessage, welcome_message};
use highwater_wire::proto::contents::{WelcomeMetadata, WelcomePointer, welcome_pointer};
use prost::Message as _;

use super::support::*;
use crate::*;

/// A Welcome for Carol that nobody has opened, with what it takes to open it.
struct Waiting {
    pair: Pair,
    carol: Client,
    prepared: PreparedCommit,
    anchor: SequenceId,
    message: WelcomeMessage,
}

impl Waiting {
    async fn new() -> Self {
        let mut pair = Pair::new().await;
        let mut person = Person::new();
        let carol = person.client(&mut pair.world).await;
        let change = adding(&[&person], &[&carol]).await;
        let (anchor, prepared) = pair.a.change(&mut pair.world, pair.group, change).await;
        let message = carol.sealed(&prepared, anchor);
        Self { pair, carol, prepared, anchor, message }
    }

    fn v1(&self) -> welcome_message::V1 {
        match self.message.version.clone() {
            Some(welcome_message::Version::V1(v1)) => v1,
            other => panic!("{other:?}"),
        }
    }

    fn recipient(&self) -> &Recipient {
        &self.prepared.added[0]
    }

    async fn fails(&mut self, message: &WelcomeMessage) -> WelcomeFailure {
        let before = self.carol.rows().await;
        let at = self.pair.world.next_id();
        let failure = self.carol.join_with(&self.pair.world, message, at).await.unwrap_err();
        assert_eq!(self.carol.rows().await, before);
        failure
    }

    async fn changed(&mut self, change: impl FnOnce(&mut welcome_message::V1)) -> &'static str {
        let mut v1 = self.v1();
        change(&mut v1);
        let message = WelcomeMessage { version: Some(welcome_message::Version::V1(v1)) };
        self.fails(&message).await.code()
    }

    /// The untouched Welcome still works after every failure.
    async fn still_works(mut self) {
        let at = self.pair.world.next_id();
        let message = self.message.clone();
        let adder = self.carol.join_with(&self.pair.world, &message, at).await.unwrap();
        assert_eq!(adder, self.pair.a.member());
        self.carol.audit().await;
    }
}

/// Shows: STR-083.
#[tokio::test]
async fn a_welcome_that_can_not_be_unwrapped_is_told_apart_and_uses_up_nothing() {
    let mut waiting = Waiting::new().await;
    assert_eq!(waiting.fails(&WelcomeMessage { version: None }).await.code(), "malformed");
    assert_eq!(waiting.changed(|v1| v1.wrapper_algorithm = 99).await, "unknown_algorithm");
    for other in [0, 2, 3] {
        assert_eq!(waiting.changed(|v1| v1.wrapper_algorithm = other).await, "downgrade");
    }
    assert_eq!(waiting.changed(|v1| v1.hpke_public_key = vec![7; 32]).await, "unknown_package");
    assert_eq!(waiting.changed(|v1| *v1.data.last_mut().unwrap() ^= 1).await, "unopenable");
    assert_eq!(waiting.changed(|v1| v1.data.truncate(9)).await, "malformed");
    assert_eq!(waiting.changed(|v1| v1.welcome_metadata.clear()).await, "metadata_missing");
    assert_eq!(waiting.changed(|v1| v1.welcome_metadata.truncate(5)).await, "malformed");
    waiting.still_works().await;
}

/// Shows: STR-083.
#[tokio::test]
async fn the_anchor_is_a_sequence_id_before_the_welcomes_own() {
    let mut waiting = Waiting::new().await;
    let wrapper = waiting.recipient().wrapper.clone();
    let sealed = |cursor: u64| {
        let metadata = WelcomeMetadata { message_cursor: cursor }.encode_to_vec();
        crate::welcome::seal(&wrapper.public, &metadata).unwrap()
    };
    for cursor in [0, u64::MAX] {
        let metadata = sealed(cursor);
        let code = waiting.changed(|v1| v1.welcome_metadata = metadata).await;
        assert_eq!(code, "anchor_out_of_range");
    }
    let nonsense = crate::welcome::seal(&wrapper.public, &[0xff]).unwrap();
    assert_eq!(waiting.changed(|v1| v1.welcome_metadata = nonsense).await, "malformed");
    let own = waiting.pair.world.next_id();
    let mut v1 = waiting.v1();
    v1.welcome_metadata = sealed(own.get());
    let message = WelcomeMessage { version: Some(welcome_message::Version::V1(v1)) };
    let failed = waiting.carol.join_with(&waiting.pair.world, &message, own).await.unwrap_err();
    assert_eq!(failed.code(), "anchor_not_before");
    waiting.still_works().await;
}

#[tokio::test]
async fn what_is_inside_must_be_a_welcome_to_the_package_it_was_sealed_to() {
    let mut waiting = Waiting::new().await;
    let wrapper = waiting.recipient().wrapper.clone();
    let seal = |body: &[u8]| crate::welcome::seal(&wrapper.public, body).unwrap();
    let commit = seal(&waiting.prepared.data);
    assert_eq!(waiting.changed(|v1| v1.data = commit).await, "not_a_welcome");
    let nonsense = seal(b"\0\x01nonsense");
    assert_eq!(waiting.changed(|v1| v1.data = nonsense).await, "malformed");
    let mut newer = waiting.prepared.welcome.clone().unwrap();
    newer[1] = 9;
    let newer = seal(&newer);
    assert_eq!(waiting.changed(|v1| v1.data = newer).await, "unsupported_version");
    let mut damaged = waiting.prepared.welcome.clone().unwrap();
    *damaged.last_mut().unwrap() ^= 1;
    let damaged = seal(&damaged);
    assert_eq!(waiting.changed(|v1| v1.data = damaged).await, "unopenable");
    // A Welcome to somebody else, sealed to us.
    let mut dave = Person::new();
    let d = dave.client(&mut waiting.pair.world).await;
    let change = adding(&[&dave], &[&d]).await;
    let other = waiting.pair.a.commit(waiting.pair.group, change).await.unwrap();
    let other = seal(&other.welcome.unwrap());
    assert_eq!(waiting.changed(|v1| v1.data = other).await, "unknown_package");
    waiting.still_works().await;
}

#[tokio::test]
async fn failures_know_what_becomes_of_the_welcome() {
    use WelcomeDisposition::{Hold, Reject, Unsupported};
    let cases = [
        (WelcomeFailure::Downgrade, Reject),
        (WelcomeFailure::UnknownPackage, Reject),
        (WelcomeFailure::PreSharedKey, Reject),
        (WelcomeFailure::AnchorNotBefore, Reject),
        (WelcomeFailure::UnknownAlgorithm(9), Unsupported),
        (WelcomeFailure::UnsupportedVersion, Unsupported),
        (WelcomeFailure::GroupVersion("9.0.0".into()), Hold),
        (WelcomeFailure::Local(MlsError::NoInstallation), Hold),
    ];
    for (failure, expected) in cases {
        assert_eq!(failure.disposition(), expected, "{failure}");
    }
}

/// What a sender of pointers publishes: one body under a random key, and a sealed pointer to it.
fn pointer_to(waiting: &Waiting, metadata_nonce: [u8; 12]) -> (WelcomeMessage, WelcomeMessage) {
    let (key, data_nonce) = ([3; 32], [1; 12]);
    let cipher = ChaCha20Poly1305::new(&key.into());
    let metadata = WelcomeMetadata { message_cursor: waiting.anchor.get() }.encode_to_vec();
    let body = welcome_message::V1 {
        data: cipher.encrypt(&data_nonce.into(), waiting.prepared.welcome.as_deref().unwrap()).unwrap(),
        welcome_metadata: cipher.encrypt(&metadata_nonce.into(), &metadata[..]).unwrap(),
        wrapper_algorithm: 3,
        installation_key: vec![8; 32],
        hpke_public_key: Vec::new(),
    };
    let pointer = WelcomePointer {
        version: Some(welcome_pointer::Version::WelcomeV1Pointer(welcome_pointer::WelcomeV1Pointer {
            destination: vec![8; 32],
            aead_type: 3,
            encryption_key: key.to_vec(),
            data_nonce: data_nonce.to_vec(),
            welcome_metadata_nonce: metadata_nonce.to_vec(),
        })),
    };
    let public = &waiting.recipient().wrapper.public;
    let sealed = welcome_message::WelcomePointer {
        installation_key: waiting.carol.key.as_bytes().to_vec(),
        welcome_pointer: crate::welcome::seal(public, &pointer.encode_to_vec()).unwrap(),
        hpke_public_key: public.to_vec(),
        wrapper_algorithm: 1,
    };
    (
        WelcomeMessage { version: Some(welcome_message::Version::WelcomePointer(sealed)) },
        WelcomeMessage { version: Some(welcome_message::Version::V1(body)) },
    )
}

async fn unwrap(client: &Client, message: &WelcomeMessage) -> Result<Unwrapped, WelcomeFailure> {
    let message = message.clone();
    let opened: Result<_, MlsError> = write(client.fixture.store(), move |tx| {
        Box::pin(async move { Ok(open_welcome(tx, &message).await) })
    })
    .await;
    opened.unwrap()
}

/// Shows: STR-081.
#[tokio::test]
async fn a_pointer_leads_to_a_body_and_to_nothing_else() {
    let mut waiting = Waiting::new().await;
    let (pointer, body) = pointer_to(&waiting, [2; 12]);
    let Ok(Unwrapped::Pointer(pointer)) = unwrap(&waiting.carol, &pointer).await else {
        panic!("a pointer");
    };
    assert_eq!(pointer.destination(), [8; 32]);
    assert_eq!(pointer.open(&waiting.message).unwrap_err().code(), "bad_pointee");
    let (chained, _) = pointer_to(&waiting, [2; 12]);
    assert_eq!(pointer.open(&chained).unwrap_err().code(), "bad_pointee");
    let mut damaged = body.clone();
    if let Some(welcome_message::Version::V1(v1)) = &mut damaged.version {
        v1.data[0] ^= 1;
    }
    assert_eq!(pointer.open(&damaged).unwrap_err().code(), "unopenable");
    let opened = pointer.open(&body).unwrap();
    assert_eq!(opened.anchor, waiting.anchor);
    assert_eq!(Some(&opened.welcome), waiting.prepared.welcome.as_ref());
    // A body alone isn't a Welcome to us, and one nonce for two texts isn't a pointer.
    assert_ne!(waiting.fails(&body).await.disposition(), WelcomeDisposition::Hold);
    let (same_nonce, _) = pointer_to(&waiting, [1; 12]);
    assert_eq!(unwrap(&waiting.carol, &same_nonce).await.unwrap_err().code(), "malformed");
    waiting.still_works().await;
}

/// Shows: STR-081.
#[tokio::test]
async fn three_followers_of_pointers_share_one_body() {
    let mut pair = Pair::new().await;
    let mut people = [Person::new(), Person::new(), Person::new()];
    let mut clients = Vec::new();
    for person in &mut people {
        clients.push(person.client(&mut pair.world).await);
    }
    let people: Vec<&Person> = people.iter().collect();
    let added: Vec<&Client> = clients.iter().collect();
    let change = adding(&people, &added).await;
    let (anchor, prepared) = pair.a.change(&mut pair.world, pair.group, change).await;
    let welcome = prepared.welcome.unwrap();
    let two = seal_welcomes(&welcome, anchor, &prepared.added[..2]).unwrap();
    assert_eq!(two.len(), 2);
    let mut deaf = prepared.added.clone();
    deaf[0].pointers = false;
    assert_eq!(seal_welcomes(&welcome, anchor, &deaf).unwrap().len(), 3);

    let envelopes = seal_welcomes(&welcome, anchor, &prepared.added).unwrap();
    let [body, pointers @ ..] = &envelopes[..] else { panic!() };
    assert_eq!(pointers.len(), 3);
    let body = welcome_message(body);
    for (client, recipient) in prepared.added.iter().map(|recipient| {
        let own = |client: &&Client| client.key == recipient.installation;
        (clients.iter().find(own).unwrap(), recipient)
    }) {
        let index = prepared.added.iter().position(|added| added == recipient).unwrap();
        let message = welcome_message(&pointers[index]);
        let Ok(Unwrapped::Pointer(pointer)) = unwrap(client, &message).await else { panic!() };
        let opened = pointer.open(&body).unwrap();
        let (at, snapshots) = (pair.world.next_id(), pair.world.snapshots.clone());
        write(client.fixture.store(), move |tx| {
            Box::pin(async move {
                let staged = StagedJoin::stage(tx, opened).await.unwrap();
                staged.check(at, &snapshots).unwrap().install(tx).await
            })
        })
        .await
        .unwrap();
        client.audit().await;
    }
}
