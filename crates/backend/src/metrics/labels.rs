//! All labels there are.

use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue};

use crate::session::Frame;

/// The two kinds of stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum StreamKind {
    Native,
    Static,
}

impl StreamKind {
    pub(super) const ALL: [Self; 2] = [Self::Native, Self::Static];

    fn name(self) -> &'static str {
        match self {
            Self::Native => "native",
            Self::Static => "static",
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum FrameKind {
    Started,
    Applied,
    Messages,
    Ping,
    Pong,
    Keepalive,
}

impl FrameKind {
    /// In the order of their discriminants.
    pub(super) const ALL: [Self; 6] =
        [Self::Started, Self::Applied, Self::Messages, Self::Ping, Self::Pong, Self::Keepalive];

    pub(super) fn of(frame: &Frame) -> Self {
        match frame {
            Frame::Started { .. } => Self::Started,
            Frame::Applied { .. } => Self::Applied,
            Frame::Messages(_) => Self::Messages,
            Frame::Ping(_) => Self::Ping,
            Frame::Pong(_) => Self::Pong,
            Frame::Keepalive => Self::Keepalive,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Started => "started",
            Self::Applied => "applied",
            Self::Messages => "messages",
            Self::Ping => "ping",
            Self::Pong => "pong",
            Self::Keepalive => "keepalive",
        }
    }
}

/// The unary reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Method {
    Query,
    QueryNewest,
    GetInboxIds,
    VerifyWalletSignatures,
}

impl Method {
    fn name(self) -> &'static str {
        match self {
            Self::Query => "query",
            Self::QueryNewest => "query_newest",
            Self::GetInboxIds => "get_inbox_ids",
            Self::VerifyWalletSignatures => "verify_wallet_signatures",
        }
    }
}

macro_rules! label_values {
    ($($name:ident),*) => {$(
        impl EncodeLabelValue for $name {
            fn encode(
                &self,
                encoder: &mut prometheus_client::encoding::LabelValueEncoder<'_>,
            ) -> Result<(), std::fmt::Error> {
                EncodeLabelValue::encode(&self.name(), encoder)
            }
        }
    )*};
}

label_values!(StreamKind, FrameKind, Method);

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct StreamLabels {
    pub(super) kind: StreamKind,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct EndLabels {
    pub(super) kind: StreamKind,
    pub(super) reason: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct FrameLabels {
    pub(super) kind: FrameKind,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct OutcomeLabels {
    pub(super) outcome: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct CallLabels {
    pub(super) method: Method,
    pub(super) outcome: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct PoolLabels {
    pub(super) pool: &'static str,
}
