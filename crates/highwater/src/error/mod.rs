mod below;

use highwater_delivery::{ConsumerError, CursorError, DeliveryError};
use highwater_join::JoinError;
use highwater_mls::MlsError;
use highwater_outbox::OutboxError;
use highwater_processing::ProcessingError;
use highwater_receipt::ReceiptError;
use highwater_store::{OpenError, StoreError};
use highwater_sync::{Obligation, SyncError};
use highwater_transport::TransportError;
use highwater_wire::{GroupId, InboxId};

use crate::{ContentError, ContentType, HandoffError, SignerError};

/// Why a call failed. Whatever was committed before stays committed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The builder was given no database.
    #[error("no database was named: call `database` before `open`")]
    NoDatabase,
    /// The database could not be opened. It is as it was.
    #[error("the database can't be opened: {0}")]
    Open(#[from] OpenError),
    /// Two codecs were given for a type, or one for a type that needs none.
    #[error("content of type {0} has a codec already")]
    CodecTaken(ContentType),
    /// The database has no registered installation yet, and no signer or no backend to register it with was given.
    #[error("this database is not registered with an inbox yet: open it with a signer and a backend")]
    NotRegistered,
    /// The operation needs the network, and the builder was given no backend.
    #[error("this needs a backend, and none was named")]
    NoBackend,
    /// The signer's wallet isn't one that may speak for the inbox.
    #[error("this wallet is not a member of inbox {0}: use the wallet that created it")]
    WrongWallet(InboxId),
    /// The signer failed.
    #[error("the wallet could not sign: {0}")]
    Signer(#[source] SignerError),
    /// The signer's answer is no signature of the text by its address.
    #[error("the wallet's signature is not valid: {0}")]
    Signature(String),
    /// The backend refused to register the installation, for good or for now.
    #[error("the installation could not be registered: {0}")]
    Registration(#[source] SyncError),
    /// No such group here.
    #[error("group {0} is not known here: check the id, or sync first")]
    UnknownGroup(GroupId),
    /// No such inbox on the backend.
    #[error("inbox {0} is not registered on this backend: check the id")]
    UnknownInbox(InboxId),
    /// The inbox is not in the group.
    #[error("inbox {inbox} is not a member of group {group}")]
    NotAMember {
        /// The inbox.
        inbox: InboxId,
        /// The group.
        group: GroupId,
    },
    /// A call named no inbox.
    #[error("no inbox was named")]
    NoMembers,
    /// The text or the content can't be used.
    #[error(transparent)]
    Content(#[from] ContentError),
    /// The database failed.
    #[error(transparent)]
    Store(StoreError),
    /// The MLS state could not be used.
    #[error(transparent)]
    Mls(MlsError),
    /// Received envelopes could not be read.
    #[error(transparent)]
    Receipt(ReceiptError),
    /// Message records could not be read or written.
    #[error(transparent)]
    Delivery(DeliveryError),
    /// The default consumer could not be opened, or lost its ownership.
    #[error(transparent)]
    Consumer(ConsumerError),
    /// What was given back acknowledges nothing. The stream goes on.
    #[error(transparent)]
    Handoff(#[from] HandoffError),
    /// The stream ended because the database failed. What wasn't acknowledged comes again from a new one.
    #[error("the stream ended: {0}")]
    StreamStorage(#[source] Box<Self>),
    /// The cursor is not one of this database.
    #[error(transparent)]
    Cursor(#[from] CursorError),
    /// What was to be sent was not accepted, or could not be stored.
    #[error(transparent)]
    Outbox(OutboxError),
    /// Processing state could not be read.
    #[error(transparent)]
    Processing(ProcessingError),
    /// Welcomes could not be read.
    #[error(transparent)]
    Join(JoinError),
    /// The backend's address is not usable, or the backend failed.
    #[error(transparent)]
    Transport(#[from] TransportError),
    /// A network operation did not do what it was asked for.
    #[error(transparent)]
    Sync(SyncError),
    /// The stream's recovery budget is spent. What is stored stays; a new stream starts with a fresh budget.
    #[error("the backend could not be reached for too long: open the stream again when it can be")]
    RecoveryExhausted,
    /// The client was closed.
    #[error("the client is closed")]
    Closed,
}

impl Error {
    /// Whether the same call can succeed later, with nothing changed by its caller.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Open(error) => error.is_retryable(),
            Self::Registration(error) | Self::Sync(error) => error.is_retryable(),
            Self::Store(error) => error.is_retryable(),
            Self::Mls(error) => error.is_retryable(),
            Self::Receipt(error) => error.is_retryable(),
            Self::Delivery(error) => error.is_retryable(),
            Self::Consumer(error) => error.is_retryable(),
            Self::Outbox(error) => error.is_retryable(),
            Self::Processing(error) => error.is_retryable(),
            Self::Join(error) => error.is_retryable(),
            Self::Transport(error) => error.is_retryable(),
            Self::RecoveryExhausted | Self::StreamStorage(_) => true,
            _ => false,
        }
    }

    /// Whether another default consumer is active on this database.
    pub fn is_already_active(&self) -> bool {
        matches!(self, Self::Consumer(ConsumerError::AlreadyActive { .. }))
    }

    /// Whether the deployment refuses this client for good. This [`Client`](crate::Client) sends nothing more; what is
    /// stored stays and can be read. Open the client again once the deployment's operator has let it in.
    pub fn is_refused(&self) -> bool {
        matches!(
            self,
            Self::Transport(TransportError::Refused { .. })
                | Self::Registration(SyncError::Transport(TransportError::Refused { .. }))
                | Self::Sync(SyncError::Transport(TransportError::Refused { .. }))
        )
    }

    /// The obligations that an incomplete or blocked sync left, empty for every other error.
    pub fn obligations(&self) -> &[Obligation] {
        match self {
            Self::Sync(error) => error.obligations(),
            _ => &[],
        }
    }
}
