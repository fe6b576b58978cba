//! Keeping a session's updates within the backend's bucket (STR-032).

use std::time::Duration;

use highwater_wire::limits::{UPDATE_BURST, UPDATES_PER_SECOND};
use tokio::time::Instant;

const INTERVAL: Duration = Duration::from_millis(1_000 / UPDATES_PER_SECOND as u64);
/// Half the burst stays unused: what leaves evenly may arrive bunched.
const TOLERANCE: Duration = INTERVAL.saturating_mul(UPDATE_BURST / 2 - 1);

/// When the next update may leave.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    /// When all updates so far would have left, had they been spread evenly.
    even: Option<Instant>,
}

impl Pace {
    /// From when on one more update may leave; absent when it may at once.
    pub(crate) fn ready_at(&self) -> Option<Instant> {
        self.even.and_then(|even| even.checked_sub(TOLERANCE))
    }

    /// An update leaves.
    pub(crate) fn left(&mut self, now: Instant) {
        self.even = Some(self.even.map_or(now, |even| even.max(now)) + INTERVAL);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn updates_stay_within_the_backends_bucket_at_every_moment() {
        let start = Instant::now();
        let mut pace = Pace::default();
        let (mut now, mut tokens, mut refilled) = (start, f64::from(UPDATE_BURST), start);
        let mut sent = 0;
        while now < start + Duration::from_secs(60) {
            now = pace.ready_at().map_or(now, |at| at.max(now));
            pace.left(now);
            let rate = f64::from(UPDATES_PER_SECOND);
            tokens = f64::from(UPDATE_BURST).min(tokens + rate * (now - refilled).as_secs_f64());
            refilled = now;
            tokens -= 1.0;
            assert!(tokens >= 0.0, "the bucket ran dry after {sent} updates");
            sent += 1;
        }
        assert!(sent >= 600, "the allowance is used: {sent}");
    }
}
