//! Functions as Lambda runs them: release binaries, the Runtime Interface Emulator of SAM, and a minimal HTTP client.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

/// The four functions.
pub const FUNCTIONS: [&str; 4] = ["webhook", "car-bridge", "reconciler", "admin"];
/// Size limit of each zipped function.
pub const MOST_ZIPPED_BYTES: u64 = 6_000_000;
/// Timeout of every call.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Root of the repository.
#[must_use]
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Builds the release binaries if they are missing or outdated and returns their paths by function name.
///
/// # Panics
/// If the build fails.
#[must_use]
pub fn binaries() -> &'static BTreeMap<String, PathBuf> {
    static BUILT: OnceLock<BTreeMap<String, PathBuf>> = OnceLock::new();
    BUILT.get_or_init(|| {
        // `SUTURE_PROFILE=dev` skips the slow optimised build during development.
        let dev = std::env::var("SUTURE_PROFILE").is_ok_and(|profile| profile == "dev");
        let build: Vec<&str> = if dev {
            vec!["--workspace", "--all-features", "--bins", "--test", "deployed"]
        } else {
            FUNCTIONS.iter().flat_map(|name| ["--package", name]).chain(["--release"]).collect()
        };
        let built = Command::new(env!("CARGO"))
            .args(["build", "--locked", "--message-format", "json"])
            .args(build)
            .current_dir(root())
            .output()
            .expect("cargo");
        assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
        let messages = String::from_utf8(built.stdout).expect("text");
        let messages = messages.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let binaries = messages.filter(|message| message["target"]["kind"] == json!(["bin"])).filter_map(|message| {
            let name = message["target"]["name"].as_str()?.to_owned();
            Some((name, PathBuf::from(message["executable"].as_str()?)))
        });
        let binaries: BTreeMap<String, PathBuf> = binaries.collect();
        assert!(FUNCTIONS.iter().all(|name| binaries.contains_key(*name)), "{binaries:?}");
        binaries
    })
}

const ZIP: &str = r"
import io, sys, zipfile
out = io.BytesIO()
with zipfile.ZipFile(out, 'w', zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
    archive.write(sys.argv[1], 'bootstrap')
print(len(out.getvalue()))
";

/// Size of a binary in the zip file that is uploaded.
///
/// # Panics
/// If Python or the binary is missing.
#[must_use]
pub fn zipped_bytes(binary: &Path) -> u64 {
    let zipped = Command::new("python3").args(["-c", ZIP]).arg(binary).output().expect("python3");
    assert!(zipped.status.success(), "{}", String::from_utf8_lossy(&zipped.stderr));
    String::from_utf8_lossy(&zipped.stdout).trim().parse().expect("a number")
}

/// Folder of a Python tool's programs, installed if missing.
///
/// # Panics
/// If the installation fails.
#[must_use]
pub fn tools(tool: &str) -> PathBuf {
    let tools = Command::new(root().join("scripts/python-tools")).arg(tool).output().expect("a shell");
    assert!(tools.status.success(), "{}", String::from_utf8_lossy(&tools.stderr));
    PathBuf::from(String::from_utf8(tools.stdout).expect("text").trim())
}

/// The Lambda Runtime Interface Emulator, which comes with SAM.
fn emulator() -> PathBuf {
    let library = tools("sam").parent().expect("a folder").join("lib");
    let python = std::fs::read_dir(library).expect("a folder").next().expect("a version").expect("a folder").path();
    python.join("site-packages/samcli/local/rapid/aws-lambda-rie-x86_64")
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr()).expect("a free port").port()
}

/// A function running in the emulator. It stops on drop.
#[derive(Debug)]
pub struct Function {
    process: Child,
    port: u16,
}

impl Drop for Function {
    fn drop(&mut self) {
        // The emulator runs the function as a child process and stops it too.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Function {
    /// Starts a function with this environment.
    ///
    /// # Panics
    /// If it does not start within a minute.
    pub async fn start(name: &str, environment: &[(&str, &str)]) -> Self {
        let (front, back) = (free_port(), free_port());
        let process = Command::new(emulator())
            .args(["--runtime-interface-emulator-address", &format!("127.0.0.1:{front}")])
            .args(["--runtime-api-address", &format!("127.0.0.1:{back}")])
            .arg(&binaries()[name])
            .envs(environment.iter().copied())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("the emulator");
        let function = Self { process, port: front };
        // The first call may be lost before both ports accept connections.
        let until = Instant::now() + TIMEOUT;
        for port in [front, back] {
            while TcpStream::connect(("127.0.0.1", port)).is_err() {
                assert!(Instant::now() < until, "the emulator does not listen");
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }
        function
    }

    /// Invokes the function and returns its response.
    ///
    /// # Panics
    /// If it does not return JSON within a minute.
    pub async fn invoke(&self, event: &Value) -> Value {
        let (port, body) = (self.port, event.to_string());
        let path = "/2015-03-31/functions/function/invocations";
        let call = move || request(port, "POST", path, &[("host", "127.0.0.1")], body.as_bytes());
        let (_, answer) = tokio::task::spawn_blocking(call).await.expect("an answer");
        let read = serde_json::from_str(&answer);
        assert!(read.is_ok(), "no JSON: {answer}");
        read.expect("valid JSON")
    }
}

/// Sends one HTTP request to a local port and returns status and body.
///
/// # Panics
/// If there is no response within a minute.
#[must_use]
pub fn request(port: u16, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> (u16, String) {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("a listener");
    stream.set_read_timeout(Some(TIMEOUT)).expect("a limit");
    stream.set_write_timeout(Some(TIMEOUT)).expect("a limit");
    let mut head = format!("{method} {path} HTTP/1.0\r\nContent-Length: {}\r\n", body.len());
    for (name, value) in headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    stream.write_all(format!("{head}\r\n").as_bytes()).expect("a listener");
    stream.write_all(body).expect("a listener");
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).expect("an answer");
    let answer = String::from_utf8_lossy(&answer).into_owned();
    let (head, body) = answer.split_once("\r\n\r\n").expect("an answer");
    let status = head.split(' ').nth(1).and_then(|code| code.parse().ok()).expect("a status");
    (status, body.to_owned())
}
