use std::time::{Duration, Instant};

/// Polls until `look` says yes, and panics with `what` when the deadline passes first.
///
/// # Panics
/// After `deadline`.
pub async fn eventually<F>(what: &str, deadline: Duration, mut look: impl FnMut() -> F)
where
    F: Future<Output = bool>,
{
    let end = Instant::now() + deadline;
    while !look().await {
        assert!(Instant::now() < end, "not within {deadline:?}: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
