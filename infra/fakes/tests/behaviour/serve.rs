//! Both APIs over real HTTP, and webhooks posted to a real receiver.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use fakes::{
    EarlierPull, FakePrId, FakeSettings, Fakes, Fault, FaultRates, NewPullRequest, post, serve, serve_following,
};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use super::lifecycle::{minutes, opened};

/// Sends raw HTTP and reads until the server closes the connection, for at most five seconds.
async fn raw(url: &str, request: String) -> String {
    let exchange = async {
        let mut stream = TcpStream::connect(url.trim_start_matches("http://")).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut response = Vec::new();
        stream.read_to_end(&mut response).await.unwrap();
        String::from_utf8(response).unwrap()
    };
    tokio::time::timeout(Duration::from_secs(5), exchange).await.unwrap()
}

fn get(path: &str, authorization: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nhost: x\r\nauthorization: {authorization}\r\nconnection: close\r\n\r\n")
}

#[tokio::test]
async fn both_apis_respond_and_a_timeout_fault_gives_no_response() {
    let (fakes, pr): (Fakes, FakePrId) = opened();
    let fakes = Arc::new(Mutex::new(fakes));
    let serving = serve(Arc::clone(&fakes)).await.unwrap();
    let response = raw(&serving.github_url, get("/repos/acme/payments/pulls/1", "Bearer world-token")).await;
    assert!(
        response.starts_with("HTTP/1.1 200")
            && response.contains(&format!("{}/repos/acme/payments/pulls/1", serving.github_url)),
        "{response}"
    );
    let response = raw(&serving.jenkins_url, get("/queue/api/json", super::client::JENKINS)).await;
    assert!(response.starts_with("HTTP/1.1 200"), "{response}");
    fakes.lock().unwrap().force(Fault::ApiTimeout, &pr);
    assert_eq!(raw(&serving.github_url, get("/repos/acme/payments/pulls/1", "Bearer world-token")).await, "");
    let url = serving.github_url.clone();
    serving.stop().await;
    assert!(TcpStream::connect(url.trim_start_matches("http://")).await.is_err(), "stopped");
}

#[tokio::test]
async fn post_sends_a_webhook_and_returns_the_status() {
    let (mut fakes, _) = opened();
    minutes(&mut fakes, 1);
    let delivery = fakes.take_webhooks().remove(0);
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let receiver = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let (mut request, mut part) = (Vec::new(), [0; 65_536]);
        while !request.ends_with(b"}") {
            let read = stream.read(&mut part).await.unwrap();
            request.extend_from_slice(&part[..read]);
        }
        stream.write_all(b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\n\r\n").await.unwrap();
        String::from_utf8(request).unwrap()
    });
    assert_eq!(post(&url, &delivery).await, 503);
    let request = tokio::time::timeout(Duration::from_secs(5), receiver).await.unwrap().unwrap();
    assert!(request.starts_with("POST /webhook/github HTTP/1.1"));
    assert!(
        request.contains(&format!("x-github-delivery: {}", delivery.guid))
            && request.contains("x-hub-signature-256: sha256=")
    );
    assert_eq!(post(&url, &delivery).await, 0, "the receiver is gone");
}

#[tokio::test]
async fn served_fakes_follow_the_given_clock() {
    let (fakes, pr): (Fakes, FakePrId) = opened();
    let later = fakes.now() + jiff::SignedDuration::from_mins(90);
    let fakes = Arc::new(Mutex::new(fakes));
    let serving = serve_following(Arc::clone(&fakes), move || later).await.unwrap();
    let response = raw(&serving.github_url, get("/repos/acme/payments/pulls/1", "Bearer world-token")).await;
    assert!(response.contains(r#""merged":true"#), "{response}");
    let fakes = fakes.lock().unwrap();
    assert!(fakes.is_merged(&pr));
    assert_eq!(fakes.now(), later);
}

#[tokio::test]
async fn later_fakes_reuse_no_numbers_and_report_earlier_pull_requests_closed() {
    let (mut first, _) = opened();
    first.open_pr(NewPullRequest::default());
    let used = first.last_number();
    assert_eq!(used, 2);
    let mut second = Fakes::new(2, FakeSettings { numbers_used_before: used, ..FakeSettings::default() });
    let pr = second.open_pr(NewPullRequest::default());
    assert_eq!((pr.number, second.last_number()), (3, 3));
    let (old, new) = (first.pulls().map(|(_, pull)| pull.clone()), second.pull(&pr).unwrap());
    for old in old.collect::<Vec<_>>() {
        assert!(old.node_id != new.node_id && old.vulnerability != new.vulnerability && old.head() != new.head());
    }
    let gone = FakePrId { repo: "acme/payments".to_owned(), number: 1 };
    assert!(second.pull(&gone).is_none());
    let (head_ref, head) = ("codegenie/x".to_owned(), "a".repeat(40));
    second.tell_closed(&EarlierPull { pr: gone, node_id: None, head_ref, head });
    let sent = second.take_webhooks();
    assert!(sent.is_empty(), "the webhook is sent after a delay");
    minutes(&mut second, 1);
    let closed = second.take_webhooks().into_iter().find(|delivery| delivery.action.as_deref() == Some("closed"));
    let body = String::from_utf8(closed.unwrap().body.to_vec()).unwrap();
    assert!(body.contains(r#""number":1"#) && body.contains(r#""full_name":"acme/payments""#), "{body}");
}

#[test]
fn fault_rates_can_be_replaced() {
    let (mut fakes, _) = opened();
    fakes.set_faults(FaultRates { lives: 1.0, ..FaultRates::only([Fault::JenkinsDeaf]) });
    let pr = fakes.open_pr(NewPullRequest::default());
    minutes(&mut fakes, 1);
    assert_eq!(fakes.struck(&pr).len(), 1);
    fakes.set_faults(FaultRates::none());
    let pr = fakes.open_pr(NewPullRequest::default());
    minutes(&mut fakes, 1);
    assert_eq!(fakes.struck(&pr).len(), 0);
}
