//! What a server counts, and the text in which it tells.
//!
//! Labels are fixed names only: nothing of a payload, topic, inbox or key can become one. Counters that
//! streams touch are resolved once, at the start, so that counting is an atomic addition.

mod ended;
mod labels;

use std::{
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use prometheus_client::{
    metrics::{
        counter::Counter,
        family::Family,
        gauge::Gauge,
        histogram::{Histogram, exponential_buckets},
    },
    registry::{Registry, Unit},
};

use self::labels::{CallLabels, EndLabels, FrameKind, FrameLabels, OutcomeLabels, PoolLabels, StreamLabels};
pub(crate) use self::{
    ended::{Call, OpenSession},
    labels::{Method, StreamKind},
};
use crate::{session::Frame, store::PoolUse};

/// The counters of one server; cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Metrics(Arc<Counted>);

#[derive(Debug)]
struct Counted {
    registry: Registry,
    sessions: [Gauge; StreamKind::ALL.len()],
    sessions_ended: Family<EndLabels, Counter>,
    registrations: Gauge,
    frames: [Counter; FrameKind::ALL.len()],
    envelopes_delivered: Counter,
    delivery_lag: Histogram,
    mailbox_overflows: Counter,
    tailer_polls: Counter,
    tailer_errors: Counter,
    tailer_arrivals: Counter,
    tailer_gaps: Gauge,
    publishes: Family<OutcomeLabels, Counter>,
    publish_duration: Histogram,
    envelopes_acknowledged: Counter,
    queries: Family<CallLabels, Counter>,
    query_duration: Histogram,
    pools: Pools,
    ready: Gauge,
}

#[derive(Debug, Default)]
struct Pools {
    open: Family<PoolLabels, Gauge>,
    idle: Family<PoolLabels, Gauge>,
    max: Family<PoolLabels, Gauge>,
}

/// From a tenth of a millisecond to 26 seconds.
fn seconds() -> Histogram {
    Histogram::new(exponential_buckets(0.0001, 2.0, 19))
}

impl Default for Metrics {
    fn default() -> Self {
        let mut registry = Registry::with_prefix("highwater");
        let sessions = Family::<StreamLabels, Gauge>::default();
        let frames = Family::<FrameLabels, Counter>::default();
        let mut counted = Counted {
            sessions: StreamKind::ALL.map(|kind| sessions.get_or_create_owned(&StreamLabels { kind })),
            sessions_ended: Family::default(),
            registrations: Gauge::default(),
            frames: FrameKind::ALL.map(|kind| frames.get_or_create_owned(&FrameLabels { kind })),
            envelopes_delivered: Counter::default(),
            delivery_lag: seconds(),
            mailbox_overflows: Counter::default(),
            tailer_polls: Counter::default(),
            tailer_errors: Counter::default(),
            tailer_arrivals: Counter::default(),
            tailer_gaps: Gauge::default(),
            publishes: Family::default(),
            publish_duration: seconds(),
            envelopes_acknowledged: Counter::default(),
            queries: Family::default(),
            query_duration: seconds(),
            pools: Pools::default(),
            ready: Gauge::default(),
            registry: Registry::default(),
        };
        registry.register("sessions", "Open stream sessions", sessions);
        registry.register("frames_sent", "Frames the transport took", frames);
        counted.register_streams(&mut registry);
        counted.register_calls(&mut registry);
        counted.register_store(&mut registry);
        counted.registry = registry;
        Self(Arc::new(counted))
    }
}

impl Counted {
    fn register_streams(&self, registry: &mut Registry) {
        let ended = "Stream sessions that ended, by the status they ended with";
        registry.register("sessions_ended", ended, self.sessions_ended.clone());
        registry.register("registrations", "Topics registered, over all streams", self.registrations.clone());
        let delivered = "Envelopes in frames that the transport took";
        registry.register("envelopes_delivered", delivered, self.envelopes_delivered.clone());
        let lag =
            "From an envelope's server time to the transport taking it: the first live one of each frame";
        registry.register_with_unit("delivery_lag", lag, Unit::Seconds, self.delivery_lag.clone());
        let overflows =
            "Arrivals that a stream's mailbox had no room for and that are read from the store later";
        registry.register("mailbox_overflows", overflows, self.mailbox_overflows.clone());
    }

    fn register_calls(&self, registry: &mut Registry) {
        registry.register("publishes", "Publishes, by outcome", self.publishes.clone());
        let duration = "How long publishes took";
        registry.register_with_unit(
            "publish_duration",
            duration,
            Unit::Seconds,
            self.publish_duration.clone(),
        );
        let acknowledged = "Envelopes in publishes that succeeded, those stored before included";
        registry.register("envelopes_acknowledged", acknowledged, self.envelopes_acknowledged.clone());
        registry.register("queries", "Unary reads, by method and outcome", self.queries.clone());
        let duration = "How long unary reads took";
        registry.register_with_unit("query_duration", duration, Unit::Seconds, self.query_duration.clone());
    }

    fn register_store(&self, registry: &mut Registry) {
        registry.register("tailer_polls", "Looks of the tailer at the store", self.tailer_polls.clone());
        registry.register("tailer_errors", "Looks of the tailer that failed", self.tailer_errors.clone());
        let arrivals = "Envelopes the tailer saw become visible, whichever instance stored them";
        registry.register("tailer_arrivals", arrivals, self.tailer_arrivals.clone());
        let gaps = "Ids below the greatest one seen that may still become visible";
        registry.register("tailer_gaps", gaps, self.tailer_gaps.clone());
        let Pools { open, idle, max } = &self.pools;
        registry.register("store_connections_open", "Connections of a pool", open.clone());
        registry.register("store_connections_idle", "Connections of a pool that nobody uses", idle.clone());
        registry.register("store_connections_max", "Connections a pool may have", max.clone());
        registry.register("ready", "1 while /readyz says so", self.ready.clone());
    }
}

impl Metrics {
    /// A stream began; it ends with what is returned.
    pub(crate) fn session(&self, kind: StreamKind) -> OpenSession {
        OpenSession::new(self.clone(), kind)
    }

    pub(crate) fn registered(&self, topics: usize) {
        self.0.registrations.inc_by(signed(topics));
    }

    pub(crate) fn deregistered(&self, topics: usize) {
        self.0.registrations.dec_by(signed(topics));
    }

    /// The transport took a frame.
    pub(crate) fn handed(&self, frame: &Frame) {
        let counted = &*self.0;
        counted.frames[FrameKind::of(frame) as usize].inc();
        if let Frame::Messages(envelopes) = frame {
            counted.envelopes_delivered.inc_by(envelopes.len() as u64);
            // One look at the clock for a frame, at the envelope that waited longest.
            if let Some(at) = envelopes.iter().find_map(|delivery| delivery.live_since) {
                let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
                counted.delivery_lag.observe(now.saturating_sub(at).as_secs_f64());
            }
        }
    }

    pub(crate) fn mailbox_overflowed(&self) {
        self.0.mailbox_overflows.inc();
    }

    /// The tailer saw so many arrivals, or failed.
    pub(crate) fn polled(&self, arrivals: Option<usize>, gaps: usize) {
        self.0.tailer_polls.inc();
        match arrivals {
            Some(arrivals) => self.0.tailer_arrivals.inc_by(arrivals as u64),
            None => self.0.tailer_errors.inc(),
        };
        self.0.tailer_gaps.set(signed(gaps));
    }

    /// A publish began; it ends with what is returned.
    pub(crate) fn publish(&self) -> Call {
        Call::new(self.clone(), None)
    }

    /// A read began; it ends with what is returned.
    pub(crate) fn query(&self, method: Method) -> Call {
        Call::new(self.clone(), Some(method))
    }

    pub(crate) fn acknowledged(&self, envelopes: usize) {
        self.0.envelopes_acknowledged.inc_by(envelopes as u64);
    }

    fn called(&self, method: Option<Method>, outcome: &'static str, took: Duration) {
        let counted = &*self.0;
        let (counter, duration) = match method {
            None => {
                let labels = OutcomeLabels { outcome };
                (counted.publishes.get_or_create_owned(&labels), &counted.publish_duration)
            }
            Some(method) => {
                let labels = CallLabels { method, outcome };
                (counted.queries.get_or_create_owned(&labels), &counted.query_duration)
            }
        };
        counter.inc();
        duration.observe(took.as_secs_f64());
    }

    /// Everything as OpenMetrics text, with what is only known when asked.
    pub(crate) fn text(&self, pools: &[PoolUse], ready: bool) -> Result<String, std::fmt::Error> {
        for pool in pools {
            let labels = PoolLabels { pool: pool.name };
            let set = |family: &Family<PoolLabels, Gauge>, value: u32| {
                family.get_or_create(&labels).set(value.into());
            };
            set(&self.0.pools.open, pool.open);
            set(&self.0.pools.idle, pool.idle);
            set(&self.0.pools.max, pool.max);
        }
        self.0.ready.set(ready.into());
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &self.0.registry)?;
        Ok(text)
    }
}

fn signed(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}
