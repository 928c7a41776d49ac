//! A process under test: started, listened to, asked over HTTP, and ended by its own id.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

/// How long anything may take that has no limit of its own.
pub(crate) const LIMIT: Duration = Duration::from_secs(40);

/// The program, with nothing of this machine's environment that could mean credentials.
pub(crate) fn program() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_up"));
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("SUTURE_") || name.starts_with("AWS_")) {
        command.env_remove(name);
    }
    command
}

/// Runs it to its end.
pub(crate) fn run(command: &mut Command) -> Output {
    command.stdin(Stdio::null()).output().expect("it starts")
}

/// One that is up.
pub(crate) struct Up {
    child: Child,
    /// `127.0.0.1:…`.
    pub(crate) address: String,
    /// The key of the link it printed.
    pub(crate) key: String,
    said: Arc<Mutex<Vec<String>>>,
    log: PathBuf,
}

impl Up {
    /// Starts it on any free port, and waits until it says where it is.
    pub(crate) fn start(data: &Path, set: impl FnOnce(&mut Command) -> &mut Command) -> Self {
        let mut command = program();
        command.args(["--port", "0", "--data"]).arg(data);
        let mut child = set(&mut command).stdin(Stdio::null()).stdout(Stdio::piped()).spawn().expect("it starts");
        let stdout = BufReader::new(child.stdout.take().expect("it was asked for"));
        let said = Arc::new(Mutex::new(Vec::new()));
        let heard = Arc::clone(&said);
        thread::spawn(move || {
            for line in stdout.lines().map_while(Result::ok) {
                heard.lock().expect("nobody panicked").push(line);
            }
        });
        let mut up = Self { child, address: String::new(), key: String::new(), said, log: data.join("suture.log") };
        let link = up.wait_for("the link", LIMIT, |up| {
            let said = up.said();
            let line = said.iter().find_map(|line| line.trim().strip_prefix("dashboard"))?;
            Some(line.trim().to_owned())
        });
        let (address, key) = link.split_once("/#key=").unwrap_or((link.trim_end_matches('/'), ""));
        up.address = address.strip_prefix("http://").expect("an address").to_owned();
        up.key = key.to_owned();
        up
    }

    /// What it has printed.
    pub(crate) fn said(&self) -> Vec<String> {
        self.said.lock().expect("nobody panicked").clone()
    }

    /// What it has printed and logged, for whoever looks into a failure.
    fn everything(&self) -> String {
        let log = std::fs::read_to_string(&self.log).unwrap_or_default();
        let log: Vec<&str> = log.lines().rev().take(20).collect();
        format!("{}\n{}", self.said().join("\n"), log.join("\n"))
    }

    /// Waits until something is so.
    pub(crate) fn wait_for<T>(&self, what: &str, limit: Duration, look: impl Fn(&Self) -> Option<T>) -> T {
        let give_up = Instant::now() + limit;
        loop {
            if let Some(found) = look(self) {
                return found;
            }
            assert!(Instant::now() < give_up, "no {what} within {limit:?}; it said:\n{}", self.everything());
            thread::sleep(Duration::from_millis(100));
        }
    }

    /// Asks with the key, and tells status and body; `None` if nobody answers.
    pub(crate) fn ask(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Option<(u16, String)> {
        let mut stream = TcpStream::connect(&self.address).ok()?;
        stream.set_read_timeout(Some(Duration::from_secs(20))).ok()?;
        let mut head = format!(
            "{method} {path} HTTP/1.1\r\nhost: {}\r\nconnection: close\r\nauthorization: Bearer {}\r\ncontent-length: {}\r\n",
            self.address,
            self.key,
            body.len()
        );
        for (name, value) in headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        stream.write_all(format!("{head}\r\n").as_bytes()).ok()?;
        stream.write_all(body).ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        let status = answer.split(' ').nth(1)?.parse().ok()?;
        let (head, body) = answer.split_once("\r\n\r\n")?;
        let chunked = head.to_ascii_lowercase().contains("transfer-encoding: chunked");
        Some((status, if chunked { unchunked(body) } else { body.to_owned() }))
    }

    /// Reads JSON; null unless it is answered well.
    pub(crate) fn get(&self, path: &str) -> Value {
        match self.ask("GET", path, &[], b"") {
            Some((200, body)) => serde_json::from_str(&body).unwrap_or(Value::Null),
            Some(_) | None => Value::Null,
        }
    }

    /// Sends a signal.
    pub(crate) fn signal(&self, name: &str) {
        let sent = Command::new("kill").args([name, &self.child.id().to_string()]).status().expect("kill");
        assert!(sent.success());
    }

    /// Waits until it has ended; its exit code.
    pub(crate) fn ended_within(&mut self, limit: Duration) -> Option<i32> {
        let give_up = Instant::now() + limit;
        loop {
            if let Some(status) = self.child.try_wait().expect("a child") {
                return status.code();
            }
            assert!(Instant::now() < give_up, "it has not ended within {limit:?}");
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// Ends it without a warning.
    pub(crate) fn kill(mut self) {
        self.child.kill().expect("it runs");
        self.child.wait().expect("a child");
    }
}

impl Drop for Up {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn unchunked(body: &str) -> String {
    let mut whole = String::new();
    let mut rest = body;
    while let Some((length, after)) = rest.split_once("\r\n") {
        let length = usize::from_str_radix(length.trim(), 16).unwrap_or(0);
        if length == 0 || after.len() < length {
            break;
        }
        whole.push_str(&after[..length]);
        rest = after[length..].trim_start_matches("\r\n");
    }
    whole
}
