//! What the benchmarks receive: messages that a real member encrypted, as the backend would send them.

use anyhow::{Context as _, Result};
use highwater_mls::{MlsError, Resolutions, Trial};
use highwater_processing::ProcessingError;
use highwater_tests::{Peer, World};
use highwater_wire::proto::backend::{ClientEnvelope, GroupMessage, ServerEnvelope, client_envelope};
use highwater_wire::proto::contents::{PlaintextEnvelope, plaintext_envelope};
use highwater_wire::{GroupId, PrefixCursor, Topic};
use prost::Message as _;

/// The size of a message's content.
pub(crate) const CONTENT_BYTES: usize = 256;

/// The bytes that are encrypted for each of `count` messages, all different.
pub(crate) fn plaintexts(count: usize) -> Vec<Vec<u8>> {
    let plaintext = |index: usize| PlaintextEnvelope {
        content: Some(plaintext_envelope::Content::V1(plaintext_envelope::V1 {
            content: (0..CONTENT_BYTES).map(|at| (index.wrapping_mul(31) + at) as u8).collect(),
            idempotency_key: format!("{index:032x}"),
        })),
    };
    (0..count).map(|index| plaintext(index).encode_to_vec()).collect()
}

/// Encrypts and publishes on behalf of a member, and gives back what the backend sends for it. The sender keeps no
/// record of its own.
pub(crate) async fn publish(
    world: &mut World,
    sender: &Peer,
    group: GroupId,
    plaintexts: &[Vec<u8>],
) -> Result<Vec<ServerEnvelope>> {
    let given = plaintexts.to_vec();
    let encrypted = sender
        .write(move |tx| {
            Box::pin(async move {
                let mut trial = Trial::load(tx, group).await?.ok_or(MlsError::Damaged("group"))?;
                let encrypted: Result<Vec<_>, _> = given.iter().map(|plain| trial.encrypt(plain)).collect();
                trial.store(tx).await?;
                encrypted
            })
        })
        .await;
    let topic = Topic::group(group);
    let mut sent = Vec::with_capacity(encrypted.len());
    for data in encrypted {
        let message = GroupMessage { data, sender_hmac: Vec::new(), should_push: true };
        let payload = Some(client_envelope::Payload::GroupMessage(message));
        let at = world.publish_on(topic, ClientEnvelope { payload });
        sent.push(world.stored(topic, at).context("just published")?);
    }
    Ok(sent)
}

/// Where a topic is read on from.
pub(crate) async fn reader(peer: &Peer, topic: Topic) -> Result<PrefixCursor> {
    let received = peer
        .store
        .read("bench", move |tx| Box::pin(async move { highwater_receipt::received(tx, topic).await }))
        .await?;
    Ok(PrefixCursor::new(topic, received.cursor()))
}

/// Validates what came and admits it: from the backend's envelopes to committed pending rows.
pub(crate) async fn admit(peer: &Peer, reader: &mut PrefixCursor, batch: Vec<ServerEnvelope>) -> Result<()> {
    let rows = batch.len();
    let prefix = reader.extend(batch)?;
    let end = prefix.last();
    let admission = peer
        .store
        .write("bench", move |tx| Box::pin(async move { highwater_receipt::admit(tx, &prefix).await }))
        .await?;
    anyhow::ensure!(admission.received().cursor() == end, "{rows} envelopes don't fit one admission");
    Ok(())
}

/// One attempt at a topic. Says how many messages it applied.
pub(crate) async fn attempt(peer: &Peer, topic: Topic) -> Result<usize, ProcessingError> {
    let report = highwater_processing::attempt(&peer.store, topic, Resolutions::default()).await?;
    Ok(report.applied as usize)
}

/// One attempt at several topics. Says how many messages it applied of each that it reached.
pub(crate) async fn attempt_together(peer: &Peer, topics: Vec<Topic>) -> Result<Vec<usize>, ProcessingError> {
    let reports = highwater_processing::attempt_together(&peer.store, topics, Resolutions::default()).await?;
    Ok(reports.into_iter().map(|(_, report)| report.applied as usize).collect())
}
