//! `PublishService`: all envelopes of a request are stored, or none.
//!
//! What bears on a request is read in one snapshot, checked without any lock, and committed against
//! the state as it then is: a duplicate that appeared meanwhile is answered with what was stored, an
//! identity log that grew meanwhile makes the request ABORTED. Chains are asked in between, on the same
//! snapshot, so that the checks themselves do no I/O.

use std::{
    collections::{BTreeSet, HashSet},
    sync::Arc,
};

use highwater_identity::{AssociationState, Invalid, LogEntry, MemberIdentifier, VerificationRequest};
use highwater_wire::{
    Cursor, InboxId, TopicKind, limits,
    proto::{
        associations::{IdentifierKind, IdentityUpdate},
        backend::{
            PublishRequest, PublishResponse, publish_error::Reason, publish_service_server::PublishService,
        },
    },
};
use prost::Message as _;
use tonic::{Request, Response, Status};

use crate::{
    admission::{self, Candidate, Content},
    config::{Limits, Timing},
    refusal::{Refusal, store_status},
    store::{
        AdmissionView, Committed, EnvelopeKey, EnvelopeStore, Identifier, IdentityChange, NewEnvelope,
        StoredMeta,
    },
    wallets::{ContractWallets, Findings, Unavailable},
};

/// What one envelope's metadata can take in the answer.
const META_BYTES: usize = 128;
/// Requests above this many bytes are parsed off the runtime's threads.
const INLINE_BYTES: usize = 64 * 1024;

/// The publish service over one store.
pub(crate) struct Publisher {
    pub(crate) store: Arc<dyn EnvelopeStore>,
    pub(crate) limits: Arc<Limits>,
    pub(crate) timing: Arc<Timing>,
    pub(crate) wallets: ContractWallets,
}

#[tonic::async_trait]
impl PublishService for Publisher {
    async fn publish(&self, request: Request<PublishRequest>) -> Result<Response<PublishResponse>, Status> {
        let lifetime = self.timing.publish_lifetime;
        let metas =
            tokio::time::timeout(lifetime, self.store_all(request.into_inner())).await.map_err(|_| {
                Status::deadline_exceeded("the publish took too long; retry the same envelopes")
            })??;
        let envelope_metas = metas.iter().map(StoredMeta::to_proto).collect();
        Ok(Response::new(PublishResponse { envelope_metas }))
    }
}

impl Publisher {
    async fn store_all(&self, request: PublishRequest) -> Result<Vec<StoredMeta>, Status> {
        let (candidates, malformed) = self.parse(request).await?;
        let max = self.limits.max_envelope_bytes;
        let envelopes = if malformed.is_none() && candidates.iter().all(|c| c.is_settled(max)) {
            candidates.into_iter().map(|candidate| new_envelope(candidate, None)).collect()
        } else {
            self.check(candidates, malformed).await?
        };
        if envelopes.is_empty() {
            return Ok(Vec::new());
        }
        match self.store.commit(&envelopes).await.map_err(store_status)? {
            Committed::Stored(metas) => Ok(metas),
            Committed::HistoryMoved => Err(Status::aborted(
                "the inbox's history grew meanwhile; read it again and rebuild the update",
            )),
        }
    }

    /// Parses up to the first envelope that doesn't, which is refused only if no earlier one must be.
    async fn parse(&self, request: PublishRequest) -> Result<(Vec<Candidate>, Option<Refusal>), Status> {
        let bytes = request.encoded_len();
        if bytes > self.limits.max_request_bytes {
            let limit = self.limits.max_request_bytes;
            let refusal = Refusal::too_large(format!("{bytes} bytes encoded, the limit is {limit}"));
            return Err(refusal.status(None));
        }
        let work = move || {
            let mut candidates = Vec::with_capacity(request.envelopes.len());
            for envelope in &request.envelopes {
                match admission::parse(envelope) {
                    Ok(candidate) => candidates.push(candidate),
                    Err(refusal) => return (candidates, Some(refusal)),
                }
            }
            (candidates, None)
        };
        let (candidates, malformed) =
            if bytes <= INLINE_BYTES { work() } else { off_the_runtime(work).await? };
        if candidates.len() * META_BYTES > self.limits.max_response_bytes {
            let refusal = Refusal::too_large("more envelopes than an answer can speak of".to_owned());
            return Err(refusal.status(None));
        }
        let topics: HashSet<_> = candidates.iter().map(|candidate| candidate.topic).collect();
        if topics.len() > self.limits.max_publish_topics {
            let limit = self.limits.max_publish_topics;
            let refusal = Refusal::too_large(format!("more than {limit} topics in one request"));
            return Err(refusal.status(None));
        }
        Ok((candidates, malformed))
    }

    /// Checks every envelope that is new, and reports the lowest index that fails.
    async fn check(
        &self,
        mut candidates: Vec<Candidate>,
        malformed: Option<Refusal>,
    ) -> Result<Vec<NewEnvelope>, Status> {
        let keys: Vec<EnvelopeKey> = candidates.iter().map(|c| (c.topic, c.hash)).collect();
        let inboxes = inboxes(&candidates);
        let view = self.store.admission_view(&keys, &inboxes).await.map_err(store_status)?;
        let mut judge = Judge {
            max_envelope_bytes: self.limits.max_envelope_bytes,
            max_identity_entries: self.limits.max_identity_entries,
            findings: Findings::default(),
            view,
            updated: BTreeSet::new(),
        };
        if !inboxes.is_empty() {
            let needed;
            (judge, candidates, needed) = off_the_runtime(move || {
                let needed = judge.needed(&candidates);
                (judge, candidates, needed)
            })
            .await?;
            judge.findings = self.wallets.verdicts(needed).await;
        }
        off_the_runtime(move || judge.all(candidates, malformed)).await?
    }
}

/// Runs work that keeps a core busy where it doesn't hold up other requests.
async fn off_the_runtime<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, Status> {
    tokio::task::spawn_blocking(work).await.map_err(|error| {
        tracing::error!(%error, "checking a publish failed");
        Status::internal("checking the request failed")
    })
}

fn inboxes(candidates: &[Candidate]) -> Vec<InboxId> {
    let inboxes: BTreeSet<InboxId> = candidates
        .iter()
        .filter_map(|candidate| match &candidate.content {
            Content::Identity { inbox, .. } => Some(*inbox),
            _ => None,
        })
        .collect();
    inboxes.into_iter().collect()
}

/// The checks of one request, over one snapshot.
struct Judge {
    max_envelope_bytes: usize,
    max_identity_entries: usize,
    /// What the chains said on what is [`Judge::needed`].
    findings: Findings,
    view: AdmissionView,
    /// Inboxes that an earlier envelope of the request updates.
    updated: BTreeSet<InboxId>,
}

/// Why an envelope can't be stored now.
enum Verdict {
    Refused(Refusal),
    /// Can't be judged, or must not be answered with a refusal.
    Undecided(Status),
}

impl From<Refusal> for Verdict {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

impl Judge {
    /// What chains must be asked, in the order in which it decides: per envelope, first of the history
    /// and then of the update. Envelopes whose fate doesn't hang on it ask nothing.
    fn needed(&self, candidates: &[Candidate]) -> Vec<VerificationRequest> {
        let mut seen = BTreeSet::new();
        let mut asked = BTreeSet::new();
        let mut needed = Vec::new();
        for candidate in candidates {
            let Content::Identity { inbox, update } = &candidate.content else { continue };
            let history = self.history(*inbox);
            if self.view.stored.contains_key(&(candidate.topic, candidate.hash))
                || !seen.insert(*inbox)
                || history.len() >= self.max_identity_entries
                || candidate.check(self.max_envelope_bytes).is_err()
                || required(update).is_err()
            {
                continue;
            }
            let updates = history.iter().map(|entry| &entry.update).chain([update]);
            // A stored update that can't be read is found when its log is folded.
            for request in updates.flat_map(|update| required(update).unwrap_or_default()) {
                if asked.insert(request.clone()) {
                    needed.push(request);
                }
            }
        }
        needed
    }

    fn history(&self, inbox: InboxId) -> &[LogEntry] {
        self.view.histories.get(&inbox).map_or(&[][..], Vec::as_slice)
    }

    fn all(
        mut self,
        candidates: Vec<Candidate>,
        malformed: Option<Refusal>,
    ) -> Result<Vec<NewEnvelope>, Status> {
        let parsed = candidates.len();
        let mut seen = HashSet::new();
        let mut envelopes = Vec::with_capacity(parsed);
        let mut undecided = None;
        for (index, candidate) in candidates.into_iter().enumerate() {
            let key = (candidate.topic, candidate.hash);
            // A duplicate skips every check but parsing.
            let known = self.view.stored.contains_key(&key) || !seen.insert(key);
            let identity = match if known { Ok(None) } else { self.one(&candidate) } {
                Ok(identity) => identity,
                Err(Verdict::Refused(refusal)) => return Err(refusal.status(Some(index))),
                Err(Verdict::Undecided(status)) => {
                    undecided.get_or_insert(status);
                    None
                }
            };
            envelopes.push(new_envelope(candidate, identity));
        }
        if let Some(refusal) = malformed {
            return Err(refusal.status(Some(parsed)));
        }
        undecided.map_or(Ok(envelopes), Err)
    }

    fn one(&mut self, candidate: &Candidate) -> Result<Option<IdentityChange>, Verdict> {
        candidate.check(self.max_envelope_bytes)?;
        match &candidate.content {
            Content::Identity { inbox, update } => self.identity(*inbox, update).map(Some),
            _ => Ok(None),
        }
    }

    fn identity(&mut self, inbox: InboxId, update: &IdentityUpdate) -> Result<IdentityChange, Verdict> {
        if !self.updated.insert(inbox) {
            return Err(
                Refusal::new(Reason::InvalidIdentityUpdate, "a request may update an inbox once").into()
            );
        }
        let history = self.history(inbox);
        if history.len() >= self.max_identity_entries {
            return Err(Refusal::too_large(format!(
                "the inbox has {} entries, the limit is {}",
                history.len(),
                self.max_identity_entries
            ))
            .into());
        }
        let (before, after) = self.apply(inbox, history, update)?;
        let before = before.as_ref().map(identifiers).unwrap_or_default();
        let after = identifiers(&after);
        Ok(IdentityChange {
            head: history.last().map_or(Cursor::ZERO, |entry| entry.sequence_id.into()),
            gained: after.difference(&before).cloned().collect(),
            lost: before.difference(&after).cloned().collect(),
        })
    }

    /// The inbox's state before and after the update.
    fn apply(
        &self,
        inbox: InboxId,
        history: &[LogEntry],
        update: &IdentityUpdate,
    ) -> Result<(Option<AssociationState>, AssociationState), Verdict> {
        required(update).map_err(|invalid| self.undecided_or_refused(invalid))?;
        let verdicts = &self.findings.verdicts;
        let before = highwater_identity::fold(inbox, history, verdicts).map_err(|error| {
            if error.is_retryable() {
                return self.undecided_or_refused(error.reason);
            }
            tracing::error!(%error, "a stored identity log is invalid");
            Verdict::Undecided(Status::internal("the stored identity log is invalid"))
        })?;
        let after = AssociationState::apply(before.as_ref(), inbox, update, verdicts)
            .map_err(|invalid| self.undecided_or_refused(invalid))?;
        Ok((before, after))
    }

    fn undecided_or_refused(&self, invalid: Invalid) -> Verdict {
        if invalid.is_retryable() {
            // Nothing is left unasked but what follows a question without an answer.
            return Verdict::Undecided(self.findings.missing.unwrap_or(Unavailable::NoAnswer).into());
        }
        let reason =
            if invalid.is_signature() { Reason::InvalidSignature } else { Reason::InvalidIdentityUpdate };
        Refusal::new(reason, invalid.to_string()).into()
    }
}

fn required(update: &IdentityUpdate) -> Result<Vec<VerificationRequest>, Invalid> {
    highwater_identity::required_verifications(std::slice::from_ref(update))
}

/// The members that GetInboxIds can look up; installations aren't among them.
fn identifiers(state: &AssociationState) -> BTreeSet<Identifier> {
    state
        .members()
        .keys()
        .filter_map(|member| {
            let kind = match member {
                MemberIdentifier::Ethereum(_) => IdentifierKind::Ethereum,
                MemberIdentifier::Passkey { .. } => IdentifierKind::Passkey,
                MemberIdentifier::Installation(_) => return None,
            };
            Some(Identifier { kind, text: member.text() })
        })
        .collect()
}

fn new_envelope(candidate: Candidate, identity: Option<IdentityChange>) -> NewEnvelope {
    let expires = match candidate.topic.kind() {
        TopicKind::GroupMessage => !candidate.is_commit_or_proposal,
        TopicKind::Welcome | TopicKind::KeyPackage => true,
        TopicKind::IdentityUpdate | TopicKind::CommitLogEntry => false,
    };
    NewEnvelope {
        topic: candidate.topic,
        hash: candidate.hash,
        payload: candidate.payload,
        retention: expires.then_some(limits::RETENTION),
        is_commit_or_proposal: candidate.is_commit_or_proposal,
        identity,
    }
}
