//! Publishing bytes that were prepared before, exactly as they are.

use bytes::Bytes;
use highwater_wire::limits::{MAX_REQUEST_BYTES, MAX_RESPONSE_BYTES};
use highwater_wire::proto::backend::PublishResponse;
use highwater_wire::{MessageHash, SequenceId, Topic};
use prost::Message as _;
use tonic::client::Grpc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::{GrpcMethod, Request, Response, Status};
use tonic_prost::ProstCodec;

use crate::arrived::stored;
use crate::{Connection, PublishRefusal, RefusalReason, TransportError};

/// `PublishRequest` with its envelopes left encoded: an embedded message and a byte string look the
/// same on the wire. Decoding and encoding again would drop fields that this version doesn't know,
/// and what was stored before sending would no longer be what was sent (STR-111).
#[derive(Clone, PartialEq, prost::Message)]
struct ExactPublish {
    #[prost(bytes = "bytes", repeated, tag = "1")]
    envelopes: Vec<Bytes>,
}

/// What the backend says about one envelope it has stored, now or earlier.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PublishReceipt {
    /// The topic that the backend derived from the payload.
    pub topic: Topic,
    /// The id it has there. No proof of receipt (STR-062).
    pub sequence_id: SequenceId,
    /// When it was stored, nanoseconds since the Unix epoch; never negative.
    pub server_ns: i64,
    /// The backend's hash, as it came.
    pub hash: MessageHash,
}

impl Connection {
    /// Publishes encoded `ClientEnvelope`s, all or none, byte for byte. Returns one receipt for each,
    /// in order, also for those that were stored before.
    ///
    /// # Errors
    /// After [`TransportError::InvalidArgument`] nothing was stored
    /// ([`TransportError::proves_nothing_stored`]); after any other error, as after dropping the
    /// future, all may have been, and the same bytes may be sent again. A request over the
    /// protocol's 25 MiB isn't sent.
    pub async fn publish(&self, envelopes: Vec<Bytes>) -> Result<Vec<PublishReceipt>, TransportError> {
        if envelopes.is_empty() {
            return Ok(Vec::new());
        }
        let count = envelopes.len();
        let request = ExactPublish { envelopes };
        if request.encoded_len() > MAX_REQUEST_BYTES {
            return Err(too_large(request.encoded_len()));
        }
        let response = match self.answered(self.send(request)).await {
            Ok(response) => response,
            Err(error) => return Err(within(error, count)),
        };
        if response.envelope_metas.len() != count {
            return Err(TransportError::protocol(format!(
                "{} receipts for {count} envelopes",
                response.envelope_metas.len()
            )));
        }
        let receipt = |meta| {
            let stored = stored(meta)?;
            Ok(PublishReceipt {
                topic: stored.topic,
                sequence_id: stored.sequence_id,
                server_ns: stored.server_ns,
                hash: stored.hash,
            })
        };
        response.envelope_metas.into_iter().map(receipt).collect()
    }

    async fn send(&self, request: ExactPublish) -> Result<Response<PublishResponse>, Status> {
        let mut grpc = Grpc::new(self.channel())
            .max_encoding_message_size(MAX_REQUEST_BYTES)
            .max_decoding_message_size(MAX_RESPONSE_BYTES);
        grpc.ready().await.map_err(|error| Status::from_error(Box::new(error)))?;
        let path = PathAndQuery::from_static("/xmtp.backend.v1.PublishService/Publish");
        let mut request = Request::new(request);
        request.extensions_mut().insert(GrpcMethod::new("xmtp.backend.v1.PublishService", "Publish"));
        grpc.unary(request, path, ProstCodec::default()).await
    }
}

fn too_large(found: usize) -> TransportError {
    let message = format!("a publish of {found} bytes exceeds {MAX_REQUEST_BYTES}");
    TransportError::InvalidArgument {
        publish: Some(PublishRefusal {
            index: None,
            reason: RefusalReason::TooLarge,
            message: message.clone(),
        }),
        message,
    }
}

/// An index that names no envelope of the request names none.
fn within(mut error: TransportError, count: usize) -> TransportError {
    if let TransportError::InvalidArgument { publish: Some(refusal), .. } = &mut error {
        refusal.index = refusal.index.filter(|index| (*index as usize) < count);
    }
    error
}
