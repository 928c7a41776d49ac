//! Answering a checked query: one function per type. What hangs on commits is in `commit`, pull requests are in `pull`.

mod commit;
mod pull;

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::document::{Field, Selection, holds};
use super::schema::Size;
use crate::clock::stamp;
use crate::github::json::user_id;
use crate::github::model::{Numbered, PrIx, PullState, RepoIx};
use crate::settings::Protection;
use crate::world::World;

/// Types that stand for several others: a fragment on one of them fits all.
const ABSTRACT: [&str; 6] =
    ["Node", "Actor", "StatusCheckRollupContext", "SearchResultItem", "RuleParameters", "GitObject"];

/// One query being answered.
pub(super) struct Answering<'a> {
    world: &'a World,
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
        world: &'a World,
        variables: &'a Map<String, Value>,
        size: Size,
        remaining: u64,
        reset: Timestamp,
        viewer: &'a str,
    ) -> Self {
        Self { world, variables, size, remaining, reset, viewer, errors: Vec::new(), to_work_out: Vec::new() }
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
        match self.world.github.by_node.get(id).copied() {
            Some(Numbered::Pull(ix)) => self.pull(ix, &field.selections),
            Some(Numbered::Issue(place)) => self.issue(place, &field.selections),
            None => {
                let message = format!("Could not resolve to a node with the global id of '{id}'");
                self.errors.push(json!({"type": "NOT_FOUND", "path": path, "message": message}));
                Value::Null
            }
        }
    }

    fn repository_named(&mut self, field: &Field) -> Value {
        let text = |name: &str| self.argument(field, name).as_str().unwrap_or_default().to_owned();
        let name = format!("{}/{}", text("owner"), text("name"));
        match self.world.repo_ix(&name) {
            Some(repo) => self.repository(repo, &field.selections),
            None => {
                let message = format!("Could not resolve to a Repository with the name '{name}'.");
                self.errors.push(json!({"type": "NOT_FOUND", "path": [field.key], "message": message}));
                Value::Null
            }
        }
    }

    fn repository(&mut self, ix: RepoIx, list: &[Selection]) -> Value {
        let world = self.world;
        let repo = world.github.repo(ix);
        self.select(list, "Repository", &mut |it, field| match field.name.as_str() {
            "id" => json!(format!("R_{}", repo.id)),
            "databaseId" => json!(repo.id),
            "name" => json!(repo.name),
            "nameWithOwner" => json!(repo.settings.name),
            "isArchived" => json!(false),
            "isPrivate" => json!(true),
            "url" => json!(world.repo_html(ix)),
            "owner" => it.select(&field.selections, "Organization", &mut |_, _| json!(repo.owner)),
            "defaultBranchRef" => it.base_ref(ix, None, &field.selections),
            "ref" => {
                let wanted = it.argument(field, "qualifiedName");
                let wanted = wanted.as_str().unwrap_or_default();
                match wanted.strip_prefix("refs/heads/").unwrap_or(wanted) == repo.settings.base {
                    true => it.base_ref(ix, None, &field.selections),
                    false => Value::Null,
                }
            }
            "pullRequest" => {
                match it.argument(field, "number").as_u64().and_then(|number| world.github.pull_at(ix, number)) {
                    Some(pr) => it.pull(pr, &field.selections),
                    None => it.no_pull(field),
                }
            }
            "pullRequests" => {
                let found = it.wanted_pulls(ix, field);
                it.connection(field, &found, &mut |it, pr, list| it.pull(pr, list))
            }
            "issue" => match it.argument(field, "number").as_u64().and_then(|number| world.github.numbered(ix, number))
            {
                Some(Numbered::Issue(place)) => it.issue(place, &field.selections),
                Some(Numbered::Pull(_)) | None => Value::Null,
            },
            "issues" => {
                let found: Vec<usize> =
                    (0..world.github.issues.len()).filter(|place| world.github.issues[*place].repo == ix).collect();
                it.connection(field, &found, &mut |it, place, list| it.issue(place, list))
            }
            "pinnedIssues" => {
                let pinned =
                    |place: &usize| world.github.issues[*place].repo == ix && world.github.issues[*place].pinned;
                let found: Vec<usize> = (0..world.github.issues.len()).filter(pinned).collect();
                it.connection(field, &found, &mut |it, place, list| {
                    it.select(list, "PinnedIssue", &mut |it, field| match field.name.as_str() {
                        "issue" => it.issue(place, &field.selections),
                        _ => json!(format!("PI_{place}")),
                    })
                })
            }
            _ => Value::Null,
        })
    }

    fn no_pull(&mut self, field: &Field) -> Value {
        let number = self.argument(field, "number");
        let message = format!("Could not resolve to a PullRequest with the number of {number}.");
        self.errors.push(json!({"type": "NOT_FOUND", "path": ["repository", field.key], "message": message}));
        Value::Null
    }

    /// `pullRequests(states, headRefName, baseRefName, labels, orderBy)`.
    fn wanted_pulls(&self, repo: RepoIx, field: &Field) -> Vec<PrIx> {
        let world = self.world;
        let list = |name: &str| match self.argument(field, name) {
            Value::Null => None,
            Value::Array(items) => Some(items),
            one @ (Value::String(_) | Value::Bool(_) | Value::Number(_) | Value::Object(_)) => Some(vec![one]),
        };
        let (states, labels) = (list("states"), list("labels"));
        let named = |name: &str, own: &str| self.argument(field, name).as_str().is_none_or(|wanted| wanted == own);
        let wanted = |ix: &PrIx| {
            let pull = world.github.pull(*ix);
            states.as_ref().is_none_or(|states| states.contains(&json!(state(pull.state))))
                && labels.as_ref().is_none_or(|labels| pull.labels.iter().any(|own| labels.contains(&json!(own))))
                && named("headRefName", &pull.head_ref)
                && named("baseRefName", &pull.base_ref)
        };
        let only_open = states.as_ref().is_some_and(|states| *states == [json!("OPEN")]);
        let mut found: Vec<PrIx> = match only_open {
            true => world.open_pulls[repo.0].iter().copied().filter(wanted).collect(),
            false => world.github.pulls_of(repo).filter(wanted).collect(),
        };
        let order = self.argument(field, "orderBy");
        if order["field"] == "UPDATED_AT" {
            found.sort_by_key(|ix| world.github.pull(*ix).updated_at);
        }
        if order["direction"] == "DESC" {
            found.reverse();
        }
        found
    }

    /// `search(type: ISSUE)`, by the words that find pull requests.
    fn search(&mut self, field: &Field) -> Value {
        let text = self.argument(field, "query").as_str().unwrap_or_default().to_owned();
        let world = self.world;
        let fits = |ix: &PrIx| {
            let pull = world.github.pull(*ix);
            let repo = world.github.repo(pull.repo);
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
        let found: Vec<PrIx> = (0..world.github.pulls.len()).rev().map(PrIx).filter(fits).take(1_000).collect();
        self.connection(field, &found, &mut |it, pr, list| it.pull(pr, list))
    }

    fn rate_limit(&mut self, list: &[Selection]) -> Value {
        let limit = self.world.settings.graphql_limit;
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
        let issue = &self.world.github.issues[place];
        let url = format!("{}/issues/{}", self.world.repo_html(issue.repo), issue.number);
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

    /// The base branch; `head` is the pull request it is asked through.
    fn base_ref(&mut self, ix: RepoIx, head: Option<PrIx>, list: &[Selection]) -> Value {
        let world = self.world;
        let settings = &world.github.repo(ix).settings;
        let contexts = || settings.required_contexts().into_iter().map(|it| it.context).collect::<Vec<_>>();
        self.select(list, "Ref", &mut |it, field| match field.name.as_str() {
            "id" => json!(format!("REF_{}", world.github.repo(ix).id)),
            "name" => json!(settings.base),
            "prefix" => json!("refs/heads/"),
            "target" => it.commit(ix, &world.github.base_tip(ix), &field.selections),
            "branchProtectionRule" if settings.protection != Protection::Classic => Value::Null,
            "branchProtectionRule" => {
                it.select(&field.selections, "BranchProtectionRule", &mut |it, field| match field.name.as_str() {
                    "id" => json!("BPR_1"),
                    "pattern" => json!(settings.base),
                    "requiredStatusCheckContexts" => json!(contexts()),
                    "requiresStrictStatusChecks" => json!(settings.strict),
                    "requiredApprovingReviewCount" => json!(1),
                    "dismissesStaleReviews" => json!(settings.dismiss_stale_reviews),
                    "requiredStatusChecks" => {
                        let required = settings.required_contexts();
                        let one = |one: &crate::settings::Required| {
                            it.select(&field.selections, "RequiredStatusCheckDescription", &mut |it, field| match field
                                .name
                                .as_str()
                            {
                                "context" => json!(one.context),
                                _ => one.app_id.map_or(Value::Null, |id| it.app(id, "", &field.selections)),
                            })
                        };
                        required.iter().map(one).collect()
                    }
                    _ => json!(true),
                })
            }
            "refUpdateRule" if settings.protection == Protection::None => Value::Null,
            "refUpdateRule" => {
                it.select(&field.selections, "RefUpdateRule", &mut |_, field| match field.name.as_str() {
                    "requiredStatusCheckContexts" => json!(contexts()),
                    "requiredApprovingReviewCount" => json!(1),
                    "pattern" => json!(settings.base),
                    _ => json!(false),
                })
            }
            "rules" => {
                let rules: &[&str] = if settings.protection == Protection::Ruleset {
                    &["DELETION", "REQUIRED_STATUS_CHECKS"]
                } else {
                    &[]
                };
                it.connection(field, rules, &mut |it, rule, list| it.rule(ix, rule, list))
            }
            "compare" => it.compare(ix, head, field),
            _ => Value::Null,
        })
    }

    fn rule(&mut self, ix: RepoIx, rule: &str, list: &[Selection]) -> Value {
        let settings = &self.world.github.repo(ix).settings;
        self.select(list, "RepositoryRule", &mut |it, field| match field.name.as_str() {
            "id" => json!(format!("RR_{rule}")),
            "type" => json!(rule),
            _ if rule != "REQUIRED_STATUS_CHECKS" => Value::Null,
            _ => it.select(&field.selections, "RequiredStatusChecksParameters", &mut |it, field| match field
                .name
                .as_str()
            {
                "strictRequiredStatusChecksPolicy" => json!(settings.strict),
                "requiredStatusChecks" => {
                    let one = |one: &crate::settings::Required| {
                        it.select(&field.selections, "StatusCheckConfiguration", &mut |_, field| match field
                            .name
                            .as_str()
                        {
                            "context" => json!(one.context),
                            _ => json!(one.app_id),
                        })
                    };
                    settings.required_contexts().iter().map(one).collect()
                }
                _ => json!(false),
            }),
        })
    }

    /// `compare(headRef:)`, from the base.
    fn compare(&mut self, repo: RepoIx, head: Option<PrIx>, field: &Field) -> Value {
        let wanted = self.argument(field, "headRef");
        let wanted = wanted.as_str().unwrap_or_default();
        let world = self.world;
        let named = |ix: &PrIx| world.github.pull(*ix).head_ref == wanted || **world.github.pull(*ix).head() == *wanted;
        let Some(ix) = head.filter(named).or_else(|| world.github.pulls_of(repo).rev().find(named)) else {
            return Value::Null;
        };
        let (behind, ahead) = (world.github.behind_by(ix), world.github.pull(ix).commits.len());
        self.select(&field.selections, "Comparison", &mut |_, field| match field.name.as_str() {
            "aheadBy" => json!(ahead),
            "behindBy" => json!(behind),
            "status" => json!(if behind > 0 { "DIVERGED" } else { "AHEAD" }),
            _ => json!("CMP_1"),
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
