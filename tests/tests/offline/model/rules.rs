//! The model: what processing a group's envelopes in their order has to come to.

use std::collections::BTreeSet;

use highwater_wire::SequenceId;

use super::pool::{Item, Kind};

/// What processing should have come to.
#[derive(Default)]
pub(super) struct Model {
    epoch: usize,
    /// The commit that began each epoch so far.
    began: Vec<usize>,
    /// Texts and proposals whose keys are used up; their names are of one epoch each.
    read: BTreeSet<String>,
    pub(super) texts: Vec<String>,
    pub(super) rejected: Vec<(SequenceId, &'static str)>,
    pub(super) processed: Option<SequenceId>,
    pub(super) held: Option<SequenceId>,
    pub(super) inactive: bool,
    /// How many commits took effect that reference a proposal.
    pub(super) referenced: usize,
}

enum Verdict {
    Apply,
    Reject(&'static str),
    Hold,
}

impl Model {
    pub(super) fn new() -> Self {
        Self { began: vec![0], ..Self::default() }
    }

    pub(super) fn take(&mut self, at: SequenceId, item: &Item) {
        if self.inactive || self.held.is_some() {
            return;
        }
        match self.verdict(item) {
            Verdict::Apply => self.apply(item),
            Verdict::Reject(code) => self.rejected.push((at, code)),
            Verdict::Hold => {
                self.held = Some(at);
                return;
            }
        }
        self.processed = Some(at);
    }

    fn apply(&mut self, item: &Item) {
        match item.kind {
            Kind::Text => {
                self.read.insert(item.text.clone());
                self.texts.push(item.text.clone());
            }
            Kind::Proposal => {
                self.read.insert(item.text.clone());
            }
            Kind::Garbage | Kind::OtherVersion | Kind::Commit | Kind::Removal => {
                self.epoch += 1;
                self.began.push(item.number);
                self.inactive = item.kind == Kind::Removal;
                self.referenced += usize::from(!item.text.is_empty());
            }
        }
    }

    fn verdict(&self, item: &Item) -> Verdict {
        let same_keys = self.began.get(item.epoch) == Some(&item.began);
        let handshake = matches!(item.kind, Kind::Proposal | Kind::Commit | Kind::Removal);
        let known = self.read.contains(&item.text);
        match item.kind {
            Kind::Garbage => Verdict::Reject("malformed"),
            Kind::OtherVersion => Verdict::Hold,
            _ if item.epoch > self.epoch => Verdict::Reject("future_epoch"),
            _ if handshake && item.epoch < self.epoch => Verdict::Reject("past_epoch"),
            Kind::Text if self.epoch - item.epoch > 3 => Verdict::Reject("secrets_discarded"),
            _ if !same_keys => Verdict::Reject("authentication"),
            Kind::Text | Kind::Proposal if known => Verdict::Reject("secret_reused"),
            Kind::Commit if !item.text.is_empty() && !known => Verdict::Reject("missing_proposal"),
            Kind::Text | Kind::Proposal | Kind::Commit | Kind::Removal => Verdict::Apply,
        }
    }
}
