//! `suture dlq`: lists, redrives, deletes and purges dead letters through the admin API.

use std::time::Duration;

use bytes::Bytes;
use clap::Subcommand;
use http::{Method, Request};
use platform::env::{ConfigError, Environment};
use platform::transport::Transport;
use serde_json::{Value, json};

/// Longer than the admin function may take.
const TIMEOUT: Duration = Duration::from_secs(35);

#[derive(Debug, Clone, PartialEq, Eq, Subcommand)]
pub(crate) enum DlqCommand {
    /// List the messages, and why they could not be processed
    List,
    /// Send the messages back to the queue they came from
    Redrive,
    /// Delete one message
    Delete {
        /// Its id in the list
        id: String,
    },
    /// Delete all messages of a queue
    Purge {
        /// commands, facts, sweeps or all
        queue: String,
    },
}

impl DlqCommand {
    fn request(&self) -> (Method, &'static str, Option<Value>) {
        match self {
            Self::List => (Method::GET, "/api/dlq", None),
            Self::Redrive => (Method::POST, "/api/dlq/redrive", None),
            Self::Delete { id } => (Method::POST, "/api/dlq/delete", Some(json!({"id": id}))),
            Self::Purge { queue } if queue == "all" => (Method::POST, "/api/dlq/purge", None),
            Self::Purge { queue } => (Method::POST, "/api/dlq/purge", Some(json!({"queue": queue}))),
        }
    }
}

/// Calls the API at `SUTURE_URL` with the key `SUTURE_KEY`, and returns the text to print.
pub(crate) async fn run(
    command: &DlqCommand,
    environment: &impl Environment,
    transport: &Transport,
) -> Result<String, String> {
    let required = |name| environment.required(name).map_err(|error: ConfigError| error.to_string());
    let (url, key) = (required("SUTURE_URL")?, required("SUTURE_KEY")?);
    let (method, path, body) = command.request();
    let request = Request::builder()
        .method(method)
        .uri(format!("{}{path}", url.trim_end_matches('/')))
        .header("authorization", format!("Bearer {key}"))
        .header("content-type", "application/json")
        .body(body.map_or_else(Bytes::new, |body| body.to_string().into()))
        .map_err(|error| format!("SUTURE_URL or SUTURE_KEY is invalid: {error}"))?;
    let response = transport.send(request, TIMEOUT).await.map_err(|error| error.to_string())?;
    let answer: Value = serde_json::from_slice(response.body()).unwrap_or(Value::Null);
    if !response.status().is_success() {
        let detail = answer["detail"].as_str().unwrap_or("no details");
        return Err(format!("{} answered {}: {detail}", url, response.status()));
    }
    Ok(describe(&answer))
}

fn describe(answer: &Value) -> String {
    if let Some(messages) = answer["messages"].as_array() {
        let text = |value: &Value| value.as_str().unwrap_or("-").to_owned();
        let line = |message: &Value| {
            let [id, queue, sent_at] = ["id", "queue", "sent_at"].map(|name| text(&message[name]));
            format!("{id}  {queue}  {sent_at}\n  {}\n  {}\n", text(&message["reason"]), text(&message["body_excerpt"]))
        };
        let listed: String = messages.iter().map(line).collect();
        return format!("{listed}{} in the dead-letter queues, {} listed", answer["approximate_count"], messages.len());
    }
    match (&answer["moved"], &answer["deleted"]) {
        (Value::Number(moved), _) => format!("{moved} moved"),
        (_, Value::Number(deleted)) => format!("{deleted} deleted"),
        _ => "The same request is already being processed.".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::{Arc, Mutex};

    use http::Response;

    use super::*;

    struct Variables(BTreeMap<&'static str, &'static str>);

    impl Environment for Variables {
        fn get(&self, name: &str) -> Option<String> {
            self.0.get(name).map(|value| (*value).to_owned())
        }
    }

    #[tokio::test]
    async fn each_command_calls_its_route_and_prints_the_answer() {
        let environment = Variables(BTreeMap::from([("SUTURE_URL", "https://suture.example/"), ("SUTURE_KEY", "k")]));
        let list = json!({"messages": [{"id": "m1", "queue": "commands", "sent_at": null, "reason": "why", "body_excerpt": "{}"}],
                          "approximate_count": 3});
        for (command, called, body, answer, printed) in [
            (
                DlqCommand::List,
                "GET /api/dlq",
                "",
                list,
                "m1  commands  -\n  why\n  {}\n3 in the dead-letter queues, 1 listed",
            ),
            (DlqCommand::Redrive, "POST /api/dlq/redrive", "", json!({"moved": 2}), "2 moved"),
            (
                DlqCommand::Delete { id: "m1".to_owned() },
                "POST /api/dlq/delete",
                r#"{"id":"m1"}"#,
                json!({"deleted": 1}),
                "1 deleted",
            ),
            (
                DlqCommand::Purge { queue: "sweeps".to_owned() },
                "POST /api/dlq/purge",
                r#"{"queue":"sweeps"}"#,
                json!({"deleted": 7}),
                "7 deleted",
            ),
            (
                DlqCommand::Purge { queue: "all".to_owned() },
                "POST /api/dlq/purge",
                "",
                json!({"deleted": 0}),
                "0 deleted",
            ),
        ] {
            let seen = Arc::new(Mutex::new(Vec::new()));
            let (sink, answer) = (Arc::clone(&seen), answer.to_string());
            let transport = Transport::with_service(tower::service_fn(move |request: Request<Bytes>| {
                assert_eq!(request.headers()["authorization"], "Bearer k");
                let body = String::from_utf8_lossy(request.body()).into_owned();
                sink.lock().unwrap().push((format!("{} {}", request.method(), request.uri().path()), body));
                let answer = Bytes::from(answer.clone());
                async move { Ok::<_, std::io::Error>(Response::new(answer)) }
            }));
            assert_eq!(run(&command, &environment, &transport).await, Ok(printed.to_owned()));
            assert_eq!(*seen.lock().unwrap(), [(called.to_owned(), body.to_owned())]);
        }
    }

    #[tokio::test]
    async fn refusal_prints_the_detail() {
        let environment = Variables(BTreeMap::from([("SUTURE_URL", "https://suture.example"), ("SUTURE_KEY", "k")]));
        let refuse = tower::service_fn(|_: Request<Bytes>| async {
            let mut response =
                Response::new(Bytes::from_static(br#"{"detail": "This needs a key with the role admin"}"#));
            *response.status_mut() = http::StatusCode::FORBIDDEN;
            Ok::<_, std::io::Error>(response)
        });
        let refused = run(&DlqCommand::Redrive, &environment, &Transport::with_service(refuse)).await.unwrap_err();
        assert_eq!(refused, "https://suture.example answered 403 Forbidden: This needs a key with the role admin");
        let nobody = Variables(BTreeMap::new());
        let unset = run(&DlqCommand::List, &nobody, &Transport::with_service(refuse)).await.unwrap_err();
        assert!(unset.starts_with("SUTURE_URL is not set"), "{unset}");
    }
}
