//! Reading a group message, and telling apart the ways it can fail.
//!
//! The distinction is what decides whether an envelope is rejected for good or held (STR-074), so it is made from what
//! OpenMLS reports and from the group's own epochs, never from whether an error looks retryable.

use highwater_wire::GroupId;
use openmls::framing::errors::{MessageDecryptionError, SecretTreeError};
use openmls::framing::{ContentType, MlsMessageBodyIn, MlsMessageIn, ProtocolMessage};
use openmls::group::{
    AppDataUpdateValidationError, MlsGroupStateError, ProcessMessageError, ProposalValidationError,
    StageCommitError, ValidationError,
};
use openmls::key_packages::errors::KeyPackageVerifyError;
use openmls::treesync::errors::{ApplyUpdatePathError, LeafNodeValidationError};
use tls_codec::Deserialize as _;

use crate::overlay::OverlayError;
use crate::{PolicyViolation, StagedCommit};

/// What a group message turned out to be.
#[derive(Debug)]
pub enum Input {
    /// An application message. Its message secret is used up.
    Application {
        /// Who sent it, as MLS authenticated it.
        sender: crate::Member,
        /// The epoch it was sent in.
        epoch: u64,
        /// What was encrypted.
        plaintext: Vec<u8>,
    },
    /// A proposal, now stored with the group.
    Proposal {
        /// Who sent it.
        sender: crate::Member,
        /// What a commit would name it by. The same proposal sent twice has one reference.
        reference: Vec<u8>,
    },
    /// A commit of another member, validated as far as no identity state is needed, not applied.
    Commit(StagedCommit),
    /// A message that claims to be from this installation. It can be neither decrypted nor authenticated: only a match
    /// by payload identity proves it (STR-113).
    OwnMessage {
        /// The epoch it names.
        epoch: u64,
    },
}

/// What can be read of a group message without any key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The group it names.
    pub group: GroupId,
    /// The epoch it names.
    pub epoch: u64,
    /// What it says it carries.
    pub kind: MessageType,
}

/// What a group message carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MessageType {
    /// A message of an app.
    Application,
    /// A standalone proposal.
    Proposal,
    /// A commit.
    Commit,
}

/// Why a group message could not be processed. The group is unchanged.
///
/// Deliberately exhaustive: whoever decides what becomes of the message must have a row for each of these.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InputFailure {
    /// It doesn't decode, or isn't a `PrivateMessage`.
    #[error("the message is malformed")]
    Malformed,
    /// It names another group.
    #[error("the message is of another group")]
    WrongGroup,
    /// An MLS version this client doesn't speak.
    #[error("the MLS version is not supported")]
    UnsupportedVersion,
    /// The group requires a newer client from here on.
    #[error("the group requires version {0}")]
    GroupVersion(String),
    /// The epoch lies ahead of the group's.
    #[error("the message is from a future epoch")]
    FutureEpoch,
    /// A commit or proposal of an epoch that is over.
    #[error("the commit or proposal is from a past epoch")]
    PastEpoch,
    /// An application message of an epoch older than the retained ones.
    #[error("the secrets of the message's epoch were discarded")]
    SecretsDiscarded,
    /// The epoch precedes the one this installation joined in.
    #[error("the message is from before this installation joined")]
    BeforeJoin,
    /// The message secret was used before.
    #[error("the message secret was used before")]
    SecretReused,
    /// The generation lies outside the ratchet's window, either way.
    #[error("the generation is out of bound")]
    GenerationOutOfBound,
    /// Decryption, signature or sender don't hold.
    #[error("the message is not authentic")]
    Authentication,
    /// A commit or proposal that MLS doesn't permit.
    #[error("the commit is invalid: {0}")]
    InvalidCommit(&'static str),
    /// A commit references a proposal that isn't stored here.
    #[error("the commit references an unknown proposal")]
    MissingProposal,
    /// A kind of proposal that this version doesn't take part in.
    #[error("a {0} proposal is not supported")]
    HeldProposal(&'static str),
    /// A commit with a pre-shared key.
    #[error("the commit contains a pre-shared key")]
    PskInCommit,
    /// A commit that breaks the rules of its group.
    #[error(transparent)]
    Policy(#[from] PolicyViolation),
    /// This installation is no member any more.
    #[error("this installation was removed from the group")]
    Evicted,
    /// Anything that is not established as the message's own fault.
    #[error("MLS failed: {0}")]
    Library(String),
}

/// Decodes a group message. Bytes after it are ignored, as the backend ignores them.
pub(crate) fn parse(data: &[u8]) -> Result<ProtocolMessage, InputFailure> {
    const MLS_10: u16 = 1;
    match data {
        [high, low, ..] if u16::from_be_bytes([*high, *low]) != MLS_10 => {
            return Err(InputFailure::UnsupportedVersion);
        }
        _ => {}
    }
    let message = MlsMessageIn::tls_deserialize(&mut &data[..]).map_err(|_| InputFailure::Malformed)?;
    // Handshakes and application messages alike are private here; a public one is in the wrong wire format.
    match message.extract() {
        MlsMessageBodyIn::PrivateMessage(message) => Ok(message.into()),
        _ => Err(InputFailure::Malformed),
    }
}

pub(crate) fn header(message: &ProtocolMessage) -> Result<Header, InputFailure> {
    Ok(Header {
        group: message.group_id().as_slice().try_into().map_err(|_| InputFailure::WrongGroup)?,
        epoch: message.epoch().as_u64(),
        kind: match message.content_type() {
            ContentType::Application => MessageType::Application,
            ContentType::Proposal => MessageType::Proposal,
            ContentType::Commit => MessageType::Commit,
        },
    })
}

impl From<ProcessMessageError<OverlayError>> for InputFailure {
    fn from(error: ProcessMessageError<OverlayError>) -> Self {
        use ProcessMessageError as E;
        match error {
            E::ValidationError(error) => validation(error),
            E::InvalidCommit(error) => error.into(),
            E::GroupStateError(MlsGroupStateError::UseAfterEviction) => Self::Evicted,
            E::IncompatibleWireFormat => Self::Malformed,
            E::UnauthorizedExternalApplicationMessage | E::UnauthorizedExternalCommitMessage => {
                Self::Authentication
            }
            E::MalformedSafeAad => Self::Malformed,
            E::UnsupportedProposalType => Self::HeldProposal("external"),
            E::LibraryError(_) | E::StorageError(_) | E::GroupStateError(_) => {
                Self::Library(error.to_string())
            }
        }
    }
}

fn validation(error: ValidationError) -> InputFailure {
    use ValidationError as E;
    match error {
        E::WrongGroupId => InputFailure::WrongGroup,
        E::UnableToDecrypt(error) => decryption(error),
        E::NoPastEpochData => InputFailure::SecretsDiscarded,
        E::UnknownMember
        | E::MissingMembershipTag
        | E::InvalidMembershipTag
        | E::InvalidSignature
        | E::NonMemberApplicationMessage
        | E::InvalidSenderType
        | E::UnauthorizedExternalSender
        | E::NoExternalSendersExtension => InputFailure::Authentication,
        E::WrongWireFormat
        | E::UnencryptedApplicationMessage
        | E::NotACommit
        | E::NotAnExternalAddProposal => InputFailure::Malformed,
        E::MissingConfirmationTag => InputFailure::InvalidCommit("confirmation tag missing"),
        E::NoPath => InputFailure::InvalidCommit("path missing"),
        E::InvalidLeafNodeSignature | E::InvalidLeafNodeSourceType | E::UpdatePathError(_) => {
            InputFailure::InvalidCommit("leaf node")
        }
        // OpenMLS compares a key package's lifetime with the clock, and the clock is no evidence (PROC-011).
        E::KeyPackageVerifyError(
            KeyPackageVerifyError::LifetimeError(_) | KeyPackageVerifyError::LibraryError(_),
        ) => InputFailure::Library(error.to_string()),
        E::KeyPackageVerifyError(_) => InputFailure::InvalidCommit("key package"),
        E::InvalidAddProposalCiphersuite => InputFailure::InvalidCommit("ciphersuite"),
        E::CommitterIncludedOwnUpdate => InputFailure::InvalidCommit("own update"),
        E::ExternalCommitValidation(_) => InputFailure::HeldProposal("external_init"),
        E::InvalidExtension(_) => InputFailure::InvalidCommit("extension"),
        // Epochs were compared before; anything left is not understood.
        E::WrongEpoch | E::LibraryError(_) => InputFailure::Library(error.to_string()),
    }
}

fn decryption(error: MessageDecryptionError) -> InputFailure {
    use MessageDecryptionError as E;
    match error {
        E::GenerationOutOfBound => InputFailure::GenerationOutOfBound,
        E::AeadError => InputFailure::Authentication,
        E::WrongWireFormat | E::MalformedContent => InputFailure::Malformed,
        E::SecretTreeError(error) => secret_tree(error),
        E::LibraryError(_) => InputFailure::Library(error.to_string()),
    }
}

fn secret_tree(error: SecretTreeError) -> InputFailure {
    use SecretTreeError as E;
    match error {
        // The epoch is within its window, so it is the generation that is too old.
        E::TooDistantInThePast | E::TooDistantInTheFuture | E::RatchetTooLong => {
            InputFailure::GenerationOutOfBound
        }
        E::SecretReuseError => InputFailure::SecretReused,
        E::IndexOutOfBounds => InputFailure::Authentication,
        // Encoding what the keys are derived from has nothing to do with the message.
        E::CodecError(_) | E::RatchetTypeError | E::LibraryError | E::CryptoError(_) => {
            InputFailure::Library(error.to_string())
        }
    }
}

impl From<StageCommitError> for InputFailure {
    fn from(error: StageCommitError) -> Self {
        use StageCommitError as E;
        match error {
            E::MissingProposal => Self::MissingProposal,
            E::PskError(_) | E::DuplicatePskId(_) => Self::PskInCommit,
            E::ProposalValidationError(error) => proposal(error),
            E::ExternalCommitValidation(_) => Self::HeldProposal("external_init"),
            E::GroupContextExtensionsProposalValidationError(_) => {
                Self::HeldProposal("group_context_extensions")
            }
            E::AppDataUpdateValidationError(
                AppDataUpdateValidationError::IncorrectOrder
                | AppDataUpdateValidationError::CannotUpdateDictionaryDirectly,
            ) => Self::HeldProposal("group_context_extensions"),
            E::AppDataUpdateValidationError(_) => Self::InvalidCommit("app data update"),
            E::LeafNodeValidation(error) => leaf_node(error),
            E::UpdatePathError(ApplyUpdatePathError::LibraryError(error)) => Self::Library(error.to_string()),
            E::UpdatePathError(_) | E::VerifiedUpdatePathError(_) => Self::InvalidCommit("update path"),
            E::WrongPlaintextContentType => Self::Malformed,
            E::OwnCommitMismatch => Self::InvalidCommit("not the pending commit"),
            E::PathLeafNodeVerificationFailure => Self::InvalidCommit("path leaf node"),
            E::RequiredPathNotFound => Self::InvalidCommit("path missing"),
            E::ConfirmationTagMissing => Self::InvalidCommit("confirmation tag missing"),
            E::ConfirmationTagMismatch => Self::InvalidCommit("confirmation tag"),
            E::AttemptedSelfRemoval => Self::InvalidCommit("removes its committer"),
            E::InconsistentSenderIndex => Self::InvalidCommit("sender index"),
            E::SenderTypeExternal | E::SenderTypeNewMemberProposal => Self::InvalidCommit("sender type"),
            E::TooManyNewMembers => Self::InvalidCommit("too many members"),
            // A key that should be here is not: nothing about the commit.
            E::OwnKeyNotFound
            | E::MissingDecryptionKey
            | E::EpochMismatch
            | E::ApplyAppDataUpdateError(_)
            | E::LibraryError(_) => Self::Library(error.to_string()),
        }
    }
}

fn proposal(error: ProposalValidationError) -> InputFailure {
    use ProposalValidationError as E;
    match error {
        E::UnsupportedProposalType => InputFailure::HeldProposal("unsupported"),
        E::ExternalInitProposalInRegularCommit => InputFailure::HeldProposal("external_init"),
        E::Psk(_) => InputFailure::PskInCommit,
        E::LeafNodeValidation(error) => leaf_node(error),
        E::LibraryError(_) => InputFailure::Library(error.to_string()),
        E::UnknownMember | E::UpdateFromNonMember => InputFailure::InvalidCommit("unknown member"),
        E::DuplicateSignatureKey | E::DuplicateEncryptionKey | E::DuplicateInitKey => {
            InputFailure::InvalidCommit("duplicate key")
        }
        E::InitEncryptionKeyCollision => InputFailure::InvalidCommit("init key is encryption key"),
        E::DuplicateMemberRemoval => InputFailure::InvalidCommit("duplicate removal"),
        E::UnknownMemberRemoval => InputFailure::InvalidCommit("removal of no member"),
        E::CommitterIncludedOwnUpdate => InputFailure::InvalidCommit("own update"),
        E::InsufficientCapabilities => InputFailure::InvalidCommit("capabilities"),
        E::InvalidAddProposalCiphersuiteOrVersion => InputFailure::InvalidCommit("ciphersuite"),
    }
}

fn leaf_node(error: LeafNodeValidationError) -> InputFailure {
    match error {
        LeafNodeValidationError::Lifetime(error) => InputFailure::Library(error.to_string()),
        _ => InputFailure::InvalidCommit("leaf node"),
    }
}
