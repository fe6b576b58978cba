//! A service with its calls counted. What its failures say about the store is passed on to health.

use std::sync::Arc;

use highwater_wire::proto::backend::{
    GetInboxIdsRequest, GetInboxIdsResponse, PublishRequest, PublishResponse, QueryNewestRequest,
    QueryNewestResponse, QueryRequest, QueryResponse, VerifySmartContractWalletSignaturesRequest,
    VerifySmartContractWalletSignaturesResponse, identity_service_server::IdentityService,
    publish_service_server::PublishService, query_service_server::QueryService,
};
use tonic::{Code, Request, Response, Status};

use crate::{
    health::Vitals,
    metrics::{Call, Method, Metrics},
};

/// A service and who hears of its outcomes.
#[derive(Debug)]
pub(crate) struct Counted<S> {
    pub(crate) service: Arc<S>,
    pub(crate) metrics: Metrics,
    pub(crate) vitals: Vitals,
}

impl<S> Counted<S> {
    async fn watch<T>(
        &self,
        call: Call,
        answer: impl Future<Output = Result<T, Status>>,
    ) -> Result<T, Status> {
        let answer = answer.await;
        call.answered(&answer);
        if let Err(status) = &answer
            && matches!(status.code(), Code::Unavailable | Code::DeadlineExceeded | Code::Internal)
        {
            self.vitals.suspect();
        }
        answer
    }
}

#[tonic::async_trait]
impl<S: PublishService> PublishService for Counted<S> {
    async fn publish(&self, request: Request<PublishRequest>) -> Result<Response<PublishResponse>, Status> {
        let answer = self.watch(self.metrics.publish(), self.service.publish(request)).await?;
        self.metrics.acknowledged(answer.get_ref().envelope_metas.len());
        Ok(answer)
    }
}

#[tonic::async_trait]
impl<S: QueryService> QueryService for Counted<S> {
    async fn query(&self, request: Request<QueryRequest>) -> Result<Response<QueryResponse>, Status> {
        self.watch(self.metrics.query(Method::Query), self.service.query(request)).await
    }

    async fn query_newest(
        &self,
        request: Request<QueryNewestRequest>,
    ) -> Result<Response<QueryNewestResponse>, Status> {
        self.watch(self.metrics.query(Method::QueryNewest), self.service.query_newest(request)).await
    }
}

#[tonic::async_trait]
impl<S: IdentityService> IdentityService for Counted<S> {
    async fn get_inbox_ids(
        &self,
        request: Request<GetInboxIdsRequest>,
    ) -> Result<Response<GetInboxIdsResponse>, Status> {
        self.watch(self.metrics.query(Method::GetInboxIds), self.service.get_inbox_ids(request)).await
    }

    async fn verify_smart_contract_wallet_signatures(
        &self,
        request: Request<VerifySmartContractWalletSignaturesRequest>,
    ) -> Result<Response<VerifySmartContractWalletSignaturesResponse>, Status> {
        let call = self.metrics.query(Method::VerifyWalletSignatures);
        self.watch(call, self.service.verify_smart_contract_wallet_signatures(request)).await
    }
}
