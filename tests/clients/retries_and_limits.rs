//! How the client sends requests: authentication, retries, rate limits and timeouts.

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use domain::backoff::AttemptFailure;
use domain::policy::Policy;
use http::Response;
use jiff::SignedDuration;
use platform::clock::SystemClock;
use platform::github::{Credentials, GitHub, GitHubSettings, RateLimit, Reaction};
use platform::transport::{ApiError, Transport};
use tests::{pr, start};
use tokio::io::AsyncReadExt;
use tracing_subscriber::util::SubscriberInitExt as _;

use crate::{app, response, scripted_github, token};

const PULL: &str = r#"{"node_id":"PR_1","state":"open","closed_at":null,"merged_at":null}"#;

fn secs(list: &[u64]) -> Vec<Duration> {
    list.iter().map(|secs| Duration::from_secs(*secs)).collect()
}

#[tokio::test]
async fn reads_are_retried_and_writes_are_not() {
    let left = AtomicUsize::new(2);
    let client = scripted_github(&token(), move |_| {
        let failing = left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_ok();
        Ok(if failing { response(502, "") } else { response(200, PULL) })
    });
    assert_eq!(client.github.pull(&pr(1)).await.unwrap().node_id, "PR_1");
    assert_eq!(client.transport.count(), 3);
    assert_eq!(client.clock.take_pauses(), [Duration::from_millis(500), Duration::from_secs(1)]);

    let down = crate::scripted_github(&token(), |_| Ok(response(502, "")));
    let error = down.github.pull(&pr(1)).await.unwrap_err();
    assert!(error.is_transient() && !error.may_have_happened(), "{error}");
    assert_eq!(down.transport.count(), 3, "one request and two retries");
    let error = down.github.close(&pr(1)).await.unwrap_err();
    assert_eq!((error.may_have_happened(), error.failure()), (true, AttemptFailure::TimedOut));
    assert_eq!(down.transport.count(), 4, "sent once");
}

#[tokio::test]
async fn permanent_refusal_is_not_retried() {
    for (status, failure) in
        [(404, AttemptFailure::Invalid), (422, AttemptFailure::Invalid), (403, AttemptFailure::Forbidden)]
    {
        let client = scripted_github(&token(), move |_| Ok(response(status, r#"{"message":"No"}"#)));
        let error = client.github.pull(&pr(1)).await.unwrap_err();
        assert_eq!((client.transport.count(), error.failure()), (1, failure), "{status}");
    }
}

#[tokio::test]
async fn no_request_is_sent_before_the_rate_limit_resets() {
    let limited = Arc::new(Mutex::new(true));
    let still = Arc::clone(&limited);
    let client = scripted_github(&token(), move |_| {
        let mut limited = still.lock().unwrap();
        Ok(if std::mem::take(&mut *limited) {
            let mut answer = response(403, r#"{"message":"You have exceeded a secondary rate limit"}"#);
            answer.headers_mut().insert("retry-after", "40".parse().unwrap());
            answer
        } else {
            response(200, PULL)
        })
    });
    let until = start() + SignedDuration::from_secs(40);
    let limit = ApiError::RateLimited { until };
    assert_eq!(client.github.pull(&pr(1)).await, Err(limit.clone()));
    assert_eq!(client.github.not_before(), Some(until));
    assert_eq!(client.github.close(&pr(1)).await, Err(limit));
    assert_eq!(client.transport.count(), 1, "the second request was not sent");
    client.clock.advance(SignedDuration::from_secs(40));
    assert_eq!(client.github.not_before(), None);
    assert!(client.github.pull(&pr(1)).await.is_ok());
    // A limit shared by another function applies too and is never shortened.
    let longer = until + SignedDuration::from_secs(5);
    client.github.set_not_before(longer);
    client.github.set_not_before(until + SignedDuration::from_secs(1));
    assert_eq!(client.github.not_before(), Some(longer));
    assert!(client.github.pull(&pr(1)).await.is_err());
    assert_eq!(client.transport.count(), 2);
}

#[tokio::test]
async fn writes_are_spaced_by_a_second_and_reads_are_not() {
    let client = scripted_github(&token(), |_| Ok(response(200, PULL)));
    for _ in 0..3 {
        client.github.pull(&pr(1)).await.unwrap();
        client.github.close(&pr(1)).await.unwrap();
    }
    assert_eq!(client.clock.take_pauses(), secs(&[1, 1]));
}

/// Returns `PULL` with an ETag, or 304, and the remaining rate limit.
fn etag_response(request: &http::Request<Bytes>) -> Response<Bytes> {
    let known = request.headers().get("if-none-match").is_some_and(|tag| tag == "\"v1\"");
    let mut answer = if known { response(304, "") } else { response(200, PULL) };
    let remaining = if known { "4999" } else { "4990" };
    let resource = match request.uri().path() {
        "/graphql" => "graphql",
        "/repos/acme/shop/pulls/7" => "search",
        _ => "core",
    };
    let rate = [("limit", "5000"), ("remaining", remaining), ("reset", "1772442060"), ("resource", resource)];
    for (name, value) in rate {
        let name: http::HeaderName = format!("x-ratelimit-{name}").parse().unwrap();
        answer.headers_mut().insert(name, value.parse().unwrap());
    }
    answer.headers_mut().insert("etag", "\"v1\"".parse().unwrap());
    answer
}

#[tokio::test]
async fn unchanged_response_comes_from_the_etag_cache() {
    let client = scripted_github(&token(), |request| Ok(etag_response(&request)));
    let resets_at = jiff::Timestamp::from_second(1_772_442_060).unwrap();
    let first = client.github.pull(&pr(1)).await.unwrap();
    assert_eq!(client.github.rate_limits().rest, Some(RateLimit { limit: 5000, remaining: 4990, resets_at }));
    assert_eq!(client.github.pull(&pr(1)).await.unwrap(), first);
    assert!(client.transport.last().headers.contains_key("if-none-match"));
    assert_eq!(client.github.rate_limits().rest, Some(RateLimit { limit: 5000, remaining: 4999, resets_at }));
    let other = client.github.pull(&pr(7)).await.unwrap();
    assert!(!client.transport.last().headers.contains_key("if-none-match"), "{other:?}");
    let remaining =
        || (client.github.rate_limits().rest, client.github.rate_limits().graphql.map(|rate| rate.remaining));
    assert_eq!(
        remaining(),
        (Some(RateLimit { limit: 5000, remaining: 4999, resets_at }), None),
        "search has its own limit"
    );
    assert!(client.github.react(&pr(1).repo, "IC_1", Reaction::Eyes).await.is_err(), "neither data nor errors");
    assert_eq!(remaining(), (Some(RateLimit { limit: 5000, remaining: 4999, resets_at }), Some(4990)));
    client.github.close(&pr(1)).await.unwrap();
    assert!(!client.transport.last().headers.contains_key("if-none-match"), "a write is never conditional");
}

#[tokio::test]
async fn only_small_responses_with_an_etag_are_cached() {
    for (length, etag, cached) in [(64 << 10, true, true), ((64 << 10) + 1, true, false), (400, false, false)] {
        let client = scripted_github(&token(), move |request| {
            let mut answer =
                etag_response(&request).map(|_| Bytes::from(PULL.to_owned() + &" ".repeat(length - PULL.len())));
            if !etag {
                answer.headers_mut().remove("etag");
            }
            Ok(answer)
        });
        client.github.pull(&pr(1)).await.unwrap();
        // The second request carries the ETag if the first response was cached.
        let _ = client.github.pull(&pr(1)).await;
        assert_eq!(client.transport.last().headers.contains_key("if-none-match"), cached, "{length} {etag}");
    }
}

#[tokio::test]
async fn redirect_of_a_renamed_repository_is_followed_on_the_same_host_only() {
    let client = scripted_github(&token(), |request| {
        Ok(if request.uri().path().starts_with("/repos/") {
            let mut answer = response(301, "");
            let there = "https://elsewhere.example/repositories/9/pulls/1";
            answer.headers_mut().insert("location", there.parse().unwrap());
            answer
        } else {
            response(200, PULL)
        })
    });
    assert!(client.github.pull(&pr(1)).await.is_ok());
    assert_eq!(client.transport.lines(), ["GET /repos/acme/shop/pulls/1", "GET /repositories/9/pulls/1"]);
    let endless = crate::scripted_github(&token(), |request| {
        let mut answer = response(302, "");
        let next = format!("{}/x", request.uri().path());
        answer.headers_mut().insert("location", next.parse().unwrap());
        Ok(answer)
    });
    assert!(endless.github.pull(&pr(1)).await.is_err());
    assert_eq!(endless.transport.count(), 3);
}

/// A GitHub that issues `token-1`, `token-2`, … and accepts only the newest.
fn token_server()
-> impl Fn(http::Request<Bytes>) -> Result<Response<Bytes>, platform::transport::BoxError> + Send + Sync {
    let given = AtomicUsize::new(0);
    move |request| {
        let path = request.uri().path().to_owned();
        let shown = request.headers().get("authorization").unwrap().to_str().unwrap().to_owned();
        Ok(match path.as_str() {
            "/app/installations" => response(200, r#"[{"id":5,"account":{"login":"Acme"}},{"id":6,"account":null}]"#),
            "/app/installations/5/access_tokens" => {
                let n = given.fetch_add(1, Ordering::SeqCst) + 1;
                response(
                    201,
                    &format!(r#"{{"token":"token-{n}","expires_at":"2026-03-02T10:00:00Z","permissions":{{}}}}"#),
                )
            }
            "/repos/acme/shop/pulls/9" => {
                // All tokens were revoked.
                let newest = format!("Bearer token-{}", given.load(Ordering::SeqCst));
                if given.load(Ordering::SeqCst) > 1 && shown == newest {
                    response(200, PULL)
                } else {
                    response(401, "{}")
                }
            }
            _ if shown == format!("Bearer token-{}", given.load(Ordering::SeqCst)) => response(200, PULL),
            _ => response(401, "{}"),
        })
    }
}

#[tokio::test]
async fn app_token_is_per_installation_and_renewed_before_expiry() {
    let client = scripted_github(&app(), token_server());
    for _ in 0..3 {
        client.github.pull(&pr(1)).await.unwrap();
    }
    let pull = "GET /repos/acme/shop/pulls/1";
    let (list, exchange) = ("GET /app/installations", "POST /app/installations/5/access_tokens");
    assert_eq!(client.transport.lines(), [list, exchange, pull, pull, pull]);
    client.clock.advance(SignedDuration::from_secs(51 * 60));
    client.github.pull(&pr(1)).await.unwrap();
    assert_eq!(client.transport.lines()[5..], [exchange, pull]);
    let strangers: domain::id::PrId = "other/repo#1".parse().unwrap();
    let error = client.github.pull(&strangers).await.unwrap_err();
    assert_eq!(error.to_string(), "not found: the App is not installed for `other`");
}

#[tokio::test]
async fn app_jwt_is_cached_for_eight_minutes() {
    let client = scripted_github(&app(), |_| {
        let mut answer = response(200, "[]");
        answer.headers_mut().insert("etag", "\"none\"".parse().unwrap());
        Ok(answer)
    });
    let shown = async || {
        client.github.installations().await.unwrap();
        let headers = client.transport.last().headers;
        (headers["authorization"].to_str().unwrap().to_owned(), headers.contains_key("if-none-match"))
    };
    let (first, _) = shown().await;
    assert!(first.starts_with("Bearer ey"), "{first}");
    // A JWT that is signed in another second differs.
    tokio::time::sleep(Duration::from_millis(1_100)).await;
    assert_eq!(shown().await, (first.clone(), true), "the cached response is revalidated");
    client.clock.advance(SignedDuration::from_secs(7 * 60));
    assert_eq!(shown().await.0, first);
    client.clock.advance(SignedDuration::from_secs(2 * 60));
    let (renewed, conditional) = shown().await;
    assert!(renewed != first && !conditional, "{renewed}");
}

#[tokio::test]
async fn concurrent_requests_with_a_revoked_token_share_the_next() {
    let client = scripted_github(&app(), token_server());
    client.github.pull(&pr(1)).await.unwrap();
    // All four requests carry the first token, which is rejected for this pull request.
    let nine = pr(9);
    let pull = || client.github.pull(&nine);
    let all = tokio::join!(pull(), pull(), pull(), pull());
    assert!(all.0.is_ok() && all.1.is_ok() && all.2.is_ok() && all.3.is_ok(), "{all:?}");
    let exchanges = client.transport.lines().iter().filter(|line| line.ends_with("/access_tokens")).count();
    assert_eq!(exchanges, 2, "one new token for all");
}

#[tokio::test]
async fn revoked_token_is_replaced_even_for_a_write() {
    let client = scripted_github(&app(), token_server());
    client.github.close(&pr(9)).await.unwrap();
    let pull = "PATCH /repos/acme/shop/pulls/9";
    let exchange = "POST /app/installations/5/access_tokens";
    assert_eq!(client.transport.lines(), ["GET /app/installations", exchange, pull, exchange, pull]);

    let refused = crate::scripted_github(&token(), |_| Ok(response(401, r#"{"message":"Bad credentials"}"#)));
    let error = refused.github.pull(&pr(1)).await.unwrap_err();
    assert_eq!(error, ApiError::Unauthorized { message: "Bad credentials".to_owned() });
    assert_eq!(refused.transport.count(), 1);
    refused.github.use_credentials(&Credentials::token(" newer\n"));
    assert!(refused.github.pull(&pr(1)).await.is_err());
    assert_eq!(refused.transport.last().headers.get("authorization").unwrap(), "Bearer newer");
}

#[tokio::test]
async fn concurrent_requests_stay_below_the_cap() {
    let (now, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let answers = Arc::new(token_server());
    let (counted, highest) = (Arc::clone(&now), Arc::clone(&most));
    let transport = Transport::with_service(tower::service_fn(move |request: http::Request<Bytes>| {
        let (now, most, answers) = (Arc::clone(&counted), Arc::clone(&highest), Arc::clone(&answers));
        async move {
            most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            tokio::time::sleep(Duration::from_millis(2)).await;
            now.fetch_sub(1, Ordering::SeqCst);
            answers(request)
        }
    }));
    let settings = GitHubSettings { concurrency: 4, ..GitHubSettings::default() };
    let github = GitHub::with_service(&app(), settings, transport, Arc::new(SystemClock));
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..40 {
        let github = github.clone();
        tasks.spawn(async move { github.pull(&pr(1)).await.map(drop) });
    }
    while let Some(done) = tasks.join_next().await {
        done.unwrap().unwrap();
    }
    assert_eq!((now.load(Ordering::SeqCst), most.load(Ordering::SeqCst)), (0, 4));
}

#[test]
fn invalid_private_key_is_refused_with_an_explanation() {
    let error = Credentials::app(1, "-----BEGIN nonsense").unwrap_err();
    assert!(error.to_string().starts_with("the App's private key is not an RSA key in PEM form"), "{error}");
    let printed = format!("{:?} {:?}", app(), token());
    assert_eq!(printed, "App(AppAuth { app_id: AppId(4711), .. }) Token(SecretBox<str>([REDACTED]))");
}

/// A client that connects to this port.
fn https_client(port: u16) -> GitHub {
    let settings = GitHubSettings {
        base_url: format!("http://127.0.0.1:{port}/api/v3").parse().unwrap(),
        call_limit: Duration::from_millis(300),
        repeats: 0,
        ..GitHubSettings::default()
    };
    GitHub::with_service(&token(), settings, Transport::https().unwrap(), Arc::new(SystemClock))
}

#[tokio::test]
async fn socket_errors_distinguish_unsent_from_timed_out() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let (sender, receiver) = tokio::sync::oneshot::channel();
    let silent = tokio::spawn(async move {
        let (mut socket, _) = listener.accept().await.unwrap();
        let mut beginning = [0; 64];
        let read = socket.read(&mut beginning).await.unwrap();
        sender.send(String::from_utf8_lossy(&beginning[..read]).into_owned()).unwrap();
        // Stays open without a response until the test ends.
        std::future::pending::<()>().await;
        drop(socket);
    });
    let error = https_client(port).close(&pr(1)).await.unwrap_err();
    assert!(error.is_transient() && error.may_have_happened(), "{error}");
    assert!(receiver.await.unwrap().starts_with("PATCH /api/v3/repos/acme/shop/pulls/1 HTTP/1.1"));
    silent.abort();
    let _ = silent.await;
    let error = https_client(port).close(&pr(1)).await.unwrap_err();
    assert!(error.is_transient() && !error.may_have_happened(), "connection refused: {error}");
}

/// The log of this thread.
#[derive(Clone, Default)]
struct CapturedLog(Arc<Mutex<Vec<u8>>>);

impl io::Write for CapturedLog {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl CapturedLog {
    fn take(&self) -> String {
        String::from_utf8(std::mem::take(&mut self.0.lock().unwrap())).unwrap()
    }
}

#[tokio::test]
async fn list_that_ends_at_the_page_limit_is_logged() {
    let log = CapturedLog::default();
    let written = log.clone();
    let _guard = tracing_subscriber::fmt().with_writer(move || written.clone()).set_default();

    let endless = scripted_github(&token(), |_| {
        let link = "<https://api.github.com/repositories/1/issues?page=2>; rel=\"next\"";
        Ok(Response::builder().status(200).header("link", link).body(Bytes::from_static(b"[]")).unwrap())
    });
    let repo = &pr(1).repo;
    assert_eq!(endless.github.issues_labelled(repo, "x", false).await.unwrap(), []);
    assert_eq!(endless.transport.count(), 50);
    let line = log.take();
    assert!(line.contains("list has more pages than are read") && line.contains("pages=50"), "{line}");

    let page =
        r#"{"data":{"repository":{"pullRequests":{"pageInfo":{"hasNextPage":true,"endCursor":"x"},"nodes":[]}}}}"#;
    let endless = scripted_github(&token(), move |_| Ok(response(200, page)));
    assert_eq!(endless.github.open_pulls(repo, &Policy::default()).await.unwrap(), []);
    assert_eq!(endless.transport.count(), 50);
    let line = log.take();
    assert!(line.contains("more open pull requests than are listed") && line.contains(repo.as_str()), "{line}");

    let short = scripted_github(&token(), |_| Ok(response(200, "[]")));
    short.github.issues_labelled(repo, "x", false).await.unwrap();
    assert_eq!(log.take(), "");
}
