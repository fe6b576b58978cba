//! What happens in a demonstration, and when: a pure function of how many messages are asked for.

/// One of the three clients.
pub(super) type Who = usize;

pub(super) const NAMES: [&str; 3] = ["alice", "bob", "carol"];
pub(super) const ALICE: Who = 0;
pub(super) const BOB: Who = 1;
pub(super) const CAROL: Who = 2;

/// One of the three conversations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Place {
    /// Everybody, all the time.
    Harbour,
    /// Bob's, with Alice; Carol comes in and is taken out.
    Lookout,
    /// Alice and Carol alone.
    Dm,
}

impl Place {
    pub(super) const ALL: [Self; 3] = [Self::Harbour, Self::Lookout, Self::Dm];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Harbour => "harbour",
            Self::Lookout => "lookout",
            Self::Dm => "dm",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// A message.
    Say { who: Who, place: Place },
    /// Every link is cut.
    Cut,
    /// A client is closed and opened again.
    Reopen(Who),
    /// A process that reads for a client is killed while it handles an item. Others have just said something to it.
    Kill(Who),
    /// Carol comes into the lookout.
    Add,
    /// Carol is taken out of it.
    Remove,
}

/// Everything besides messages, in the order it happens, spread evenly over them. Cuts and reopenings alternate, so that
/// each link is cut with a fresh connection as well as during recovery.
const EVENTS: [Step; 14] = [
    Step::Kill(ALICE),
    Step::Cut,
    Step::Reopen(BOB),
    Step::Cut,
    Step::Add,
    Step::Cut,
    Step::Reopen(ALICE),
    Step::Kill(CAROL),
    Step::Cut,
    Step::Remove,
    Step::Reopen(CAROL),
    Step::Cut,
    Step::Reopen(BOB),
    Step::Cut,
];

/// The whole course. A `Kill` follows a message to its client directly, so that there is an item to be killed with; with
/// few messages only as many are killed as that allows, but always one.
pub(super) fn course(messages: u32) -> Vec<Step> {
    let messages = messages as usize;
    let mut steps = Vec::with_capacity(messages + EVENTS.len());
    let mut said = 0;
    let mut carol_is_in = false;
    for (index, event) in EVENTS.into_iter().enumerate() {
        let until = (messages * (index + 1) / (EVENTS.len() + 1)).max(1).min(messages);
        let mut fresh = false;
        while said < until {
            let say = match event {
                // The last one before a kill is for the client that is killed.
                Step::Kill(victim) if said + 1 == until => {
                    Step::Say { who: other_than(victim), place: Place::Harbour }
                }
                _ => nth(said, carol_is_in),
            };
            steps.push(say);
            said += 1;
            fresh = true;
        }
        match event {
            Step::Kill(_) if !fresh => continue,
            Step::Add => carol_is_in = true,
            Step::Remove => carol_is_in = false,
            _ => {}
        }
        steps.push(event);
    }
    while said < messages {
        steps.push(nth(said, carol_is_in));
        said += 1;
    }
    steps
}

fn other_than(victim: Who) -> Who {
    (victim + 1) % NAMES.len()
}

fn nth(index: usize, carol_is_in: bool) -> Step {
    let who = index % NAMES.len();
    let places: &[Place] = match (who, carol_is_in) {
        (ALICE, _) => &Place::ALL,
        (BOB, _) => &[Place::Harbour, Place::Lookout],
        (_, true) => &[Place::Harbour, Place::Dm, Place::Lookout],
        (_, false) => &[Place::Harbour, Place::Dm],
    };
    Step::Say { who, place: places[index / NAMES.len() % places.len()] }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(steps: &[Step], which: impl Fn(&Step) -> bool) -> usize {
        steps.iter().filter(|step| which(step)).count()
    }

    #[test]
    fn a_course_has_the_messages_asked_for_and_enough_of_everything_else() {
        for messages in [1, 2, 5, 13, 14, 15, 200, 1000] {
            let steps = course(messages);
            assert_eq!(count(&steps, |step| matches!(step, Step::Say { .. })), messages as usize);
            assert!(count(&steps, |step| *step == Step::Cut) >= 5, "{messages}");
            assert!(count(&steps, |step| matches!(step, Step::Reopen(_))) >= 3, "{messages}");
            assert!(count(&steps, |step| matches!(step, Step::Kill(_))) >= 1, "{messages}");
            assert_eq!(count(&steps, |step| *step == Step::Add), 1);
            assert_eq!(count(&steps, |step| *step == Step::Remove), 1);
        }
    }

    #[test]
    fn whoever_is_killed_was_just_spoken_to_by_another() {
        for messages in [1, 14, 200] {
            let steps = course(messages);
            for (index, step) in steps.iter().enumerate() {
                if let Step::Kill(victim) = step {
                    let Step::Say { who, place: Place::Harbour } = steps[index - 1] else {
                        panic!("{:?} before a kill", steps[index - 1]);
                    };
                    assert_ne!(who, *victim);
                }
            }
        }
    }

    #[test]
    fn carol_speaks_in_the_lookout_only_while_she_is_in() {
        let mut is_in = false;
        for step in course(500) {
            match step {
                Step::Add => is_in = true,
                Step::Remove => is_in = false,
                Step::Say { who: CAROL, place: Place::Lookout } => assert!(is_in),
                Step::Say { who: BOB, place } => assert_ne!(place, Place::Dm),
                _ => {}
            }
        }
    }
}
