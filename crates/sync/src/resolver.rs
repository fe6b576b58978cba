//! Supplying what attempts need from outside, each need with its own typed result (STR-073, STR-075).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use highwater_identity::AssociationState;
use highwater_mls::{Need, Proof, Resolution, Resolutions};
use highwater_processing::Stop;
use highwater_transport::WalletSignature;
use highwater_wire::proto::backend::{ClientEnvelope, client_envelope};
use highwater_wire::{Cursor, InboxId, InstallationKey, SequenceId, Topic};
use prost::Message as _;

use crate::engine::Shared;
use crate::fetch::{Fetched, fetch};
use crate::{IDENTITY_REFERENCE_WAIT, SyncError};

/// Healthy connection time for which a referenced update was found missing. Time after a failure doesn't count; the
/// time before it does (STR-076).
#[derive(Clone, Copy, Debug, Default)]
struct ReferenceWait {
    healthy: Duration,
    last_seen_healthy: Option<Duration>,
}

impl ReferenceWait {
    /// A complete query found it missing. Says whether that is proof enough.
    fn missing(&mut self, now: Duration) -> bool {
        if let Some(last) = self.last_seen_healthy {
            self.healthy += now.saturating_sub(last);
        }
        self.last_seen_healthy = Some(now);
        self.healthy >= IDENTITY_REFERENCE_WAIT
    }

    fn disconnected(&mut self) {
        self.last_seen_healthy = None;
    }
}

/// The waits that are running. They begin anew with each process.
#[derive(Debug, Default)]
pub(crate) struct ReferenceWaits(Mutex<BTreeMap<(InboxId, SequenceId), ReferenceWait>>);

impl ReferenceWaits {
    /// The connection failed, seen by whoever: the time until the next complete query is no evidence for anybody.
    pub(crate) fn disconnected(&self) {
        let mut waits = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        waits.values_mut().for_each(ReferenceWait::disconnected);
    }

    fn with<T>(
        &self,
        inbox: InboxId,
        sequence_id: SequenceId,
        look: impl FnOnce(&mut ReferenceWait) -> T,
    ) -> T {
        let mut waits = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        look(waits.entry((inbox, sequence_id)).or_default())
    }
}

/// Resolves needs one by one; the failure of one doesn't touch the others. A need for which the backend couldn't be
/// asked has no answer at all.
pub(crate) async fn resolve(shared: &Shared, needs: Vec<Need>) -> Resolutions {
    let asked = needs.into_iter().map(|need| async move {
        // The semaphore is never closed.
        let _permit = shared.dependency_requests.acquire().await.ok()?;
        let answer = resolve_one(shared, &need).await?;
        Some((need, answer))
    });
    futures::future::join_all(asked).await.into_iter().flatten().collect()
}

async fn resolve_one(shared: &Shared, need: &Need) -> Option<Resolution> {
    let resolved = match need {
        Need::Identity { inbox, sequence_id } => identity(shared, *inbox, *sequence_id).await,
        Need::InboxHead { inbox } => inbox_head(shared, *inbox)
            .await
            .map(|head| Resolution::Ready(Proof::Head(head.map(|(sequence_id, _)| sequence_id)))),
        Need::KeyPackages { installations } => key_packages(shared, installations)
            .await
            .map(|found| Resolution::Ready(Proof::KeyPackages(found))),
        Need::Prefix { topic, through } => prefix(shared, *topic, *through).await,
        Need::Verify(request) => shared
            .connection
            .verify_signatures(&[WalletSignature {
                account_id: request.account_id.clone(),
                block_number: Some(request.block_number),
                hash: request.hash.to_vec(),
                signature: request.signature.clone(),
            }])
            .await
            .map_err(SyncError::from)
            .map(|verdicts| match verdicts.first() {
                Some(Ok(valid)) => Resolution::Ready(Proof::Verdict(*valid)),
                Some(Err(reason)) => Resolution::Retry { reason: reason.clone() },
                None => Resolution::Retry { reason: "the verifier gave no verdict".into() },
            }),
        Need::Pointee { destination } => pointee(shared, *destination).await,
    };
    match resolved {
        Ok(resolution) => Some(resolution),
        Err(error) => {
            tracing::debug!(%error, "a dependency was not resolved");
            None
        }
    }
}

/// The identity prefix through exactly N: fetched from the primary and verified, or proven absent.
async fn identity(shared: &Shared, inbox: InboxId, sequence_id: SequenceId) -> Result<Resolution, SyncError> {
    let through = Cursor::from(sequence_id);
    let topic = Topic::identity(inbox);
    if let Err(error) = fetch_and_process(shared, topic, through).await {
        shared.reference_waits.disconnected();
        return Err(error);
    }
    let (verified, passed) = shared
        .store
        .read("identity", move |tx| {
            Box::pin(async move {
                let verified = highwater_processing::snapshot(tx, inbox, sequence_id).await?;
                let received = highwater_receipt::received(tx, topic).await?;
                let processed = highwater_processing::processed(tx, topic).await?;
                let passed = processed.is_some_and(|p| p.cursor() >= received.cursor())
                    || received.cursor() == Cursor::ZERO;
                Ok::<_, SyncError>((verified.is_some(), passed))
            })
        })
        .await?;
    if verified {
        return Ok(Resolution::Ready(Proof::Done));
    }
    if !passed {
        return Ok(Resolution::Retry { reason: "the identity topic is held".into() });
    }
    let now = shared.now();
    Ok(if shared.reference_waits.with(inbox, sequence_id, |wait| wait.missing(now)) {
        Resolution::Permanent { reason: "no such identity update exists".into() }
    } else {
        Resolution::Retry { reason: "the identity update is not there yet".into() }
    })
}

/// The newest verified state of an inbox, after a complete query of its topic.
pub(crate) async fn inbox_head(
    shared: &Shared,
    inbox: InboxId,
) -> Result<Option<(SequenceId, AssociationState)>, SyncError> {
    fetch_and_process(shared, Topic::identity(inbox), Cursor::MAX).await?;
    shared
        .store
        .read("identity head", move |tx| {
            Box::pin(async move { Ok(highwater_processing::latest_snapshot(tx, inbox).await?) })
        })
        .await
}

async fn key_packages(
    shared: &Shared,
    installations: &BTreeSet<InstallationKey>,
) -> Result<BTreeMap<InstallationKey, Option<Vec<u8>>>, SyncError> {
    let topics: Vec<_> = installations.iter().copied().map(Topic::key_package).collect();
    let newest = shared.connection.query_newest_full(&topics).await?;
    let bytes = |payload: ClientEnvelope| match payload.payload {
        Some(client_envelope::Payload::KeyPackage(package)) => Some(package.key_package_tls_serialized),
        _ => None,
    };
    let package = |installation: &InstallationKey| {
        let envelope = newest.get(&Topic::key_package(*installation))?;
        ClientEnvelope::decode(envelope.payload().as_ref()).ok().and_then(bytes)
    };
    Ok(installations.iter().map(|key| (*key, package(key))).collect())
}

/// The first envelope of a pointer's destination topic. No F and no pending row belong to that topic: only its first
/// envelope counts.
async fn pointee(shared: &Shared, destination: [u8; 32]) -> Result<Resolution, SyncError> {
    let topic = Topic::welcome_destination(destination);
    let page = shared.connection.query(&[(topic, Cursor::ZERO)], 1).await?;
    let first = page.prefixes.first().and_then(|prefix| prefix.envelopes().first().cloned());
    let payload = first.and_then(|first| first.decode_payload().ok()).and_then(|body| body.payload);
    Ok(match payload {
        Some(client_envelope::Payload::WelcomeMessage(body)) => {
            Resolution::Ready(Proof::Pointee(body.encode_to_vec()))
        }
        // Something else in its place never was a body.
        Some(_) => Resolution::Ready(Proof::Pointee(Vec::new())),
        None => Resolution::Retry { reason: "the pointer's body is not there yet".into() },
    })
}

async fn prefix(shared: &Shared, topic: Topic, through: SequenceId) -> Result<Resolution, SyncError> {
    Ok(match fetch_and_process(shared, topic, Cursor::from(through)).await? {
        Some(Stop::Held(hold)) => Resolution::Retry { reason: hold.cause.to_string() },
        _ => Resolution::Ready(Proof::Done),
    })
}

/// Fetches a topic through a point and processes what is pending on it, without waiting for the scheduler's turn.
pub(crate) async fn fetch_and_process(
    shared: &Shared,
    topic: Topic,
    through: Cursor,
) -> Result<Option<Stop>, SyncError> {
    loop {
        let targets = BTreeMap::from([(topic, through)]);
        let fetched = fetch(&shared.store, &shared.connection, &targets).await?;
        let stop = process(shared, topic).await?;
        // A full topic gave way to processing; the rest of it can be fetched now.
        let paused = fetched.get(&topic) == Some(&Fetched::Paused);
        if !paused || stop != Stop::Drained {
            return Ok(Some(stop));
        }
    }
}

async fn process(shared: &Shared, topic: Topic) -> Result<Stop, SyncError> {
    let mut resolutions = Resolutions::default();
    loop {
        let report = highwater_processing::attempt(&shared.store, topic, resolutions.clone()).await?;
        match report.stop {
            Stop::More => {}
            Stop::Held(hold) => {
                let asked = |need: &Need| resolutions.get(need).is_some();
                let verifications: Vec<_> = hold
                    .needs
                    .iter()
                    .filter(|need| matches!(need, Need::Verify(_)) && !asked(need))
                    .cloned()
                    .collect();
                if verifications.is_empty() {
                    return Ok(Stop::Held(hold));
                }
                for need in verifications {
                    match Box::pin(resolve_one(shared, &need)).await {
                        Some(resolution) => resolutions.insert(need, resolution),
                        None => return Ok(Stop::Held(hold)),
                    }
                }
            }
            stop => return Ok(stop),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Shows: STR-076.
    #[test]
    fn only_healthy_time_counts_towards_the_reference_wait() {
        let at = Duration::from_secs;
        let mut wait = ReferenceWait::default();
        assert!(!wait.missing(at(0)));
        assert!(!wait.missing(at(20)));
        wait.disconnected();
        assert!(!wait.missing(at(500)), "the time without a connection is no evidence");
        assert!(!wait.missing(at(509)));
        assert!(wait.missing(at(510)));
    }
}
