//! The real thing: the release binary behind the Lambda Runtime API, with DynamoDB in this process, and events as API Gateway
//! sends them.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use platform::github::webhook::signature::sign;
use platform::lookup;
use serde_json::{Value, json};
use tests::rig::{Dynoxide, fresh_names};

use crate::ear::{Delivery, JENKINS, SECRET, pull, status};

/// The longest anything may take here.
const PATIENCE: Duration = Duration::from_secs(60);

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// The release binary, built if it is not there or not new.
fn bootstrap() -> PathBuf {
    let built = Command::new(env!("CARGO"))
        .args(["build", "--release", "--locked", "--package", "webhook", "--message-format", "json"])
        .current_dir(root())
        .output()
        .unwrap();
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    let messages = String::from_utf8(built.stdout).unwrap();
    let binary = messages.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok()).find_map(|message| {
        let is_ours = message["target"]["name"] == "webhook" && message["target"]["kind"] == json!(["bin"]);
        is_ours.then(|| message["executable"].as_str().map(PathBuf::from)).flatten()
    });
    binary.unwrap()
}

/// The Lambda Runtime Interface Emulator, which comes with SAM.
fn emulator() -> PathBuf {
    let tools = Command::new(root().join("scripts/python-tools")).arg("sam").output().unwrap();
    assert!(tools.status.success(), "{}", String::from_utf8_lossy(&tools.stderr));
    let programs = PathBuf::from(String::from_utf8(tools.stdout).unwrap().trim());
    let library = programs.parent().unwrap().join("lib");
    let python = std::fs::read_dir(library).unwrap().next().unwrap().unwrap().path();
    python.join("site-packages/samcli/local/rapid/aws-lambda-rie-x86_64")
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// A function as Lambda runs it. It ends with the test.
struct Function {
    process: Child,
    port: u16,
}

impl Drop for Function {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Function {
    async fn start(environment: &[(&str, &str)]) -> Self {
        let (front, back) = (free_port(), free_port());
        let binary = bootstrap();
        let process = Command::new(emulator())
            .args(["--runtime-interface-emulator-address", &format!("127.0.0.1:{front}")])
            .args(["--runtime-api-address", &format!("127.0.0.1:{back}")])
            .arg(&binary)
            .envs(environment.iter().copied())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let function = Self { process, port: front };
        // Before both ports answer, a first call may be lost.
        let until = Instant::now() + PATIENCE;
        for port in [front, back] {
            while TcpStream::connect(("127.0.0.1", port)).is_err() {
                assert!(Instant::now() < until, "the emulator does not listen");
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }
        function
    }

    /// Invokes it, and answers what it answered.
    async fn invoke(&self, event: &Value) -> Value {
        let (port, body) = (self.port, event.to_string());
        tokio::task::spawn_blocking(move || post(port, &body)).await.unwrap()
    }

    async fn hear(&self, delivery: &Delivery, encoded: bool) -> (u64, String) {
        let answer = self.invoke(&gateway_event(delivery, encoded)).await;
        let body: Value = serde_json::from_str(answer["body"].as_str().unwrap_or_else(|| panic!("{answer}"))).unwrap();
        let word = if answer["statusCode"] == 200 { &body["status"] } else { &body["code"] };
        (answer["statusCode"].as_u64().unwrap(), word.as_str().unwrap().to_owned())
    }
}

/// One request, in so many words: the emulator speaks plain HTTP, and nothing else is asked of it.
fn post(port: u16, body: &str) -> Value {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.set_write_timeout(Some(PATIENCE)).unwrap();
    let path = "/2015-03-31/functions/function/invocations";
    let length = body.len();
    let head = format!("POST {path} HTTP/1.0\r\nHost: 127.0.0.1\r\nContent-Length: {length}\r\n\r\n");
    stream.write_all(head.as_bytes()).unwrap();
    stream.write_all(body.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (_, answer) = answer.split_once("\r\n\r\n").unwrap();
    serde_json::from_str(answer).unwrap_or_else(|error| panic!("{error}: {answer}"))
}

/// What API Gateway makes of a delivery: version 2 of its payload.
fn gateway_event(delivery: &Delivery, encoded: bool) -> Value {
    let body = delivery.payload.to_string();
    let signature = sign(SECRET, body.as_bytes());
    let sent = if encoded { base64(body.as_bytes()) } else { body };
    json!({
        "version": "2.0", "routeKey": "POST /webhook/github", "rawPath": "/webhook/github", "rawQueryString": "",
        "headers": {
            "content-type": "application/json", "host": "hooks.example", "user-agent": "GitHub-Hookshot/044aadd",
            "x-github-delivery": delivery.id, "x-github-event": delivery.event, "x-hub-signature-256": signature
        },
        "requestContext": {
            "accountId": "123456789012", "apiId": "api", "domainName": "hooks.example", "domainPrefix": "hooks",
            "http": {"method": "POST", "path": "/webhook/github", "protocol": "HTTP/1.1", "sourceIp": "192.0.2.1",
                     "userAgent": "GitHub-Hookshot/044aadd"},
            "requestId": "r", "routeKey": "POST /webhook/github", "stage": "$default",
            "time": "02/Mar/2026:09:00:00 +0000", "timeEpoch": 1_772_442_000_000_u64
        },
        "body": sent, "isBase64Encoded": encoded
    })
}

fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for chunk in bytes.chunks(3) {
        let three = [chunk[0], chunk.get(1).copied().unwrap_or(0), chunk.get(2).copied().unwrap_or(0)];
        let number = u32::from_be_bytes([0, three[0], three[1], three[2]]);
        for n in 0..4 {
            let digit = DIGITS[(number >> (18 - 6 * n) & 63) as usize];
            text.push(if n > chunk.len() { '=' } else { char::from(digit) });
        }
    }
    text
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_release_binary_takes_gateway_events_end_to_end() {
    assert_eq!((base64(b"M"), base64(b"Ma"), base64(b"Man")), ("TQ==".into(), "TWE=".into(), "TWFu".into()));
    let dynamo = Dynoxide::in_memory().await;
    let names = fresh_names();
    let store = dynamo.store_on(names.clone()).await;
    let function = Function::start(&[
        ("AWS_REGION", "us-east-1"),
        ("AWS_ACCESS_KEY_ID", "test"),
        ("AWS_SECRET_ACCESS_KEY", "test"),
        ("AWS_ENDPOINT_URL_DYNAMODB", dynamo.endpoint()),
        ("SUTURE_STATE_TABLE", &names.state),
        ("SUTURE_EVENTS_TABLE", &names.events),
        // Nothing is to be sent here; whatever tried would fail at once.
        ("SUTURE_COMMAND_QUEUE_URL", "http://127.0.0.1:9/queue"),
        ("SUTURE_WEBHOOK_SECRET", "the next one,a secret"),
    ])
    .await;
    let opened = pull(42, "opened", 'a', 0);
    let pending = status('a', JENKINS, "pending", "", 1);
    assert_eq!(function.hear(&opened, false).await, (200, "applied".to_owned()));
    assert_eq!(function.hear(&opened, false).await, (200, "duplicate_ignored".to_owned()));
    assert_eq!(function.hear(&pending, true).await, (200, "applied".to_owned()));
    assert_eq!(function.hear(&pending, false).await, (200, "duplicate_ignored".to_owned()));
    let mut forged = gateway_event(&pull(43, "opened", 'b', 0), false);
    forged["body"] = json!("{}");
    let refused = function.invoke(&forged).await;
    assert_eq!(
        (&refused["statusCode"], &refused["headers"]["content-type"]),
        (&json!(401), &json!("application/problem+json"))
    );
    let events = lookup::events(&store, &tests::pr(42), false, None, 10, jiff::Timestamp::now()).await.unwrap();
    let kinds: Vec<&str> = events.entries.iter().map(|event| event.kind.name()).collect();
    assert_eq!(kinds, ["PR_OPENED", "CHECKS_STARTED"]);
}
