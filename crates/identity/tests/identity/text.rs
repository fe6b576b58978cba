//! The signed text, action by action.

use highwater_identity::{Address, Invalid, MemberIdentifier, PasskeyKey, signature_text};
use highwater_wire::{
    InstallationKey,
    proto::associations::{
        AddAssociation, ChangeRecoveryAddress, CreateInbox, IdentifierKind, IdentityAction, IdentityUpdate,
        MemberIdentifier as Wire, RevokeAssociation, identity_action::Kind, member_identifier,
    },
};
use insta::assert_snapshot;

use crate::actors::passkey;

const INBOX: &str = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";

fn text(kinds: impl IntoIterator<Item = Kind>) -> Result<String, Invalid> {
    signature_text(&IdentityUpdate {
        actions: kinds.into_iter().map(|kind| IdentityAction { kind: Some(kind) }).collect(),
        client_timestamp_ns: 1_735_689_600_123_456_789,
        inbox_id: INBOX.into(),
    })
}

fn address() -> MemberIdentifier {
    Address::from_bytes([0xab; 20]).into()
}

fn key() -> MemberIdentifier {
    InstallationKey::from_bytes([0xcd; 32]).into()
}

fn create(kind: i32, identifier: &str) -> Kind {
    Kind::CreateInbox(CreateInbox {
        initial_identifier: identifier.into(),
        initial_identifier_kind: kind,
        ..Default::default()
    })
}

fn add(member: Wire) -> Kind {
    Kind::Add(AddAssociation { new_member_identifier: Some(member), ..Default::default() })
}

fn revoke(member: Wire) -> Kind {
    Kind::Revoke(RevokeAssociation { member_to_revoke: Some(member), ..Default::default() })
}

fn recover(kind: IdentifierKind, identifier: &str) -> Kind {
    Kind::ChangeRecoveryAddress(ChangeRecoveryAddress {
        new_recovery_identifier: identifier.into(),
        new_recovery_identifier_kind: kind.into(),
        ..Default::default()
    })
}

#[test]
fn creating_an_inbox() {
    let by_wallet = text([create(1, &address().text())]).unwrap();
    assert_snapshot!(by_wallet, @r"
    XMTP : Authenticate to inbox

    Inbox ID: 00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff
    Current time: 2025-01-01T00:00:00Z

    - Create inbox
      (Owner: 0xabababababababababababababababababababab)

    For more info: https://xmtp.org/signatures
    ");
    assert!(by_wallet.ends_with("https://xmtp.org/signatures") && !by_wallet.contains('\r'));
    // An unspecified kind is read as Ethereum.
    assert_eq!(text([create(0, &address().text())]).unwrap(), by_wallet);
    let by_passkey = text([create(2, &passkey(1).id().text())]).unwrap();
    assert!(by_passkey.contains(&format!("\n  (Owner: {})\n", passkey(1).id().text())));
}

#[test]
fn adding_members_of_each_kind() {
    let added = [key(), address(), passkey(1).id()].map(|member| add(member.to_proto()));
    assert_snapshot!(text(added).unwrap(), @r"
    XMTP : Authenticate to inbox

    Inbox ID: 00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff
    Current time: 2025-01-01T00:00:00Z

    - Grant messaging access to app
      (ID: cdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcd)
    - Link address to inbox
      (Address: 0xabababababababababababababababababababab)
    - Link passkey to inbox
      (Passkey: 046ff03b949241ce1dadd43519e6960e0a85b41a69a05c328103aa2bce1594ca163c4f753a55bf01dc53f6c0b0c7eee78b40c6ff7d25a96e2282b989cef71c144a)

    For more info: https://xmtp.org/signatures
    ");
}

#[test]
fn revoking_members_of_each_kind() {
    let revoked = [key(), address(), passkey(1).id()].map(|member| revoke(member.to_proto()));
    assert_snapshot!(text(revoked).unwrap(), @r"
    XMTP : Authenticate to inbox

    Inbox ID: 00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff
    Current time: 2025-01-01T00:00:00Z

    - Revoke messaging access from app
      (ID: cdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcd)
    - Unlink address from inbox
      (Address: 0xabababababababababababababababababababab)
    - Unlink passkey from inbox
      (Passkey: 046ff03b949241ce1dadd43519e6960e0a85b41a69a05c328103aa2bce1594ca163c4f753a55bf01dc53f6c0b0c7eee78b40c6ff7d25a96e2282b989cef71c144a)

    For more info: https://xmtp.org/signatures
    ");
}

#[test]
fn changing_the_recovery_identifier() {
    let change = recover(IdentifierKind::Ethereum, &address().text());
    assert_snapshot!(text([change]).unwrap(), @r"
    XMTP : Authenticate to inbox

    Inbox ID: 00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff
    Current time: 2025-01-01T00:00:00Z

    - Change inbox recovery address
      (Address: 0xabababababababababababababababababababab)

    For more info: https://xmtp.org/signatures
    ");
}

#[test]
fn an_address_has_one_spelling_wherever_it_stands() {
    let lower = address().text();
    for spelling in [
        lower.to_uppercase(),
        lower.replace("ab", "AB"),
        lower[2..].into(),
        lower[..41].into(),
        format!("{lower}0"),
        format!("0X{}", &lower[2..]),
        lower.replace("ab", "zz"),
        String::new(),
    ] {
        let wire = Wire { kind: Some(member_identifier::Kind::EthereumAddress(spelling.clone())) };
        for kind in [
            create(1, &spelling),
            recover(IdentifierKind::Unspecified, &spelling),
            add(wire.clone()),
            revoke(wire.clone()),
        ] {
            assert_eq!(text([kind]), Err(Invalid::AddressForm));
        }
    }
}

#[test]
fn other_identifiers_have_their_forms_too() {
    let installation =
        |bytes: &[u8]| Wire { kind: Some(member_identifier::Kind::InstallationPublicKey(bytes.into())) };
    assert_eq!(text([add(installation(&[1; 33]))]), Err(Invalid::InstallationKeyForm { found: 33 }));
    let spelt = passkey(1).id().text();
    let cases = [spelt.to_uppercase(), spelt[..66].into(), spelt.replace("046f", "056f")];
    for spelling in cases {
        assert_eq!(text([recover(IdentifierKind::Passkey, &spelling)]), Err(Invalid::PasskeyForm));
    }
    // 33 bytes with a fitting tag, but no point of the curve has this x.
    assert_eq!(PasskeyKey::from_sec1(&[&[2][..], &[0xff; 32]].concat()), Err(Invalid::PasskeyForm));
    assert_eq!(text([create(9, "x")]), Err(Invalid::UnknownIdentifierKind(9)));
    assert_eq!(text([add(Wire { kind: None })]), Err(Invalid::Missing("member identifier")));
    assert_eq!(text([Kind::Revoke(RevokeAssociation::default())]), Err(Invalid::Missing("member to revoke")));
    assert_eq!(text([]), Err(Invalid::NoActions));
}

#[test]
fn identifiers_show_little_of_themselves_in_debug_output() {
    for identifier in [address(), key(), passkey(1).id()] {
        let shown = format!("{identifier:?}");
        let digits = identifier.text();
        let digits = digits.trim_start_matches("0x");
        assert!(shown.contains(&digits[..8]) && !shown.contains(&digits[..10]), "{shown}");
    }
}
