//! The disposition tables, row by row. A code in these snapshots is stored in databases: it may be added to, not changed.
#![allow(clippy::unwrap_used, reason = "a test that can't set up its world has failed")]

use std::collections::BTreeSet;
use std::fmt::Write as _;

use highwater_identity::{
    AssociationState, Invalid, MemberIdentifier, Scheme, Verdicts, VerificationRequest, sign, signature_text,
};
use highwater_mls::{InputFailure, PolicyViolation};
use highwater_processing::disposition::{
    self, Disposition, Evidence, GroupInput, IdentityInput, OwnAttempt, Plaintext, Prefix, ProposalKnowledge,
};
use highwater_processing::{HoldCause, Reason};
use highwater_wire::InstallationKey;
use highwater_wire::proto::associations::identity_action::Kind;
use highwater_wire::proto::associations::{CreateInbox, IdentityAction, IdentityUpdate};

/// The group's epoch in all rows.
const EPOCH: u64 = 10;

/// One of every failure. Where it stands is fixed by [`place`], which doesn't compile without a new one.
fn failures() -> Vec<InputFailure> {
    let plain = [
        InputFailure::Malformed,
        InputFailure::WrongGroup,
        InputFailure::UnsupportedVersion,
        InputFailure::GroupVersion("9.0.0".into()),
        InputFailure::FutureEpoch,
        InputFailure::PastEpoch,
        InputFailure::SecretsDiscarded,
        InputFailure::BeforeJoin,
        InputFailure::SecretReused,
        InputFailure::GenerationOutOfBound,
        InputFailure::Authentication,
        InputFailure::InvalidCommit("x"),
        InputFailure::MissingProposal,
        InputFailure::HeldProposal("x"),
        InputFailure::PskInCommit,
        InputFailure::Evicted,
        InputFailure::Library("x".into()),
    ];
    plain.into_iter().chain(PolicyViolation::ALL.map(InputFailure::Policy)).collect()
}

fn place(failure: &InputFailure) -> usize {
    use PolicyViolation as P;
    match failure {
        InputFailure::Malformed => 0,
        InputFailure::WrongGroup => 1,
        InputFailure::UnsupportedVersion => 2,
        InputFailure::GroupVersion(_) => 3,
        InputFailure::FutureEpoch => 4,
        InputFailure::PastEpoch => 5,
        InputFailure::SecretsDiscarded => 6,
        InputFailure::BeforeJoin => 7,
        InputFailure::SecretReused => 8,
        InputFailure::GenerationOutOfBound => 9,
        InputFailure::Authentication => 10,
        InputFailure::InvalidCommit(_) => 11,
        InputFailure::MissingProposal => 12,
        InputFailure::HeldProposal(_) => 13,
        InputFailure::PskInCommit => 14,
        InputFailure::Evicted => 15,
        InputFailure::Library(_) => 16,
        InputFailure::Policy(violation) => match violation {
            P::NotFromMember => 17,
            P::MalformedCredential => 18,
            P::IdentityChanged => 19,
            P::MalformedUpdate { .. } => 20,
            P::MalformedComponent { .. } => 21,
            P::WriteOnce { .. } => 22,
            P::ComponentRemoved { .. } => 23,
            P::Unauthorized { .. } => 24,
            P::DmInboxes => 25,
            P::EntryFell => 26,
            P::EntryZero => 27,
            P::EntryOutOfRange => 28,
            P::EntryNotBefore => 29,
            P::LeafWithoutEntry => 30,
            P::EntryNotRaised => 31,
            P::ForeignLeaf => 32,
            P::RevokedLeaf => 33,
            P::RemovedWithoutCause => 34,
            P::InstallationMissing => 35,
        },
    }
}

fn name(failure: &InputFailure) -> String {
    let (kind, of) = match failure {
        InputFailure::Policy(violation) => ("Policy ", format!("{violation:?}")),
        other => ("", format!("{other:?}")),
    };
    let variant = of.split([' ', '(']).next().unwrap_or_default();
    format!("{kind}{variant}")
}

fn shown(disposition: Disposition) -> String {
    match disposition {
        Disposition::Apply => "apply".into(),
        Disposition::Reject(reason) => format!("reject {}", reason.code()),
        Disposition::Hold(cause) => format!("hold {}: {cause}", cause.code()),
    }
}

/// The verdict; both of them where it depends on what is known of proposals.
fn verdict(input: &GroupInput<'_>) -> String {
    let with = |proposals| shown(disposition::group(input, Prefix { epoch: EPOCH, proposals }));
    let (complete, lost) = (with(ProposalKnowledge::Complete), with(ProposalKnowledge::Lost));
    if complete == lost { complete } else { format!("{complete}; with a proposal lost: {lost}") }
}

fn evidence() -> Vec<(String, Evidence)> {
    let mut all = vec![
        ("complete".to_owned(), Evidence::Complete),
        ("identity not before".to_owned(), Evidence::NotBefore),
        ("identity awaited".to_owned(), Evidence::Awaited),
        ("identity absent".to_owned(), Evidence::Absent),
    ];
    let refused = failures().into_iter().map(|failure| (name(&failure), Evidence::Refused(failure)));
    all.extend(refused);
    all
}

/// Shows: PROC-011, STR-074.
#[test]
fn every_row_of_the_group_table() {
    let failures = failures();
    let places: Vec<_> = failures.iter().map(place).collect();
    assert_eq!(places, (0..36).collect::<Vec<_>>(), "every failure has its row");
    let evidence = evidence();
    let mut table = String::new();
    let mut row = |input: String, verdict: String| writeln!(table, "{input:<50} {verdict}").unwrap();

    row("no MLS state".into(), verdict(&GroupInput::NoState));
    row("no group message".into(), verdict(&GroupInput::NoGroupMessage));
    for plaintext in [Plaintext::Message, Plaintext::Consumed, Plaintext::Malformed] {
        row(format!("application: {plaintext:?}"), verdict(&GroupInput::Application(plaintext)));
    }
    row("proposal".into(), verdict(&GroupInput::Proposal));
    row("claims to be ours, no attempt".into(), verdict(&GroupInput::OwnClaim));
    for failure in &failures {
        row(format!("refused by MLS: {}", name(failure)), verdict(&GroupInput::Failed(failure)));
    }
    for (name, evidence) in &evidence {
        row(format!("commit: {name}"), verdict(&GroupInput::Commit(evidence)));
    }
    for failure in failures.iter().take(18).map(Some).chain([None]) {
        let refusal = failure.map_or(String::new(), |failure| format!(", {}", name(failure)));
        let mut own = |what: String, attempt| {
            row(format!("own {what}{refusal}"), verdict(&GroupInput::Own(attempt, failure)));
        };
        own("handled".into(), OwnAttempt::Handled);
        for prepared in [EPOCH + 1, EPOCH, EPOCH - 1, EPOCH - 2, EPOCH - 3, EPOCH - 4] {
            own(format!("message of {prepared} in {EPOCH}"), OwnAttempt::Message { prepared });
        }
        for prepared in [EPOCH + 1, EPOCH, EPOCH - 1] {
            let attempt = OwnAttempt::Change { prepared, pending: Some(&Evidence::Complete) };
            own(format!("commit of {prepared} in {EPOCH}"), attempt);
        }
        own("commit not pending".into(), OwnAttempt::Change { prepared: EPOCH, pending: None });
    }
    for (name, evidence) in &evidence {
        let attempt = OwnAttempt::Change { prepared: EPOCH, pending: Some(evidence) };
        row(format!("own commit: {name}"), verdict(&GroupInput::Own(attempt, None)));
    }
    insta::assert_snapshot!("group", table);
}

fn invalid_updates() -> Vec<Invalid> {
    let member = MemberIdentifier::Installation(InstallationKey::from_bytes([1; 32]));
    vec![
        Invalid::NoActions,
        Invalid::Missing("x"),
        Invalid::InboxIdForm,
        Invalid::AddressForm,
        Invalid::InstallationKeyForm { found: 1 },
        Invalid::PasskeyForm,
        Invalid::UnknownIdentifierKind(9),
        Invalid::WrongInbox,
        Invalid::InboxIdNotDerived,
        Invalid::NotCreated,
        Invalid::AlreadyCreated,
        Invalid::SignatureForm(Scheme::Erc191),
        Invalid::SignatureInvalid(Scheme::Erc191),
        Invalid::PasskeyChallenge,
        Invalid::AccountForm,
        Invalid::DelegatedSignature,
        Invalid::SignatureReplayed,
        Invalid::WrongSigner { expected: member.clone(), found: member.clone() },
        Invalid::NotAMember(member.clone()),
        Invalid::NotRecovery(member.clone()),
        Invalid::AlreadyMember(member),
        Invalid::InstallationAddsInstallation,
        Invalid::LogOrder,
        Invalid::Unverified(VerificationRequest {
            account_id: "eip155:1:0x".into(),
            block_number: 1,
            hash: [0; 32],
            signature: Vec::new(),
        }),
    ]
}

fn state() -> AssociationState {
    let wallet = sign::LocalWallet::from_bytes(&[1; 32]).unwrap();
    let address = wallet.address().to_string();
    let inbox = highwater_identity::inbox_id(&address, 0);
    let mut create =
        CreateInbox { initial_identifier: address, initial_identifier_kind: 1, ..CreateInbox::default() };
    let update = |create: &CreateInbox| IdentityUpdate {
        actions: vec![IdentityAction { kind: Some(Kind::CreateInbox(create.clone())) }],
        client_timestamp_ns: 1,
        inbox_id: inbox.to_string(),
    };
    let text = signature_text(&update(&create)).unwrap();
    create.initial_identifier_signature = Some(wallet.sign_erc191(&text));
    AssociationState::apply(None, inbox, &update(&create), &Verdicts::default()).unwrap()
}

/// Shows: PROC-012, STR-074.
#[test]
fn every_row_of_the_identity_table() {
    let mut table = String::new();
    let mut row = |input: String, verdict: Result<AssociationState, HoldCause>| {
        let verdict = match verdict {
            Ok(_) => "apply".to_owned(),
            Err(cause) => format!("hold {}", cause.code()),
        };
        writeln!(table, "{input:<40} {verdict}").unwrap();
    };
    row("valid".into(), disposition::identity(IdentityInput::Valid(state())));
    row("no state".into(), disposition::identity(IdentityInput::NoState));
    row("no identity update".into(), disposition::identity(IdentityInput::NoUpdate));
    row("verification awaited".into(), disposition::identity(IdentityInput::Unverified));
    for invalid in invalid_updates() {
        let name = format!("invalid: {}", invalid.code());
        row(name, disposition::identity(IdentityInput::Invalid(invalid)));
    }
    insta::assert_snapshot!("identity", table);
}

/// Where a reason stands in [`Reason::all`]; doesn't compile without a new one.
fn reason_place(reason: &Reason) -> usize {
    match reason {
        Reason::Malformed => 0,
        Reason::WrongGroup => 1,
        Reason::FutureEpoch => 2,
        Reason::PastEpoch => 3,
        Reason::BeforeJoin => 4,
        Reason::SecretsDiscarded => 5,
        Reason::SecretReused => 6,
        Reason::GenerationOutOfBound => 7,
        Reason::Authentication => 8,
        Reason::InvalidCommit => 9,
        Reason::MissingProposal => 10,
        Reason::PskInCommit => 11,
        Reason::IdentityNotBefore => 12,
        Reason::IdentityAbsent => 13,
        Reason::OwnWithoutAttempt => 14,
        Reason::OwnAlreadyHandled => 15,
        Reason::OwnStale => 16,
        Reason::Policy(violation) => place(&InputFailure::Policy(violation.clone())),
    }
}

/// Shows: PROC-011.
#[test]
fn codes_are_unique_and_stay_as_they_are() {
    let places: Vec<_> = Reason::all().map(|reason| reason_place(&reason)).collect();
    assert_eq!(places, (0..36).collect::<Vec<_>>(), "every reason is listed");
    let codes: Vec<_> = Reason::all().map(|reason| reason.code()).chain(HoldCause::CODES).collect();
    let unique: BTreeSet<_> = codes.iter().collect();
    assert_eq!(unique.len(), codes.len());
    insta::assert_snapshot!("codes", codes.join("\n"));
}
