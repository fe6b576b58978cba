//! The record of an applied commit that people read.

use std::collections::BTreeSet;

use highwater_wire::InboxId;
use highwater_wire::proto::contents::{ContentTypeId, EncodedContent, GroupUpdated, group_updated};
use prost::Message as _;

use crate::facts::CommitFacts;

pub(crate) fn group_updated(facts: &CommitFacts) -> GroupUpdated {
    let members = |components: &crate::Components| components.membership.keys().copied().collect();
    let (before, after): (BTreeSet<InboxId>, BTreeSet<InboxId>) =
        (members(&facts.before), members(&facts.after));
    let (old, new) = (&facts.before, &facts.after);
    GroupUpdated {
        initiated_by_inbox_id: facts.committer.inbox.to_string(),
        added_inboxes: minus(&after, &before),
        removed_inboxes: minus(&before, &after),
        metadata_field_changes: field_changes(facts),
        left_inboxes: Vec::new(),
        added_admin_inboxes: minus(&new.admins, &old.admins),
        removed_admin_inboxes: minus(&old.admins, &new.admins),
        added_super_admin_inboxes: minus(&new.super_admins, &old.super_admins),
        removed_super_admin_inboxes: minus(&old.super_admins, &new.super_admins),
    }
}

fn minus(from: &BTreeSet<InboxId>, what: &BTreeSet<InboxId>) -> Vec<group_updated::Inbox> {
    from.difference(what).map(|inbox| group_updated::Inbox { inbox_id: inbox.to_string() }).collect()
}

fn field_changes(facts: &CommitFacts) -> Vec<group_updated::MetadataFieldChange> {
    let fields = |components: &crate::Components| {
        let text = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        let time = |time: Option<i64>| time.map(|time| time.to_string());
        [
            ("group_name", text(&components.name)),
            ("description", text(&components.description)),
            ("message_disappear_from_ns", time(components.disappear_from)),
            ("message_disappear_in_ns", time(components.disappear_in)),
            ("minimum_supported_protocol_version", components.minimum_version.clone()),
        ]
    };
    let changes = fields(&facts.before).into_iter().zip(fields(&facts.after));
    changes
        .filter(|((_, old), (_, new))| old != new)
        .map(|((name, old_value), (_, new_value))| group_updated::MetadataFieldChange {
            field_name: name.to_owned(),
            old_value,
            new_value,
        })
        .collect()
}

/// What a new member's conversation begins with: who brought it in. Encoded like
/// [`CommitFacts::transcript`](crate::CommitFacts::transcript).
pub fn join_transcript(adder: InboxId, joined: InboxId) -> Vec<u8> {
    content(&GroupUpdated {
        initiated_by_inbox_id: adder.to_string(),
        added_inboxes: vec![group_updated::Inbox { inbox_id: joined.to_string() }],
        ..GroupUpdated::default()
    })
}

pub(crate) fn content(updated: &GroupUpdated) -> Vec<u8> {
    EncodedContent {
        r#type: Some(ContentTypeId {
            authority_id: "xmtp.org".into(),
            type_id: "group_updated".into(),
            version_major: 1,
            version_minor: 0,
        }),
        content: updated.encode_to_vec(),
        ..EncodedContent::default()
    }
    .encode_to_vec()
}
