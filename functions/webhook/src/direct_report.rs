//! Shared by the `jenkins` and `bot` parsers: reports sent directly to Suture. The same facts also arrive through GitHub; the second
//! arrival changes nothing.

use domain::event::{Actor, FactKind};
use domain::id::{EventId, RepoName};
use jiff::Timestamp;

use crate::github::{ParseOutcome, ParseRejection, ParsedWebhook, PrSelector, WebhookFact};

pub(crate) fn parse_outcome(result: Result<ParsedWebhook, ParseRejection>) -> ParseOutcome {
    match result {
        Ok(webhook) => ParseOutcome::Parsed(Box::new(webhook)),
        Err(ParseRejection::Ignored(why)) => ParseOutcome::Ignored(why),
        Err(ParseRejection::Malformed(why)) => ParseOutcome::Malformed(why),
    }
}

pub(crate) fn parsed_webhook(
    repo: RepoName,
    selector: PrSelector,
    id: String,
    at: Timestamp,
    actor: Actor,
    kind: FactKind,
) -> ParsedWebhook {
    let id = EventId::new(id);
    let fact = WebhookFact { selector, id, occurred_at: at, actor, kind, managed: false, described: None };
    ParsedWebhook { repo, fact: Some(fact), commands: Vec::new() }
}

pub(crate) fn parse<'de, T: serde::Deserialize<'de>>(body: &'de [u8]) -> Result<T, ParseRejection> {
    let position = |error: serde_json::Error| format!("line {}, column {}", error.line(), error.column());
    serde_json::from_slice(body)
        .map_err(|error| ParseRejection::Malformed(format!("the body is not the expected JSON: {}", position(error))))
}

/// GitHub's timestamps have whole seconds; a report that arrives both ways must have equal times.
pub(crate) fn whole_seconds(at: Timestamp) -> Timestamp {
    Timestamp::from_second(at.as_second()).unwrap_or(at)
}
