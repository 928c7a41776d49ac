//! A function as Lambda runs it: the release binary behind the Lambda Runtime Interface Emulator, which comes with SAM.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

/// The longest anything may take here.
const PATIENCE: Duration = Duration::from_secs(60);

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// The release binary of a function, built if it is not there or not new.
fn bootstrap(package: &str) -> PathBuf {
    let built = Command::new(env!("CARGO"))
        .args(["build", "--release", "--locked", "--package", package, "--message-format", "json"])
        .current_dir(root())
        .output()
        .expect("a function that runs");
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    let messages = String::from_utf8(built.stdout).expect("a function that runs");
    let binary = messages.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok()).find_map(|message| {
        let is_ours = message["target"]["name"] == package && message["target"]["kind"] == json!(["bin"]);
        is_ours.then(|| message["executable"].as_str().map(PathBuf::from)).flatten()
    });
    binary.expect("a function that runs")
}

/// The Lambda Runtime Interface Emulator, which comes with SAM.
fn emulator() -> PathBuf {
    let tools = Command::new(root().join("scripts/python-tools")).arg("sam").output().expect("a function that runs");
    assert!(tools.status.success(), "{}", String::from_utf8_lossy(&tools.stderr));
    let programs = PathBuf::from(String::from_utf8(tools.stdout).expect("a function that runs").trim());
    let library = programs.parent().expect("a function that runs").join("lib");
    let python = std::fs::read_dir(library)
        .expect("a function that runs")
        .next()
        .expect("a function that runs")
        .expect("a function that runs")
        .path();
    python.join("site-packages/samcli/local/rapid/aws-lambda-rie-x86_64")
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").expect("a function that runs").local_addr().expect("a function that runs").port()
}

/// A function as Lambda runs it. It ends with the test.
#[derive(Debug)]
pub struct Function {
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
    /// Starts the function of this package with this environment.
    ///
    /// # Panics
    /// If it cannot be built, or does not listen within a minute.
    pub async fn start(package: &str, environment: &[(&str, &str)]) -> Self {
        let (front, back) = (free_port(), free_port());
        let binary = bootstrap(package);
        let process = Command::new(emulator())
            .args(["--runtime-interface-emulator-address", &format!("127.0.0.1:{front}")])
            .args(["--runtime-api-address", &format!("127.0.0.1:{back}")])
            .arg(&binary)
            .envs(environment.iter().copied())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("a function that runs");
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
    ///
    /// # Panics
    /// If it does not answer within a minute, or not in JSON.
    pub async fn invoke(&self, event: &Value) -> Value {
        let (port, body) = (self.port, event.to_string());
        tokio::task::spawn_blocking(move || post(port, &body)).await.expect("a function that runs")
    }
}

/// One request, in so many words: the emulator speaks plain HTTP, and nothing else is asked of it.
fn post(port: u16, body: &str) -> Value {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("a function that runs");
    stream.set_read_timeout(Some(PATIENCE)).expect("a function that runs");
    stream.set_write_timeout(Some(PATIENCE)).expect("a function that runs");
    let path = "/2015-03-31/functions/function/invocations";
    let length = body.len();
    let head = format!("POST {path} HTTP/1.0\r\nHost: 127.0.0.1\r\nContent-Length: {length}\r\n\r\n");
    stream.write_all(head.as_bytes()).expect("a function that runs");
    stream.write_all(body.as_bytes()).expect("a function that runs");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("a function that runs");
    let (_, answer) = answer.split_once("\r\n\r\n").expect("a function that runs");
    serde_json::from_str(answer).unwrap_or_else(|error| unreachable!("{error}: {answer}"))
}
