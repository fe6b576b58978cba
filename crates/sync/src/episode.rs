//! One app stream's recovery budget.

use std::time::Duration;

/// Failed recovery cycles that end an episode.
pub const RECOVERY_BUDGET_CYCLES: u32 = 10;
/// Time without sustained recovery that ends an episode.
pub const RECOVERY_BUDGET_TIME: Duration = Duration::from_secs(600);
/// How long the selected registrations must stay active for recovery to count as sustained.
pub const SUSTAINED_RECOVERY: Duration = Duration::from_secs(30);

/// A recovery episode: from a stream's first connection, or a detected failure, until recovery was sustained or the
/// budget is spent (PROC-038). Times are durations since any fixed start.
///
/// Opening a connection alone proves nothing; every stream has an episode of its own (PROC-039).
#[derive(Debug, Clone)]
pub struct Episode {
    started: Option<Duration>,
    cycles: u32,
    active_since: Option<Duration>,
}

impl Episode {
    /// The episode of a stream's first connection.
    pub fn first(now: Duration) -> Self {
        Self { started: Some(now), cycles: 0, active_since: None }
    }

    /// A cycle of recovery failed, or a healthy connection did.
    pub fn failed(&mut self, now: Duration) {
        self.settle(now);
        self.active_since = None;
        if self.started.is_none() {
            self.started = Some(now);
            self.cycles = 0;
        } else {
            self.cycles = self.cycles.saturating_add(1);
        }
    }

    /// Every selected registration is active and none is paused.
    pub fn active(&mut self, now: Duration) {
        self.active_since.get_or_insert(now);
    }

    /// Some selected registration isn't active any more, without a failure.
    pub fn inactive(&mut self, now: Duration) {
        self.settle(now);
        self.active_since = None;
    }

    /// Whether the stream must end now.
    pub fn is_exhausted(&mut self, now: Duration) -> bool {
        self.settle(now);
        self.started.is_some_and(|started| {
            self.cycles >= RECOVERY_BUDGET_CYCLES || now.saturating_sub(started) >= RECOVERY_BUDGET_TIME
        })
    }

    /// Whether recovery is proven: no episode is running.
    pub fn is_sustained(&mut self, now: Duration) -> bool {
        self.settle(now);
        self.started.is_none()
    }

    fn settle(&mut self, now: Duration) {
        let sustained = |since: Duration| now.saturating_sub(since) >= SUSTAINED_RECOVERY;
        if self.active_since.is_some_and(sustained) {
            self.started = None;
            self.cycles = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn ten_failed_cycles_exhaust_it() {
        let mut episode = Episode::first(at(0));
        for n in 0..10 {
            assert!(!episode.is_exhausted(at(n)));
            episode.failed(at(n));
        }
        assert!(episode.is_exhausted(at(10)));
    }

    #[test]
    fn ten_minutes_without_sustained_recovery_exhaust_it() {
        let mut episode = Episode::first(at(0));
        episode.active(at(580));
        assert!(!episode.is_exhausted(at(599)));
        assert!(episode.is_exhausted(at(600)));
    }

    #[test]
    fn short_lived_connections_do_not_reset_it() {
        let mut episode = Episode::first(at(0));
        for n in 0..10 {
            episode.active(at(n * 30));
            episode.failed(at(n * 30 + 29));
        }
        assert!(episode.is_exhausted(at(300)));
    }

    #[test]
    fn thirty_active_seconds_end_it_and_the_next_failure_starts_another() {
        let mut episode = Episode::first(at(0));
        episode.failed(at(1));
        episode.active(at(2));
        assert!(episode.is_sustained(at(32)));
        episode.failed(at(5000));
        assert!(!episode.is_exhausted(at(5001)));
        assert!(episode.is_exhausted(at(5600)));
    }
}
