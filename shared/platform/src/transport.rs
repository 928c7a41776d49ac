//! The HTTP transport of the GitHub and Jenkins clients: HTTPS or any tower service, with a timeout and a size limit for every call.
//! Errors are in `api_error`.

use std::error::Error as StdError;
use std::io;
use std::sync::LazyLock;
use std::time::Duration;

use backon::{BackoffBuilder, ExponentialBuilder};
use bytes::Bytes;
use domain::event::truncate;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::{Client, Error as HyperError};
use hyper_util::rt::{TokioExecutor, TokioTimer};
pub use tower::BoxError;
use tower::util::BoxCloneSyncService;
use tower::{Service, ServiceExt};

pub use crate::api_error::ApiError;
use crate::api_error::MAX_MESSAGE;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Shorter than the servers' idle timeouts, because a request on a connection that the server closes is lost.
const IDLE_TIMEOUT: Duration = Duration::from_secs(20);
/// The rest of a larger response is not read.
const MAX_BODY_BYTES: usize = 16 << 20;

/// Request extension: read at most this many bytes of the response's body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BodyLimit(pub usize);

/// Sends requests over HTTPS or through a tower service, and returns complete responses.
#[derive(Debug, Clone)]
pub struct Transport(BoxCloneSyncService<Request<Bytes>, Response<Bytes>, BoxError>);

/// Shared by all clients of the process, so that the root certificates are read once.
static CONNECTOR: LazyLock<Result<HttpsConnector<HttpConnector>, String>> = LazyLock::new(|| {
    let mut tcp = HttpConnector::new();
    tcp.set_connect_timeout(Some(CONNECT_TIMEOUT));
    tcp.set_nodelay(true);
    tcp.enforce_http(false);
    let tls = HttpsConnectorBuilder::new().with_native_roots().map_err(|error| error.to_string())?;
    Ok(tls.https_or_http().enable_http1().wrap_connector(tcp))
});

impl Transport {
    /// HTTP or HTTPS, depending on the URL. Fails if the machine has no root certificates.
    pub fn https() -> Result<Self, BoxError> {
        let client: Client<_, Full<Bytes>> = Client::builder(TokioExecutor::new())
            .pool_idle_timeout(IDLE_TIMEOUT)
            .pool_timer(TokioTimer::new())
            .build(CONNECTOR.clone()?);
        Ok(Self::with_service(tower::service_fn(move |request: Request<Bytes>| {
            let limit = request.extensions().get::<BodyLimit>().map_or(MAX_BODY_BYTES, |limit| limit.0);
            let sent = client.request(request.map(Full::new));
            async move {
                let (parts, mut body) = sent.await?.into_parts();
                let mut bytes = Vec::new();
                while bytes.len() < limit
                    && let Some(frame) = body.frame().await
                {
                    if let Ok(data) = frame?.into_data() {
                        bytes.extend_from_slice(&data[..data.len().min(limit - bytes.len())]);
                    }
                }
                Ok::<_, BoxError>(Response::from_parts(parts, bytes.into()))
            }
        })))
    }

    /// Any tower service, such as a fake.
    pub fn with_service<S>(service: S) -> Self
    where
        S: Service<Request<Bytes>, Response = Response<Bytes>> + Clone + Send + Sync + 'static,
        S::Error: Into<BoxError>,
        S::Future: Send + 'static,
    {
        Self(BoxCloneSyncService::new(service.map_err(Into::into)))
    }

    /// Sends one request. After an error a write may have happened, unless the connection failed.
    pub async fn send(&self, request: Request<Bytes>, limit: Duration) -> Result<Response<Bytes>, ApiError> {
        let writes = !request.method().is_safe();
        let (why, sent) = match tokio::time::timeout(limit, self.0.clone().oneshot(request)).await {
            Ok(Ok(response)) => return Ok(response),
            Ok(Err(error)) => (truncate(&error_chain(&*error), MAX_MESSAGE), !is_connect_error(&error)),
            Err(_) => (format!("no response within {} s", limit.as_secs()), true),
        };
        Err(ApiError::Unavailable { why, may_have_happened: writes && sent })
    }
}

/// Whether there was no connection, so that the request cannot have been received.
fn is_connect_error(error: &BoxError) -> bool {
    let refused = |error: &io::Error| error.kind() == io::ErrorKind::ConnectionRefused;
    error.downcast_ref().is_some_and(HyperError::is_connect) || error.downcast_ref().is_some_and(refused)
}

/// Pauses between retries of a read: half a second, doubled each time.
pub fn backoff(repeats: usize) -> impl Iterator<Item = Duration> + Send {
    ExponentialBuilder::new().with_min_delay(Duration::from_millis(500)).with_max_times(repeats).build()
}

/// An error's text with the texts of its sources; those of HTTP clients have the cause only there.
pub fn error_chain(error: &(dyn StdError + 'static)) -> String {
    let sources = std::iter::successors(error.source(), |error| (*error).source()).map(ToString::to_string);
    sources.fold(error.to_string(), |all, one| if all.contains(&one) { all } else { format!("{all}: {one}") })
}
