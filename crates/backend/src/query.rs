//! `QueryService` and `IdentityService`: unary reads of the primary.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use highwater_wire::{
    Cursor, SequenceId, Topic,
    proto::{
        associations::IdentifierKind,
        backend::{
            ClientEnvelope, GetInboxIdsRequest, GetInboxIdsResponse, QueryNewestRequest, QueryNewestResponse,
            QueryRequest, QueryResponse, TopicQuery, VerifySmartContractWalletSignaturesRequest,
            VerifySmartContractWalletSignaturesResponse, get_inbox_ids_response,
            identity_service_server::IdentityService, query_newest_response, query_response::Continuation,
            query_service_server::QueryService,
        },
    },
};
use tonic::{Request, Response, Status};

use crate::{
    config::Limits,
    refusal::store_status,
    store::{
        EnvelopeStore, Identifier, ReadBounds, Source, StoreError, StoredEnvelope, StoredMeta, TopicRead,
    },
    wallets::ContractWallets,
};

/// The read services over one store.
#[derive(Clone)]
pub(crate) struct Reader {
    pub(crate) store: Arc<dyn EnvelopeStore>,
    pub(crate) limits: Arc<Limits>,
    pub(crate) wallets: ContractWallets,
}

/// Reads a topic of an ordered read.
pub(crate) fn ordered_read(query: &TopicQuery) -> Result<TopicRead, Status> {
    let topic = query.topic.as_ref().ok_or_else(|| invalid("a topic is missing"))?;
    let topic = Topic::try_from(topic).map_err(|error| invalid(error.to_string()))?;
    if !topic.kind().is_ordered() {
        return Err(invalid("key package topics have no ordered read; use QueryNewest"));
    }
    let after = query.cursor.as_ref().map_or(0, |cursor| cursor.sequence_id);
    let after = Cursor::try_from(after).map_err(|error| invalid(error.to_string()))?;
    Ok(TopicRead { topic, after })
}

pub(crate) fn invalid(message: impl Into<String>) -> Status {
    Status::invalid_argument(message)
}

fn at_most(what: &str, found: usize, limit: usize) -> Result<(), Status> {
    if found > limit {
        return Err(invalid(format!("{found} {what}, the limit is {limit}")));
    }
    Ok(())
}

#[tonic::async_trait]
impl QueryService for Reader {
    async fn query(&self, request: Request<QueryRequest>) -> Result<Response<QueryResponse>, Status> {
        let request = request.into_inner();
        at_most("topics", request.queries.len(), self.limits.max_query_topics)?;
        let mut starts: BTreeMap<Topic, Cursor> = BTreeMap::new();
        for query in &request.queries {
            let TopicRead { topic, after } = ordered_read(query)?;
            starts.entry(topic).and_modify(|least| *least = after.min(*least)).or_insert(after);
        }
        let reads: Vec<TopicRead> =
            starts.into_iter().map(|(topic, after)| TopicRead { topic, after }).collect();
        let limit = match request.limit {
            0 => self.limits.default_query_limit,
            asked => asked.min(self.limits.max_query_limit),
        } as usize;
        // A page ends early rather than outgrow a response; its first envelope always fits.
        let bounds = ReadBounds {
            rows_per_topic: limit,
            rows: limit,
            bytes: self.limits.max_response_bytes - PAGE_OVERHEAD,
        };
        let page = self.store.read_after(Source::Primary, &reads, bounds).await.map_err(store_status)?;
        let has_more = page.len() < reads.len() || page.iter().any(|topic| topic.has_more);
        let envelopes = page
            .iter()
            .flat_map(|topic| &topic.envelopes)
            .map(StoredEnvelope::to_proto)
            .collect::<Result<_, StoreError>>()
            .map_err(store_status)?;
        Ok(Response::new(QueryResponse { envelopes, continuation: Some(Continuation { has_more }) }))
    }

    async fn query_newest(
        &self,
        request: Request<QueryNewestRequest>,
    ) -> Result<Response<QueryNewestResponse>, Status> {
        let QueryNewestRequest { topics, include_full_envelope: full } = request.into_inner();
        let limit =
            if full { self.limits.max_newest_full_topics } else { self.limits.max_newest_metadata_topics };
        at_most("topics", topics.len(), limit)?;
        let topics: BTreeSet<Topic> = topics
            .iter()
            .map(|topic| Topic::try_from(topic).map_err(|error| invalid(error.to_string())))
            .collect::<Result<_, _>>()?;
        let topics: Vec<Topic> = topics.into_iter().collect();
        let results = if full { self.newest_full(&topics).await? } else { self.newest(&topics).await? };
        Ok(Response::new(QueryNewestResponse { results }))
    }
}

impl Reader {
    async fn newest(&self, topics: &[Topic]) -> Result<Vec<query_newest_response::Result>, Status> {
        let newest = self.store.newest(topics).await.map_err(store_status)?;
        Ok(newest.iter().map(|meta| newest_result(meta, None)).collect())
    }

    /// Reads a few at a time, so that an answer which can't be given isn't read whole.
    async fn newest_full(&self, topics: &[Topic]) -> Result<Vec<query_newest_response::Result>, Status> {
        let heads = self.store.heads(topics).await.map_err(store_status)?;
        let ids: Vec<SequenceId> = topics.iter().filter_map(|topic| heads.get(topic).copied()).collect();
        let (mut results, mut bytes) = (Vec::with_capacity(ids.len()), 0);
        for some in ids.chunks(NEWEST_AT_ONCE) {
            for stored in self.store.read_ids(some).await.map_err(store_status)? {
                bytes += stored.payload.len();
                let envelope = stored.client_envelope().map_err(store_status)?;
                results.push(newest_result(&stored.meta, Some(envelope)));
            }
            if bytes > self.limits.max_response_bytes {
                return Err(Status::out_of_range(
                    "the answer is longer than a response may be; ask for fewer",
                ));
            }
        }
        Ok(results)
    }
}

fn newest_result(meta: &StoredMeta, envelope: Option<ClientEnvelope>) -> query_newest_response::Result {
    query_newest_response::Result {
        topic: Some(meta.topic.to_proto()),
        meta: Some(meta.to_proto()),
        envelope,
    }
}

/// Envelopes of a QueryNewest that are read before their size is looked at.
const NEWEST_AT_ONCE: usize = 4;

/// How long a request's signatures may take to be judged.
const JUDGING_LIFETIME: Duration = Duration::from_secs(30);

/// Bytes of a page that aren't envelopes.
const PAGE_OVERHEAD: usize = 16;

#[tonic::async_trait]
impl IdentityService for Reader {
    async fn get_inbox_ids(
        &self,
        request: Request<GetInboxIdsRequest>,
    ) -> Result<Response<GetInboxIdsResponse>, Status> {
        let requests = request.into_inner().requests;
        at_most("identifiers", requests.len(), self.limits.max_lookup_identifiers)?;
        let identifiers = requests
            .iter()
            .map(|request| identifier(request.identifier_kind, &request.identifier))
            .collect::<Result<Vec<_>, _>>()?;
        let inboxes = self.store.inbox_ids(&identifiers).await.map_err(store_status)?;
        let responses = requests
            .into_iter()
            .zip(&identifiers)
            .map(|(request, identifier)| get_inbox_ids_response::Response {
                identifier: request.identifier,
                identifier_kind: request.identifier_kind,
                inbox_id: inboxes.get(identifier).map(ToString::to_string),
            })
            .collect();
        Ok(Response::new(GetInboxIdsResponse { responses }))
    }

    async fn verify_smart_contract_wallet_signatures(
        &self,
        request: Request<VerifySmartContractWalletSignaturesRequest>,
    ) -> Result<Response<VerifySmartContractWalletSignaturesResponse>, Status> {
        let signatures = request.into_inner().signatures;
        at_most("signatures", signatures.len(), self.limits.max_scw_signatures)?;
        let judging = self.wallets.answers(&signatures);
        let responses = tokio::time::timeout(JUDGING_LIFETIME, judging)
            .await
            .map_err(|_| Status::deadline_exceeded("the chains took too long; retry with backoff"))??;
        Ok(Response::new(VerifySmartContractWalletSignaturesResponse { responses }))
    }
}

fn identifier(kind: i32, text: &str) -> Result<Identifier, Status> {
    let kind = match IdentifierKind::try_from(kind) {
        Ok(IdentifierKind::Unspecified | IdentifierKind::Ethereum) => IdentifierKind::Ethereum,
        Ok(IdentifierKind::Passkey) => IdentifierKind::Passkey,
        Err(_) => return Err(invalid(format!("{kind} is no identifier kind"))),
    };
    Ok(Identifier { kind, text: text.to_ascii_lowercase() })
}
