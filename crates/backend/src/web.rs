//! What browsers need of the one port: gRPC-Web beside gRPC, and cross-origin answers (STR-055).

use std::time::Duration;

use http::{HeaderName, HeaderValue, Method};
use tonic_web::GrpcWebLayer;
use tower::layer::util::{Identity, Stack};
use tower_http::cors::{AllowHeaders, Any, CorsLayer};

use crate::config::CorsOrigins;

/// The layers, outermost last.
pub(crate) type Layers = Stack<GrpcWebLayer, Stack<CorsLayer, Identity>>;

/// How long a browser may remember a preflight's answer.
const PREFLIGHT_AGE: Duration = Duration::from_secs(24 * 60 * 60);

/// What a page may read of an answer besides its body: where an error that precedes every message is told.
const EXPOSED: [HeaderName; 3] = [
    HeaderName::from_static("grpc-status"),
    HeaderName::from_static("grpc-message"),
    HeaderName::from_static("grpc-status-details-bin"),
];

/// The layer that answers preflights and marks answers for the pages of `origins`.
pub(crate) fn cors(origins: &CorsOrigins) -> CorsLayer {
    let layer = CorsLayer::new()
        .allow_methods([Method::POST])
        // Mirrored: a wildcard wouldn't cover the credentials that something in front may ask for.
        .allow_headers(AllowHeaders::mirror_request())
        .expose_headers(EXPOSED)
        .max_age(PREFLIGHT_AGE);
    match origins {
        CorsOrigins::Any => layer.allow_origin(Any),
        CorsOrigins::List(origins) => {
            // Validated: anything else was refused at the start.
            let origins = origins.iter().filter_map(|origin| HeaderValue::from_str(origin).ok());
            layer.allow_origin(origins.collect::<Vec<_>>())
        }
    }
}
