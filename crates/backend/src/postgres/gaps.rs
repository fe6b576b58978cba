//! Which ids the tail has not seen yet: a plain state machine over what one snapshot shows.
//!
//! Publishes commit in another order than they took their ids, and some never commit. So below the
//! greatest id seen there are gaps. A gap is asked for again until its id shows, or until the closed
//! allocation boundary has passed it; never is one given up for its age.

/// What is missing, as ranges, since one jump of the sequence can leave out a great many ids.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Gaps {
    /// Every id above this is still to come.
    seen: i64,
    /// Ascending, disjoint, all at or below `seen`.
    missing: Vec<(i64, i64)>,
}

impl Gaps {
    /// Nothing was seen; everything at or below `closed` is settled.
    pub(super) fn starting_at(closed: i64) -> Self {
        Self { seen: closed, missing: Vec::new() }
    }

    /// Where to look: at these ranges, and above this id.
    pub(super) fn wanted(&self) -> (&[(i64, i64)], i64) {
        (&self.missing, self.seen)
    }

    /// Ids that may still appear below one that was seen.
    pub(super) fn len(&self) -> usize {
        let ids: i64 = self.missing.iter().map(|(low, high)| high - low + 1).sum();
        usize::try_from(ids).unwrap_or(usize::MAX)
    }

    /// Takes what a snapshot showed of the wanted: `ids`, ascending, all in the missing ranges and the first
    /// ones above; `whole` when there were no more above. `closed` is the boundary in the same snapshot.
    pub(super) fn show(&mut self, ids: &[i64], whole: bool, closed: i64) {
        for id in ids {
            if *id > self.seen {
                if *id > self.seen + 1 {
                    self.missing.push((self.seen + 1, id - 1));
                }
                self.seen = *id;
            } else {
                self.fill(*id);
            }
        }
        // All that committed at or below the boundary was in the snapshot; with a cut look, so far as
        // the look went.
        if whole {
            self.seen = self.seen.max(closed);
        }
        self.missing.retain_mut(|(low, high)| {
            *low = (*low).max(closed.saturating_add(1));
            low <= high
        });
    }

    fn fill(&mut self, id: i64) {
        let Some(place) = self.missing.iter().position(|(low, high)| (*low..=*high).contains(&id)) else {
            return;
        };
        let (low, high) = self.missing.remove(place);
        if id < high {
            self.missing.insert(place, (id + 1, high));
        }
        if low < id {
            self.missing.insert(place, (low, id - 1));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use rand::{RngExt as _, SeedableRng as _, rngs::StdRng};

    use super::*;

    #[test]
    fn a_gap_is_asked_for_until_its_id_shows() {
        let mut gaps = Gaps::starting_at(0);
        gaps.show(&[1, 4, 5], true, 1);
        assert_eq!(gaps.wanted(), (&[(2, 3)][..], 5));
        gaps.show(&[3], true, 1);
        assert_eq!(gaps.wanted(), (&[(2, 2)][..], 5));
        gaps.show(&[2, 6], true, 1);
        assert_eq!(gaps.wanted(), (&[][..], 6));
    }

    #[test]
    fn a_gap_is_given_up_by_the_boundary_alone() {
        let mut gaps = Gaps::starting_at(0);
        gaps.show(&[10], true, 0);
        for _ in 0..1_000 {
            gaps.show(&[], true, 4);
        }
        assert_eq!((gaps.wanted(), gaps.len()), ((&[(5, 9)][..], 10), 5));
        gaps.show(&[], true, 12);
        assert_eq!(gaps.wanted(), (&[][..], 12));
    }

    #[test]
    fn a_cut_look_goes_no_further_than_it_saw() {
        let mut gaps = Gaps::starting_at(0);
        gaps.show(&[1, 2], false, 50);
        assert_eq!(gaps.wanted(), (&[][..], 2));
    }

    /// Shows: STR-010.
    /// Publishes commit in any order or never, the boundary follows them, looks come whenever and are cut
    /// anywhere: every committed id is shown once.
    #[test]
    fn whatever_the_schedule_every_committed_id_is_shown_once() {
        for seed in 0..2_000 {
            let mut random = StdRng::seed_from_u64(seed);
            let (mut next, mut open, mut committed) = (1_i64, BTreeSet::new(), BTreeSet::new());
            let (mut gaps, mut shown, mut closed) = (Gaps::starting_at(0), Vec::new(), 0);
            for step in 0..200 {
                let closing = step > 150;
                if !closing && random.random_bool(0.5) {
                    open.insert(next);
                    next += if random.random_bool(0.02) { 1_000_000 } else { 1 };
                }
                if (closing || random.random_bool(0.5))
                    && let Some(ends) = open.iter().nth(random.random_range(0..open.len().max(1))).copied()
                {
                    open.remove(&ends);
                    if random.random_bool(0.8) {
                        committed.insert(ends);
                    }
                }
                if random.random_bool(0.3) {
                    closed = open.first().map_or(next - 1, |first| first - 1);
                }
                look(&mut gaps, &committed, closed, random.random_range(1..5), &mut shown);
            }
            for _ in 0..200 {
                look(&mut gaps, &committed, closed, 5, &mut shown);
            }
            let unique: BTreeSet<i64> = shown.iter().copied().collect();
            assert_eq!(unique.len(), shown.len(), "seed {seed}: shown twice");
            assert_eq!(unique, committed, "seed {seed}");
        }
    }

    fn look(gaps: &mut Gaps, committed: &BTreeSet<i64>, closed: i64, limit: usize, shown: &mut Vec<i64>) {
        let (missing, seen) = gaps.wanted();
        let mut ids: Vec<i64> =
            missing.iter().flat_map(|(low, high)| committed.range(low..=high).copied()).collect();
        let above: Vec<i64> = committed.range(seen + 1..).take(limit).copied().collect();
        let whole = above.len() < limit;
        ids.extend(above);
        shown.extend(&ids);
        gaps.show(&ids, whole, closed);
    }
}
