//! The two disposition tables of ordered processing, as plain functions of facts (PROC-011, PROC-012).
//!
//! They hold once the preceding prefix is handled. Every input has its row here and nowhere else: what a row needs to
//! know is found out by those who walk the topic, and given as facts. Time, the network and the app are no facts.

use highwater_identity::{AssociationState, Invalid};
use highwater_mls::InputFailure;

use crate::{HoldCause, Reason};

/// What becomes of a group envelope.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Disposition {
    /// Its effects commit with P.
    Apply,
    /// A recorded refusal; P moves over it.
    Reject(Reason),
    /// The envelope stays pending and blocks its topic.
    Hold(HoldCause),
}

/// What was found out about the group envelope at the head.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GroupInput<'a> {
    /// The group's MLS state is not here, so nothing can be found out.
    NoState,
    /// It decodes to no group message.
    NoGroupMessage,
    /// MLS refused it, and it is of no own attempt.
    Failed(&'a InputFailure),
    /// An application message of another installation, decrypted and authenticated.
    Application(Plaintext),
    /// A proposal that this profile takes part in, stored with the group.
    Proposal,
    /// A commit of another installation that MLS permits.
    Commit(&'a Evidence),
    /// It claims to be from this installation, and is of no attempt it made.
    OwnClaim,
    /// The exact bytes of an own attempt (STR-113), and what MLS said of them if it refused them.
    Own(OwnAttempt<'a>, Option<&'a InputFailure>),
}

/// What an application message turned out to hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plaintext {
    /// A message to be stored.
    Message,
    /// A form that exists to be consumed, never stored.
    Consumed,
    /// No form of message at all.
    Malformed,
}

/// How a commit stands against the identity states it needs and the rules of groups.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Evidence {
    /// All of them are here and it is right.
    Complete,
    /// It references identity state from at or after its own place in the order (STR-076).
    NotBefore,
    /// It references identity state that isn't here yet.
    Awaited,
    /// It references identity state that is proven not to exist.
    Absent,
    /// It breaks a rule, or can't be judged by this version.
    Refused(InputFailure),
}

/// The attempt that an own envelope is, as the outbox knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OwnAttempt<'a> {
    /// Its effects were applied or given up before.
    Handled,
    /// A message.
    Message {
        /// The epoch it was prepared in.
        prepared: u64,
    },
    /// A commit.
    Change {
        /// The epoch it was prepared in.
        prepared: u64,
        /// How it stands; `None` if it doesn't wait in the MLS state any more.
        pending: Option<&'a Evidence>,
    },
}

/// What the handled prefix left behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prefix {
    /// The group's epoch.
    pub epoch: u64,
    /// What is known of this epoch's proposals. Only [`InputFailure::MissingProposal`] asks for it.
    pub proposals: ProposalKnowledge,
}

/// Whether this client still holds every proposal that the prefix delivered in the current epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProposalKnowledge {
    /// It recorded them all and has them all, so a missing one was never delivered.
    Complete,
    /// It lost one that it had: a reference to it proves nothing about the sender.
    Lost,
}

/// How many epochs back an own message's echo may be and still apply: others may have discarded the secrets of older
/// ones before they read it.
const OWN_ECHO_WINDOW: u64 = 2;

/// The table of group envelopes.
pub fn group(input: &GroupInput<'_>, prefix: Prefix) -> Disposition {
    use Disposition::{Apply, Hold, Reject};
    match input {
        GroupInput::NoState => Hold(HoldCause::MissingState("the group's MLS state".into())),
        GroupInput::NoGroupMessage => Reject(Reason::Malformed),
        GroupInput::Failed(failure) => failed(failure, prefix.proposals),
        GroupInput::Application(Plaintext::Message | Plaintext::Consumed) => Apply,
        GroupInput::Application(Plaintext::Malformed) => Reject(Reason::Malformed),
        GroupInput::Proposal => Apply,
        GroupInput::Commit(evidence) => commit(evidence, prefix.proposals),
        GroupInput::OwnClaim => Reject(Reason::OwnWithoutAttempt),
        GroupInput::Own(attempt, failure) => match failure.map(|failure| failed(failure, prefix.proposals)) {
            // What keeps anyone's envelope waiting keeps an own one waiting: the match proves its bytes, not our state.
            Some(Hold(cause)) => Hold(cause),
            Some(Apply | Reject(_)) | None => own(attempt, prefix),
        },
    }
}

/// What MLS refused. A terminal result is the envelope's own doing and every member's verdict; anything else is held.
fn failed(failure: &InputFailure, proposals: ProposalKnowledge) -> Disposition {
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
        InputFailure::GroupVersion(floor) => Hold(HoldCause::GroupVersion(floor.clone())),
        InputFailure::HeldProposal(kind) => Hold(HoldCause::Unsupported(format!("{kind} proposal"))),
        InputFailure::Evicted => Hold(HoldCause::MissingState("the group is inactive".into())),
        InputFailure::Library(detail) => Hold(HoldCause::Unresolved(detail.clone())),
    }
}

/// A commit that MLS permits, whoever made it.
fn commit(evidence: &Evidence, proposals: ProposalKnowledge) -> Disposition {
    use Disposition::{Apply, Hold, Reject};
    match evidence {
        Evidence::Complete => Apply,
        Evidence::NotBefore => Reject(Reason::IdentityNotBefore),
        Evidence::Awaited => Hold(HoldCause::Dependency("identity state".into())),
        Evidence::Absent => Reject(Reason::IdentityAbsent),
        Evidence::Refused(failure) => failed(failure, proposals),
    }
}

/// An own envelope read back. Its content is known from the attempt, so only its place in the order decides.
fn own(attempt: &OwnAttempt<'_>, prefix: Prefix) -> Disposition {
    use Disposition::{Apply, Hold, Reject};
    match *attempt {
        OwnAttempt::Handled => Reject(Reason::OwnAlreadyHandled),
        OwnAttempt::Message { prepared } | OwnAttempt::Change { prepared, .. } if prepared > prefix.epoch => {
            Reject(Reason::FutureEpoch)
        }
        OwnAttempt::Message { prepared } if prefix.epoch - prepared > OWN_ECHO_WINDOW => {
            Reject(Reason::OwnStale)
        }
        OwnAttempt::Message { .. } => Apply,
        OwnAttempt::Change { prepared, .. } if prepared < prefix.epoch => Reject(Reason::PastEpoch),
        OwnAttempt::Change { pending: Some(evidence), .. } => commit(evidence, prefix.proposals),
        OwnAttempt::Change { pending: None, .. } => {
            Hold(HoldCause::MissingState("the pending commit of an own attempt".into()))
        }
    }
}

/// What was found out about the identity update at the head.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IdentityInput {
    /// The verified state that the prefix led to is not here.
    NoState,
    /// It decodes to no identity update.
    NoUpdate,
    /// A signature in it awaits the verdict of its contract wallet.
    Unverified,
    /// It doesn't follow from the complete history before it.
    Invalid(Invalid),
    /// It does, and leads to this state.
    Valid(AssociationState),
}

/// The table of identity updates: one is applied, or it holds its prefix. Nothing on an identity topic is ever skipped,
/// for a later state without it would be another state.
///
/// # Errors
/// Why it is held.
pub fn identity(input: IdentityInput) -> Result<AssociationState, HoldCause> {
    match input {
        IdentityInput::Valid(state) => Ok(state),
        IdentityInput::NoState => Err(HoldCause::MissingState("the verified identity state".into())),
        IdentityInput::NoUpdate => Err(HoldCause::InvalidIdentity("the update does not decode".into())),
        IdentityInput::Unverified => Err(HoldCause::Dependency("a signature's verification".into())),
        IdentityInput::Invalid(invalid) => Err(invalid_history(&invalid)),
    }
}

fn invalid_history(invalid: &Invalid) -> HoldCause {
    match invalid {
        Invalid::Unverified(_) => HoldCause::Dependency("a signature's verification".into()),
        Invalid::UnknownIdentifierKind(_) => HoldCause::Unsupported(invalid.to_string()),
        Invalid::NoActions
        | Invalid::Missing(_)
        | Invalid::InboxIdForm
        | Invalid::AddressForm
        | Invalid::InstallationKeyForm { .. }
        | Invalid::PasskeyForm
        | Invalid::WrongInbox
        | Invalid::InboxIdNotDerived
        | Invalid::NotCreated
        | Invalid::AlreadyCreated
        | Invalid::SignatureForm(_)
        | Invalid::SignatureInvalid(_)
        | Invalid::PasskeyChallenge
        | Invalid::AccountForm
        | Invalid::DelegatedSignature
        | Invalid::SignatureReplayed
        | Invalid::WrongSigner { .. }
        | Invalid::NotAMember(_)
        | Invalid::NotRecovery(_)
        | Invalid::AlreadyMember(_)
        | Invalid::InstallationAddsInstallation
        | Invalid::LogOrder => HoldCause::InvalidIdentity(invalid.to_string()),
    }
}
