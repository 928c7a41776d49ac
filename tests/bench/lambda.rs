//! Runs a program behind a local Lambda Runtime API: sends it events, receives its responses, and measures its CPU time and memory.
//! CPU time comes from the scheduler statistics of its threads, so other load on the machine does not count.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::wire::{HttpMessage, HttpResponse, Server, TIMEOUT};

/// One process behind the Runtime API.
pub(crate) struct Function {
    process: Child,
    events: Sender<String>,
    /// Receives a value whenever the process requests an event.
    requested: Receiver<()>,
    responses: Receiver<Vec<u8>>,
    _server: Server,
    /// The file with its standard output and error.
    log_file: std::path::PathBuf,
    /// The CPU time from its start until it requested its first event.
    pub(crate) init_ms: f64,
}

impl Drop for Function {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = fs::remove_file(&self.log_file);
    }
}

impl Function {
    /// Starts a program, and waits until it requests its first event.
    pub(crate) fn start(program: &mut Command) -> Self {
        let ((events, next), (request_seen, requested), (respond, responses)) = (channel(), channel(), channel());
        let (next, request_seen, respond) = (Mutex::new(next), Mutex::new(request_seen), Mutex::new(respond));
        let server = Server::responding(move |request| runtime(&request, &next, &request_seen, &respond));
        let log_file = std::env::temp_dir().join(format!("suture-bench-{}.log", server.address.replace(':', "-")));
        let log = fs::File::create(&log_file).expect("log file can be created");
        let process = program
            .env("AWS_LAMBDA_RUNTIME_API", &server.address)
            .env("AWS_LAMBDA_FUNCTION_NAME", "bench")
            .env("AWS_LAMBDA_FUNCTION_MEMORY_SIZE", "128")
            .env("AWS_LAMBDA_FUNCTION_VERSION", "1")
            .env("AWS_LAMBDA_LOG_STREAM_NAME", "bench")
            .env("AWS_LAMBDA_LOG_GROUP_NAME", "bench")
            .env("AWS_REGION", "us-east-1")
            .env("AWS_DEFAULT_REGION", "us-east-1")
            .env("AWS_ACCESS_KEY_ID", "test")
            .env("AWS_SECRET_ACCESS_KEY", "test")
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("file handle can be cloned"))
            .stderr(log)
            .spawn()
            .expect("the program starts");
        let mut function = Self { process, events, requested, responses, _server: server, log_file, init_ms: 0.0 };
        function.wait_until_ready();
        function.init_ms = function.cpu_ms();
        function
    }

    fn wait_until_ready(&mut self) {
        let until = Instant::now() + TIMEOUT;
        while self.requested.recv_timeout(Duration::from_secs(1)).is_err() {
            let ended = self.process.try_wait().expect("a process");
            assert!(ended.is_none() && Instant::now() < until, "the process requests no events: {}", self.output());
        }
    }

    /// Sends it an event, and waits for its response and its next request.
    pub(crate) fn invoke(&mut self, event: &str) -> Value {
        self.events.send(event.to_owned()).expect("the server is running");
        let response =
            self.responses.recv_timeout(TIMEOUT).unwrap_or_else(|_| panic!("no response: {}", self.output()));
        self.wait_until_ready();
        serde_json::from_slice(&response).unwrap_or_else(|_| panic!("{}", String::from_utf8_lossy(&response)))
    }

    /// The CPU time of all its threads so far.
    pub(crate) fn cpu_ms(&self) -> f64 {
        let tasks = fs::read_dir(format!("/proc/{}/task", self.process.id())).expect("a process");
        let spent = tasks.flatten().filter_map(|task| fs::read_to_string(task.path().join("schedstat")).ok());
        spent.filter_map(|text| text.split(' ').next()?.parse::<f64>().ok()).sum::<f64>() / 1e6
    }

    /// The peak resident memory so far.
    pub(crate) fn peak_mb(&self) -> f64 {
        status_kb(self.process.id(), "VmHWM:") / 1024.0
    }

    /// The number of its threads.
    pub(crate) fn threads(&self) -> f64 {
        status_kb(self.process.id(), "Threads:")
    }

    /// Its standard output and error so far.
    pub(crate) fn output(&self) -> String {
        fs::read_to_string(&self.log_file).unwrap_or_default()
    }
}

fn status_kb(process: u32, name: &str) -> f64 {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    line.and_then(|rest| rest.split_whitespace().next()?.parse().ok()).unwrap_or(0.0)
}

/// Handles a request of the Runtime API.
fn runtime(
    request: &HttpMessage,
    next: &Mutex<Receiver<String>>,
    request_seen: &Mutex<Sender<()>>,
    respond: &Mutex<Sender<Vec<u8>>>,
) -> HttpResponse {
    if request.is("GET /2018-06-01/runtime/invocation/next") {
        let _ = request_seen.lock().expect("mutex not poisoned").send(());
        // The sender is dropped at the end of the measurement, when the process is killed.
        let Ok(event) = next.lock().expect("mutex not poisoned").recv() else {
            return HttpResponse::new(500, "text/plain", "");
        };
        let deadline = jiff::Timestamp::now().as_millisecond() + 14 * 60 * 1000;
        let mut response = HttpResponse::new(200, "application/json", event);
        response.headers.extend([
            ("Lambda-Runtime-Aws-Request-Id", request_id()),
            ("Lambda-Runtime-Deadline-Ms", deadline.to_string()),
            ("Lambda-Runtime-Invoked-Function-Arn", "arn:aws:lambda:us-east-1:123456789012:function:bench".to_owned()),
            ("Lambda-Runtime-Trace-Id", "Root=1-5bef4de7-ad49b0e87f6ef6c87fc2e700".to_owned()),
        ]);
        return response;
    }
    if request.first_line.contains("/response") || request.first_line.contains("/error") {
        let _ = respond.lock().expect("mutex not poisoned").send(request.body.clone());
    }
    HttpResponse::new(202, "application/json", "{}")
}

fn request_id() -> String {
    use std::sync::atomic::{AtomicU64, Ordering};
    static NEXT: AtomicU64 = AtomicU64::new(1);
    format!("8476a536-e9f4-11e8-9739-{:012x}", NEXT.fetch_add(1, Ordering::Relaxed))
}

/// Distributes the events over the functions, one thread each. Returns for each event its index, its latency in ms, and the response.
pub(crate) fn invoke_all(functions: Vec<Function>, events: Vec<String>) -> (Vec<Function>, Vec<(usize, f64, Value)>) {
    let list = Arc::new(Mutex::new(events.into_iter().enumerate()));
    let workers: Vec<_> = functions
        .into_iter()
        .map(|mut function| {
            let list = Arc::clone(&list);
            std::thread::spawn(move || {
                let mut results = Vec::new();
                loop {
                    let Some((place, event)) = list.lock().expect("mutex not poisoned").next() else { break };
                    let started = Instant::now();
                    let response = function.invoke(&event);
                    results.push((place, started.elapsed().as_secs_f64() * 1000.0, response));
                }
                (function, results)
            })
        })
        .collect();
    let (mut functions, mut all) = (Vec::new(), Vec::new());
    for worker in workers {
        let (function, results) = worker.join().expect("a worker");
        functions.push(function);
        all.extend(results);
    }
    all.sort_by_key(|(place, ..)| *place);
    (functions, all)
}

/// Whether a program exists.
pub(crate) fn exists(path: &Path) -> bool {
    path.is_file()
}
