//! Times of a floor and of what stands on it, and the line that reports them.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Time of a floor and of the path over the same messages.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Pair {
    pub(crate) floor: Duration,
    pub(crate) ours: Duration,
    pub(crate) messages: usize,
}

impl Pair {
    /// The floor's time over ours; more is better.
    fn ratio(self) -> f64 {
        self.floor.as_secs_f64() / self.ours.as_secs_f64()
    }

    fn per_message(self, total: Duration) -> f64 {
        total.as_secs_f64() * 1e6 / self.messages as f64
    }
}

/// The measurements of one round, by benchmark.
pub(crate) type Round = BTreeMap<&'static str, Pair>;

/// Prints the round with the median ratio, and the ratios of all.
pub(crate) fn report(name: &str, rounds: &[Round]) {
    let mut pairs: Vec<Pair> = rounds.iter().filter_map(|round| round.get(name).copied()).collect();
    pairs.sort_by(|a, b| a.ratio().total_cmp(&b.ratio()));
    let Some(median) = pairs.get(pairs.len() / 2) else {
        return;
    };
    let ratios: Vec<String> = pairs.iter().map(|pair| format!("{:.3}", pair.ratio())).collect();
    println!("{name}: ratios {}", ratios.join(" "));
    println!(
        r#"{{"bench":"{name}","ratio":{:.4},"floor_us":{:.2},"measured_us":{:.2},"unit":"per message"}}"#,
        median.ratio(),
        median.per_message(median.floor),
        median.per_message(median.ours),
    );
}

/// A stopwatch that adds up.
pub(crate) struct Lap(Instant);

impl Lap {
    pub(crate) fn start() -> Self {
        Self(Instant::now())
    }

    pub(crate) fn add_to(self, total: &mut Duration) {
        *total += self.0.elapsed();
    }
}
