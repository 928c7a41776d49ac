//! What Jenkins and the bots tell directly, beside what they tell through GitHub: the same facts, by another way. A fact that
//! comes both ways changes nothing the second time.

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
        .map_err(|error| NoFact::Malformed(format!("the body is not JSON as expected: {}", place(error))))
}

/// GitHub's times have whole seconds. Reports that come both ways must compare as equal.
pub(crate) fn whole_seconds(at: Timestamp) -> Timestamp {
    Timestamp::from_second(at.as_second()).unwrap_or(at)
}
