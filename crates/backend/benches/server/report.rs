//! The line that reports a measurement.

use std::time::Duration;

/// What a floor and the server took, for so many units of work.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pair {
    pub(crate) floor: Duration,
    pub(crate) ours: Duration,
    pub(crate) count: usize,
    pub(crate) unit: &'static str,
}

impl Pair {
    fn ratio(&self) -> f64 {
        self.floor.as_secs_f64() / self.ours.as_secs_f64()
    }

    fn each(&self, total: Duration) -> f64 {
        total.as_secs_f64() * 1e6 / self.count as f64
    }
}

/// Prints the round with the median ratio, and the ratios of all.
pub(crate) fn median(name: &str, mut rounds: Vec<Pair>) {
    rounds.sort_by(|a, b| a.ratio().total_cmp(&b.ratio()));
    let ratios: Vec<String> = rounds.iter().map(|pair| format!("{:.3}", pair.ratio())).collect();
    println!("{name}: ratios {}", ratios.join(" "));
    let pair = rounds[rounds.len() / 2];
    println!(
        r#"{{"bench":"{name}","ratio":{:.4},"floor_us":{:.2},"measured_us":{:.2},"unit":"{}"}}"#,
        pair.ratio(),
        pair.each(pair.floor),
        pair.each(pair.ours),
        pair.unit,
    );
}
