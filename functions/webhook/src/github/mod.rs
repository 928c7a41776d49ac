//! What GitHub tells, translated into facts. Pure: bytes and policies in, a reading out; nothing is asked, stored or
//! decided. A reading names the pull requests it is about as far as the payload does: a commit status and a check of a fork
//! carry no number, and are found through the row of their commit by whoever takes the reading in (`ingest`).

mod check_run;
mod check_suite;
mod installation;
mod issue_comment;
pub(crate) mod lenient;
mod merge_group;
mod payload;
mod ping;
mod pull_request;
mod pull_request_review;
mod push;
mod status;

use domain::command::CommandMessage;
use domain::event::{Actor, Fact, Happened};
use domain::id::{EventId, PrId, RepoName, Sha};
use domain::policy::Policies;
use jiff::Timestamp;

use self::lenient::{Many, Part};
use self::payload::{Listed, Repository};

/// The longest name a delivery may have; GitHub's are 36 characters.
const MAX_DELIVERY_ID: usize = 100;

/// One webhook, its signature checked already.
#[derive(Debug, Clone, Copy)]
pub struct Delivery<'a> {
    /// `X-GitHub-Event`.
    pub event: &'a str,
    /// `X-GitHub-Delivery`; a redelivery keeps it.
    pub id: &'a str,
    pub body: &'a [u8],
}

/// Who Suture is on GitHub, so that it does not listen to itself.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Own {
    /// The App's id, if Suture is an App.
    pub app_id: Option<u64>,
    /// The login it writes under: `<app>[bot]`, or the owner of the token.
    pub login: Option<String>,
}

impl Own {
    fn is_app(&self, id: Option<u64>) -> bool {
        id.is_some() && id == self.app_id
    }

    fn is_login(&self, login: &str) -> bool {
        self.login.as_deref().is_some_and(|own| own.eq_ignore_ascii_case(login))
    }
}

/// What a webhook says.
#[derive(Debug, Clone, PartialEq)]
pub enum Reading {
    Told(Box<Told>),
    /// Somebody has installed us, or given us more repositories: everything is to be looked at.
    Installed {
        id: EventId,
        /// When, if it says so.
        at: Option<Timestamp>,
    },
    Ignored(String),
    /// It cannot be understood, and why.
    Malformed(String),
}

/// Something that concerns us, perhaps.
#[derive(Debug, Clone, PartialEq)]
pub struct Told {
    pub repo: RepoName,
    pub news: Option<News>,
    /// What somebody asked for, in their order.
    pub commands: Vec<CommandMessage>,
}

/// A fact whose pull requests may still have to be found.
#[derive(Debug, Clone, PartialEq)]
pub struct News {
    pub about: About,
    pub id: EventId,
    pub occurred_at: Timestamp,
    pub actor: Actor,
    pub what: Happened,
    /// Whether a pull request that nobody has heard of begins with it. Otherwise only known ones hear it.
    pub begins: bool,
}

impl News {
    /// The fact, for one of the pull requests it is about.
    pub fn fact(&self, pr: PrId) -> Fact {
        Fact { id: self.id.clone(), pr, occurred_at: self.occurred_at, actor: self.actor, what: self.what.clone() }
    }
}

/// How to find the pull requests something is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum About {
    Numbers(Vec<u64>),
    Head(Sha),
    Base(String),
}

/// Why a payload has no facts for us.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum NoFact {
    Ignored(String),
    /// Something that must be there is not.
    Malformed(String),
}

impl NoFact {
    pub(crate) fn ignored(why: impl Into<String>) -> Self {
        Self::Ignored(why.into())
    }

    pub(crate) fn missing(field: &str) -> Self {
        Self::Malformed(format!("`{field}` is missing or not what it should be"))
    }
}

/// What every translation knows.
pub(crate) struct Reader<'a> {
    pub(crate) id: &'a str,
    pub(crate) policies: &'a Policies,
    pub(crate) own: &'a Own,
}

impl Reader<'_> {
    fn event_id(&self) -> EventId {
        EventId::new(self.id)
    }
}

pub fn read(delivery: &Delivery<'_>, policies: &Policies, own: &Own) -> Reading {
    if !is_delivery_id(delivery.id) {
        let why = format!("the delivery id must be 1 to {MAX_DELIVERY_ID} letters, digits and `-_.:`");
        return Reading::Malformed(why);
    }
    let reader = Reader { id: delivery.id, policies, own };
    if let "installation" | "installation_repositories" | "installation_target" = delivery.event {
        return match parse(delivery.body) {
            Ok(event) => installation::read(&reader, &event),
            Err(NoFact::Ignored(why)) => Reading::Ignored(why),
            Err(NoFact::Malformed(why)) => Reading::Malformed(why),
        };
    }
    match translate(&reader, delivery) {
        Ok(told) => Reading::Told(Box::new(told)),
        Err(NoFact::Ignored(why)) => Reading::Ignored(why),
        Err(NoFact::Malformed(why)) => Reading::Malformed(why),
    }
}

fn translate(reader: &Reader<'_>, delivery: &Delivery<'_>) -> Result<Told, NoFact> {
    match delivery.event {
        "pull_request" => pull_request::read(reader, &parse(delivery.body)?),
        "check_run" => check_run::read(reader, &parse(delivery.body)?),
        "check_suite" => check_suite::read(reader, &parse(delivery.body)?),
        "status" => status::read(reader, &parse(delivery.body)?),
        "pull_request_review" => pull_request_review::read(reader, &parse(delivery.body)?),
        "issue_comment" => issue_comment::read(reader, &parse(delivery.body)?),
        "push" => push::read(reader, &parse(delivery.body)?),
        "merge_group" => Err(merge_group::read(&parse(delivery.body)?)),
        "ping" => Err(ping::read(&parse(delivery.body)?)),
        other => {
            // Whatever it is, it must be JSON: anything else is a webhook that was set up wrongly, and somebody should know.
            parse::<serde::de::IgnoredAny>(delivery.body)?;
            Err(NoFact::Ignored(format!("Suture does not listen to `{}`", domain::event::cut(other, 50))))
        }
    }
}

fn parse<'de, T: serde::Deserialize<'de>>(body: &'de [u8]) -> Result<T, NoFact> {
    serde_json::from_slice(body).map_err(|error| {
        let form = body.starts_with(b"payload=");
        NoFact::Malformed(if form {
            "the body is a form: set the webhook's content type to `application/json`".to_owned()
        } else {
            // Where, but not what: the text of the payload belongs in no log.
            format!("the body is not JSON as expected: line {}, column {}", error.line(), error.column())
        })
    })
}

/// By number, if the check names pull requests of this repository: it may name those of others, whose heads are here.
fn about_commit(repository: &Part<Repository<'_>>, listed: &Many<Part<Listed>>, head: Sha) -> About {
    let here = repository.0.as_ref().and_then(|repository| repository.id.0);
    let is_here = |pull: &&Listed| {
        let there = pull.base.0.as_ref().and_then(|base| base.repo.0.as_ref()).and_then(|repo| repo.id.0);
        there.is_none() || here.is_none() || there == here
    };
    let mut numbers: Vec<u64> = listed.0.iter().filter(is_here).filter_map(|pull| pull.number.0).collect();
    numbers.sort_unstable();
    numbers.dedup();
    if numbers.is_empty() { About::Head(head) } else { About::Numbers(numbers) }
}

fn report_on_commit(reader: &Reader<'_>, repo: RepoName, about: About, at: Timestamp, what: Happened) -> Told {
    let by_policy_bot = matches!(what, Happened::Policy { .. });
    let actor = if by_policy_bot { Actor::PolicyBot } else { Actor::GithubWebhook };
    let news = News { about, id: reader.event_id(), occurred_at: at, actor, what, begins: false };
    Told { repo, news: Some(news), commands: Vec::new() }
}

fn short(status: &str, conclusion: &str) -> String {
    domain::event::cut(format!("{status} {conclusion}").trim(), 50)
}

/// It becomes part of a key, so it may hold nothing that separates keys.
pub(crate) fn is_delivery_id(id: &str) -> bool {
    (1..=MAX_DELIVERY_ID).contains(&id.len())
        && id.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.' | b':'))
}

#[cfg(test)]
mod tests;
