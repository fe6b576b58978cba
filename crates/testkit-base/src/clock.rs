use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use highwater_store::Clock;

/// A clock that stands still until a test moves it, in either direction. Clones share it.
#[derive(Clone, Debug)]
pub struct TestClock(Arc<AtomicI64>);

impl TestClock {
    /// A clock at this time, in nanoseconds since the Unix epoch.
    pub fn at(now_ns: i64) -> Self {
        Self(Arc::new(AtomicI64::new(now_ns)))
    }

    /// Sets the time.
    pub fn set(&self, now_ns: i64) {
        self.0.store(now_ns, Ordering::SeqCst);
    }

    /// Moves the time forward.
    pub fn advance(&self, by: Duration) {
        let by = i64::try_from(by.as_nanos()).expect("tests move clocks by less than centuries");
        self.0.fetch_add(by, Ordering::SeqCst);
    }

    /// Moves the time back, as a corrected system clock does.
    pub fn turn_back(&self, by: Duration) {
        let by = i64::try_from(by.as_nanos()).expect("tests move clocks by less than centuries");
        self.0.fetch_sub(by, Ordering::SeqCst);
    }
}

impl Default for TestClock {
    /// A day in 2026.
    fn default() -> Self {
        Self::at(1_780_000_000_000_000_000)
    }
}

impl Clock for TestClock {
    fn now_ns(&self) -> i64 {
        self.0.load(Ordering::SeqCst)
    }
}
