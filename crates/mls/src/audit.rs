//! Whether everything stored here is whole and fits together.

use highwater_store::{Audit, Reads};
use highwater_wire::GroupId;
use openmls::group::MlsGroup;
use sqlx::Row as _;

use crate::key_package::{KeyPackageId, stored_bundle};
use crate::overlay::Label;
use crate::trial::mls_id;
use crate::{Components, Member, MlsError, installation, rows, status};

/// Loads and decodes every group, and checks the installation and its key packages.
pub async fn audit(tx: &mut impl Reads) -> Result<Audit, MlsError> {
    let mut findings = Audit::new("mls");
    check_installation(tx, &mut findings).await?;
    check_key_packages(tx, &mut findings).await?;
    for (group, state) in status::groups(tx).await? {
        check_group(tx, &mut findings, group, &state).await?;
    }
    let orphans = sqlx::query(
        "SELECT count(DISTINCT group_id) FROM mls_values WHERE group_id <> x'' \
         AND group_id NOT IN (SELECT group_id FROM mls_groups)",
    )
    .fetch_one(tx.conn())
    .await?;
    let orphans: i64 = orphans.get(0);
    findings.check("every value belongs to a group", orphans == 0, || {
        format!("{orphans} unknown groups have values")
    });
    Ok(findings)
}

async fn check_installation(tx: &mut impl Reads, findings: &mut Audit) -> Result<(), MlsError> {
    let (whole, detail) = match installation(tx).await {
        Ok(_) => (true, String::new()),
        Err(MlsError::Damaged(what)) => (false, what.to_owned()),
        Err(other) => return Err(other),
    };
    findings.check("the installation key belongs to its public key", whole, || detail);
    Ok(())
}

async fn check_key_packages(tx: &mut impl Reads, findings: &mut Audit) -> Result<(), MlsError> {
    let overlay = rows::load_groupless(tx).await?;
    let stored = sqlx::query("SELECT id, published_ns, superseded_ns FROM mls_key_packages")
        .fetch_all(tx.conn())
        .await?;
    let mut current = 0;
    for row in &stored {
        let id = KeyPackageId::from_slice(row.get(0))?;
        let bundle = stored_bundle(&overlay, id);
        let whole =
            bundle.and_then(|bundle| KeyPackageId::of(bundle.key_package())).is_ok_and(|found| found == id);
        findings.check("a key package has its private keys", whole, || format!("{id:?}"));
        let published = row.get::<Option<i64>, _>(1).is_some();
        current += i32::from(published && row.get::<Option<i64>, _>(2).is_none());
    }
    findings.check("at most one published key package is current", current <= 1, || format!("{current} are"));
    let keys: i64 = sqlx::query("SELECT count(*) FROM mls_values WHERE group_id = x'' AND label = ?")
        .bind(Label::KeyPackage.name())
        .fetch_one(tx.conn())
        .await?
        .get(0);
    findings.check("no key package outlives its row", keys == stored.len() as i64, || {
        format!("{keys} keys for {} rows", stored.len())
    });
    Ok(())
}

async fn check_group(
    tx: &mut impl Reads,
    findings: &mut Audit,
    id: GroupId,
    state: &status::GroupState,
) -> Result<(), MlsError> {
    let overlay = rows::load(tx, id).await?;
    let loaded = MlsGroup::load(&overlay, &mls_id(id));
    let Ok(Some(group)) = loaded else {
        let detail = loaded.err().map_or("values are missing".to_owned(), |error| error.to_string());
        findings.check("a group loads", false, || format!("{id}: {detail}"));
        return Ok(());
    };
    findings.check("a group loads", true, String::new);
    let outline = (group.epoch().as_u64(), group.is_active());
    findings.check("the outline is the group's", outline == (state.epoch, state.active), || {
        format!("{id}: epoch and activity are {outline:?}")
    });
    let join_epoch: Option<u64> = overlay.read(Label::JoinEpoch, Vec::new()).ok().flatten();
    findings.check("the join epoch is known", join_epoch == Some(state.join_epoch), || {
        format!("{id}: {join_epoch:?}")
    });
    let components =
        group.extensions().app_data_dictionary().map(|extension| Components::decode(extension.dictionary()));
    let Some(Ok(components)) = components else {
        findings.check("the components decode", false, || id.to_string());
        return Ok(());
    };
    findings.check("the components decode", true, String::new);
    let strangers = group.members().filter(|leaf| {
        !Member::read(&leaf.credential, &leaf.signature_key)
            .is_some_and(|member| components.membership.contains_key(&member.inbox))
    });
    let strangers = strangers.count();
    findings.check("every leaf's inbox is a member", strangers == 0, || {
        format!("{id}: {strangers} leaves without an entry")
    });
    Ok(())
}
