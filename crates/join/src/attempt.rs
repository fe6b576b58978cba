//! One attempt at one Welcome.

use highwater_delivery::{
    Consent, Conversation, ConversationKind, ConversationState, MessageKind, NewMessage,
};
use highwater_mls::{
    ConversationType, Need, OpenedWelcome, Proof, Resolution, Resolutions, StagedJoin, Unwrapped,
    WelcomeDisposition, WelcomeFailure, open_welcome,
};
use highwater_receipt::PendingEnvelope;
use highwater_store::{Store, WriteTx};
use highwater_wire::proto::backend::{ClientEnvelope, WelcomeMessage, client_envelope};
use highwater_wire::{GroupId, InboxId, MessageId, SequenceId, Topic};
use prost::Message as _;

use crate::existing::{Existing, LocalGroup, existing};
use crate::hold::{self, HeldWelcome, POINTER_RETENTION, RETENTION};
use crate::{JoinError, outcome};

/// What an attempt did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JoinReport {
    /// The group is installed and active.
    Joined(GroupId),
    /// The Welcome is invalid; its outcome is stored under this code.
    Rejected(String),
    /// It can't be settled now.
    Held {
        /// Why and until when.
        held: HeldWelcome,
        /// What would help, if something from outside would.
        needs: Vec<Need>,
    },
    /// Its retention ended and one last attempt didn't succeed either.
    Expired,
    /// It isn't pending (any more): another process settled it.
    Gone,
}

/// Why a Welcome was not installed.
enum Obstacle {
    Reject(&'static str),
    Hold { code: &'static str, detail: String, needs: Vec<Need>, retention: Option<Retention> },
    Failed(JoinError),
}

/// Which deadline a held Welcome has, if it has one.
#[derive(Clone, Copy)]
enum Retention {
    /// [`RETENTION`] from the first attempt on.
    FromFirstAttempt,
    /// [`POINTER_RETENTION`] from the server time of the pointer on.
    FromServerTime,
}

impl<E: Into<JoinError>> From<E> for Obstacle {
    fn from(error: E) -> Self {
        Self::Failed(error.into())
    }
}

impl From<WelcomeFailure> for Obstacle {
    fn from(failure: WelcomeFailure) -> Self {
        let retention = match failure.disposition() {
            WelcomeDisposition::Reject => return Self::Reject(failure.code()),
            WelcomeDisposition::Unsupported => Some(Retention::FromFirstAttempt),
            // A local failure may pass; the Welcome and its keys wait for as long as it takes.
            _ => None,
        };
        let detail = failure.to_string();
        Self::Hold { code: failure.code(), detail, needs: Vec::new(), retention }
    }
}

/// Attempts one pending Welcome, in one transaction on fresh state.
///
/// `resolutions` answers the needs of an earlier attempt. At or after its deadline, a Welcome whose needs were answered
/// and that still can't be installed expires (STR-115). Dropping the future doesn't split the transaction.
///
/// # Errors
/// [`JoinError`] when the attempt could not be carried out; nothing changed then.
pub async fn attempt(
    store: &Store,
    topic: Topic,
    sequence_id: SequenceId,
    resolutions: Resolutions,
) -> Result<JoinReport, JoinError> {
    store
        .write("join", move |tx| Box::pin(async move { run(tx, topic, sequence_id, &resolutions).await }))
        .await
}

async fn run(
    tx: &mut WriteTx,
    topic: Topic,
    sequence_id: SequenceId,
    resolutions: &Resolutions,
) -> Result<JoinReport, JoinError> {
    let Some(envelope) = highwater_receipt::pending_one(tx, topic, sequence_id).await? else {
        return Ok(JoinReport::Gone);
    };
    match install(tx, topic, &envelope, resolutions).await {
        Ok(group) => Ok(JoinReport::Joined(group)),
        Err(Obstacle::Failed(error)) => Err(error),
        Err(Obstacle::Reject(code)) => {
            tracing::info!(sequence_id = sequence_id.get(), code, "Welcome rejected");
            outcome::settle(tx, topic, sequence_id, code, None).await?;
            Ok(JoinReport::Rejected(code.to_owned()))
        }
        Err(Obstacle::Hold { code, detail, needs, retention }) => {
            let now = tx.now_ns();
            let deadline = retention.map(|retention| match retention {
                Retention::FromFirstAttempt => now.saturating_add(RETENTION.as_nanos() as i64),
                Retention::FromServerTime => {
                    envelope.server_ns.saturating_add(POINTER_RETENTION.as_nanos() as i64)
                }
            });
            let held = hold::record(tx, sequence_id, code, &detail, deadline).await?;
            // The attempt that ends a Welcome is one whose needs somebody looked for: a client that was away for longer
            // than the deadline gets to ask first.
            let asked = needs.iter().all(|need| resolutions.get(need).is_some());
            if asked && held.deadline_ns.is_some_and(|deadline| deadline <= now) {
                outcome::settle(tx, topic, sequence_id, "expired", None).await?;
                return Ok(JoinReport::Expired);
            }
            Ok(JoinReport::Held { held, needs })
        }
    }
}

/// Everything up to the last check only reads; what is written after it is written by this transaction as a whole.
async fn install(
    tx: &mut WriteTx,
    topic: Topic,
    envelope: &PendingEnvelope,
    resolutions: &Resolutions,
) -> Result<GroupId, Obstacle> {
    let opened = open(tx, envelope, resolutions).await?;
    let anchor = opened.anchor;
    if anchor >= envelope.sequence_id {
        return Err(Obstacle::Reject("anchor_not_before"));
    }
    let staged = StagedJoin::stage(tx, opened).await?;
    let group = staged.group();
    let group_topic = Topic::group(group);
    let local = local_group(tx, group).await?;
    let processed = highwater_processing::processed(tx, group_topic).await?;
    let rule = match existing(local, processed.map(|p| p.cursor()), anchor, staged.epoch()) {
        Existing::Install(rule) => rule,
        Existing::Stale => return Err(Obstacle::Reject("stale")),
        Existing::Conflicting => return Err(Obstacle::Reject("conflicting")),
        Existing::NeedPrefix => {
            let needs = vec![Need::Prefix { topic: group_topic, through: anchor }];
            return Err(dependency("the old membership's prefix", needs));
        }
    };
    let required = staged.required_identity();
    if required.iter().any(|(_, at)| *at >= envelope.sequence_id) {
        return Err(Obstacle::Reject("identity_not_before"));
    }
    let (snapshots, missing) = highwater_processing::snapshots(tx, required).await?;
    if !missing.is_empty() {
        return Err(missing_identity(missing, resolutions));
    }
    let adder = staged.adder().inbox;
    let components = staged.components().clone();
    let checked = staged.check(envelope.sequence_id, &snapshots)?;
    checked.install(tx).await?;
    highwater_processing::set_anchor(tx, group_topic, anchor, rule).await?;
    highwater_receipt::anchor(tx, group_topic, anchor).await?;
    discover(tx, group, adder, &components, envelope).await?;
    transcript(tx, group, adder, anchor, envelope.server_ns).await?;
    outcome::settle(tx, topic, envelope.sequence_id, "joined", Some(group)).await?;
    Ok(group)
}

/// Unwraps the Welcome, or the body that it points to.
async fn open(
    tx: &mut WriteTx,
    envelope: &PendingEnvelope,
    resolutions: &Resolutions,
) -> Result<OpenedWelcome, Obstacle> {
    let payload = ClientEnvelope::decode(envelope.payload.as_ref()).ok().and_then(|e| e.payload);
    let Some(client_envelope::Payload::WelcomeMessage(welcome)) = payload else {
        return Err(Obstacle::Reject("malformed"));
    };
    let pointer = match open_welcome(tx, &welcome).await? {
        Unwrapped::Welcome(opened) => return Ok(opened),
        Unwrapped::Pointer(pointer) => pointer,
    };
    let need = Need::Pointee { destination: pointer.destination() };
    match resolutions.get(&need) {
        Some(Resolution::Ready(Proof::Pointee(body))) => {
            let body = WelcomeMessage::decode(body.as_slice());
            let body = body.map_err(|_| Obstacle::Reject("bad_pointee"))?;
            Ok(pointer.open(&body)?)
        }
        _ => Err(Obstacle::Hold {
            code: "dependency",
            detail: "waiting for the body that the pointer names".into(),
            needs: vec![need],
            retention: Some(Retention::FromServerTime),
        }),
    }
}

fn dependency(what: &str, needs: Vec<Need>) -> Obstacle {
    Obstacle::Hold { code: "dependency", detail: format!("waiting for {what}"), needs, retention: None }
}

fn missing_identity(
    missing: impl IntoIterator<Item = (InboxId, SequenceId)>,
    resolutions: &Resolutions,
) -> Obstacle {
    let needs: Vec<_> =
        missing.into_iter().map(|(inbox, sequence_id)| Need::Identity { inbox, sequence_id }).collect();
    if needs.iter().any(|n| matches!(resolutions.get(n), Some(Resolution::Permanent { .. }))) {
        return Obstacle::Reject("identity_absent");
    }
    dependency("identity state", needs)
}

async fn local_group(tx: &mut WriteTx, group: GroupId) -> Result<LocalGroup, JoinError> {
    let Some(epoch) = highwater_mls::epoch(tx, group).await? else {
        return Ok(LocalGroup::Absent);
    };
    let state = highwater_delivery::conversation(tx, group).await?.map(|found| found.state);
    Ok(match state {
        Some(ConversationState::Active) => LocalGroup::Active { epoch },
        _ => LocalGroup::Inactive { epoch },
    })
}

/// Records the discovery in the join's own transaction (STR-085). What the app decided about the conversation stays.
async fn discover(
    tx: &mut WriteTx,
    group: GroupId,
    adder: InboxId,
    components: &highwater_mls::Components,
    envelope: &PendingEnvelope,
) -> Result<(), Obstacle> {
    let earlier = highwater_delivery::conversation(tx, group).await?;
    let me = highwater_mls::installation(tx).await?.and_then(|installation| installation.inbox);
    let peer = components
        .dm_pair
        .iter()
        .flatten()
        .copied()
        .find(|inbox| components.conversation == ConversationType::Dm && Some(*inbox) != me);
    highwater_delivery::put_conversation(
        tx,
        Conversation {
            group,
            kind: peer.map_or(ConversationKind::Group, |peer| ConversationKind::Dm { peer }),
            state: ConversationState::Active,
            consent: earlier.as_ref().map_or(Consent::Unknown, |earlier| earlier.consent),
            name: Some(components.name.clone()).filter(|name| !name.is_empty()),
            created_ns: earlier.map_or(envelope.server_ns, |earlier| earlier.created_ns),
            adder: Some(adder),
            discovered_by: Some(envelope.sequence_id),
        },
    )
    .await?;
    Ok(())
}

/// The conversation's first message for this member: who brought it in.
async fn transcript(
    tx: &mut WriteTx,
    group: GroupId,
    adder: InboxId,
    anchor: SequenceId,
    server_ns: i64,
) -> Result<(), Obstacle> {
    let Some(me) = highwater_mls::installation(tx).await?.and_then(|found| found.inbox) else {
        return Ok(());
    };
    let content = highwater_mls::join_transcript(adder, me);
    let key = anchor.get().to_string();
    highwater_delivery::insert_published(
        tx,
        &[NewMessage {
            id: MessageId::derive(group, &key, &content),
            group,
            kind: MessageKind::MembershipChange,
            sender_inbox: adder,
            sender_installation: None,
            sent_ns: server_ns,
            idempotency_key: key,
            content,
            sequence_id: Some(anchor),
            expires_ns: None,
        }],
    )
    .await?;
    Ok(())
}
