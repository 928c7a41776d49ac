//! Lambda's Runtime API on this machine, and one process behind it: what it is given, what it answers, and what it takes of
//! the processor and of memory. Processor time is that of its threads, in nanoseconds, so other work on the machine does not
//! count.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::wire::{Answer, Letter, PATIENCE, Server};

/// One process behind the Runtime API.
pub(crate) struct Function {
    process: Child,
    events: Sender<String>,
    asked: Receiver<()>,
    answers: Receiver<Vec<u8>>,
    _server: Server,
    /// What it wrote to standard output and error.
    written: std::path::PathBuf,
    /// The processor time from its start until it asked for its first event.
    pub(crate) init_ms: f64,
}

impl Drop for Function {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = fs::remove_file(&self.written);
    }
}

impl Function {
    /// Starts a program, and waits until it asks for its first event.
    pub(crate) fn start(program: &mut Command) -> Self {
        let ((events, next), (ask, asked), (tell, answers)) = (channel(), channel(), channel());
        let (next, ask, tell) = (Mutex::new(next), Mutex::new(ask), Mutex::new(tell));
        let server = Server::answering(move |request| runtime(&request, &next, &ask, &tell));
        let written = std::env::temp_dir().join(format!("suture-bench-{}.log", server.address.replace(':', "-")));
        let log = fs::File::create(&written).expect("a file for what is written");
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
            .stdout(log.try_clone().expect("the same file"))
            .stderr(log)
            .spawn()
            .expect("the program starts");
        let mut function = Self { process, events, asked, answers, _server: server, written, init_ms: 0.0 };
        function.wait();
        function.init_ms = function.cpu_ms();
        function
    }

    fn wait(&mut self) {
        let until = Instant::now() + PATIENCE;
        while self.asked.recv_timeout(Duration::from_secs(1)).is_err() {
            let ended = self.process.try_wait().expect("a process");
            assert!(ended.is_none() && Instant::now() < until, "it does not ask for events: {}", self.output());
        }
    }

    /// Gives it an event and waits for its answer, and until it has asked for the next.
    pub(crate) fn invoke(&mut self, event: &str) -> Value {
        self.events.send(event.to_owned()).expect("it listens");
        let answer = self.answers.recv_timeout(PATIENCE).unwrap_or_else(|_| panic!("no answer: {}", self.output()));
        self.wait();
        serde_json::from_slice(&answer).unwrap_or_else(|_| panic!("{}", String::from_utf8_lossy(&answer)))
    }

    /// The processor time of all its threads so far.
    pub(crate) fn cpu_ms(&self) -> f64 {
        let tasks = fs::read_dir(format!("/proc/{}/task", self.process.id())).expect("a process");
        let spent = tasks.flatten().filter_map(|task| fs::read_to_string(task.path().join("schedstat")).ok());
        spent.filter_map(|text| text.split(' ').next()?.parse::<f64>().ok()).sum::<f64>() / 1e6
    }

    /// The most memory it has held so far.
    pub(crate) fn peak_mb(&self) -> f64 {
        status_kb(self.process.id(), "VmHWM:") / 1024.0
    }

    /// How many threads it has.
    pub(crate) fn threads(&self) -> f64 {
        status_kb(self.process.id(), "Threads:")
    }

    /// What it has written to standard output and error.
    pub(crate) fn output(&self) -> String {
        fs::read_to_string(&self.written).unwrap_or_default()
    }
}

fn status_kb(process: u32, name: &str) -> f64 {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    line.and_then(|rest| rest.split_whitespace().next()?.parse().ok()).unwrap_or(0.0)
}

/// Answers as the Runtime API does.
fn runtime(
    request: &Letter,
    next: &Mutex<Receiver<String>>,
    ask: &Mutex<Sender<()>>,
    tell: &Mutex<Sender<Vec<u8>>>,
) -> Answer {
    if request.is("GET /2018-06-01/runtime/invocation/next") {
        let _ = ask.lock().expect("nobody panicked").send(());
        // When the measurement is over, nobody sends any more, and the process is ended.
        let Ok(event) = next.lock().expect("nobody panicked").recv() else { return Answer::new(500, "text/plain", "") };
        let deadline = jiff::Timestamp::now().as_millisecond() + 14 * 60 * 1000;
        let mut answer = Answer::new(200, "application/json", event);
        answer.headers.extend([
            ("Lambda-Runtime-Aws-Request-Id", request_id()),
            ("Lambda-Runtime-Deadline-Ms", deadline.to_string()),
            ("Lambda-Runtime-Invoked-Function-Arn", "arn:aws:lambda:us-east-1:123456789012:function:bench".to_owned()),
            ("Lambda-Runtime-Trace-Id", "Root=1-5bef4de7-ad49b0e87f6ef6c87fc2e700".to_owned()),
        ]);
        return answer;
    }
    if request.first.contains("/response") || request.first.contains("/error") {
        let _ = tell.lock().expect("nobody panicked").send(request.body.clone());
    }
    Answer::new(202, "application/json", "{}")
}

fn request_id() -> String {
    use std::sync::atomic::{AtomicU64, Ordering};
    static NEXT: AtomicU64 = AtomicU64::new(1);
    format!("8476a536-e9f4-11e8-9739-{:012x}", NEXT.fetch_add(1, Ordering::Relaxed))
}

/// Several of the same, each with a thread of its own, working off one list. Answers how long each took, and what was answered.
pub(crate) fn work_off(functions: Vec<Function>, events: Vec<String>) -> (Vec<Function>, Vec<(usize, f64, Value)>) {
    let list = Arc::new(Mutex::new(events.into_iter().enumerate()));
    let workers: Vec<_> = functions
        .into_iter()
        .map(|mut function| {
            let list = Arc::clone(&list);
            std::thread::spawn(move || {
                let mut took = Vec::new();
                loop {
                    let Some((place, event)) = list.lock().expect("nobody panicked").next() else { break };
                    let began = Instant::now();
                    let answer = function.invoke(&event);
                    took.push((place, began.elapsed().as_secs_f64() * 1000.0, answer));
                }
                (function, took)
            })
        })
        .collect();
    let (mut functions, mut all) = (Vec::new(), Vec::new());
    for worker in workers {
        let (function, took) = worker.join().expect("a worker");
        functions.push(function);
        all.extend(took);
    }
    all.sort_by_key(|(place, ..)| *place);
    (functions, all)
}

/// Whether a program is there.
pub(crate) fn there(path: &Path) -> bool {
    path.is_file()
}
