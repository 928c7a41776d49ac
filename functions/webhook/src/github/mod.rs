//! Parses GitHub webhooks into facts and commands, one module per event. Pure: bytes and policies in, a parse result out; no I/O and no
//! decisions. Commit statuses and check runs of forks carry no pull request number; `ingest` finds their pull requests by commit.

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
use domain::event::{Actor, Fact, FactKind, PullRequestDetails};
use domain::id::{EventId, PrId, RepoName, Sha};
use domain::policy::{Policies, Policy};
use jiff::Timestamp;

use self::lenient::{LenientList, LenientObject};
use self::payload::{Listed, Repository};

/// The longest delivery id accepted; GitHub's have 36 characters.
const MAX_DELIVERY_ID: usize = 100;

/// A webhook whose signature has been verified.
#[derive(Debug, Clone, Copy)]
pub struct GithubDelivery<'a> {
    /// `X-GitHub-Event`.
    pub event: &'a str,
    /// `X-GitHub-Delivery`; the same in a redelivery.
    pub id: &'a str,
    pub body: &'a [u8],
}

/// Suture's own identity on GitHub, so that it ignores its own comments and check runs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BotIdentity {
    /// The App's id, if Suture is an App.
    pub app_id: Option<u64>,
    /// `<app>[bot]`, or the owner of the token.
    pub login: Option<String>,
}

impl BotIdentity {
    fn is_app(&self, id: Option<u64>) -> bool {
        id.is_some() && id == self.app_id
    }

    fn is_login(&self, login: &str) -> bool {
        self.login.as_deref().is_some_and(|own| own.eq_ignore_ascii_case(login))
    }
}

/// The result of parsing a webhook.
#[derive(Debug, Clone, PartialEq)]
pub enum ParseOutcome {
    Parsed(Box<ParsedWebhook>),
    /// The App was installed or got more repositories: reconcile everything.
    Installed {
        id: EventId,
        /// Set if the payload has a time.
        at: Option<Timestamp>,
    },
    Ignored(String),
    Malformed(String),
}

/// A webhook with a fact, commands, or both.
#[derive(Debug, Clone, PartialEq)]
pub struct ParsedWebhook {
    pub repo: RepoName,
    pub fact: Option<WebhookFact>,
    /// In the order of the comment.
    pub commands: Vec<CommandMessage>,
}

/// A fact that `ingest` still has to match with pull requests.
#[derive(Debug, Clone, PartialEq)]
pub struct WebhookFact {
    pub selector: PrSelector,
    pub id: EventId,
    pub occurred_at: Timestamp,
    pub actor: Actor,
    pub kind: FactKind,
    /// Whether the payload shows that the pull request is managed; a report on a commit may not show it.
    pub managed: bool,
    /// The managed pull request as the payload describes it, if `kind` does not.
    pub described: Option<Box<PullRequestDetails>>,
}

impl WebhookFact {
    /// The fact for one pull request.
    pub fn fact(&self, pr: PrId) -> Fact {
        let Self { id, occurred_at, actor, kind, described, .. } = self.clone();
        Fact { id, pr, occurred_at, actor, kind, described }
    }

    /// Whether the fact may create the record of an unknown pull request.
    pub fn creates_record(&self) -> bool {
        self.managed && (self.described.is_some() || details_of(&self.kind).is_some())
    }
}

/// The details of an open pull request that the fact has.
pub(crate) fn details_of(kind: &FactKind) -> Option<&PullRequestDetails> {
    if let FactKind::Opened(described)
    | FactKind::Reopened(described)
    | FactKind::Edited(described)
    | FactKind::HeadMoved { described, .. } = kind
    {
        return Some(described);
    }
    None
}

/// Selects the pull requests that a fact concerns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PrSelector {
    Numbers(Vec<u64>),
    Head(Sha),
    Base(String),
}

/// Why a payload yields no fact.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ParseRejection {
    Ignored(String),
    /// A required field is missing.
    Malformed(String),
}

impl ParseRejection {
    pub(crate) fn ignored(why: impl Into<String>) -> Self {
        Self::Ignored(why.into())
    }

    pub(crate) fn missing(field: &str) -> Self {
        Self::Malformed(format!("`{field}` is missing or has the wrong type"))
    }
}

/// Context for all parsers.
pub(crate) struct ParseContext<'a> {
    pub(crate) id: &'a str,
    pub(crate) policies: &'a Policies,
    pub(crate) own: &'a BotIdentity,
}

impl ParseContext<'_> {
    fn event_id(&self) -> EventId {
        EventId::new(self.id)
    }
}

pub fn parse_delivery(delivery: &GithubDelivery<'_>, policies: &Policies, own: &BotIdentity) -> ParseOutcome {
    if !is_delivery_id(delivery.id) {
        let why = format!("the delivery id must have 1 to {MAX_DELIVERY_ID} characters: letters, digits and `-_.:`");
        return ParseOutcome::Malformed(why);
    }
    let ctx = ParseContext { id: delivery.id, policies, own };
    if let "installation" | "installation_repositories" | "installation_target" = delivery.event {
        return match parse(delivery.body) {
            Ok(event) => installation::read(&ctx, &event),
            Err(ParseRejection::Ignored(why)) => ParseOutcome::Ignored(why),
            Err(ParseRejection::Malformed(why)) => ParseOutcome::Malformed(why),
        };
    }
    match translate(&ctx, delivery) {
        Ok(webhook) => ParseOutcome::Parsed(Box::new(webhook)),
        Err(ParseRejection::Ignored(why)) => ParseOutcome::Ignored(why),
        Err(ParseRejection::Malformed(why)) => ParseOutcome::Malformed(why),
    }
}

fn translate(ctx: &ParseContext<'_>, delivery: &GithubDelivery<'_>) -> Result<ParsedWebhook, ParseRejection> {
    match delivery.event {
        "pull_request" => pull_request::read(ctx, &parse(delivery.body)?),
        "check_run" => check_run::read(ctx, &parse(delivery.body)?),
        "check_suite" => check_suite::read(ctx, &parse(delivery.body)?),
        "status" => status::read(ctx, &parse(delivery.body)?),
        "pull_request_review" => pull_request_review::read(ctx, &parse(delivery.body)?),
        "pull_request_review_comment" => issue_comment::read_review_comment(ctx, &parse(delivery.body)?),
        "issue_comment" => issue_comment::read(ctx, &parse(delivery.body)?),
        "push" => push::read(ctx, &parse(delivery.body)?),
        "merge_group" => Err(merge_group::read(&parse(delivery.body)?)),
        "ping" => Err(ping::read(&parse(delivery.body)?)),
        other => {
            // Every event is JSON; anything else is a misconfigured webhook, and 400 shows that in GitHub's delivery list.
            parse::<serde::de::IgnoredAny>(delivery.body)?;
            Err(ParseRejection::Ignored(format!("unhandled event `{}`", domain::event::truncate(other, 50))))
        }
    }
}

fn parse<'de, T: serde::Deserialize<'de>>(body: &'de [u8]) -> Result<T, ParseRejection> {
    serde_json::from_slice(body).map_err(|error| {
        let form = body.starts_with(b"payload=");
        ParseRejection::Malformed(if form {
            "the body is form-encoded: set the webhook's content type to `application/json`".to_owned()
        } else {
            // Only the position: payloads must not appear in logs.
            format!("the body is not the expected JSON: line {}, column {}", error.line(), error.column())
        })
    })
}

/// By number if the check lists pull requests of this repository, else by commit. The list may contain pull requests of other
/// repositories (forks) with the same head.
fn selector_for(
    repository: &LenientObject<Repository<'_>>,
    listed: &LenientList<LenientObject<Listed<'_>>>,
    head: Sha,
) -> PrSelector {
    let repo_id = repository.0.as_ref().and_then(|repository| repository.id.0);
    let is_in_repo =
        |pull: &&Listed<'_>| pull.base_repo().is_none() || repo_id.is_none() || pull.base_repo() == repo_id;
    let mut numbers: Vec<u64> = listed.0.iter().filter(is_in_repo).filter_map(|pull| pull.number.0).collect();
    numbers.sort_unstable();
    numbers.dedup();
    if numbers.is_empty() { PrSelector::Head(head) } else { PrSelector::Numbers(numbers) }
}

/// Whether one of the listed pull requests is managed by its branch. The list has neither authors nor labels.
fn lists_managed(
    policy: &Policy,
    repository: &LenientObject<Repository<'_>>,
    listed: &LenientList<LenientObject<Listed<'_>>>,
) -> bool {
    let Some(repo_id) = repository.0.as_ref().and_then(|repository| repository.id.0) else { return false };
    let in_repo = |pull: &&Listed<'_>| pull.base_repo() == Some(repo_id);
    listed.0.iter().filter(in_repo).any(|pull| policy.managed.matches(&pull.origin(), []))
}

fn report_on_commit(
    ctx: &ParseContext<'_>,
    repo: RepoName,
    (selector, managed): (PrSelector, bool),
    at: Timestamp,
    kind: FactKind,
) -> ParsedWebhook {
    let by_policy_bot = matches!(kind, FactKind::Policy { .. });
    let actor = if by_policy_bot { Actor::PolicyBot } else { Actor::GithubWebhook };
    let fact = WebhookFact { selector, id: ctx.event_id(), occurred_at: at, actor, kind, managed, described: None };
    ParsedWebhook { repo, fact: Some(fact), commands: Vec::new() }
}

fn short(status: &str, conclusion: &str) -> String {
    domain::event::truncate(format!("{status} {conclusion}").trim(), 50)
}

/// The id becomes part of a table key, so it must not contain the key separator `#`.
pub(crate) fn is_delivery_id(id: &str) -> bool {
    (1..=MAX_DELIVERY_ID).contains(&id.len())
        && id.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.' | b':'))
}

#[cfg(test)]
mod tests;
