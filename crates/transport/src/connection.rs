//! The connection itself: one lazy HTTP/2 channel, shared by all its clones.

use std::sync::{Arc, OnceLock};
use std::{fmt, future::Future, time::Duration};

use highwater_wire::limits::{MAX_REQUEST_BYTES, MAX_RESPONSE_BYTES};
use highwater_wire::proto::backend::{
    identity_service_client::IdentityServiceClient, query_service_client::QueryServiceClient,
    subscribe_service_client::SubscribeServiceClient,
};
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint};
use tonic::{Response, Status};

use crate::TransportError;

/// A receiver that nobody reads from holds at most its own stream's window; the rest of the
/// connection's window stays free for reads and publishes.
const STREAM_WINDOW_BYTES: u32 = 2 * 1024 * 1024;
const CONNECTION_WINDOW_BYTES: u32 = 16 * 1024 * 1024;
/// How a connection whose other end is gone is noticed while a call or a session is open.
const HTTP2_PING_INTERVAL: Duration = Duration::from_secs(30);
const HTTP2_PING_TIMEOUT: Duration = Duration::from_secs(20);
const TCP_KEEPALIVE: Duration = Duration::from_secs(60);

/// How patient a connection is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConnectOptions {
    /// For the TCP connection to be made. 10 s by default.
    pub connect_timeout: Duration,
    /// For one request to be answered whole, or a session to be accepted. 30 s by default, which
    /// exceeds the time that a backend gives a publish.
    pub request_timeout: Duration,
    /// Certificate authorities, in PEM, that an `https` backend may be vouched for by, beside those
    /// that the system trusts. None by default.
    pub extra_roots_pem: Vec<String>,
}

impl Default for ConnectOptions {
    fn default() -> Self {
        Self {
            connect_timeout: Duration::from_secs(10),
            request_timeout: Duration::from_secs(30),
            extra_roots_pem: Vec::new(),
        }
    }
}

/// A connection to one backend. Clones share it.
///
/// It is made by the first call that needs it, and made again by the next call after it broke; no
/// call is ever repeated by itself. Dropping a call's future cancels the call; a dropped publish
/// may still have been stored.
///
/// Once the deployment has refused this client ([`TransportError::Refused`]), nothing more is sent.
#[derive(Clone)]
pub struct Connection {
    channel: Channel,
    request_timeout: Duration,
    /// The words it was refused with.
    refused: Arc<OnceLock<String>>,
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection").field("request_timeout", &self.request_timeout).finish_non_exhaustive()
    }
}

impl Connection {
    /// Prepares a connection to `url`, `http://host:port` or `https://host:port`. Nothing is sent yet.
    /// Must be called inside a Tokio runtime, which then carries the connection.
    ///
    /// # Errors
    /// [`TransportError::BadEndpoint`] for a URL that no network could make usable.
    pub fn connect(url: &str, options: ConnectOptions) -> Result<Self, TransportError> {
        if tokio::runtime::Handle::try_current().is_err() {
            return Err(TransportError::BadEndpoint("no Tokio runtime is running".into()));
        }
        let endpoint = Endpoint::from_shared(url.to_owned())
            .map_err(|error| TransportError::BadEndpoint(error.to_string()))?;
        let uri = endpoint.uri();
        let endpoint = match (uri.scheme_str(), uri.host()) {
            (Some("http"), Some(_)) => endpoint,
            (Some("https"), Some(_)) => secured(endpoint, &options.extra_roots_pem)?,
            (Some(_), Some(_)) => {
                return Err(TransportError::BadEndpoint("the scheme must be http or https".into()));
            }
            _ => {
                return Err(TransportError::BadEndpoint("a scheme and a host are needed".into()));
            }
        };
        let channel = endpoint
            .connect_timeout(options.connect_timeout)
            .tcp_nodelay(true)
            .tcp_keepalive(Some(TCP_KEEPALIVE))
            .http2_keep_alive_interval(HTTP2_PING_INTERVAL)
            .keep_alive_timeout(HTTP2_PING_TIMEOUT)
            .initial_stream_window_size(STREAM_WINDOW_BYTES)
            .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
            .connect_lazy();
        Ok(Self { channel, request_timeout: options.request_timeout, refused: Arc::default() })
    }

    pub(crate) fn channel(&self) -> Channel {
        self.channel.clone()
    }

    pub(crate) fn queries(&self) -> QueryServiceClient<Channel> {
        QueryServiceClient::new(self.channel())
            .max_encoding_message_size(MAX_REQUEST_BYTES)
            .max_decoding_message_size(MAX_RESPONSE_BYTES)
    }

    pub(crate) fn subscriptions(&self) -> SubscribeServiceClient<Channel> {
        SubscribeServiceClient::new(self.channel())
            .max_encoding_message_size(MAX_REQUEST_BYTES)
            .max_decoding_message_size(MAX_RESPONSE_BYTES)
    }

    pub(crate) fn identities(&self) -> IdentityServiceClient<Channel> {
        IdentityServiceClient::new(self.channel())
            .max_encoding_message_size(MAX_REQUEST_BYTES)
            .max_decoding_message_size(MAX_RESPONSE_BYTES)
    }

    /// Waits for an answer, within the time for one request. The limit is kept here and not told to
    /// the backend, whose own expiry couldn't be told from an explicit cancellation.
    pub(crate) async fn answered<T>(
        &self,
        call: impl Future<Output = Result<Response<T>, Status>>,
    ) -> Result<T, TransportError> {
        self.not_refused()?;
        match tokio::time::timeout(self.request_timeout, call).await {
            Ok(answer) => answer.map(Response::into_inner).map_err(|status| self.failed(status)),
            Err(_) => Err(TransportError::DeadlineExceeded {
                message: format!("nothing for {:?}", self.request_timeout),
            }),
        }
    }

    /// # Errors
    /// [`TransportError::Refused`] once the deployment has refused this client.
    pub fn not_refused(&self) -> Result<(), TransportError> {
        match self.refused.get() {
            Some(message) => Err(TransportError::Refused { message: message.clone() }),
            None => Ok(()),
        }
    }

    fn failed(&self, status: Status) -> TransportError {
        let error = TransportError::from(status);
        if let TransportError::Refused { message } = &error {
            self.refused.get_or_init(|| message.clone());
        }
        error
    }
}

fn secured(endpoint: Endpoint, extra_roots_pem: &[String]) -> Result<Endpoint, TransportError> {
    let extra = extra_roots_pem.iter().map(Certificate::from_pem);
    let config = ClientTlsConfig::new().with_native_roots().ca_certificates(extra);
    endpoint.tls_config(config).map_err(|error| TransportError::BadEndpoint(error.to_string()))
}
