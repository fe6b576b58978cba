//! A token bucket: so many frames a second, so many at once (STR-032).

use std::time::Instant;

#[derive(Debug)]
pub(super) struct Bucket {
    per_second: f64,
    burst: f64,
    tokens: f64,
    filled: Instant,
}

impl Bucket {
    pub(super) fn full(per_second: u32, burst: u32, now: Instant) -> Self {
        let burst = f64::from(burst);
        Self { per_second: f64::from(per_second), burst, tokens: burst, filled: now }
    }

    /// Takes one token; `false` when there is none.
    pub(super) fn take(&mut self, now: Instant) -> bool {
        let elapsed = now.saturating_duration_since(self.filled).as_secs_f64();
        self.tokens = (self.tokens + elapsed * self.per_second).min(self.burst);
        self.filled = now;
        let granted = self.tokens >= 1.0;
        if granted {
            self.tokens -= 1.0;
        }
        granted
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// Shows: STR-032.
    #[test]
    fn a_bucket_grants_its_burst_and_then_its_rate() {
        let start = Instant::now();
        let mut bucket = Bucket::full(10, 100, start);
        assert!((0..100).all(|_| bucket.take(start)));
        assert!(!bucket.take(start));
        let later = start + Duration::from_secs(1);
        assert!((0..10).all(|_| bucket.take(later)));
        assert!(!bucket.take(later));
    }
}
