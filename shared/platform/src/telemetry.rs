//! Structured log with metrics: one JSON line per request, message or sweep, in CloudWatch's embedded metric format. Lines are flushed
//! before the response, because Lambda then freezes the process.

use std::fmt;
use std::future::Future;
use std::io::{self, Write};
use std::sync::{Mutex, PoisonError};

use jiff::Timestamp;
use serde_json::{Map, Value, json};

tokio::task_local! {
    static INVOCATION: InvocationIds;
}

/// The ids of a Lambda invocation. Every log line that is written within its scope carries them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct InvocationIds {
    /// The request id of Lambda, which the platform's own lines and the access log of API Gateway carry too.
    pub request_id: String,
    /// The root of the trace: it stays the same from a webhook over the queue to the Car Bridge.
    pub trace: Option<String>,
}

impl InvocationIds {
    /// `trace` is a tracing header, such as `Root=1-…;Parent=…;Sampled=0`.
    pub fn new(request_id: &str, trace: Option<&str>) -> Self {
        Self { request_id: request_id.to_owned(), trace: trace.and_then(trace_root) }
    }

    /// The ids of the invocation that is being handled, if any.
    pub fn current() -> Option<Self> {
        INVOCATION.try_with(Clone::clone).ok()
    }

    /// Continues another trace, if there is one.
    #[must_use]
    pub fn in_trace(self, trace: Option<&str>) -> Self {
        Self { trace: trace.map(str::to_owned).or(self.trace), ..self }
    }

    /// Runs a future within the scope of the invocation.
    pub async fn scope<F: Future>(self, future: F) -> F::Output {
        INVOCATION.scope(self, future).await
    }
}

/// The root of a tracing header.
fn trace_root(header: &str) -> Option<String> {
    let root = header.split(';').find_map(|part| part.trim().strip_prefix("Root="))?;
    Some(root.to_owned()).filter(|root| !root.is_empty() && root.len() <= MAX_TRACE)
}

/// Longest trace id; those of X-Ray have 35 characters.
const MAX_TRACE: usize = 100;

/// The default namespace of the metrics in CloudWatch.
pub const NAMESPACE: &str = "Suture";

/// A log line that is being built.
#[derive(Debug, Clone)]
pub struct LogRecord {
    at: Timestamp,
    function: &'static str,
    fields: Map<String, Value>,
    metrics: Vec<(&'static str, &'static str)>,
}

impl LogRecord {
    pub fn new(function: &'static str, at: Timestamp) -> Self {
        Self { at, function, fields: Map::new(), metrics: Vec::new() }
    }

    #[must_use]
    pub fn with(mut self, name: &'static str, value: impl Into<Value>) -> Self {
        self.fields.insert(name.to_owned(), value.into());
        self
    }

    /// Adds a field if it has a value.
    #[must_use]
    pub fn with_some(self, name: &'static str, value: Option<impl Into<Value>>) -> Self {
        match value {
            Some(value) => self.with(name, value),
            None => self,
        }
    }

    #[must_use]
    pub fn count(mut self, name: &'static str, by: u64) -> Self {
        self.metrics.push((name, "Count"));
        self.with(name, by)
    }

    #[must_use]
    pub fn duration_ms(mut self, ms: u64) -> Self {
        self.metrics.push(("ms", "Milliseconds"));
        self.with("ms", ms)
    }

    /// Adds a gauge metric.
    #[must_use]
    pub fn gauge(mut self, name: &'static str, unit: &'static str, value: u64) -> Self {
        self.metrics.push((name, unit));
        self.with(name, value)
    }

    /// The line without a newline, with metrics in the default namespace.
    pub fn to_json(&self) -> String {
        self.to_json_in(NAMESPACE)
    }

    fn to_json_in(&self, namespace: &str) -> String {
        let metrics: Vec<Value> = self.metrics.iter().map(|(name, unit)| json!({"Name": name, "Unit": unit})).collect();
        let mut line = self.fields.clone();
        line.insert("function".to_owned(), self.function.into());
        if !metrics.is_empty() {
            let emf = json!([{"Namespace": namespace, "Dimensions": [["function"]], "Metrics": metrics}]);
            line.insert("_aws".to_owned(), json!({"Timestamp": self.at.as_millisecond(), "CloudWatchMetrics": emf}));
        }
        Value::Object(line).to_string()
    }
}

pub struct MetricLog {
    writer: Option<Mutex<Box<dyn Write + Send>>>,
    namespace: String,
}

impl fmt::Debug for MetricLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("MetricLog")
    }
}

impl MetricLog {
    /// Writes to standard output, which Lambda sends to CloudWatch.
    pub fn stdout() -> Self {
        Self::writing_to(io::stdout())
    }

    pub fn writing_to(writer: impl Write + Send + 'static) -> Self {
        Self { writer: Some(Mutex::new(Box::new(writer))), namespace: NAMESPACE.to_owned() }
    }

    pub fn disabled() -> Self {
        Self { writer: None, namespace: NAMESPACE.to_owned() }
    }

    /// Sets the metrics namespace, so that two deployments in one account have separate metrics.
    #[must_use]
    pub fn in_namespace(self, namespace: &str) -> Self {
        Self { namespace: namespace.to_owned(), ..self }
    }

    /// Writes a line. A write error is ignored, because the work itself is done.
    pub fn write(&self, line: &LogRecord) {
        let Some(writer) = &self.writer else { return };
        let ids = InvocationIds::current().unwrap_or_default();
        let line = line.clone().with_some("request_id", Some(ids.request_id).filter(|id| !id.is_empty()));
        let mut text = line.with_some("trace", ids.trace).to_json_in(&self.namespace);
        text.push('\n');
        let mut writer = writer.lock().unwrap_or_else(PoisonError::into_inner);
        let _ = writer.write_all(text.as_bytes()).and_then(|()| writer.flush());
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn line_has_embedded_metric_format() {
        let at = Timestamp::from_millisecond(1_772_442_000_750).unwrap();
        let line = LogRecord::new("webhook", at)
            .with("repo", "a/b")
            .with_some("pr", None::<u64>)
            .count("applied", 1)
            .duration_ms(7);
        let json: Value = serde_json::from_str(&line.to_json()).unwrap();
        assert_eq!(
            json,
            json!({
                "_aws": {
                    "Timestamp": 1_772_442_000_750_u64,
                    "CloudWatchMetrics": [{
                        "Namespace": "Suture",
                        "Dimensions": [["function"]],
                        "Metrics": [{"Name": "applied", "Unit": "Count"}, {"Name": "ms", "Unit": "Milliseconds"}]
                    }]
                },
                "function": "webhook", "repo": "a/b", "applied": 1, "ms": 7
            })
        );
        assert!(!LogRecord::new("x", at).to_json().contains("_aws"));
    }

    #[derive(Clone, Default)]
    struct Shared(Arc<Mutex<Vec<u8>>>);

    impl Write for Shared {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn namespace_can_be_set_per_deployment() {
        let shared = Shared::default();
        let log = MetricLog::writing_to(shared.clone()).in_namespace("Suture/staging");
        log.write(&LogRecord::new("reconciler", Timestamp::UNIX_EPOCH).gauge("oldest_due_secs", "Seconds", 7));
        let line: Value = serde_json::from_slice(&shared.0.lock().unwrap()).unwrap();
        let emf = &line["_aws"]["CloudWatchMetrics"][0];
        assert_eq!((&emf["Namespace"], &line["oldest_due_secs"]), (&json!("Suture/staging"), &json!(7)));
        assert_eq!(emf["Metrics"], json!([{"Name": "oldest_due_secs", "Unit": "Seconds"}]));
    }

    /// Lines of one request could not be told from those of another.
    #[tokio::test]
    async fn every_line_of_an_invocation_has_its_ids() {
        let shared = Shared::default();
        let log = MetricLog::writing_to(shared.clone());
        let line = || LogRecord::new("webhook", Timestamp::UNIX_EPOCH);
        log.write(&line());
        let ids = InvocationIds::new("r-1", Some("Root=1-abc-def;Parent=53995c3f42cd8ad8;Sampled=1;Lineage=1:a:0"));
        ids.clone()
            .scope(async {
                log.write(&line());
                let message = InvocationIds::current().unwrap_or_default().in_trace(Some("1-message"));
                message.scope(async { log.write(&line()) }).await;
            })
            .await;
        let text = String::from_utf8(shared.0.lock().unwrap().clone()).unwrap();
        let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(lines[0], json!({"function": "webhook"}));
        assert_eq!(lines[1], json!({"function": "webhook", "request_id": "r-1", "trace": "1-abc-def"}));
        assert_eq!(lines[2], json!({"function": "webhook", "request_id": "r-1", "trace": "1-message"}));
        assert_eq!(ids.in_trace(None).trace.as_deref(), Some("1-abc-def"));
        assert_eq!(InvocationIds::new("r", Some("Parent=1")).trace, None);
    }

    #[test]
    fn newlines_in_fields_are_escaped() {
        let shared = Shared::default();
        let log = MetricLog::writing_to(shared.clone());
        log.write(&LogRecord::new("webhook", Timestamp::UNIX_EPOCH).with("reason", "a\nb"));
        log.write(&LogRecord::new("webhook", Timestamp::UNIX_EPOCH));
        let text = String::from_utf8(shared.0.lock().unwrap().clone()).unwrap();
        assert_eq!(text.lines().count(), 2);
        assert!(text.ends_with('\n'));
    }
}
