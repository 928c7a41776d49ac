//! Shared by the `jenkins` and `bot` parsers: reports sent directly to Suture. The same facts also arrive through GitHub; the second
//! arrival changes nothing.

use domain::event::{Actor, Happened};
use domain::id::{EventId, RepoName};
use jiff::Timestamp;

use crate::github::{About, News, NoFact, Reading, Told};

pub(crate) fn reading(told: Result<Told, NoFact>) -> Reading {
    match told {
        Ok(told) => Reading::Told(Box::new(told)),
        Err(NoFact::Ignored(why)) => Reading::Ignored(why),
        Err(NoFact::Malformed(why)) => Reading::Malformed(why),
    }
}

pub(crate) fn told(repo: RepoName, about: About, id: String, at: Timestamp, actor: Actor, what: Happened) -> Told {
    let news = News { about, id: EventId::new(id), occurred_at: at, actor, what, begins: false };
    Told { repo, news: Some(news), commands: Vec::new() }
}

pub(crate) fn parse<'de, T: serde::Deserialize<'de>>(body: &'de [u8]) -> Result<T, NoFact> {
    let place = |error: serde_json::Error| format!("line {}, column {}", error.line(), error.column());
    serde_json::from_slice(body)
        .map_err(|error| NoFact::Malformed(format!("the body is not the expected JSON: {}", place(error))))
}

/// GitHub's timestamps have whole seconds; a report that arrives both ways must have equal times.
pub(crate) fn whole_seconds(at: Timestamp) -> Timestamp {
    Timestamp::from_second(at.as_second()).unwrap_or(at)
}
