//! Answering a checked query: one function per type. Repositories and their rules are in `repository`, pull requests in
//! `pull`, what hangs on commits in `commit`.

mod commit;
mod pull;
mod repository;

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::document::{Field, Selection, holds};
use super::schema::Size;
use crate::clock::stamp;
use crate::fakes::Fakes;
use crate::github::json::user_id;
use crate::github::model::{Numbered, PrIx, PullState};

/// Types that stand for several others: a fragment on one of them fits all.
const ABSTRACT: [&str; 6] =
    ["Node", "Actor", "StatusCheckRollupContext", "SearchResultItem", "RuleParameters", "GitObject"];

/// One query being answered.
pub(super) struct Answering<'a> {
    fakes: &'a Fakes,
    variables: &'a Map<String, Value>,
    size: Size,
    remaining: u64,
    reset: Timestamp,
    viewer: &'a str,
    pub(super) errors: Vec<Value>,
    /// Whose mergeability was asked: GitHub begins to work it out.
    pub(super) to_work_out: Vec<PrIx>,
}

impl<'a> Answering<'a> {
    pub(super) fn new(
        fakes: &'a Fakes,
        variables: &'a Map<String, Value>,
        size: Size,
        remaining: u64,
        reset: Timestamp,
        viewer: &'a str,
    ) -> Self {
        Self { fakes, variables, size, remaining, reset, viewer, errors: Vec::new(), to_work_out: Vec::new() }
    }

    pub(super) fn query(&mut self, list: &[Selection]) -> Value {
        self.select(list, "Query", &mut |it, field| match field.name.as_str() {
            "nodes" => {
                let ids = it.argument(field, "ids");
                let ids = ids.as_array().map_or(&[][..], Vec::as_slice);
                ids.iter().enumerate().map(|(place, id)| it.node(id, field, &json!([field.key, place]))).collect()
            }
            "node" => it.node(&it.argument(field, "id"), field, &json!([field.key])),
            "repository" => it.repository_named(field),
            "search" => it.search(field),
            "rateLimit" => it.rate_limit(&field.selections),
            "viewer" => actor(it, Some(it.viewer), &field.selections),
            _ => Value::Null,
        })
    }

    /// The answer to a pinning.
    pub(super) fn payload(&mut self, place: usize, list: &[Selection]) -> Value {
        self.select(list, "PinIssuePayload", &mut |it, field| match field.name.as_str() {
            "issue" => it.issue(place, &field.selections),
            _ => Value::Null,
        })
    }

    /// The answer to a reaction.
    pub(super) fn reacted(&mut self, content: &str, list: &[Selection]) -> Value {
        self.select(list, "AddReactionPayload", &mut |it, field| match field.name.as_str() {
            "reaction" => it.select(&field.selections, "Reaction", &mut |_, _| json!(content)),
            _ => Value::Null,
        })
    }

    fn argument(&self, field: &Field, name: &str) -> Value {
        field.argument(name, self.variables)
    }

    /// The wanted fields of one object.
    fn select(&mut self, list: &[Selection], kind: &str, resolve: &mut dyn FnMut(&mut Self, &Field) -> Value) -> Value {
        let mut found = Map::new();
        self.collect(list, kind, resolve, &mut found);
        Value::Object(found)
    }

    fn collect(
        &mut self,
        list: &[Selection],
        kind: &str,
        resolve: &mut dyn FnMut(&mut Self, &Field) -> Value,
        found: &mut Map<String, Value>,
    ) {
        for selection in list {
            match selection {
                Selection::Field(field) if !holds(&field.conditions, self.variables) => {}
                Selection::Field(field) if field.name == "__typename" => {
                    found.insert(field.key.clone(), json!(kind));
                }
                Selection::Field(field) => {
                    let value = resolve(self, field);
                    match found.get_mut(&field.key) {
                        Some(known) => merge(known, value),
                        None => {
                            found.insert(field.key.clone(), value);
                        }
                    }
                }
                Selection::On(narrowed, conditions, inner) => {
                    let fits = narrowed.as_deref().is_none_or(|name| name == kind || ABSTRACT.contains(&name));
                    if fits && holds(conditions, self.variables) {
                        self.collect(inner, kind, resolve, found);
                    }
                }
            }
        }
    }

    /// One page of a list. Cursors are places.
    fn connection<T: Copy>(
        &mut self,
        field: &Field,
        items: &[T],
        one: &mut dyn FnMut(&mut Self, T, &[Selection]) -> Value,
    ) -> Value {
        let place =
            |value: Value| value.as_str().and_then(|it| it.strip_prefix("c:")).and_then(|it| it.parse::<usize>().ok());
        let number = |value: Value| value.as_u64().and_then(|it| usize::try_from(it).ok());
        let mut from = place(self.argument(field, "after")).unwrap_or(0).min(items.len());
        let mut to = place(self.argument(field, "before"))
            .map_or(items.len(), |it| it.saturating_sub(1))
            .max(from)
            .min(items.len());
        if let Some(first) = number(self.argument(field, "first")) {
            to = to.min(from + first);
        } else if let Some(last) = number(self.argument(field, "last")) {
            from = from.max(to.saturating_sub(last));
        }
        let total = items.len();
        let cursor = |place: usize| format!("c:{place}");
        self.select(&field.selections, "Connection", &mut |it, part| match part.name.as_str() {
            "totalCount" | "issueCount" => json!(total),
            "nodes" => items[from..to].iter().map(|item| one(it, *item, &part.selections)).collect(),
            "edges" => {
                let edge = |(place, item): (usize, &T)| {
                    it.select(&part.selections, "Edge", &mut |it, field| match field.name.as_str() {
                        "cursor" => json!(cursor(place + 1)),
                        _ => one(it, *item, &field.selections),
                    })
                };
                items[from..to].iter().enumerate().map(|(place, item)| (from + place, item)).map(edge).collect()
            }
            "pageInfo" => it.select(&part.selections, "PageInfo", &mut |_, field| match field.name.as_str() {
                "hasNextPage" => json!(to < total),
                "hasPreviousPage" => json!(from > 0),
                "startCursor" => json!((from < to).then(|| cursor(from + 1))),
                _ => json!((from < to).then(|| cursor(to))),
            }),
            _ => Value::Null,
        })
    }

    fn node(&mut self, id: &Value, field: &Field, path: &Value) -> Value {
        let id = id.as_str().unwrap_or_default();
        match self.fakes.github.by_node.get(id).copied() {
            Some(Numbered::Pull(ix)) => self.pull(ix, &field.selections),
            Some(Numbered::Issue(place)) => self.issue(place, &field.selections),
            None => {
                let message = format!("Could not resolve to a node with the global id of '{id}'");
                self.errors.push(json!({"type": "NOT_FOUND", "path": path, "message": message}));
                Value::Null
            }
        }
    }

    /// `search(type: ISSUE)`, by the words that find pull requests.
    fn search(&mut self, field: &Field) -> Value {
        let text = self.argument(field, "query").as_str().unwrap_or_default().to_owned();
        let fakes = self.fakes;
        let fits = |ix: &PrIx| {
            let pull = fakes.github.pull(*ix);
            let repo = fakes.github.repo(pull.repo);
            text.split_whitespace().all(|word| match word.split_once(':') {
                Some(("repo", name)) => name.eq_ignore_ascii_case(&repo.settings.name),
                Some(("org" | "user", name)) => name.eq_ignore_ascii_case(&repo.owner),
                Some(("is" | "state", "open")) => pull.is_open(),
                Some(("is" | "state", "closed")) => !pull.is_open(),
                Some(("is", "merged")) => pull.state == PullState::Merged,
                Some(("is", "issue")) => false,
                Some(("author", name)) => match name.strip_prefix("app/") {
                    Some(app) => pull.author == format!("{app}[bot]"),
                    None => pull.author == name,
                },
                Some(("label", name)) => pull.labels.iter().any(|label| label == name.trim_matches('"')),
                Some(("head", name)) => pull.head_ref.starts_with(name),
                Some(("base", name)) => pull.base_ref == name,
                Some(_) => true,
                None => pull.title.contains(word) || pull.body.contains(word),
            })
        };
        // Search shows a thousand and no more, newest first.
        let found: Vec<PrIx> = (0..fakes.github.pulls.len()).rev().map(PrIx).filter(fits).take(1_000).collect();
        self.connection(field, &found, &mut |it, pr, list| it.pull(pr, list))
    }

    fn rate_limit(&mut self, list: &[Selection]) -> Value {
        let limit = self.fakes.settings.graphql_limit;
        let (size, remaining, reset) = (self.size, self.remaining, self.reset);
        self.select(list, "RateLimit", &mut |_, field| match field.name.as_str() {
            "cost" => json!(size.cost()),
            "limit" => json!(limit),
            "nodeCount" => json!(size.nodes),
            "remaining" => json!(remaining),
            "used" => json!(limit.saturating_sub(remaining)),
            _ => json!(stamp(reset)),
        })
    }

    fn issue(&mut self, place: usize, list: &[Selection]) -> Value {
        let issue = &self.fakes.github.issues[place];
        let url = format!("{}/issues/{}", self.fakes.repo_html(issue.repo), issue.number);
        self.select(list, "Issue", &mut |it, field| match field.name.as_str() {
            "id" => json!(issue.node_id),
            "databaseId" => json!(issue.id),
            "number" => json!(issue.number),
            "title" => json!(issue.title),
            "body" => json!(issue.body),
            "state" => json!(if issue.open { "OPEN" } else { "CLOSED" }),
            "closed" => json!(!issue.open),
            "isPinned" => json!(issue.pinned),
            "url" => json!(url),
            "createdAt" => json!(stamp(issue.created_at)),
            "updatedAt" => json!(stamp(issue.updated_at)),
            "author" => actor(it, Some(&issue.user), &field.selections),
            "labels" => it.labels(field, &issue.labels),
            _ => Value::Null,
        })
    }

    fn labels(&mut self, field: &Field, names: &[String]) -> Value {
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        self.connection(field, &names, &mut |it, name, list| {
            it.select(list, "Label", &mut |_, field| match field.name.as_str() {
                "name" => json!(name),
                "color" => json!("ededed"),
                _ => json!(format!("LA_{}", user_id(name))),
            })
        })
    }
}

/// GraphQL's word for a state.
fn state(state: PullState) -> &'static str {
    match state {
        PullState::Open => "OPEN",
        PullState::Closed => "CLOSED",
        PullState::Merged => "MERGED",
    }
}

/// An account. GraphQL leaves the `[bot]` off.
fn actor(it: &mut Answering<'_>, login: Option<&str>, list: &[Selection]) -> Value {
    let Some(login) = login else { return Value::Null };
    let name = login.strip_suffix("[bot]");
    let kind = if name.is_some() { "Bot" } else { "User" };
    let shown = name.unwrap_or(login);
    it.select(list, kind, &mut |_, field| match field.name.as_str() {
        "login" | "name" => json!(shown),
        "databaseId" => json!(user_id(login)),
        "id" => json!(format!("U_{}", user_id(login))),
        "resourcePath" => json!(format!("/{shown}")),
        _ => json!(format!("https://github.com/{shown}")),
    })
}

/// The same field asked twice is answered once, with what both asked for.
fn merge(known: &mut Value, more: Value) {
    match (known, more) {
        (Value::Object(known), Value::Object(more)) => {
            for (name, value) in more {
                match known.get_mut(&name) {
                    Some(known) => merge(known, value),
                    None => {
                        known.insert(name, value);
                    }
                }
            }
        }
        (Value::Array(known), Value::Array(more)) => {
            for (known, more) in known.iter_mut().zip(more) {
                merge(known, more);
            }
        }
        (known, more) => *known = more,
    }
}
