//! Code generated from `proto/`, one module per package.
//!
//! These are wire forms: nothing in them is checked. The rest of the crate turns them into values
//! whose types say what holds.

#[allow(missing_docs, unreachable_pub, rust_2018_idioms, clippy::all, clippy::unwrap_used, rustdoc::all)]
mod xmtp {
    pub mod backend {
        pub mod v1 {
            tonic::include_proto!("xmtp.backend.v1");
        }
    }
    pub mod identity {
        pub mod associations {
            tonic::include_proto!("xmtp.identity.associations");
        }
    }
    pub mod mls {
        pub mod message_contents {
            tonic::include_proto!("xmtp.mls.message_contents");
        }
    }
}

/// Package `xmtp.backend.v1`: envelopes, reads, publishes, streams, and the four services.
pub use xmtp::backend::v1 as backend;
/// Package `xmtp.identity.associations`: the identity log.
pub use xmtp::identity::associations;
/// Package `xmtp.mls.message_contents`: what MLS messages, leaves and extensions carry.
pub use xmtp::mls::message_contents as contents;
