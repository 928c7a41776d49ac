//! The JSON of the responses. Conversion only: sentences come from the domain, facts from the record.

pub(crate) mod insights;
pub(crate) mod overview;
pub(crate) mod pull_request;
pub(crate) mod run;

use domain::command::CommandSource;
use domain::event::Event;
use domain::run::RunEnd;
use jiff::Timestamp;
use serde::Serialize;
use utoipa::ToSchema;

/// One event of the log.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[schema(as = Event)]
pub(crate) struct EventView {
    /// When it happened, as reported by its source.
    at: Timestamp,
    /// The id that deduplicates it.
    id: String,
    /// 0 for the fact itself, 1, 2, … for the transitions that followed.
    hop: u8,
    /// The event type.
    kind: &'static str,
    /// The source, such as `github_webhook` or `reconciler`.
    source: String,
    /// The state left, if the state changed.
    from: Option<&'static str>,
    /// The state reached, if the state changed.
    to: Option<&'static str>,
    /// A short description.
    text: String,
    /// The commit it is about.
    head: Option<String>,
    /// The check, rule or command it is about.
    name: Option<String>,
    /// The person or bot that caused it.
    by: Option<String>,
    /// Where a command came from, in COMMAND_RECEIVED: `pr-comment`, `check-run` or `admin-api`.
    via: Option<&'static str>,
    /// The run it belongs to.
    run: Option<String>,
    /// How the run ended, in REMEDIATION_ENDED: `completed`, `no_effect`, `failed`, `dropped` or `cancelled`.
    run_end: Option<&'static str>,
    /// Whether a command was refused.
    refused: bool,
    /// Why it did not change the state, if the transition is not allowed.
    anomaly: Option<String>,
}

/// The serialised name of an enum value.
pub(crate) fn serialized_name<T: Serialize>(value: &T) -> String {
    match serde_json::to_value(value) {
        Ok(serde_json::Value::String(word)) => word,
        Ok(other) => other.to_string(),
        Err(_) => String::new(),
    }
}

impl From<&Event> for EventView {
    fn from(event: &Event) -> Self {
        let payload = &event.payload;
        Self {
            at: event.occurred_at,
            id: event.id.to_string(),
            hop: event.hop,
            kind: event.kind.name(),
            source: serialized_name(&event.source),
            from: event.from.map(|state| state.name()),
            to: event.to.map(|state| state.name()),
            text: payload.text.clone(),
            head: payload.head.as_ref().map(ToString::to_string),
            name: payload.name.clone(),
            by: payload.by.clone(),
            via: payload.via.map(CommandSource::name),
            run: payload.run.as_ref().map(ToString::to_string),
            run_end: payload.run_end.map(RunEnd::name),
            refused: payload.refused,
            anomaly: payload.anomaly.clone(),
        }
    }
}

/// A page of events of a pull request.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct EventPage {
    /// In the requested order.
    pub(crate) events: Vec<EventView>,
    /// The cursor of the next page, for `after`.
    pub(crate) next: Option<String>,
}
