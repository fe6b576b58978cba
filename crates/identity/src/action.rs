//! What each action demands and changes.

use std::collections::{BTreeMap, BTreeSet};

use highwater_wire::{InboxId, proto::associations::Signature};

use crate::{
    AssociationState, Invalid, Member, MemberIdentifier, Verdicts, inbox_id,
    signature::{SignedText, Spent},
    update::Action,
};

/// Checks the signatures of one update and collects what they spend.
///
/// The actions of an update share its text, and a wallet that signs twice gives the same bytes, so
/// one signature may serve several actions of its own update. It never serves a later update.
pub(crate) struct Signatures<'a> {
    text: &'a SignedText,
    verdicts: &'a Verdicts,
    spent: Option<&'a BTreeSet<Spent>>,
    used: BTreeSet<Spent>,
}

impl<'a> Signatures<'a> {
    pub(crate) fn new(
        text: &'a SignedText,
        verdicts: &'a Verdicts,
        spent: Option<&'a BTreeSet<Spent>>,
    ) -> Self {
        Self { text, verdicts, spent, used: BTreeSet::new() }
    }

    pub(crate) fn into_used(self) -> BTreeSet<Spent> {
        self.used
    }

    fn signer(&mut self, signature: Option<&Signature>) -> Result<MemberIdentifier, Invalid> {
        let signature = signature.ok_or(Invalid::Missing("signature"))?;
        let checked = self.text.check(signature, self.verdicts)?;
        if self.spent.is_some_and(|spent| spent.contains(&checked.spent)) {
            return Err(Invalid::SignatureReplayed);
        }
        self.used.insert(checked.spent);
        Ok(checked.signer)
    }

    fn must_be(&mut self, expected: &MemberIdentifier, signature: Option<&Signature>) -> Result<(), Invalid> {
        let found = self.signer(signature)?;
        if found == *expected {
            Ok(())
        } else {
            Err(Invalid::WrongSigner { expected: expected.clone(), found })
        }
    }
}

impl Action<'_> {
    pub(crate) fn apply(
        &self,
        state: Option<AssociationState>,
        inbox: InboxId,
        signatures: &mut Signatures<'_>,
    ) -> Result<AssociationState, Invalid> {
        if let Self::CreateInbox { identifier, relying_party, nonce, signature } = self {
            if state.is_some() {
                return Err(Invalid::AlreadyCreated);
            }
            if inbox_id(&identifier.text(), *nonce) != inbox {
                return Err(Invalid::InboxIdNotDerived);
            }
            signatures.must_be(identifier, *signature)?;
            return Ok(AssociationState::created(inbox, identifier, relying_party));
        }
        let mut state = state.ok_or(Invalid::NotCreated)?;
        match self {
            Self::CreateInbox { .. } => return Err(Invalid::AlreadyCreated),
            Self::Add { member, relying_party, by, signature } => {
                let adder = state.may_add(member, signatures.signer(*by)?)?;
                signatures.must_be(member, *signature)?;
                state.members.insert(
                    member.clone(),
                    Member { added_by: Some(adder), relying_party: relying_party.clone() },
                );
            }
            Self::Revoke { member, by } => {
                state.must_be_recovery(signatures.signer(*by)?)?;
                state.revoke(member);
            }
            Self::ChangeRecovery { identifier, relying_party, by } => {
                state.must_be_recovery(signatures.signer(*by)?)?;
                state.recovery = identifier.clone();
                state.recovery_relying_party = relying_party.clone();
            }
        }
        Ok(state)
    }
}

impl AssociationState {
    fn created(inbox_id: InboxId, identifier: &MemberIdentifier, relying_party: &Option<String>) -> Self {
        let member = Member { added_by: None, relying_party: relying_party.clone() };
        Self {
            inbox_id,
            recovery: identifier.clone(),
            recovery_relying_party: relying_party.clone(),
            members: BTreeMap::from([(identifier.clone(), member)]),
            spent: BTreeSet::new(),
            entries: 0,
        }
    }

    fn may_add(
        &self,
        member: &MemberIdentifier,
        adder: MemberIdentifier,
    ) -> Result<MemberIdentifier, Invalid> {
        if !self.is_member(&adder) {
            return Err(Invalid::NotAMember(adder));
        }
        if matches!((&adder, member), (MemberIdentifier::Installation(_), MemberIdentifier::Installation(_)))
        {
            return Err(Invalid::InstallationAddsInstallation);
        }
        if self.is_member(member) {
            return Err(Invalid::AlreadyMember(member.clone()));
        }
        Ok(adder)
    }

    fn must_be_recovery(&self, signer: MemberIdentifier) -> Result<(), Invalid> {
        if signer == self.recovery { Ok(()) } else { Err(Invalid::NotRecovery(signer)) }
    }

    /// Takes the member and the installations that it added. One that is gone already is no fault:
    /// two devices may revoke the same member at the same time.
    fn revoke(&mut self, revoked: &MemberIdentifier) {
        self.members.retain(|identifier, member| {
            let orphaned = matches!(identifier, MemberIdentifier::Installation(_))
                && member.added_by.as_ref() == Some(revoked);
            identifier != revoked && !orphaned
        });
    }
}
