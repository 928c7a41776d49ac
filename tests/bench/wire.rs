//! A minimal HTTP/1.1 server and a counting relay on blocking sockets. Written here so that the benchmark shares no code with the
//! measured programs.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

/// The timeout of reads and invocations.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(900);

/// A request or a response: its first line, its headers with lower-case names, and its body.
#[derive(Debug, Clone, Default)]
pub(crate) struct HttpMessage {
    pub(crate) first_line: String,
    pub(crate) headers: BTreeMap<String, String>,
    pub(crate) body: Vec<u8>,
    /// The received bytes, for the relay.
    raw: Vec<u8>,
}

impl HttpMessage {
    /// Reads one message; `None` if the peer has closed the connection.
    fn read(from: &mut BufReader<TcpStream>) -> std::io::Result<Option<Self>> {
        let mut message = Self::default();
        loop {
            let begin = message.raw.len();
            if from.read_until(b'\n', &mut message.raw)? == 0 {
                return Ok(None);
            }
            let line = String::from_utf8_lossy(&message.raw[begin..]).trim_end().to_owned();
            if message.first_line.is_empty() {
                message.first_line = line;
            } else if line.is_empty() {
                break;
            } else if let Some((name, value)) = line.split_once(':') {
                message.headers.insert(name.to_ascii_lowercase(), value.trim().to_owned());
            }
        }
        let length = message.headers.get("content-length").and_then(|length| length.parse().ok()).unwrap_or(0);
        message.body = vec![0; length];
        from.read_exact(&mut message.body)?;
        message.raw.extend_from_slice(&message.body);
        Ok(Some(message))
    }

    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", String::as_str)
    }

    /// Whether the first line starts with this text, such as `POST /path`.
    pub(crate) fn is(&self, begin: &str) -> bool {
        self.first_line.starts_with(begin)
    }
}

/// A response to send.
pub(crate) struct HttpResponse {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(&'static str, String)>,
    pub(crate) body: Vec<u8>,
}

impl HttpResponse {
    pub(crate) fn new(status: u16, content_type: &str, body: impl Into<Vec<u8>>) -> Self {
        Self { status, headers: vec![("content-type", content_type.to_owned())], body: body.into() }
    }

    fn bytes(&self) -> Vec<u8> {
        let mut head = format!("HTTP/1.1 {} X\r\ncontent-length: {}\r\n", self.status, self.body.len());
        for (name, value) in &self.headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        head.push_str("\r\n");
        let mut bytes = head.into_bytes();
        bytes.extend_from_slice(&self.body);
        bytes
    }
}

/// A server on a free port of 127.0.0.1, with a thread for each connection. It stops taking connections when dropped.
#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) address: String,
    stopped: Arc<AtomicBool>,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stopped.store(true, Ordering::SeqCst);
        // Unblocks the thread in `accept`.
        drop(TcpStream::connect(&self.address));
    }
}

impl Server {
    /// Answers each request with the result of `respond`.
    pub(crate) fn responding(respond: impl Fn(HttpMessage) -> HttpResponse + Send + Sync + 'static) -> Self {
        Self::serving(move |stream| {
            let Ok(mut out) = stream.try_clone() else { return };
            let mut requests = BufReader::new(stream);
            while let Ok(Some(request)) = HttpMessage::read(&mut requests) {
                if out.write_all(&respond(request).bytes()).is_err() {
                    return;
                }
            }
        })
    }

    /// Forwards each request to `upstream`, and calls `observe` with the request and the response.
    pub(crate) fn relaying(
        upstream: &str,
        observe: impl Fn(&HttpMessage, &HttpMessage) + Send + Sync + 'static,
    ) -> Self {
        let upstream = upstream.trim_start_matches("http://").to_owned();
        Self::serving(move |stream| {
            let (Ok(mut out), Ok(mut to_upstream)) = (stream.try_clone(), TcpStream::connect(&upstream)) else {
                return;
            };
            let Ok(from_upstream) = to_upstream.try_clone() else { return };
            let _ = to_upstream.set_nodelay(true);
            let (mut requests, mut responses) = (BufReader::new(stream), BufReader::new(from_upstream));
            while let Ok(Some(request)) = HttpMessage::read(&mut requests) {
                if to_upstream.write_all(&request.raw).is_err() {
                    return;
                }
                let Ok(Some(response)) = HttpMessage::read(&mut responses) else { return };
                observe(&request, &response);
                if out.write_all(&response.raw).is_err() {
                    return;
                }
            }
        })
    }

    fn serving(serve: impl Fn(TcpStream) + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("an address").to_string();
        let stopped = Arc::new(AtomicBool::new(false));
        let (stop, serve) = (Arc::clone(&stopped), Arc::new(serve));
        thread::spawn(move || {
            while let Ok((stream, _)) = listener.accept() {
                if stop.load(Ordering::SeqCst) {
                    return;
                }
                let serve = Arc::clone(&serve);
                let _ = stream.set_nodelay(true);
                let _ = stream.set_read_timeout(Some(TIMEOUT));
                thread::spawn(move || serve(stream));
            }
        });
        Self { address, stopped }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }
}

/// Counts by name.
#[derive(Debug, Clone, Default)]
pub(crate) struct Counts(Arc<Mutex<BTreeMap<String, u64>>>);

impl Counts {
    pub(crate) fn add(&self, name: &str, by: u64) {
        *self.0.lock().expect("mutex not poisoned").entry(name.to_owned()).or_default() += by;
    }

    /// Returns the counts and resets them.
    pub(crate) fn take(&self) -> BTreeMap<String, u64> {
        std::mem::take(&mut *self.0.lock().expect("mutex not poisoned"))
    }
}
