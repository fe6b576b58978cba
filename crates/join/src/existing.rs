//! What a valid Welcome may do to a group that is here already (STR-082), as a plain function.

use highwater_processing::AnchorRule;
use highwater_wire::{Cursor, SequenceId};

/// The local side of the decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LocalGroup {
    /// No MLS state: unknown, or restored from an archive.
    Absent,
    /// Inactive, left at this epoch.
    Inactive {
        /// The epoch of the state that is kept.
        epoch: u64,
    },
    /// A member, at this epoch.
    Active {
        /// The current epoch.
        epoch: u64,
    },
}

/// What the Welcome may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Existing {
    /// Install it, if P is where the rule says when it is written.
    Install(AnchorRule),
    /// First process the old membership's prefix through the anchor, then decide again.
    NeedPrefix,
    /// The local state is at or beyond it.
    Stale,
    /// The local state was processed beyond its anchor and is still a member's.
    Conflicting,
}

/// Decides from the local state, its P, the Welcome's anchor and the Welcome's epoch.
pub fn existing(
    local: LocalGroup,
    processed: Option<Cursor>,
    anchor: SequenceId,
    welcome_epoch: u64,
) -> Existing {
    let anchor = Cursor::from(anchor);
    let below = processed.is_none_or(|processed| processed < anchor);
    let at = processed == Some(anchor);
    match local {
        LocalGroup::Absent if below => Existing::Install(AnchorRule::Below),
        LocalGroup::Absent => Existing::Stale,
        LocalGroup::Inactive { .. } if below => Existing::Install(AnchorRule::Below),
        LocalGroup::Inactive { epoch } if at && welcome_epoch >= epoch => {
            Existing::Install(AnchorRule::BelowOrAt)
        }
        LocalGroup::Inactive { .. } => Existing::Stale,
        LocalGroup::Active { epoch } if epoch >= welcome_epoch => Existing::Stale,
        LocalGroup::Active { .. } if below => Existing::NeedPrefix,
        LocalGroup::Active { .. } => Existing::Conflicting,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(n: u64) -> SequenceId {
        SequenceId::try_from(n).unwrap()
    }

    fn at(n: u64) -> Option<Cursor> {
        Some(Cursor::from(id(n)))
    }

    /// Shows: STR-082.
    #[test]
    fn every_row_of_the_rule() {
        use AnchorRule::{Below, BelowOrAt};
        use Existing::{Conflicting, Install, NeedPrefix, Stale};
        use LocalGroup::{Absent, Active, Inactive};
        let rows = [
            (Absent, None, 10, 3, Install(Below)),
            (Absent, at(11), 10, 3, Stale),
            (Inactive { epoch: 2 }, at(9), 10, 3, Install(Below)),
            (Inactive { epoch: 2 }, at(10), 10, 2, Install(BelowOrAt)),
            (Inactive { epoch: 4 }, at(10), 10, 3, Stale),
            (Inactive { epoch: 2 }, at(11), 10, 9, Stale),
            (Active { epoch: 3 }, at(5), 10, 3, Stale),
            (Active { epoch: 2 }, at(5), 10, 3, NeedPrefix),
            (Active { epoch: 2 }, at(10), 10, 3, Conflicting),
            (Active { epoch: 2 }, at(12), 10, 3, Conflicting),
        ];
        for (local, processed, anchor, epoch, expected) in rows {
            let decided = existing(local, processed, id(anchor), epoch);
            assert_eq!(decided, expected, "{local:?} P={processed:?} anchor={anchor} epoch={epoch}");
        }
    }
}
