//! Serves both APIs over real HTTP on 127.0.0.1. The caller advances the clock or passes a clock to follow, and posts
//! the webhooks with [`post`].

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;
use hyper::server::conn::http1 as server;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use jiff::Timestamp;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};

use crate::fakes::Fakes;
use crate::github::webhooks::WebhookDelivery;
use crate::http_api::NoResponse;

/// Maximum size of a request body.
const BODY: usize = 4 * 1024 * 1024;

/// The two running servers. Dropping this value stops them.
#[derive(Debug)]
pub struct FakeServers {
    /// GitHub's API, `http://127.0.0.1:…`.
    pub github_url: String,
    /// Jenkins, `http://127.0.0.1:…`.
    pub jenkins_url: String,
    stop: watch::Sender<bool>,
    tasks: Vec<JoinHandle<()>>,
}

impl FakeServers {
    /// Stops both servers and waits for their tasks.
    pub async fn stop(mut self) {
        self.stop.send_replace(true);
        for mut task in self.tasks.drain(..) {
            if tokio::time::timeout(Duration::from_secs(2), &mut task).await.is_err() {
                task.abort();
            }
        }
    }
}

impl Drop for FakeServers {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
    }
}

type SharedFakes = Arc<Mutex<Fakes>>;
/// The clock to follow.
type TimeSource = Arc<dyn Fn() -> Timestamp + Send + Sync>;
type ApiHandler = fn(&mut Fakes, http::Request<Bytes>) -> Result<http::Response<Bytes>, NoResponse>;

/// Serves GitHub and Jenkins on two free ports of 127.0.0.1. The fakes' own URLs are set to them.
pub async fn serve(fakes: SharedFakes) -> io::Result<FakeServers> {
    serve_in(fakes, None).await
}

/// Like [`serve`], but follows a clock: each request first advances the fakes to the current time.
pub async fn serve_following(
    fakes: SharedFakes,
    time: impl Fn() -> Timestamp + Send + Sync + 'static,
) -> io::Result<FakeServers> {
    serve_in(fakes, Some(Arc::new(time))).await
}

async fn serve_in(fakes: SharedFakes, time: Option<TimeSource>) -> io::Result<FakeServers> {
    let (github, github_at) = listen().await?;
    let (jenkins, jenkins_at) = listen().await?;
    let (github_url, jenkins_url) = (format!("http://{github_at}"), format!("http://{jenkins_at}"));
    {
        let mut fakes = fakes.lock().unwrap_or_else(PoisonError::into_inner);
        fakes.settings.api_url.clone_from(&github_url);
        fakes.settings.jenkins_url.clone_from(&jenkins_url);
        fakes.make_envelopes();
    }
    let (stop, stopped) = watch::channel(false);
    let mut serving = FakeServers { github_url, jenkins_url, stop, tasks: Vec::new() };
    for (listener, api) in [(github, Fakes::github as ApiHandler), (jenkins, Fakes::jenkins as ApiHandler)] {
        serving.tasks.push(tokio::spawn(accept(listener, Arc::clone(&fakes), time.clone(), api, stopped.clone())));
    }
    Ok(serving)
}

async fn listen() -> io::Result<(TcpListener, SocketAddr)> {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
    let at = listener.local_addr()?;
    Ok((listener, at))
}

/// Accepts connections until stopped, and then closes them.
async fn accept(
    listener: TcpListener,
    fakes: SharedFakes,
    time: Option<TimeSource>,
    api: ApiHandler,
    mut stopped: watch::Receiver<bool>,
) {
    let mut connections = JoinSet::new();
    loop {
        let stream = tokio::select! {
            _ = stopped.changed() => return,
            accepted = listener.accept() => accepted,
            Some(_) = connections.join_next() => continue,
        };
        let Ok((stream, _)) = stream else { continue };
        let (fakes, time) = (Arc::clone(&fakes), time.clone());
        connections.spawn(async move {
            let service = service_fn(move |request| respond(Arc::clone(&fakes), time.clone(), api, request));
            let connection =
                server::Builder::new().timer(TokioTimer::new()).serve_connection(TokioIo::new(stream), service);
            // A disconnected client or a missing response ends only this connection.
            drop(connection.await);
        });
    }
}

/// An error makes hyper close the connection without a response.
async fn respond(
    fakes: SharedFakes,
    time: Option<TimeSource>,
    api: ApiHandler,
    request: http::Request<Incoming>,
) -> Result<http::Response<Full<Bytes>>, NoResponse> {
    let (head, body) = request.into_parts();
    let Ok(body) = Limited::new(body, BODY).collect().await else {
        return Ok(http::Response::builder().status(413).body(Full::default()).unwrap_or_default());
    };
    let mut fakes = fakes.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(time) = time {
        fakes.advance_to(time());
    }
    api(&mut fakes, http::Request::from_parts(head, body.to_bytes())).map(|response| response.map(Full::new))
}

/// GitHub's time limit for the receiver of a webhook.
const WEBHOOK_TIMEOUT: Duration = Duration::from_secs(10);

/// Posts a webhook to a base URL (`http://host:port`), as GitHub would. Returns the status code, or 0 without a
/// response, for [`Fakes::webhook_answered`].
pub async fn post(base_url: &str, delivery: &WebhookDelivery) -> u16 {
    tokio::time::timeout(WEBHOOK_TIMEOUT, send(base_url, delivery)).await.ok().flatten().unwrap_or(0)
}

async fn send(base_url: &str, delivery: &WebhookDelivery) -> Option<u16> {
    let authority = base_url.strip_prefix("http://")?.trim_end_matches('/');
    let mut request = http::Request::post(delivery.target.path()).header("host", authority);
    for (name, value) in &delivery.headers {
        request = request.header(name, value);
    }
    let request = request.body(Full::new(delivery.body.clone())).ok()?;
    let stream = TcpStream::connect(authority).await.ok()?;
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.ok()?;
    let connection = tokio::spawn(async move { drop(connection.await) });
    let status = sender.send_request(request).await.ok().map(|response| response.status().as_u16());
    connection.abort();
    status
}
