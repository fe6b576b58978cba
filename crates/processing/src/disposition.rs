//! The disposition table of group envelopes, as plain functions of facts (PROC-011, PROC-012).

use highwater_mls::{InputFailure, PolicyViolation};

/// What becomes of an envelope that was not applied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Disposition {
    /// A recorded refusal; P moves over it.
    Reject(Reason),
    /// The envelope stays pending and blocks its topic.
    Hold(HoldCause),
}

/// Why an envelope was terminally rejected.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reason {
    /// It doesn't decode.
    Malformed,
    /// It names another group than its topic.
    WrongGroup,
    /// It names an epoch that the complete preceding prefix doesn't reach.
    FutureEpoch,
    /// A commit or proposal for an epoch that the prefix already left.
    PastEpoch,
    /// From before this installation joined.
    BeforeJoin,
    /// An application message whose epoch's secrets were discarded by the retention policy.
    SecretsDiscarded,
    /// Its message secret was used before: a replay.
    SecretReused,
    /// Its generation is beyond what the ratchet permits.
    GenerationOutOfBound,
    /// It isn't from who it claims, or was tampered with.
    Authentication,
    /// A commit that breaks the rules of MLS.
    InvalidCommit,
    /// A commit that references a proposal which the complete prefix never carried.
    MissingProposal,
    /// A commit that contains a pre-shared key.
    PskInCommit,
    /// A commit that breaks the policy of groups.
    Policy(PolicyViolation),
    /// It references identity state from at or after its own place in the order.
    IdentityNotBefore,
    /// It references identity state that is proven not to exist.
    IdentityAbsent,
    /// From this installation, but of no attempt it made.
    OwnWithoutAttempt,
    /// An own envelope whose effects were applied or given up before.
    OwnAlreadyHandled,
    /// An own message whose epoch is too far back; it is prepared again.
    OwnStale,
}

impl Reason {
    /// The stable code that is stored and shown.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Malformed => "malformed",
            Self::WrongGroup => "wrong_group",
            Self::FutureEpoch => "future_epoch",
            Self::PastEpoch => "past_epoch",
            Self::BeforeJoin => "before_join",
            Self::SecretsDiscarded => "secrets_discarded",
            Self::SecretReused => "secret_reused",
            Self::GenerationOutOfBound => "generation_out_of_bound",
            Self::Authentication => "authentication",
            Self::InvalidCommit => "invalid_commit",
            Self::MissingProposal => "missing_proposal",
            Self::PskInCommit => "psk_in_commit",
            Self::Policy(violation) => violation.code(),
            Self::IdentityNotBefore => "identity_not_before",
            Self::IdentityAbsent => "identity_absent",
            Self::OwnWithoutAttempt => "own_without_attempt",
            Self::OwnAlreadyHandled => "own_already_handled",
            Self::OwnStale => "own_stale",
        }
    }
}

/// Why an envelope is held.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HoldCause {
    /// Verified state from outside the topic is needed first.
    #[error("waiting for {0}")]
    Dependency(String),
    /// Local state that must be there is missing or unusable.
    #[error("local state is missing: {0}")]
    MissingState(String),
    /// Written in a form this version doesn't support.
    #[error("not supported by this version: {0}")]
    Unsupported(String),
    /// An identity update that its complete history doesn't permit.
    #[error("invalid identity history: {0}")]
    InvalidIdentity(String),
    /// A failure of which nobody established that it is the envelope's.
    #[error("unresolved failure: {0}")]
    Unresolved(String),
}

impl HoldCause {
    /// The stable code that is stored and shown.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Dependency(_) => "dependency",
            Self::MissingState(_) => "missing_state",
            Self::Unsupported(_) => "unsupported",
            Self::InvalidIdentity(_) => "invalid_identity",
            Self::Unresolved(_) => "unresolved",
        }
    }

    /// Whether trying again, with nothing else changed, can help.
    pub fn is_transient(&self) -> bool {
        Self::code_is_transient(self.code())
    }

    pub(crate) fn code_is_transient(code: &str) -> bool {
        matches!(code, "dependency" | "unresolved")
    }
}

/// Whether this client still holds every proposal that the prefix delivered in the current epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProposalKnowledge {
    /// It recorded them all and has them all, so a missing one was never delivered.
    Complete,
    /// It lost one that it had: a reference to it proves nothing about the sender.
    Lost,
}

/// The table for a group envelope that processing refused.
pub fn disposition(failure: &InputFailure, proposals: ProposalKnowledge) -> Disposition {
    use Disposition::{Hold, Reject};
    match failure {
        InputFailure::Malformed => Reject(Reason::Malformed),
        InputFailure::WrongGroup => Reject(Reason::WrongGroup),
        InputFailure::FutureEpoch => Reject(Reason::FutureEpoch),
        InputFailure::PastEpoch => Reject(Reason::PastEpoch),
        InputFailure::BeforeJoin => Reject(Reason::BeforeJoin),
        InputFailure::SecretsDiscarded => Reject(Reason::SecretsDiscarded),
        InputFailure::SecretReused => Reject(Reason::SecretReused),
        InputFailure::GenerationOutOfBound => Reject(Reason::GenerationOutOfBound),
        InputFailure::Authentication => Reject(Reason::Authentication),
        InputFailure::InvalidCommit(_) => Reject(Reason::InvalidCommit),
        InputFailure::PskInCommit => Reject(Reason::PskInCommit),
        InputFailure::Policy(violation) => Reject(Reason::Policy(violation.clone())),
        InputFailure::MissingProposal => match proposals {
            ProposalKnowledge::Complete => Reject(Reason::MissingProposal),
            ProposalKnowledge::Lost => Hold(HoldCause::MissingState("a delivered proposal was lost".into())),
        },
        InputFailure::UnsupportedVersion => Hold(HoldCause::Unsupported("MLS version or ciphersuite".into())),
        InputFailure::GroupVersion(floor) => {
            Hold(HoldCause::Unsupported(format!("the group requires version {floor}")))
        }
        InputFailure::HeldProposal(kind) => Hold(HoldCause::Unsupported(format!("{kind} proposal"))),
        InputFailure::Evicted => Hold(HoldCause::MissingState("the group is inactive".into())),
        InputFailure::Library(detail) => Hold(HoldCause::Unresolved(detail.clone())),
        // A failure that a later version of the MLS layer tells apart is held until this table has a row for it.
        other => Hold(HoldCause::Unresolved(other.to_string())),
    }
}

/// How many epochs back an own message's echo may be and still apply.
const OWN_ECHO_WINDOW: u64 = 2;

/// What becomes of the echo of an own application message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OwnEcho {
    /// Everybody can read it: settle it.
    Apply,
    /// Some may have discarded its secrets: reject it and prepare it again under the same id.
    Stale,
}

/// The table's row for own application messages: prepared in `prepared`, read back in `current`.
pub fn own_echo(current: u64, prepared: u64) -> OwnEcho {
    if current.saturating_sub(prepared) <= OWN_ECHO_WINDOW { OwnEcho::Apply } else { OwnEcho::Stale }
}
