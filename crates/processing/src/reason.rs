//! What an envelope is rejected for, and what it is held for. Their codes are stored, and stay as they are.

use highwater_mls::PolicyViolation;

/// Why an envelope was terminally rejected.
#[derive(Clone, Debug, PartialEq, Eq)]
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
    /// Every reason but the breaches of policy, which [`PolicyViolation::ALL`] lists.
    const PLAIN: [Self; 17] = [
        Self::Malformed,
        Self::WrongGroup,
        Self::FutureEpoch,
        Self::PastEpoch,
        Self::BeforeJoin,
        Self::SecretsDiscarded,
        Self::SecretReused,
        Self::GenerationOutOfBound,
        Self::Authentication,
        Self::InvalidCommit,
        Self::MissingProposal,
        Self::PskInCommit,
        Self::IdentityNotBefore,
        Self::IdentityAbsent,
        Self::OwnWithoutAttempt,
        Self::OwnAlreadyHandled,
        Self::OwnStale,
    ];

    /// Every reason there is.
    pub fn all() -> impl Iterator<Item = Self> {
        Self::PLAIN.into_iter().chain(PolicyViolation::ALL.into_iter().map(Self::Policy))
    }

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
    /// The group requires a newer version than this one. Nothing is sent to it either.
    #[error("the group requires version {0}")]
    GroupVersion(String),
    /// An identity update that its complete history doesn't permit.
    #[error("invalid identity history: {0}")]
    InvalidIdentity(String),
    /// A failure of which nobody established that it is the envelope's.
    #[error("unresolved failure: {0}")]
    Unresolved(String),
}

impl HoldCause {
    /// The codes of every cause there is.
    pub const CODES: [&str; 6] =
        ["dependency", "missing_state", "unsupported", "group_version", "invalid_identity", "unresolved"];

    /// The stable code that is stored and shown.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Dependency(_) => "dependency",
            Self::MissingState(_) => "missing_state",
            Self::Unsupported(_) => "unsupported",
            Self::GroupVersion(_) => "group_version",
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
