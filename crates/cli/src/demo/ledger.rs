//! What was sent, what was handed to whom, and what that comes to.
//!
//! A message is owed to each inbox that was a member of its conversation when it was sent, the sender included: changes
//! of membership happen only while nothing is on its way, and nobody speaks again before every member has applied them,
//! so "when it was sent" has one meaning. Without the second half a member that hasn't heard of a newcomer yet would
//! still encrypt for the group as it was, which the newcomer rightly can't read.
//! The sender's own copy must arrive in order like any other, but isn't counted in `delivered`.

use std::collections::{BTreeMap, BTreeSet};

use highwater::{GroupId, MessageId};

use super::plan::Who;

/// A message that was sent.
#[derive(Clone, Debug)]
pub(super) struct Sent {
    pub(super) id: MessageId,
    pub(super) group: GroupId,
    pub(super) by: Who,
    /// The members at that time, the sender included.
    pub(super) members: BTreeSet<Who>,
}

/// An application message that a consumer was handed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Handed {
    pub(super) id: MessageId,
    pub(super) group: GroupId,
    pub(super) sequence_id: u64,
}

/// Everything that was sent and handed out in one demonstration.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    /// In the order it was sent.
    pub(super) sent: Vec<Sent>,
    /// In the order it was handed out, over all consumers a client had.
    pub(super) handed: BTreeMap<Who, Vec<Handed>>,
    /// The item that was out when a process was killed.
    pub(super) killed: Vec<(Who, MessageId)>,
}

/// What it comes to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Sums {
    pub(super) sent: usize,
    /// (message, other member) pairs that arrived.
    pub(super) delivered: usize,
    /// Copies owed that did not arrive.
    pub(super) lost: usize,
    /// Handed out again for no reason, or handed to somebody it wasn't for.
    pub(super) duplicated: usize,
    pub(super) reordered: usize,
    /// Repeats of an item that was out when its process was killed.
    pub(super) repeated: usize,
}

/// What can be wrong about a copy of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wrong {
    Lost,
    Duplicated,
    Reordered,
}

impl Wrong {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Lost => "lost",
            Self::Duplicated => "duplicated",
            Self::Reordered => "reordered",
        }
    }
}

/// Something that should not have happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Finding {
    pub(super) what: Wrong,
    pub(super) who: Who,
    pub(super) id: MessageId,
}

impl Ledger {
    /// Whether everything owed was handed out.
    pub(super) fn is_complete(&self) -> bool {
        self.sums().lost == 0
    }

    /// How many items were handed out: grows as long as something happens.
    pub(super) fn handed(&self) -> usize {
        self.handed.values().map(Vec::len).sum()
    }

    pub(super) fn sums(&self) -> Sums {
        self.judge().0
    }

    /// The sums, and what is behind those that should be zero.
    pub(super) fn judge(&self) -> (Sums, Vec<Finding>) {
        let mut sums = Sums { sent: self.sent.len(), ..Sums::default() };
        let mut findings = Vec::new();
        let everybody: BTreeSet<Who> =
            self.sent.iter().flat_map(|sent| sent.members.iter().copied()).collect();
        for who in everybody {
            let handed = self.handed.get(&who).map_or(&[][..], Vec::as_slice);
            self.judge_one(who, handed, &mut sums, &mut findings);
        }
        for Finding { what, .. } in &findings {
            *match what {
                Wrong::Lost => &mut sums.lost,
                Wrong::Duplicated => &mut sums.duplicated,
                Wrong::Reordered => &mut sums.reordered,
            } += 1;
        }
        (sums, findings)
    }

    fn judge_one(&self, who: Who, handed: &[Handed], sums: &mut Sums, findings: &mut Vec<Finding>) {
        let mut find = |what, id| findings.push(Finding { what, who, id });
        let owed: BTreeMap<MessageId, (usize, &Sent)> = self
            .sent
            .iter()
            .enumerate()
            .filter(|(_, sent)| sent.members.contains(&who))
            .map(|(index, sent)| (sent.id, (index, sent)))
            .collect();
        let mut may_repeat: Vec<_> =
            self.killed.iter().filter(|(killed, _)| *killed == who).map(|(_, id)| *id).collect();
        let mut seen = BTreeSet::new();
        let mut order = Order::default();
        for item in handed {
            if !seen.insert(item.id) {
                match may_repeat.iter().position(|id| *id == item.id) {
                    Some(index) => {
                        may_repeat.swap_remove(index);
                        sums.repeated += 1;
                    }
                    None => find(Wrong::Duplicated, item.id),
                }
                continue;
            }
            match owed.get(&item.id) {
                Some((index, sent)) if sent.group == item.group => {
                    sums.delivered += usize::from(sent.by != who);
                    if !order.follows(item, sent.by, *index) {
                        find(Wrong::Reordered, item.id);
                    }
                }
                _ => find(Wrong::Duplicated, item.id),
            }
        }
        owed.keys().filter(|id| !seen.contains(*id)).for_each(|id| find(Wrong::Lost, *id));
    }
}

/// The order within one client's conversations: that of the topic, and that in which each sender spoke.
#[derive(Default)]
struct Order {
    topic: BTreeMap<GroupId, u64>,
    sender: BTreeMap<(GroupId, Who), usize>,
}

impl Order {
    fn follows(&mut self, item: &Handed, by: Who, index: usize) -> bool {
        let topic = self.topic.entry(item.group).or_default();
        let in_topic = item.sequence_id > *topic;
        *topic = (*topic).max(item.sequence_id);
        let sender = self.sender.entry((item.group, by)).or_default();
        // Indexes start at 0; one more keeps the first apart from nothing.
        let in_turn = index + 1 > *sender;
        *sender = (*sender).max(index + 1);
        in_topic && in_turn
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GROUP: GroupId = GroupId::from_bytes([7; 16]);

    fn id(n: u8) -> MessageId {
        MessageId::from_bytes([n; 32])
    }

    fn handed(n: u8) -> Handed {
        Handed { id: id(n), group: GROUP, sequence_id: n.into() }
    }

    /// Messages 1 and 2 by client 0 to clients 0 and 1, handed out as given.
    fn ledger(to_0: &[u8], to_1: &[u8]) -> Ledger {
        let sent = |n| Sent { id: id(n), group: GROUP, by: 0, members: [0, 1].into() };
        let list = |ns: &[u8]| ns.iter().map(|n| handed(*n)).collect();
        Ledger {
            sent: vec![sent(1), sent(2)],
            handed: [(0, list(to_0)), (1, list(to_1))].into(),
            killed: Vec::new(),
        }
    }

    #[test]
    fn only_other_members_count_as_delivered() {
        let sums = ledger(&[1, 2], &[1, 2]).sums();
        assert_eq!(sums, Sums { sent: 2, delivered: 2, ..Sums::default() });
    }

    #[test]
    fn a_missing_copy_is_lost_even_if_it_is_the_senders_own() {
        assert_eq!(ledger(&[1], &[1, 2]).sums().lost, 1);
        assert_eq!(ledger(&[1, 2], &[2]).sums().lost, 1);
        assert!(!ledger(&[1, 2], &[]).is_complete());
    }

    #[test]
    fn the_wrong_order_is_seen() {
        assert_eq!(ledger(&[1, 2], &[2, 1]).sums().reordered, 1);
    }

    #[test]
    fn a_senders_own_order_counts_even_where_the_topic_agrees() {
        let mut ledger = ledger(&[1, 2], &[1, 2]);
        ledger.sent.swap(0, 1);
        assert_eq!(ledger.sums().reordered, 2);
    }

    #[test]
    fn a_killed_item_may_come_once_more_and_nothing_else_may() {
        let mut ledger = ledger(&[1, 2], &[1, 1, 2, 2]);
        ledger.killed.push((1, id(1)));
        let sums = ledger.sums();
        assert_eq!((sums.repeated, sums.duplicated), (1, 1));
        ledger.handed.get_mut(&1).unwrap().push(handed(1));
        assert_eq!(ledger.sums().duplicated, 2);
    }

    #[test]
    fn a_message_for_others_is_counted_against_the_run() {
        let mut ledger = ledger(&[1, 2], &[1, 2]);
        ledger.sent[1].members = [0].into();
        assert_eq!(ledger.sums().duplicated, 1);
    }
}
