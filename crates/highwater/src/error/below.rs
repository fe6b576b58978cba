//! Failures of the layers below, as an app gets them.

use highwater_delivery::{ConsumerError, DeliveryError};
use highwater_join::JoinError;
use highwater_mls::MlsError;
use highwater_outbox::OutboxError;
use highwater_processing::ProcessingError;
use highwater_receipt::ReceiptError;
use highwater_store::StoreError;
use highwater_sync::SyncError;

use super::Error;

/// Whether the client was closed, by whatever layer that was met: an app is told so in one way.
trait MetClosed {
    fn met_closed(&self) -> bool;
}

impl MetClosed for StoreError {
    fn met_closed(&self) -> bool {
        self.is_closed()
    }
}

/// Which causes of an error may have met a closed store, and what it becomes if they haven't.
macro_rules! below {
    ($($error:ident($($cause:ident)*) => $otherwise:expr;)*) => {$(
        impl MetClosed for $error {
            fn met_closed(&self) -> bool {
                match self {
                    $(Self::$cause(cause) => cause.met_closed(),)*
                    _ => false,
                }
            }
        }

        impl From<$error> for Error {
            fn from(error: $error) -> Self {
                if error.met_closed() { Self::Closed } else { $otherwise(error) }
            }
        }
    )*};
}

below! {
    DeliveryError(Store) => |error| match error {
        DeliveryError::Cursor(error) => Error::Cursor(error),
        error => Error::Delivery(error),
    };
    ConsumerError(Delivery) => Error::Consumer;
    MlsError(Store) => Error::Mls;
    ReceiptError(Store) => Error::Receipt;
    OutboxError(Store Mls Delivery) => Error::Outbox;
    ProcessingError(Store Receipt Mls Outbox Delivery) => Error::Processing;
    JoinError(Store Receipt Mls Processing Delivery) => Error::Join;
    SyncError(Store Receipt Processing Join Outbox Delivery Mls) => |error| match error {
        SyncError::Closed => Error::Closed,
        error => Error::Sync(error),
    };
}

impl From<StoreError> for Error {
    fn from(error: StoreError) -> Self {
        if error.met_closed() { Self::Closed } else { Self::Store(error) }
    }
}
