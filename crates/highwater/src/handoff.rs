//! Which item is out, as a value that can travel (STR-104).

/// Names one handoff of one stream: what an item has to be acknowledged with. A wrapper for another language carries it
/// through its queues with the item, and gives it back when the app itself asks for more or returns from its callback,
/// never before.
///
/// It is worth something only to the stream that gave it out, and only until that item is acknowledged. A message that is
/// handed out again has another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Handoff {
    stream: u128,
    number: u64,
}

/// Why a handoff acknowledged nothing. The stream goes on as if it had not been given back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HandoffError {
    /// Another stream gave it out.
    #[error("this item was handed out by another stream")]
    Foreign,
    /// Its item isn't out: it was acknowledged before, or is to be handed out again.
    #[error("this item is not out any more: it was acknowledged, or comes again")]
    Stale,
    /// No other item is handed out before the one that is out is acknowledged.
    #[error("an item is out: acknowledge it first")]
    Unacknowledged,
}

/// Gives handoffs out and judges those that come back.
#[derive(Debug)]
pub(crate) struct Handoffs {
    stream: u128,
    given: u64,
    out: Option<Handoff>,
}

impl Handoffs {
    pub(crate) fn new() -> Self {
        Self { stream: rand::random(), given: 0, out: None }
    }

    /// The item that is out.
    pub(crate) fn out(&self) -> Option<Handoff> {
        self.out
    }

    /// An item goes out.
    pub(crate) fn give(&mut self) -> Handoff {
        self.given += 1;
        *self.out.insert(Handoff { stream: self.stream, number: self.given })
    }

    /// The item that was out is acknowledged, or will come again.
    pub(crate) fn settle(&mut self) {
        self.out = None;
    }

    /// Whether an acknowledgement may be written for what was given back.
    pub(crate) fn check(&self, given_back: Handoff) -> Result<(), HandoffError> {
        if given_back.stream != self.stream {
            Err(HandoffError::Foreign)
        } else if self.out != Some(given_back) {
            Err(HandoffError::Stale)
        } else {
            Ok(())
        }
    }

    /// Whether an item may go out.
    pub(crate) fn check_none_out(&self) -> Result<(), HandoffError> {
        if self.out.is_some() { Err(HandoffError::Unacknowledged) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Shows: STR-104.
    #[test]
    fn only_the_item_that_is_out_can_be_given_back_and_only_to_its_stream() {
        let (mut one, mut other) = (Handoffs::new(), Handoffs::new());
        let (first, foreign) = (one.give(), other.give());
        assert_eq!(one.check(foreign), Err(HandoffError::Foreign));
        assert_eq!(one.check_none_out(), Err(HandoffError::Unacknowledged));
        assert_eq!(one.check(first), Ok(()));
        one.settle();
        assert_eq!(one.check(first), Err(HandoffError::Stale));
        let again = one.give();
        assert_eq!((one.check(first), one.check(again)), (Err(HandoffError::Stale), Ok(())));
    }
}
