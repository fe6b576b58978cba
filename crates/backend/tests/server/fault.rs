//! A store that fails or waits when told to, under an otherwise real server.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use highwater_backend::{
    EnvelopeStore, StoreError,
    store::{
        AdmissionView, Committed, EnvelopeKey, Identifier, NewEnvelope, ReadBounds, ReadPage, Source,
        StoredEnvelope, StoredMeta, Tail, TopicRead,
    },
};
use highwater_wire::{InboxId, SequenceId, Topic};
use tokio::sync::watch;

use crate::fixture::Home;

/// What the test switches.
#[derive(Default)]
pub(crate) struct Faults {
    /// Every read fails.
    pub(crate) reads: AtomicBool,
    /// Following fails.
    pub(crate) tail: AtomicBool,
    /// Heads are read only while this is false.
    pub(crate) heads_wait: watch::Sender<bool>,
    /// The newest are read only while this is false. Its receivers are the calls under way.
    pub(crate) newest_wait: watch::Sender<bool>,
}

pub(crate) struct FaultyStore {
    inner: Arc<dyn EnvelopeStore>,
    faults: Arc<Faults>,
}

impl FaultyStore {
    pub(crate) async fn open(home: &Home) -> (Arc<Self>, Arc<Faults>) {
        let faults = Arc::new(Faults::default());
        let inner = home.store().await;
        (Arc::new(Self { inner, faults: Arc::clone(&faults) }), faults)
    }

    fn check(&self) -> Result<(), StoreError> {
        fail_if(&self.faults.reads)
    }
}

fn fail_if(fault: &AtomicBool) -> Result<(), StoreError> {
    if fault.load(Ordering::SeqCst) {
        return Err(StoreError::Unavailable("told to fail".to_owned()));
    }
    Ok(())
}

#[tonic::async_trait]
impl EnvelopeStore for FaultyStore {
    async fn admission_view(
        &self,
        keys: &[EnvelopeKey],
        inboxes: &[InboxId],
    ) -> Result<AdmissionView, StoreError> {
        self.check()?;
        self.inner.admission_view(keys, inboxes).await
    }

    async fn commit(&self, envelopes: &[NewEnvelope]) -> Result<Committed, StoreError> {
        self.inner.commit(envelopes).await
    }

    async fn read_after(
        &self,
        source: Source,
        reads: &[TopicRead],
        bounds: ReadBounds,
    ) -> Result<ReadPage, StoreError> {
        self.check()?;
        self.inner.read_after(source, reads, bounds).await
    }

    async fn read_ids(&self, ids: &[SequenceId]) -> Result<Vec<StoredEnvelope>, StoreError> {
        self.check()?;
        self.inner.read_ids(ids).await
    }

    async fn heads(&self, topics: &[Topic]) -> Result<HashMap<Topic, SequenceId>, StoreError> {
        let mut wait = self.faults.heads_wait.subscribe();
        wait.wait_for(|wait| !wait).await.expect("the switch lives");
        self.check()?;
        self.inner.heads(topics).await
    }

    async fn newest(&self, topics: &[Topic]) -> Result<Vec<StoredMeta>, StoreError> {
        let mut wait = self.faults.newest_wait.subscribe();
        wait.wait_for(|wait| !wait).await.expect("the switch lives");
        self.check()?;
        self.inner.newest(topics).await
    }

    async fn inbox_ids(
        &self,
        identifiers: &[Identifier],
    ) -> Result<HashMap<Identifier, InboxId>, StoreError> {
        self.check()?;
        self.inner.inbox_ids(identifiers).await
    }

    async fn tail(&self) -> Result<Box<dyn Tail>, StoreError> {
        let inner = self.inner.tail().await?;
        Ok(Box::new(FaultyTail { inner, faults: Arc::clone(&self.faults) }))
    }

    async fn probe(&self) -> Result<(), StoreError> {
        self.check()?;
        self.inner.probe().await
    }

    fn hints(&self) -> watch::Receiver<u64> {
        self.inner.hints()
    }

    async fn close(&self) {
        self.inner.close().await;
    }
}

struct FaultyTail {
    inner: Box<dyn Tail>,
    faults: Arc<Faults>,
}

#[tonic::async_trait]
impl Tail for FaultyTail {
    async fn next(&mut self) -> Result<Vec<highwater_backend::store::Arrival>, StoreError> {
        fail_if(&self.faults.tail)?;
        self.inner.next().await
    }
}
