//! As much HTTP/1.1 as the measurements need, on blocking sockets: a server for each stand-in, and a relay that counts what
//! passes. Written out here so that what is measured shares no code with what measures.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

/// The longest anything may take.
pub(crate) const PATIENCE: Duration = Duration::from_secs(900);

/// A request or an answer: its first line, its headers with names in small letters, and its body.
#[derive(Debug, Clone, Default)]
pub(crate) struct Letter {
    pub(crate) first: String,
    pub(crate) headers: BTreeMap<String, String>,
    pub(crate) body: Vec<u8>,
    /// As it came, to be passed on.
    raw: Vec<u8>,
}

impl Letter {
    /// Reads one; `None` when the other side has hung up.
    fn read(from: &mut BufReader<TcpStream>) -> std::io::Result<Option<Self>> {
        let mut letter = Self::default();
        loop {
            let begin = letter.raw.len();
            if from.read_until(b'\n', &mut letter.raw)? == 0 {
                return Ok(None);
            }
            let line = String::from_utf8_lossy(&letter.raw[begin..]).trim_end().to_owned();
            if letter.first.is_empty() {
                letter.first = line;
            } else if line.is_empty() {
                break;
            } else if let Some((name, value)) = line.split_once(':') {
                letter.headers.insert(name.to_ascii_lowercase(), value.trim().to_owned());
            }
        }
        let length = letter.headers.get("content-length").and_then(|length| length.parse().ok()).unwrap_or(0);
        letter.body = vec![0; length];
        from.read_exact(&mut letter.body)?;
        letter.raw.extend_from_slice(&letter.body);
        Ok(Some(letter))
    }

    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", String::as_str)
    }

    /// `POST /path`.
    pub(crate) fn is(&self, begin: &str) -> bool {
        self.first.starts_with(begin)
    }
}

/// What is answered.
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(&'static str, String)>,
    pub(crate) body: Vec<u8>,
}

impl Answer {
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
        // Wakes the thread that waits for a connection.
        drop(TcpStream::connect(&self.address));
    }
}

impl Server {
    /// Answers each request with what this makes of it.
    pub(crate) fn answering(answer: impl Fn(Letter) -> Answer + Send + Sync + 'static) -> Self {
        Self::serving(move |stream| {
            let Ok(mut out) = stream.try_clone() else { return };
            let mut requests = BufReader::new(stream);
            while let Ok(Some(request)) = Letter::read(&mut requests) {
                if out.write_all(&answer(request).bytes()).is_err() {
                    return;
                }
            }
        })
    }

    /// Passes each request on to `upstream`, and shows request and answer to `look`.
    pub(crate) fn relaying(upstream: &str, look: impl Fn(&Letter, &Letter) + Send + Sync + 'static) -> Self {
        let upstream = upstream.trim_start_matches("http://").to_owned();
        Self::serving(move |stream| {
            let (Ok(mut out), Ok(mut onward)) = (stream.try_clone(), TcpStream::connect(&upstream)) else { return };
            let Ok(back) = onward.try_clone() else { return };
            let _ = onward.set_nodelay(true);
            let (mut requests, mut answers) = (BufReader::new(stream), BufReader::new(back));
            while let Ok(Some(request)) = Letter::read(&mut requests) {
                if onward.write_all(&request.raw).is_err() {
                    return;
                }
                let Ok(Some(answer)) = Letter::read(&mut answers) else { return };
                look(&request, &answer);
                if out.write_all(&answer.raw).is_err() {
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
                let _ = stream.set_read_timeout(Some(PATIENCE));
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
        *self.0.lock().expect("nobody panicked").entry(name.to_owned()).or_default() += by;
    }

    /// What was counted, which then begins anew.
    pub(crate) fn take(&self) -> BTreeMap<String, u64> {
        std::mem::take(&mut *self.0.lock().expect("nobody panicked"))
    }
}
