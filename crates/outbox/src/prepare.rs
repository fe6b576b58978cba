//! Turning the next eligible intents of a group into exact bytes.
//!
//! [`plan`] decides from the queue alone; [`prepare`] carries it out on state loaded after the writer was taken.

use std::collections::{BTreeMap, BTreeSet};

use highwater_identity::AssociationState;
use highwater_mls::{Need, Trial};
use highwater_store::{Reads, WriteTx};
use highwater_wire::proto::backend::{ClientEnvelope, GroupMessage, client_envelope};
use highwater_wire::{GroupId, InboxId, InstallationKey, MessageId, PayloadIdentity, SequenceId};
use prost::Message as _;
use sqlx::QueryBuilder;

use crate::change::{self, Built};
use crate::intent::{IntentId, plaintext};
use crate::rows::{self, Asked, IntentState, OpenIntent};
use crate::{ChangeRequest, OutboxError};

/// How many messages of a group may be encrypted ahead of their acceptance. More would only pin them to an epoch that
/// may be gone when their turn comes.
const MAX_PREPARED_MESSAGES: usize = 64;

/// What preparation needs from outside the database's MLS state.
#[derive(Clone, Debug, Default)]
pub struct Inputs {
    /// The newest verified state of an inbox, or `None` where its topic is proven empty.
    pub identity: BTreeMap<InboxId, Option<(SequenceId, AssociationState)>>,
    /// The newest key package of an installation, or `None` where there is proven to be none.
    pub key_packages: BTreeMap<InstallationKey, Option<Vec<u8>>>,
}

/// What a group's queue asks for now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// Nothing until an echo arrives or an app queues more.
    Nothing,
    /// Call [`prepare`], with the states of these inboxes where there are any.
    Prepare {
        /// Whose newest identity state the preparation will look at.
        inboxes: BTreeSet<InboxId>,
    },
    /// Publish what [`publishable`](crate::publishable) returns.
    Publish,
}

/// What [`prepare`] did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Prepare {
    /// There was nothing to prepare.
    Nothing,
    /// So many attempts are durable and may be published.
    Prepared(usize),
    /// Nothing changed; call again with these resolved.
    Needs(Vec<Need>),
    /// The intent was settled without an attempt: already fulfilled, or refused.
    Settled(IntentId),
}

enum Plan<'a> {
    Nothing,
    Messages(Vec<(IntentId, MessageId)>),
    Change(IntentId, &'a ChangeRequest),
    Publish,
}

/// The one decision about queue order: messages go out together, a change goes alone, and nothing passes a change.
fn plan(open: &[OpenIntent]) -> Plan<'_> {
    let mut unsent = 0;
    let mut queued = Vec::new();
    for intent in open {
        match (&intent.asked, intent.prepared) {
            (Asked::Message(_), true) if intent.replied => {}
            (Asked::Message(_), true) => unsent += 1,
            (Asked::Message(id), false) if unsent + queued.len() < MAX_PREPARED_MESSAGES => {
                queued.push((intent.id, *id));
            }
            (Asked::Message(_), false) => break,
            (Asked::Change(_), _) if !queued.is_empty() || unsent > 0 => break,
            (Asked::Change(_), true) if intent.replied => return Plan::Nothing,
            (Asked::Change(_), true) => return Plan::Publish,
            (Asked::Change(request), false) => return Plan::Change(intent.id, request),
        }
    }
    if !queued.is_empty() {
        Plan::Messages(queued)
    } else if unsent > 0 {
        Plan::Publish
    } else {
        Plan::Nothing
    }
}

/// What a group's queue asks for now, and whose identity states preparing it would look at.
pub async fn next(tx: &mut impl Reads, group: GroupId) -> Result<Next, OutboxError> {
    let open = rows::open_intents(tx, group, 2 * MAX_PREPARED_MESSAGES as u32).await?;
    Ok(match plan(&open) {
        Plan::Nothing => Next::Nothing,
        Plan::Publish => Next::Publish,
        Plan::Messages(_) => Next::Prepare { inboxes: BTreeSet::new() },
        Plan::Change(_, request) => {
            let me = rows::registered_installation(tx).await?;
            Next::Prepare { inboxes: change::inboxes(request, me.inbox) }
        }
    })
}

/// Prepares the next eligible intents of a group: exact bytes, payload identity and MLS state become durable together
/// with the rest of `tx` (STR-110).
///
/// # Errors
/// On any error the caller's transaction must roll back, as `Store::write` does.
pub async fn prepare(tx: &mut WriteTx, group: GroupId, inputs: &Inputs) -> Result<Prepare, OutboxError> {
    let open = rows::open_intents(tx, group, 2 * MAX_PREPARED_MESSAGES as u32).await?;
    match plan(&open) {
        Plan::Nothing | Plan::Publish => Ok(Prepare::Nothing),
        Plan::Messages(queued) => prepare_messages(tx, group, &queued).await,
        Plan::Change(intent, request) => prepare_change(tx, group, intent, request, inputs).await,
    }
}

async fn prepare_messages(
    tx: &mut WriteTx,
    group: GroupId,
    queued: &[(IntentId, MessageId)],
) -> Result<Prepare, OutboxError> {
    let mut trial = load(tx, group).await?;
    let mut attempts = Vec::with_capacity(queued.len());
    for (intent, message) in queued {
        let stored = highwater_delivery::message(tx, *message)
            .await?
            .ok_or(OutboxError::Damaged("an intent without its message"))?;
        let data = trial.encrypt(&plaintext(stored.content, stored.idempotency_key))?;
        attempts.push(NewAttempt::new(*intent, data, trial.epoch()));
    }
    trial.store(tx).await?;
    insert_attempts(tx, group, &attempts).await?;
    Ok(Prepare::Prepared(attempts.len()))
}

async fn prepare_change(
    tx: &mut WriteTx,
    group: GroupId,
    intent: IntentId,
    request: &ChangeRequest,
    inputs: &Inputs,
) -> Result<Prepare, OutboxError> {
    let me = rows::registered_installation(tx).await?;
    let mut trial = load(tx, group).await?;
    let built = change::build(request, me.inbox, &*trial.components()?, &trial.members(), inputs);
    let change = match built {
        Built::Needs(needs) => return Ok(Prepare::Needs(needs)),
        Built::Fulfilled => {
            rows::set_state(tx, intent, IntentState::Confirmed, None, None, None).await?;
            return Ok(Prepare::Settled(intent));
        }
        Built::Refused(detail) => {
            rows::set_state(tx, intent, IntentState::Refused, None, Some("refused"), Some(&detail)).await?;
            return Ok(Prepare::Settled(intent));
        }
        Built::Change(change) => change,
    };
    let epoch = trial.epoch();
    let commit = trial.commit(change)?;
    trial.store(tx).await?;
    let mut attempt = NewAttempt::new(intent, commit.data, epoch);
    attempt.welcome = commit.welcome;
    attempt.recipients =
        postcard::to_stdvec(&commit.added).map_err(|_| OutboxError::Damaged("recipients"))?;
    insert_attempts(tx, group, &[attempt]).await?;
    Ok(Prepare::Prepared(1))
}

async fn load(tx: &mut WriteTx, group: GroupId) -> Result<Trial, OutboxError> {
    rows::require_active(tx, group).await?;
    Trial::load(tx, group).await?.ok_or(OutboxError::UnknownGroup(group))
}

/// An attempt about to become durable.
struct NewAttempt {
    intent: IntentId,
    payload_identity: PayloadIdentity,
    envelope: Vec<u8>,
    epoch: u64,
    welcome: Option<Vec<u8>>,
    recipients: Vec<u8>,
}

impl NewAttempt {
    fn new(intent: IntentId, data: Vec<u8>, epoch: u64) -> Self {
        let payload_identity = PayloadIdentity::of(&data);
        let message = GroupMessage { data, sender_hmac: Vec::new(), should_push: true };
        let envelope =
            ClientEnvelope { payload: Some(client_envelope::Payload::GroupMessage(message)) }.encode_to_vec();
        Self { intent, payload_identity, envelope, epoch, welcome: None, recipients: Vec::new() }
    }
}

async fn insert_attempts(
    tx: &mut WriteTx,
    group: GroupId,
    attempts: &[NewAttempt],
) -> Result<(), OutboxError> {
    let mut insert = QueryBuilder::new(
        "INSERT INTO outbox_attempts (intent_id, group_id, payload_identity, envelope, epoch, current, welcome, recipients) ",
    );
    insert.push_values(attempts, |mut row, attempt| {
        row.push_bind(attempt.intent.0)
            .push_bind(group.as_bytes().to_vec())
            .push_bind(attempt.payload_identity.as_bytes().to_vec())
            .push_bind(attempt.envelope.as_slice())
            .push_bind(attempt.epoch.cast_signed())
            .push_bind(1_i64)
            .push_bind(attempt.welcome.as_deref())
            .push_bind(attempt.recipients.as_slice());
    });
    insert.build().execute(tx.conn()).await?;
    let mut update = QueryBuilder::new("UPDATE outbox_intents SET state = ");
    update.push_bind(IntentState::Prepared as i64).push(" WHERE id IN (");
    let mut ids = update.separated(", ");
    for attempt in attempts {
        ids.push_bind(attempt.intent.0);
    }
    update.push(")");
    update.build().execute(tx.conn()).await?;
    Ok(())
}
