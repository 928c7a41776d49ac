//! The process under test: start it, read its output, send HTTP requests, and stop it by its process id.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

/// Default time limit.
pub(crate) const LIMIT: Duration = Duration::from_secs(40);

/// The program, without the credentials of this machine's environment.
pub(crate) fn program() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_up"));
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("SUTURE_") || name.starts_with("AWS_")) {
        command.env_remove(name);
    }
    command
}

/// Runs the program until it exits.
pub(crate) fn run(command: &mut Command) -> Output {
    command.stdin(Stdio::null()).output().expect("the program starts")
}

/// A running `suture up`.
pub(crate) struct Up {
    child: Child,
    /// `127.0.0.1:…`.
    pub(crate) address: String,
    /// The key from the printed dashboard link.
    pub(crate) key: String,
    output: Arc<Mutex<Vec<String>>>,
    log: PathBuf,
}

impl Up {
    /// Starts the program on any free port, and waits for the printed dashboard link.
    pub(crate) fn start(data: &Path, set: impl FnOnce(&mut Command) -> &mut Command) -> Self {
        let mut command = program();
        command.args(["--port", "0", "--data"]).arg(data);
        let mut child =
            set(&mut command).stdin(Stdio::null()).stdout(Stdio::piped()).spawn().expect("the program starts");
        let stdout = BufReader::new(child.stdout.take().expect("stdout is piped"));
        let output = Arc::new(Mutex::new(Vec::new()));
        let lines = Arc::clone(&output);
        thread::spawn(move || {
            for line in stdout.lines().map_while(Result::ok) {
                lines.lock().expect("not poisoned").push(line);
            }
        });
        let mut up = Self { child, address: String::new(), key: String::new(), output, log: data.join("suture.log") };
        let link = up.wait_for("dashboard link", LIMIT, |up| {
            let output = up.output();
            let line = output.iter().find_map(|line| line.trim().strip_prefix("dashboard"))?;
            Some(line.trim().to_owned())
        });
        let (address, key) = link.split_once("/#key=").unwrap_or((link.trim_end_matches('/'), ""));
        up.address = address.strip_prefix("http://").expect("an address").to_owned();
        up.key = key.to_owned();
        up
    }

    /// The lines printed so far.
    pub(crate) fn output(&self) -> Vec<String> {
        self.output.lock().expect("not poisoned").clone()
    }

    /// The output and the end of the log, for assertion messages.
    fn diagnostics(&self) -> String {
        let log = std::fs::read_to_string(&self.log).unwrap_or_default();
        let log: Vec<&str> = log.lines().rev().take(20).collect();
        format!("{}\n{}", self.output().join("\n"), log.join("\n"))
    }

    /// Polls until `look` returns a value.
    pub(crate) fn wait_for<T>(&self, what: &str, limit: Duration, look: impl Fn(&Self) -> Option<T>) -> T {
        let give_up = Instant::now() + limit;
        loop {
            if let Some(found) = look(self) {
                return found;
            }
            assert!(Instant::now() < give_up, "no {what} within {limit:?}; output:\n{}", self.diagnostics());
            thread::sleep(Duration::from_millis(100));
        }
    }

    /// Sends a request with the key; returns status and body, or `None` without a response.
    pub(crate) fn request(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> Option<(u16, String)> {
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
        let mut response = String::new();
        stream.read_to_string(&mut response).ok()?;
        let status = response.split(' ').nth(1)?.parse().ok()?;
        let (head, body) = response.split_once("\r\n\r\n")?;
        let chunked = head.to_ascii_lowercase().contains("transfer-encoding: chunked");
        Some((status, if chunked { decode_chunked(body) } else { body.to_owned() }))
    }

    /// The JSON of a 200 response, otherwise null.
    pub(crate) fn get(&self, path: &str) -> Value {
        match self.request("GET", path, &[], b"") {
            Some((200, body)) => serde_json::from_str(&body).unwrap_or(Value::Null),
            Some(_) | None => Value::Null,
        }
    }

    /// Sends a signal.
    pub(crate) fn signal(&self, name: &str) {
        let sent = Command::new("kill").args([name, &self.child.id().to_string()]).status().expect("kill");
        assert!(sent.success());
    }

    /// Waits until the process exits; returns its exit code.
    pub(crate) fn wait_for_exit(&mut self, limit: Duration) -> Option<i32> {
        let give_up = Instant::now() + limit;
        loop {
            if let Some(status) = self.child.try_wait().expect("a child") {
                return status.code();
            }
            assert!(Instant::now() < give_up, "still running after {limit:?}");
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// Kills the process (SIGKILL).
    pub(crate) fn kill(mut self) {
        self.child.kill().expect("the process is running");
        self.child.wait().expect("a child");
    }
}

impl Drop for Up {
    fn drop(&mut self) {
        // The process may have exited already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn decode_chunked(body: &str) -> String {
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
