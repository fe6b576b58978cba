//! Why an identity update or a log doesn't hold.

use std::fmt;

use highwater_wire::SequenceId;

use crate::{MemberIdentifier, VerificationRequest};

/// A way to sign.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Scheme {
    /// `erc_191`: an Ethereum key over a personal message.
    Erc191,
    /// `erc_6492`: a contract wallet.
    Erc6492,
    /// `installation_key`: Ed25519ph.
    InstallationKey,
    /// `passkey`: P-256 over a WebAuthn assertion.
    Passkey,
}

impl fmt::Display for Scheme {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Erc191 => "erc_191",
            Self::Erc6492 => "erc_6492",
            Self::InstallationKey => "installation_key",
            Self::Passkey => "passkey",
        })
    }
}

/// Why an update can't follow the state before it. Nothing was applied.
///
/// Deliberately exhaustive: whoever decides what becomes of the update must have a row for each of these.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Invalid {
    /// The update has no action.
    #[error("the update has no action")]
    NoActions,
    /// A field that the rules need is absent.
    #[error("{0} is missing")]
    Missing(&'static str),
    /// The update's inbox id isn't 64 lowercase hex characters.
    #[error("the inbox id must be 64 lowercase hex characters")]
    InboxIdForm,
    /// An Ethereum address isn't `0x` and 40 lowercase hex characters.
    #[error("an Ethereum address must be 0x and 40 lowercase hex characters")]
    AddressForm,
    /// An installation key isn't 32 bytes.
    #[error("an installation key must be 32 bytes, found {found}")]
    InstallationKeyForm {
        /// Bytes found.
        found: usize,
    },
    /// A passkey isn't a SEC1 point of P-256 (lowercase hex where it is text).
    #[error("a passkey must be a SEC1 point of P-256")]
    PasskeyForm,
    /// An identifier kind that this version doesn't know.
    #[error("identifier kind {0} is unknown")]
    UnknownIdentifierKind(i32),
    /// The update names another inbox than the log it stands in.
    #[error("the update belongs to another inbox")]
    WrongInbox,
    /// The inbox id isn't the one that CreateInbox's identifier and nonce give.
    #[error("the inbox id doesn't follow from the initial identifier and nonce")]
    InboxIdNotDerived,
    /// The log's first action isn't CreateInbox.
    #[error("the first action of a log must create the inbox")]
    NotCreated,
    /// CreateInbox in a log that has one.
    #[error("the inbox exists already")]
    AlreadyCreated,
    /// A signature has the wrong shape for its scheme.
    #[error("the {0} signature is malformed")]
    SignatureForm(Scheme),
    /// A signature doesn't verify.
    #[error("the {0} signature doesn't verify")]
    SignatureInvalid(Scheme),
    /// A passkey signed something else than this update's text.
    #[error("the passkey's challenge isn't this update's text")]
    PasskeyChallenge,
    /// A contract wallet's account isn't `eip155:{chain}:{address}`.
    #[error("a contract wallet's account must be eip155:CHAIN:ADDRESS")]
    AccountForm,
    /// A delegated signature, which is never accepted.
    #[error("delegated signatures are not accepted")]
    DelegatedSignature,
    /// A signature that this inbox's log has spent.
    #[error("a signature was used by an earlier update")]
    SignatureReplayed,
    /// The signature is someone else's than the identifier's that must sign here.
    #[error("{expected:?} must sign, {found:?} did")]
    WrongSigner {
        /// Whose signature belongs here.
        expected: MemberIdentifier,
        /// Whose it is.
        found: MemberIdentifier,
    },
    /// The existing-member signature is of no current member.
    #[error("{0:?} is no current member")]
    NotAMember(MemberIdentifier),
    /// Something that only the recovery identifier may do.
    #[error("only the recovery identifier may do this, {0:?} signed")]
    NotRecovery(MemberIdentifier),
    /// The identifier to add is a current member.
    #[error("{0:?} is a member already")]
    AlreadyMember(MemberIdentifier),
    /// An installation signed for another installation.
    #[error("an installation can't add an installation")]
    InstallationAddsInstallation,
    /// The log's sequence ids don't rise.
    #[error("the log's sequence ids don't rise")]
    LogOrder,
    /// No verdict on a contract wallet's signature was given: neither valid nor invalid yet.
    #[error("the signature of {account} awaits verification", account = .0.account_id)]
    Unverified(VerificationRequest),
}

impl Invalid {
    /// A stable name for the reason, for rows and logs.
    pub fn code(&self) -> &'static str {
        match self {
            Self::NoActions => "no_actions",
            Self::Missing(_) => "missing_field",
            Self::InboxIdForm => "inbox_id_form",
            Self::AddressForm => "address_form",
            Self::InstallationKeyForm { .. } => "installation_key_form",
            Self::PasskeyForm => "passkey_form",
            Self::UnknownIdentifierKind(_) => "unknown_identifier_kind",
            Self::WrongInbox => "wrong_inbox",
            Self::InboxIdNotDerived => "inbox_id_not_derived",
            Self::NotCreated => "not_created",
            Self::AlreadyCreated => "already_created",
            Self::SignatureForm(_) => "signature_form",
            Self::SignatureInvalid(_) => "signature_invalid",
            Self::PasskeyChallenge => "passkey_challenge",
            Self::AccountForm => "account_form",
            Self::DelegatedSignature => "delegated_signature",
            Self::SignatureReplayed => "signature_replayed",
            Self::WrongSigner { .. } => "wrong_signer",
            Self::NotAMember(_) => "not_a_member",
            Self::NotRecovery(_) => "not_recovery",
            Self::AlreadyMember(_) => "already_member",
            Self::InstallationAddsInstallation => "installation_adds_installation",
            Self::LogOrder => "log_order",
            Self::Unverified(_) => "unverified",
        }
    }

    /// Whether the same update may hold later: only once a missing verdict is there.
    pub fn is_retryable(&self) -> bool {
        matches!(self, Self::Unverified(_))
    }

    /// Whether a signature itself is at fault, rather than what the update asks for or who asks.
    pub fn is_signature(&self) -> bool {
        matches!(
            self,
            Self::SignatureForm(_)
                | Self::SignatureInvalid(_)
                | Self::PasskeyChallenge
                | Self::AccountForm
                | Self::DelegatedSignature
                | Self::SignatureReplayed
                | Self::WrongSigner { .. }
        )
    }
}

/// A log that doesn't hold, and where. No state of it after the entry before may be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the identity log is invalid at {at}: {reason}")]
pub struct InvalidHistory {
    /// The first entry that doesn't apply.
    pub at: SequenceId,
    /// Why.
    #[source]
    pub reason: Invalid,
}

impl InvalidHistory {
    /// Whether the same log may hold later: see [`Invalid::is_retryable`].
    pub fn is_retryable(&self) -> bool {
        self.reason.is_retryable()
    }
}
