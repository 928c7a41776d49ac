//! How requests leave, for the clients of GitHub and Jenkins alike: one transport that is either real HTTPS or any tower service,
//! a limit on time and size for every call. What the requests say is in `github` and `jenkins`, why one failed in `call_error`.

use std::error::Error as StdError;
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
/// Idle connections are closed before the other side closes them: a request on a closing connection is lost.
const IDLE_TIMEOUT: Duration = Duration::from_secs(20);
/// No response that we ask for is larger. The rest of a larger one is not read.
const MAX_BODY_BYTES: usize = 16 << 20;

/// An extension of a request: only this many bytes of the response's body are wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BodyLimit(pub usize);

/// Sends requests and returns whole responses: over HTTPS, or in process through any tower service.
#[derive(Debug, Clone)]
pub struct Transport(BoxCloneSyncService<Request<Bytes>, Response<Bytes>, BoxError>);

/// The machine's root certificates are read once: several clients of one process need them.
static CONNECTOR: LazyLock<Result<HttpsConnector<HttpConnector>, String>> = LazyLock::new(|| {
    let mut tcp = HttpConnector::new();
    tcp.set_connect_timeout(Some(CONNECT_TIMEOUT));
    tcp.set_nodelay(true);
    tcp.enforce_http(false);
    let tls = HttpsConnectorBuilder::new().with_native_roots().map_err(|error| error.to_string())?;
    Ok(tls.https_or_http().enable_http1().wrap_connector(tcp))
});

impl Transport {
    /// Real HTTP, over TLS where the URL says so.
    ///
    /// # Errors
    /// When the machine has no root certificates.
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

    /// Any service: a simulated world, a recorder, a fault.
    pub fn with_service<S>(service: S) -> Self
    where
        S: Service<Request<Bytes>, Response = Response<Bytes>> + Clone + Send + Sync + 'static,
        S::Error: Into<BoxError>,
        S::Future: Send + 'static,
    {
        Self(BoxCloneSyncService::new(service.map_err(Into::into)))
    }

    /// Sends one request and waits for the whole response, at most this long. After a failure a write may have happened, unless
    /// there was no connection.
    pub async fn send(&self, request: Request<Bytes>, limit: Duration) -> Result<Response<Bytes>, ApiError> {
        let writes = !request.method().is_safe();
        let (why, sent) = match tokio::time::timeout(limit, self.0.clone().oneshot(request)).await {
            Ok(Ok(response)) => return Ok(response),
            Ok(Err(error)) => {
                let not_sent = error.downcast_ref().is_some_and(HyperError::is_connect);
                (truncate(&error_chain(&*error), MAX_MESSAGE), !not_sent)
            }
            Err(_) => (format!("no answer within {} s", limit.as_secs()), true),
        };
        Err(ApiError::Unavailable { why, may_have_happened: writes && sent })
    }
}

/// The pauses before each repeat of a read: half a second, then twice as long each time.
pub fn backoff(repeats: usize) -> impl Iterator<Item = Duration> + Send {
    ExponentialBuilder::new().with_min_delay(Duration::from_millis(500)).with_max_times(repeats).build()
}

/// An error's text with that of its sources: HTTP clients' errors say nothing by themselves.
pub fn error_chain(error: &(dyn StdError + 'static)) -> String {
    let sources = std::iter::successors(error.source(), |error| (*error).source()).map(ToString::to_string);
    sources.fold(error.to_string(), |all, one| if all.contains(&one) { all } else { format!("{all}: {one}") })
}
