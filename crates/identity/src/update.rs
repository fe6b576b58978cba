//! An update whose shape holds, and the text that it signs.

use highwater_wire::{
    InboxId,
    proto::associations::{
        IdentifierKind, IdentityAction, IdentityUpdate, Signature, identity_action, member_identifier,
    },
};

use crate::{Invalid, MemberIdentifier};

const NS_PER_SECOND: i64 = 1_000_000_000;
const SECONDS_PER_DAY: i64 = 24 * 60 * 60;

/// The text that every signature of `update` covers. Signatures may still be absent.
///
/// # Errors
/// What makes an update unreadable: no action, a missing field, an identifier of the wrong form.
pub fn signature_text(update: &IdentityUpdate) -> Result<String, Invalid> {
    Update::parse(update).map(|update| update.text())
}

/// An update with identifiers of the right form. Its signatures are unchecked and may be absent.
pub(crate) struct Update<'a> {
    pub(crate) inbox: InboxId,
    pub(crate) actions: Vec<Action<'a>>,
    timestamp_ns: u64,
}

pub(crate) enum Action<'a> {
    CreateInbox {
        identifier: MemberIdentifier,
        relying_party: Option<String>,
        nonce: u64,
        signature: Option<&'a Signature>,
    },
    Add {
        member: MemberIdentifier,
        relying_party: Option<String>,
        by: Option<&'a Signature>,
        signature: Option<&'a Signature>,
    },
    Revoke {
        member: MemberIdentifier,
        by: Option<&'a Signature>,
    },
    ChangeRecovery {
        identifier: MemberIdentifier,
        relying_party: Option<String>,
        by: Option<&'a Signature>,
    },
}

impl<'a> Update<'a> {
    pub(crate) fn parse(update: &'a IdentityUpdate) -> Result<Self, Invalid> {
        if update.actions.is_empty() {
            return Err(Invalid::NoActions);
        }
        Ok(Self {
            inbox: InboxId::from_hex(&update.inbox_id).map_err(|_| Invalid::InboxIdForm)?,
            actions: update.actions.iter().map(Action::parse).collect::<Result<_, _>>()?,
            timestamp_ns: update.client_timestamp_ns,
        })
    }

    pub(crate) fn text(&self) -> String {
        let actions: Vec<String> = self.actions.iter().map(Action::text).collect();
        format!(
            "XMTP : Authenticate to inbox\n\nInbox ID: {}\nCurrent time: {}\n\n{}\n\nFor more info: https://xmtp.org/signatures",
            self.inbox,
            rfc3339(self.timestamp_ns),
            actions.join("\n"),
        )
    }
}

impl<'a> Action<'a> {
    fn parse(action: &'a IdentityAction) -> Result<Self, Invalid> {
        use identity_action::Kind;
        Ok(match action.kind.as_ref().ok_or(Invalid::Missing("action"))? {
            Kind::CreateInbox(create) => Self::CreateInbox {
                identifier: root(create.initial_identifier_kind, &create.initial_identifier)?,
                relying_party: create.relying_party.clone(),
                nonce: create.nonce,
                signature: create.initial_identifier_signature.as_ref(),
            },
            Kind::Add(add) => {
                let member =
                    add.new_member_identifier.as_ref().ok_or(Invalid::Missing("new member identifier"))?;
                let own = match &member.kind {
                    Some(member_identifier::Kind::Passkey(key)) => key.relying_party.clone(),
                    _ => None,
                };
                Self::Add {
                    member: member.try_into()?,
                    relying_party: own.or_else(|| add.relying_party.clone()),
                    by: add.existing_member_signature.as_ref(),
                    signature: add.new_member_signature.as_ref(),
                }
            }
            Kind::Revoke(revoke) => Self::Revoke {
                member: revoke
                    .member_to_revoke
                    .as_ref()
                    .ok_or(Invalid::Missing("member to revoke"))?
                    .try_into()?,
                by: revoke.recovery_identifier_signature.as_ref(),
            },
            Kind::ChangeRecoveryAddress(change) => Self::ChangeRecovery {
                identifier: root(change.new_recovery_identifier_kind, &change.new_recovery_identifier)?,
                relying_party: change.relying_party.clone(),
                by: change.existing_recovery_identifier_signature.as_ref(),
            },
        })
    }

    /// Every signature that is there.
    pub(crate) fn signatures(&self) -> impl Iterator<Item = &'a Signature> + use<'a> {
        let (first, second) = match self {
            Self::CreateInbox { signature, .. } => (*signature, None),
            Self::Add { by, signature, .. } => (*by, *signature),
            Self::Revoke { by, .. } | Self::ChangeRecovery { by, .. } => (*by, None),
        };
        first.into_iter().chain(second)
    }

    fn text(&self) -> String {
        use MemberIdentifier::{Ethereum, Installation, Passkey};
        let (what, label, whom) = match self {
            Self::CreateInbox { identifier, .. } => ("Create inbox", "Owner", identifier),
            Self::Add { member, .. } => match member {
                Installation(_) => ("Grant messaging access to app", "ID", member),
                Ethereum(_) => ("Link address to inbox", "Address", member),
                Passkey { .. } => ("Link passkey to inbox", "Passkey", member),
            },
            Self::Revoke { member, .. } => match member {
                Installation(_) => ("Revoke messaging access from app", "ID", member),
                Ethereum(_) => ("Unlink address from inbox", "Address", member),
                Passkey { .. } => ("Unlink passkey from inbox", "Passkey", member),
            },
            Self::ChangeRecovery { identifier, .. } => {
                ("Change inbox recovery address", "Address", identifier)
            }
        };
        format!("- {what}\n  ({label}: {})", whom.text())
    }
}

/// An identifier that can open or recover an inbox: those that the wire carries as text.
fn root(kind: i32, text: &str) -> Result<MemberIdentifier, Invalid> {
    let kind = IdentifierKind::try_from(kind).map_err(|_| Invalid::UnknownIdentifierKind(kind))?;
    MemberIdentifier::parse(kind, text)
}

/// The time of a signed text. The wire's number is read as an `i64`, so its upper half lies before
/// 1970; every value has a time.
fn rfc3339(timestamp_ns: u64) -> String {
    let seconds = timestamp_ns.cast_signed().div_euclid(NS_PER_SECOND);
    let (year, month, day) = civil_date(seconds.div_euclid(SECONDS_PER_DAY));
    let second = seconds.rem_euclid(SECONDS_PER_DAY);
    format!("{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}Z", second / 3600, second / 60 % 60, second % 60,)
}

/// Year, month and day of the proleptic Gregorian calendar, from days since 1970-01-01.
fn civil_date(days_since_epoch: i64) -> (i64, usize, i64) {
    let leap = |year: i64| year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    // An i64 of nanoseconds reaches 292 years either way, so stepping by years is bounded.
    let (mut year, mut day) = (1970, days_since_epoch);
    while day < 0 {
        year -= 1;
        day += 365 + i64::from(leap(year));
    }
    while day >= 365 + i64::from(leap(year)) {
        day -= 365 + i64::from(leap(year));
        year += 1;
    }
    let february = 28 + i64::from(leap(year));
    let mut month = 1;
    for length in [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30] {
        if day < length {
            break;
        }
        day -= length;
        month += 1;
    }
    (year, month, day + 1)
}

#[cfg(test)]
mod tests {
    use super::rfc3339;

    #[test]
    fn times_are_floored_to_seconds_over_the_whole_range() {
        for (timestamp_ns, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (999_999_999, "1970-01-01T00:00:00Z"),
            (1_000_000_000, "1970-01-01T00:00:01Z"),
            (951_782_399_999_999_999, "2000-02-28T23:59:59Z"),
            (951_782_400_000_000_000, "2000-02-29T00:00:00Z"),
            (1_735_689_599_000_000_000, "2024-12-31T23:59:59Z"),
            (1_735_689_600_000_000_000, "2025-01-01T00:00:00Z"),
            (i64::MAX as u64, "2262-04-11T23:47:16Z"),
            (u64::MAX, "1969-12-31T23:59:59Z"),
            (i64::MIN as u64, "1677-09-21T00:12:43Z"),
        ] {
            assert_eq!(rfc3339(timestamp_ns), text);
        }
    }
}
