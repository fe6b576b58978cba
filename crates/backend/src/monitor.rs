//! The second listener, for who operates the server: metrics, liveness, readiness.

use std::sync::Arc;

use axum::{
    Router,
    extract::State,
    http::{StatusCode, header},
    response::{IntoResponse, Response},
    routing::get,
};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::{health::Vitals, metrics::Metrics, store::EnvelopeStore};

const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// What the listener tells of.
#[derive(Clone)]
pub(crate) struct Monitor {
    pub(crate) metrics: Metrics,
    pub(crate) vitals: Vitals,
    pub(crate) store: Arc<dyn EnvelopeStore>,
}

impl Monitor {
    /// Answers until cancelled.
    pub(crate) async fn run(self, listener: TcpListener, stop: CancellationToken) {
        let routes = Router::new()
            .route("/metrics", get(metrics))
            .route("/healthz", get(async || "live\n"))
            .route("/readyz", get(readiness))
            .with_state(self);
        // Not gracefully: a scraper that keeps its connection must not hold up the end.
        tokio::select! {
            () = stop.cancelled() => {}
            served = axum::serve(listener, routes) => {
                if let Err(error) = served {
                    tracing::error!(%error, "the metrics listener failed");
                }
            }
        }
    }
}

async fn metrics(State(monitor): State<Monitor>) -> Response {
    let ready = monitor.vitals.condition().is_ready();
    match monitor.metrics.text(&monitor.store.pools(), ready) {
        Ok(text) => ([(header::CONTENT_TYPE, OPEN_METRICS)], text).into_response(),
        Err(error) => {
            tracing::error!(%error, "metrics can't be written");
            StatusCode::INTERNAL_SERVER_ERROR.into_response()
        }
    }
}

async fn readiness(State(monitor): State<Monitor>) -> Response {
    let now = monitor.vitals.condition();
    if now.is_ready() {
        return "ready\n".into_response();
    }
    let mut text = String::new();
    for (wrong, what) in [
        (!now.store, "the store doesn't answer\n"),
        (!now.following, "the serving database can't be followed\n"),
        (now.draining, "shutting down\n"),
    ] {
        if wrong {
            text.push_str(what);
        }
    }
    (StatusCode::SERVICE_UNAVAILABLE, text).into_response()
}
