//! How long to wait before the next try.

use std::time::Duration;

/// A doubling wait with jitter, from one second to one minute, a server's own wish honoured.
///
/// The wait starts over only when [`Backoff::sustained`] says that a connection proved useful; opening one doesn't.
#[derive(Debug, Clone)]
pub struct Backoff {
    failures: u32,
}

const FIRST: Duration = Duration::from_secs(1);
const LAST: Duration = Duration::from_secs(60);
const JITTER: f64 = 0.25;

impl Default for Backoff {
    fn default() -> Self {
        Self::new()
    }
}

impl Backoff {
    /// A backoff without failures.
    pub fn new() -> Self {
        Self { failures: 0 }
    }

    /// One more failure: the wait before the next try. `wish` is what the server asked for, if it did; `random` is
    /// uniform in 0..1.
    pub fn failed(&mut self, wish: Option<Duration>, random: f64) -> Duration {
        let wait = FIRST.saturating_mul(1 << self.failures.min(6)).min(LAST);
        self.failures = self.failures.saturating_add(1);
        let jittered = wait.mul_f64(1.0 - JITTER + 2.0 * JITTER * random.clamp(0.0, 1.0));
        jittered.max(wish.unwrap_or_default())
    }

    /// A connection was useful for long enough: the next failure waits the shortest time again.
    pub fn sustained(&mut self) {
        self.failures = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_to_a_minute_and_stay_within_a_quarter() {
        let mut backoff = Backoff::new();
        for expected in [1, 2, 4, 8, 16, 32, 60, 60, 60] {
            let low = backoff.clone().failed(None, 0.0);
            let wait = backoff.failed(None, 1.0);
            assert_eq!(low, Duration::from_secs(expected).mul_f64(0.75));
            assert_eq!(wait, Duration::from_secs(expected).mul_f64(1.25));
        }
        backoff.sustained();
        assert_eq!(backoff.failed(None, 0.5), Duration::from_secs(1));
    }

    #[test]
    fn a_servers_wish_is_a_lower_bound() {
        let wish = Duration::from_secs(17);
        assert_eq!(Backoff::new().failed(Some(wish), 0.5), wish);
    }
}
