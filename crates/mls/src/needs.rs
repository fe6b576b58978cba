//! What an attempt lacks and only the outside can supply, as values.
//!
//! An attempt at MLS state never waits. It ends with the [`Need`]s it found, someone resolves them without a
//! transaction, and the attempt runs again on fresh state with the [`Resolutions`] as an argument (STR-073).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use highwater_identity::{AssociationState, VerificationRequest};
use highwater_wire::{InboxId, InstallationKey, SequenceId, Topic};

/// One thing to be resolved outside a transaction.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Need {
    /// The verified state of an inbox at exactly this update (STR-076).
    Identity {
        /// Whose.
        inbox: InboxId,
        /// Which update.
        sequence_id: SequenceId,
    },
    /// The newest update of an inbox, whatever it is.
    InboxHead {
        /// Whose.
        inbox: InboxId,
    },
    /// The newest key packages of these installations.
    KeyPackages {
        /// Whose.
        installations: BTreeSet<InstallationKey>,
    },
    /// The topic processed through this id.
    Prefix {
        /// Which topic.
        topic: Topic,
        /// Through where.
        through: SequenceId,
    },
    /// The first envelope of a pointer's destination topic.
    Pointee {
        /// The topic's random identifier.
        destination: [u8; 32],
    },
    /// A contract wallet's verdict on a signature.
    Verify(VerificationRequest),
}

/// What resolving a need came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Resolution {
    /// It is there.
    Ready(Proof),
    /// It isn't there now; time or the network may bring it.
    Retry {
        /// Why, for people.
        reason: String,
    },
    /// It is proven that it never will be there.
    Permanent {
        /// Why, for people.
        reason: String,
    },
}

/// What a resolved need brought.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Proof {
    /// The database holds it now.
    Done,
    /// The newest id of a topic, `None` where it is empty.
    Head(Option<SequenceId>),
    /// Key packages as they came; `None` for an installation that is proven to have none.
    KeyPackages(BTreeMap<InstallationKey, Option<Vec<u8>>>),
    /// A verifier's answer.
    Verdict(bool),
    /// The encoded `WelcomeMessage` that a pointer leads to.
    Pointee(Vec<u8>),
}

/// Answers to the needs of an earlier attempt. Cheap to clone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Resolutions(Arc<BTreeMap<Need, Resolution>>);

impl Resolutions {
    /// The answer to a need, if there is one.
    pub fn get(&self, need: &Need) -> Option<&Resolution> {
        self.0.get(need)
    }

    /// Adds an answer, or replaces it.
    pub fn insert(&mut self, need: Need, resolution: Resolution) {
        Arc::make_mut(&mut self.0).insert(need, resolution);
    }

    /// Every need with its answer.
    pub fn iter(&self) -> impl Iterator<Item = (&Need, &Resolution)> {
        self.0.iter()
    }

    /// Whether nothing was answered.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl FromIterator<(Need, Resolution)> for Resolutions {
    fn from_iter<I: IntoIterator<Item = (Need, Resolution)>>(answers: I) -> Self {
        Self(Arc::new(answers.into_iter().collect()))
    }
}

/// Verified association states, each of one inbox at one update.
pub type Snapshots = BTreeMap<(InboxId, SequenceId), AssociationState>;
