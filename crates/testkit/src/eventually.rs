use std::time::{Duration, Instant};

/// Waits until `reached` says so, looking again and again.
///
/// # Panics
/// When it hasn't after half a minute.
pub async fn eventually(what: &str, mut reached: impl AsyncFnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while !reached().await {
        assert!(Instant::now() < deadline, "waited in vain for {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
