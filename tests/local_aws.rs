//! Local backends for tests: DynamoDB in this process (dynoxide, on a file or in memory) and a local AWS (ministack).
//! Both listen on 127.0.0.1 only and stop with the test that started them.

use std::collections::HashMap;
use std::fmt;
use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::config::{BehaviorVersion, Credentials, Region};
use aws_sdk_dynamodb::types::AttributeValue;
use dynoxide::Database;
use platform::store::dynamo::DynamoStore;
use platform::store::dynamo::tables::{self, TableNames};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::task::JoinHandle;

/// A DynamoDB client for this endpoint.
#[must_use]
pub fn client(endpoint: &str) -> Client {
    let config = aws_sdk_dynamodb::Config::builder()
        .behavior_version(BehaviorVersion::latest())
        .region(Region::from_static("us-east-1"))
        .credentials_provider(Credentials::for_tests())
        .endpoint_url(endpoint);
    Client::from_conf(config.build())
}

/// Table names that are unique in this process. dynoxide requires at least eleven characters.
#[must_use]
pub fn fresh_names() -> TableNames {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let n = NEXT.fetch_add(1, Ordering::Relaxed);
    let of = std::process::id();
    TableNames { state: format!("suture-state-{of}-{n}"), events: format!("suture-events-{of}-{n}") }
}

/// DynamoDB in this process (dynoxide).
pub struct Dynoxide {
    database: Database,
    endpoint: String,
    server: JoinHandle<()>,
}

impl Dynoxide {
    /// A database in memory.
    pub async fn in_memory() -> Self {
        Self::serve(Database::memory().expect("a database in memory")).await
    }

    /// A database stored in this file.
    pub async fn on_file(file: &Path) -> Self {
        Self::serve(Database::new(file.to_str().expect("a path in UTF-8")).expect("a database on a file")).await
    }

    async fn serve(database: Database) -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let endpoint = format!("http://{}", listener.local_addr().expect("an address"));
        let server = tokio::spawn(dynoxide::server::serve_on(listener, database.clone()));
        Self { database, endpoint, server }
    }

    /// The endpoint URL.
    #[must_use]
    pub fn endpoint(&self) -> &str {
        &self.endpoint
    }

    /// Deletes rows that have expired by the machine's clock and returns their number.
    #[must_use]
    pub fn sweep_ttl(&self) -> usize {
        self.database.sweep_ttl().expect("a TTL sweep")
    }

    /// A store on fresh tables.
    pub async fn store(&self) -> DynamoStore {
        self.store_on(fresh_names()).await
    }

    /// A store on these tables, which are created if missing.
    pub async fn store_on(&self, names: TableNames) -> DynamoStore {
        store_at(&self.endpoint, names).await
    }
}

impl fmt::Debug for Dynoxide {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dynoxide").field("endpoint", &self.endpoint).finish_non_exhaustive()
    }
}

impl Drop for Dynoxide {
    fn drop(&mut self) {
        self.server.abort();
    }
}

async fn store_at(endpoint: &str, names: TableNames) -> DynamoStore {
    let client = client(endpoint);
    tables::create(&client, &names).await.expect("tables");
    DynamoStore::new(client, names)
}

/// A local AWS (ministack), shared by all tests of a program.
#[derive(Debug)]
pub struct Ministack {
    endpoint: String,
    // Stops when its standard input closes, so also when this process is killed.
    _supervisor: Child,
}

/// Shell script that stops ministack when this process ends.
const SUPERVISOR: &str = r#"
"$1/ministack" >/dev/null 2>&1 &
server=$!
echo started
read -r _
kill "$server"
"#;

impl Ministack {
    /// The instance of this test program.
    ///
    /// # Panics
    /// If it cannot be installed or does not answer within a minute.
    #[must_use]
    pub fn shared() -> &'static Self {
        static SHARED: OnceLock<Ministack> = OnceLock::new();
        SHARED.get_or_init(|| Self::start(false))
    }

    /// A second instance that enforces IAM policies. The root access key is `test` with the secret `test`.
    ///
    /// # Panics
    /// If it cannot be installed or does not answer within a minute.
    #[must_use]
    pub fn guarded() -> &'static Self {
        static GUARDED: OnceLock<Ministack> = OnceLock::new();
        GUARDED.get_or_init(|| Self::start(true))
    }

    fn start(guarded: bool) -> Self {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let tools = Command::new(root.join("scripts/python-tools")).arg("ministack").output().expect("a shell");
        assert!(tools.status.success(), "{}", String::from_utf8_lossy(&tools.stderr));
        let programs = String::from_utf8(tools.stdout).expect("a path in UTF-8");
        let port = TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr()).expect("a free port").port();
        let mut supervisor = Command::new("sh")
            .args(["-c", SUPERVISOR, "supervisor", programs.trim()])
            .env("BIND_HOST", "127.0.0.1")
            .env("GATEWAY_PORT", port.to_string())
            .env("AUTH", guarded.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a shell");
        let mut line = String::new();
        let stdout = supervisor.stdout.take().expect("a piped stdout");
        BufReader::new(stdout).read_line(&mut line).expect("a line");
        let give_up = Instant::now() + Duration::from_secs(60);
        while std::net::TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert!(Instant::now() < give_up, "ministack does not answer on port {port}");
            std::thread::sleep(Duration::from_millis(50));
        }
        Self { endpoint: format!("http://127.0.0.1:{port}"), _supervisor: supervisor }
    }

    /// The endpoint URL.
    #[must_use]
    pub fn endpoint(&self) -> &str {
        &self.endpoint
    }

    /// A store on fresh tables.
    pub async fn store(&self) -> DynamoStore {
        store_at(&self.endpoint, fresh_names()).await
    }
}

/// A temporary folder that is removed on drop.
#[derive(Debug)]
pub struct Folder(PathBuf);

impl Folder {
    /// Creates an empty folder.
    ///
    /// # Panics
    /// If the folder cannot be created.
    #[must_use]
    pub fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("suture-test-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let folder = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&folder).expect("a folder");
        Self(folder)
    }

    /// The folder's path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Default for Folder {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // A leftover temporary folder is harmless.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// HTTP server that returns canned responses in order, whatever the request is.
#[derive(Debug)]
pub struct Canned {
    endpoint: String,
    server: JoinHandle<()>,
}

impl Canned {
    /// Starts the server with these responses: status and JSON body.
    ///
    /// # Panics
    /// If there is no free port.
    pub async fn start(answers: Vec<(u16, String)>) -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let endpoint = format!("http://{}", listener.local_addr().expect("an address"));
        let server = tokio::spawn(async move {
            for (status, body) in answers {
                let Ok((mut stream, _)) = listener.accept().await else { return };
                read_request(&mut stream).await;
                let head = format!(
                    "HTTP/1.1 {status} X\r\ncontent-type: application/x-amz-json-1.0\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
                    body.len()
                );
                // The client may have closed the connection.
                let _ = stream.write_all((head + &body).as_bytes()).await;
            }
        });
        Self { endpoint, server }
    }

    /// The endpoint URL.
    #[must_use]
    pub fn endpoint(&self) -> &str {
        &self.endpoint
    }
}

impl Drop for Canned {
    fn drop(&mut self) {
        self.server.abort();
    }
}

/// Reads the whole request, so that the response does not precede it.
async fn read_request(stream: &mut tokio::net::TcpStream) {
    let mut request = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        let text = String::from_utf8_lossy(&request).to_ascii_lowercase();
        if let Some(end) = text.find("\r\n\r\n") {
            let length = text.split("content-length: ").nth(1).and_then(|rest| rest.split("\r\n").next());
            let length: usize = length.and_then(|length| length.parse().ok()).unwrap_or(0);
            if request.len() >= end + 4 + length {
                return;
            }
        }
        match stream.read(&mut buffer).await {
            Ok(0) | Err(_) => return,
            Ok(read) => request.extend_from_slice(&buffer[..read]),
        }
    }
}

/// Size of a row by DynamoDB's rules: names, values and an overhead for lists and maps.
#[must_use]
pub fn size_of(item: &HashMap<String, AttributeValue>) -> usize {
    item.iter().map(|(name, value)| name.len() + value_size(value)).sum()
}

fn value_size(value: &AttributeValue) -> usize {
    match value {
        AttributeValue::S(text) => text.len(),
        AttributeValue::N(digits) => digits.len().div_ceil(2) + 1,
        AttributeValue::Ss(members) => members.iter().map(String::len).sum(),
        AttributeValue::L(values) => 3 + values.iter().map(|value| 1 + value_size(value)).sum::<usize>(),
        AttributeValue::M(map) => 3 + map.iter().map(|(name, value)| 1 + name.len() + value_size(value)).sum::<usize>(),
        AttributeValue::B(bytes) => bytes.as_ref().len(),
        AttributeValue::Bs(members) => members.iter().map(|member| member.as_ref().len()).sum(),
        AttributeValue::Ns(members) => members.iter().map(|digits| digits.len().div_ceil(2) + 1).sum(),
        AttributeValue::Bool(_) | AttributeValue::Null(_) | _ => 1,
    }
}
