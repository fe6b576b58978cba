//! The publisher driver: prepares and publishes what this client owes the backend.
//!
//! Everything it sends was durable before, as exact bytes, and is sent again until its outcome is known (STR-111).

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::time::Duration;

use highwater_mls::{Need, Proof, Resolution};
use highwater_outbox::{Attempt, Inputs, Next, Prepare};
use highwater_transport::{PublishReceipt, TransportError};
use highwater_wire::limits::MAX_ENVELOPE_BYTES;
use highwater_wire::{Cursor, GroupId, Topic};
use tokio::time::Instant;

use crate::catch_up::connected;
use crate::engine::Shared;
use crate::fetch::fetch;
use crate::owed_welcomes;
use crate::resolver::{inbox_head, resolve};
use crate::{Backoff, SyncError};

/// How many bytes of envelopes go into one request; well under the backend's ceiling, framing included.
pub(crate) const MAX_REQUEST_BYTES: usize = 8 * 1024 * 1024;
/// A wake says only that something was committed; looking at the outbox more often than this would cost more than it
/// finds. A kick doesn't wait.
const WAKE_INTERVAL: Duration = Duration::from_millis(20);

/// How publishing goes, for whoever waits for an outcome.
#[derive(Clone, Debug, Default)]
pub(crate) struct Publishing {
    /// Rounds that were started since the engine was.
    pub(crate) started: u64,
    /// The last round that ended, and why it failed if it did.
    pub(crate) ended: Option<(u64, Option<Failure>)>,
}

/// Why a round failed.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    pub(crate) reason: String,
    pub(crate) retryable: bool,
}

pub(crate) async fn run(shared: Shared) {
    let mut backoff = Backoff::new();
    let mut wakes = shared.store.wakes();
    let mut connection = shared.connection_state.subscribe();
    let mut retry_at: Option<Instant> = None;
    let mut rounds = 0;
    while !shared.cancel.is_cancelled() {
        wakes.mark_unchanged();
        connection.mark_unchanged();
        rounds += 1;
        shared.publishing.send_modify(|publishing| publishing.started = rounds);
        let result = tokio::select! {
            _ = shared.cancel.cancelled() => break,
            result = round(&shared) => result,
        };
        let failure = result
            .as_ref()
            .err()
            .map(|error| Failure { reason: error.to_string(), retryable: !error.is_refusal() });
        shared.publishing.send_modify(|publishing| publishing.ended = Some((rounds, failure)));
        match result {
            Ok(()) => {
                backoff.sustained();
                retry_at = None;
                tokio::select! {
                    _ = shared.cancel.cancelled() => break,
                    _ = shared.kick.notified() => {}
                    _ = debounced(&mut wakes) => {}
                }
            }
            Err(error) => {
                // A kick tries early. That this failed too says nothing new about when to try by oneself.
                let now = Instant::now();
                let at = retry_at
                    .filter(|at| *at > now)
                    .unwrap_or_else(|| now + backoff.failed(error.retry_after(), rand::random()));
                retry_at = Some(at);
                tracing::info!(%error, wait_ms = (at - now).as_millis() as u64, "publishing failed");
                tokio::select! {
                    _ = shared.cancel.cancelled() => break,
                    _ = shared.kick.notified() => {}
                    _ = connected(&mut connection) => {}
                    _ = tokio::time::sleep_until(at) => {}
                }
            }
        }
    }
}

async fn debounced(wakes: &mut tokio::sync::watch::Receiver<u64>) {
    if wakes.changed().await.is_err() {
        // The store closed; the engine is about to end.
        std::future::pending::<()>().await;
    }
    tokio::time::sleep(WAKE_INTERVAL).await;
}

/// Everything that is owed now, once. A group's failure that isn't the connection's doesn't hold up the others.
async fn round(shared: &Shared) -> Result<(), SyncError> {
    registration(shared).await?;
    key_package(shared).await?;
    let groups = shared
        .store
        .read("groups with work", |tx| Box::pin(async move { highwater_outbox::groups_with_work(tx).await }))
        .await?;
    let mut failed = None;
    for group in groups {
        match drain(shared, group).await {
            Ok(()) => {}
            Err(error) if error.is_connection_wide() => return Err(error),
            Err(error) => {
                tracing::warn!(?group, %error, "a group's outbox can't be drained now");
                failed.get_or_insert(error);
            }
        }
    }
    owed_welcomes::publish(shared).await?;
    failed.map_or(Ok(()), Err)
}

/// Publishes the stored identity update that registers this installation.
async fn registration(shared: &Shared) -> Result<(), SyncError> {
    let installation = shared
        .store
        .read("installation", |tx| Box::pin(async move { highwater_mls::installation(tx).await }))
        .await?;
    let Some(installation) = installation.filter(|found| !found.registered) else {
        return Ok(());
    };
    let (Some(bytes), Some(_)) = (installation.registration, installation.inbox) else {
        return Ok(());
    };
    shared.connection.publish(vec![bytes]).await?;
    shared
        .store
        .write("registered", |tx| Box::pin(async move { highwater_mls::registered(tx).await }))
        .await?;
    Ok(())
}

async fn key_package(shared: &Shared) -> Result<(), SyncError> {
    let owed = shared
        .store
        .read("key package owed", |tx| {
            Box::pin(async move {
                let registered = highwater_mls::installation(tx).await?.is_some_and(|found| found.registered);
                Ok::<_, SyncError>(registered && highwater_mls::key_package_owed(tx).await?)
            })
        })
        .await?;
    if !owed {
        return Ok(());
    }
    let prepared = shared
        .store
        .write("prepare key package", |tx| {
            Box::pin(async move { highwater_mls::prepare_key_package(tx).await })
        })
        .await?;
    shared.connection.publish(vec![prepared.envelope]).await?;
    shared
        .store
        .write("key package published", move |tx| {
            Box::pin(async move {
                highwater_mls::key_package_published(tx, prepared.id).await?;
                let waiting =
                    highwater_receipt::pending_topics(tx, Some(highwater_wire::TopicKind::Welcome)).await?;
                highwater_mls::retire_key_packages(tx, !waiting.is_empty()).await?;
                Ok::<_, SyncError>(())
            })
        })
        .await
}

/// Prepares and publishes a group's queue until it has to wait for an echo.
async fn drain(shared: &Shared, group: GroupId) -> Result<(), SyncError> {
    let mut inputs = Inputs::default();
    loop {
        let next = shared
            .store
            .read("next intent", move |tx| {
                Box::pin(async move {
                    if highwater_processing::requires_newer_version(tx, group).await? {
                        tracing::debug!(?group, "a newer version has to publish this");
                        return Ok(Next::Nothing);
                    }
                    Ok::<_, SyncError>(highwater_outbox::next(tx, group).await?)
                })
            })
            .await?;
        match next {
            Next::Nothing => return await_echo(shared, group).await,
            Next::Publish => publish(shared, group).await?,
            Next::Prepare { inboxes } => {
                for inbox in inboxes {
                    if let Entry::Vacant(unknown) = inputs.identity.entry(inbox) {
                        unknown.insert(inbox_head(shared, inbox).await?);
                    }
                }
                prepare(shared, group, &mut inputs).await?;
            }
        }
    }
}

async fn prepare(shared: &Shared, group: GroupId, inputs: &mut Inputs) -> Result<(), SyncError> {
    let given = inputs.clone();
    let prepared = shared
        .store
        .write("prepare", move |tx| {
            Box::pin(async move { highwater_outbox::prepare(tx, group, &given).await })
        })
        .await?;
    let Prepare::Needs(needs) = prepared else {
        return Ok(());
    };
    for need in needs {
        match &need {
            Need::InboxHead { inbox } => {
                inputs.identity.insert(*inbox, inbox_head(shared, *inbox).await?);
            }
            Need::KeyPackages { .. } => {
                let resolutions = resolve(shared, vec![need.clone()]).await;
                match resolutions.get(&need) {
                    Some(Resolution::Ready(Proof::KeyPackages(found))) => {
                        inputs.key_packages.extend(found.clone());
                    }
                    other => {
                        let reason = format!("key packages: {other:?}");
                        return Err(TransportError::unavailable(reason).into());
                    }
                }
            }
            other => {
                let reason = format!("preparation asked for {other:?}");
                return Err(TransportError::Protocol(reason).into());
            }
        }
    }
    Ok(())
}

async fn publish(shared: &Shared, group: GroupId) -> Result<(), SyncError> {
    let attempts = shared
        .store
        .read("publishable", move |tx| {
            Box::pin(async move {
                if highwater_processing::requires_newer_version(tx, group).await? {
                    return Ok(Vec::new());
                }
                Ok::<_, SyncError>(highwater_outbox::publishable(tx, group, MAX_REQUEST_BYTES).await?)
            })
        })
        .await?;
    if attempts.is_empty() {
        return Ok(());
    }
    if let Some(oversized) = attempts.iter().find(|attempt| attempt.envelope.len() > MAX_ENVELOPE_BYTES) {
        return refuse(shared, oversized, "too_large", "the envelope exceeds the backend's limit").await;
    }
    let envelopes = attempts.iter().map(|attempt| attempt.envelope.clone().into()).collect();
    match shared.connection.publish(envelopes).await {
        Ok(receipts) => replied(shared, attempts, receipts).await,
        Err(TransportError::InvalidArgument { message, publish: Some(refusal) }) => {
            let index = refusal.index.unwrap_or(0) as usize;
            let refused = attempts.get(index).or(attempts.first());
            match refused {
                Some(attempt) => refuse(shared, attempt, refusal.reason.code(), &message).await,
                None => Ok(()),
            }
        }
        Err(TransportError::InvalidArgument { message, publish: None }) => match attempts.first() {
            Some(attempt) => refuse(shared, attempt, "invalid_argument", &message).await,
            None => Ok(()),
        },
        Err(error) => Err(error.into()),
    }
}

async fn replied(
    shared: &Shared,
    attempts: Vec<Attempt>,
    receipts: Vec<PublishReceipt>,
) -> Result<(), SyncError> {
    shared
        .store
        .write("publish reply", move |tx| {
            Box::pin(async move {
                for (attempt, receipt) in attempts.iter().zip(&receipts) {
                    highwater_outbox::replied(
                        tx,
                        attempt.id,
                        attempt.payload_identity,
                        receipt.sequence_id,
                        receipt.hash,
                    )
                    .await?;
                }
                Ok::<_, SyncError>(())
            })
        })
        .await
}

async fn refuse(
    shared: &Shared,
    attempt: &Attempt,
    code: &'static str,
    detail: &str,
) -> Result<(), SyncError> {
    let (id, identity, detail) = (attempt.id, attempt.payload_identity, detail.to_owned());
    shared
        .store
        .write("publish refused", move |tx| {
            Box::pin(async move {
                highwater_outbox::refused(tx, id, identity, code, &detail).await?;
                Ok::<_, SyncError>(())
            })
        })
        .await
}

/// Accepted attempts wait for their echo. Where no receiver brings it, query for it (STR-114).
async fn await_echo(shared: &Shared, group: GroupId) -> Result<(), SyncError> {
    let topic = Topic::group(group);
    if shared.covers(topic) {
        return Ok(());
    }
    let awaited = shared
        .store
        .read("awaited echo", move |tx| {
            Box::pin(async move { highwater_outbox::awaited_echo(tx, group).await })
        })
        .await?;
    if let Some(sequence_id) = awaited {
        let targets = BTreeMap::from([(topic, Cursor::from(sequence_id))]);
        fetch(&shared.store, &shared.connection, &targets).await?;
    }
    Ok(())
}
