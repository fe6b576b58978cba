//! Keepalive, deadlines and intervals.

use std::time::Duration;

use highwater_wire::limits;

use super::ConfigError;

/// Times. The protocol's numbers by default; tests shorten them.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Timing {
    /// A stream never stays silent longer than this.
    #[serde(rename = "keepalive_ms", with = "millis")]
    pub keepalive: Duration,
    /// How long after its transport handoff a Ping may go unanswered (STR-034).
    #[serde(rename = "pong_wait_ms", with = "millis")]
    pub pong_wait: Duration,
    /// How long the transport may take no queued frame before the reader counts as too slow.
    #[serde(rename = "stall_wait_ms", with = "millis")]
    pub stall_wait: Duration,
    /// How long a stream that ends by itself may still hand over what it had queued.
    #[serde(rename = "flush_wait_ms", with = "millis")]
    pub flush_wait: Duration,
    /// How often the tailer looks at the store without having been woken.
    #[serde(rename = "store_poll_ms", with = "millis")]
    pub store_poll: Duration,
    /// A statement of a publish, and any single read of the store.
    #[serde(rename = "statement_timeout_ms", with = "millis")]
    pub statement_timeout: Duration,
    /// A whole publish.
    #[serde(rename = "publish_lifetime_ms", with = "millis")]
    pub publish_lifetime: Duration,
    /// Interval of HTTP/2 PINGs, which find connections whose peer vanished.
    #[serde(rename = "http2_ping_interval_ms", with = "millis")]
    pub http2_ping_interval: Duration,
    /// How long an HTTP/2 PING may go unanswered.
    #[serde(rename = "http2_ping_timeout_ms", with = "millis")]
    pub http2_ping_timeout: Duration,
    /// How long a call may take until it is answered, its request's body included; streams count as
    /// answered when they are open. Must exceed the publish lifetime.
    #[serde(rename = "request_timeout_ms", with = "millis")]
    pub request_timeout: Duration,
    /// How long sent bytes may go unacknowledged before a connection counts as broken, where the system
    /// can be told so.
    #[serde(rename = "tcp_user_timeout_ms", with = "millis")]
    pub tcp_user_timeout: Duration,
    /// How long a shutdown waits for requests in flight before it cuts connections.
    #[serde(rename = "drain_ms", with = "millis")]
    pub drain: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            keepalive: limits::KEEPALIVE_INTERVAL,
            pong_wait: limits::PONG_WAIT,
            stall_wait: limits::PONG_WAIT,
            flush_wait: Duration::from_secs(1),
            store_poll: limits::STORE_POLL_INTERVAL,
            statement_timeout: limits::PUBLISH_STATEMENT_TIMEOUT,
            publish_lifetime: limits::PUBLISH_LIFETIME,
            http2_ping_interval: Duration::from_secs(30),
            http2_ping_timeout: Duration::from_secs(20),
            request_timeout: Duration::from_secs(30),
            tcp_user_timeout: Duration::from_secs(20),
            drain: Duration::from_secs(10),
        }
    }
}

impl Timing {
    pub(super) fn validate(&self) -> Result<(), ConfigError> {
        for (name, value) in [
            ("keepalive", self.keepalive),
            ("stall_wait", self.stall_wait),
            ("store_poll", self.store_poll),
            ("statement_timeout", self.statement_timeout),
            ("publish_lifetime", self.publish_lifetime),
            ("http2_ping_interval", self.http2_ping_interval),
            ("http2_ping_timeout", self.http2_ping_timeout),
            ("tcp_user_timeout", self.tcp_user_timeout),
        ] {
            if value.is_zero() {
                return Err(ConfigError::Zero { name });
            }
        }
        if self.request_timeout <= self.publish_lifetime {
            return Err(ConfigError::Order { greater: "request_timeout", smaller: "publish_lifetime" });
        }
        if self.pong_wait <= self.keepalive {
            return Err(ConfigError::Order { greater: "pong_wait", smaller: "keepalive" });
        }
        Ok(())
    }

    /// The keepalive as Started names it.
    pub(crate) fn keepalive_ms(&self) -> u32 {
        u32::try_from(self.keepalive.as_millis()).unwrap_or(u32::MAX)
    }
}

/// Durations as whole milliseconds.
mod millis {
    use std::time::Duration;

    use serde::{Deserialize, Deserializer, Serializer, ser::Error as _};

    pub(super) fn serialize<S: Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u64(u64::try_from(duration.as_millis()).map_err(S::Error::custom)?)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
        u64::deserialize(deserializer).map(Duration::from_millis)
    }
}
