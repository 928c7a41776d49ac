//! `POST /graphql`: responds to the operations that clients send, by name, with the fields each of them selects.
//! Documents are not parsed here; the client's tests check them against GitHub's published schema. An unknown operation
//! is rejected and recorded for [`Fakes::unknown_requests`].

use serde_json::{Map, Value, json};

use super::access::ApiIdentity;
use super::commit::{CommitReports, FakeCheckRun, FakeStatus};
use super::json::extend;
use super::model::{FakeReaction, PrIx, PullOrIssue, PullState, RepoIx};
use crate::audit::AuditedAction;
use crate::clock::stamp;
use crate::fakes::Fakes;
use crate::http_api::{ApiRequest, ApiResponse};
use crate::settings::{FakeBot, ProtectionSource};

const BROKEN: &str = "Something went wrong while executing your query. This may be the result of a timeout, or it could be a GitHub bug.";
/// GitHub's limit of `nodes(ids:)`, and of a connection's `first`.
const MOST: usize = 100;

/// Names of reactions in GraphQL and in REST.
const REACTIONS: [(&str, &str); 8] = [
    ("THUMBS_UP", "+1"),
    ("THUMBS_DOWN", "-1"),
    ("LAUGH", "laugh"),
    ("CONFUSED", "confused"),
    ("HEART", "heart"),
    ("HOORAY", "hooray"),
    ("ROCKET", "rocket"),
    ("EYES", "eyes"),
];

/// Type and message of an error.
type GraphqlFailure = (&'static str, String);

/// Nodes and connections of an operation, as GitHub counts them; `None` if the operation is unknown.
fn size(operation: &str, ids: u64) -> Option<(u64, u64)> {
    Some(match operation {
        // Per pull request: labels, reviews, rules, one commit, and its contexts.
        "PullRequests" => (ids * (1 + 100 + 50 + 50 + 1 + 100), ids * 5),
        "Mergeable" => (ids, 0),
        "Contexts" => (1 + 100, 2),
        // Labels of each of 100 pull requests.
        "OpenPullRequests" | "ClosedPullRequests" => (100 + 100 * 100, 1 + 100),
        "Comparisons" | "AddReaction" | "PinIssue" => (0, 0),
        _ => return None,
    })
}

/// The operation name of a document: the word after `query` or `mutation`.
fn operation_name(document: &str) -> &str {
    let line = document.lines().find(|line| line.starts_with("query") || line.starts_with("mutation"));
    let name = line.and_then(|line| line.split_once(' ')).map_or("", |(_, rest)| rest);
    name.split(|c: char| !c.is_ascii_alphanumeric()).next().unwrap_or_default()
}

/// A failed request: status 200, with an error and no data.
fn error_response(error: &Value) -> ApiResponse {
    ApiResponse::ok(&json!({"errors": [error]}))
}

fn no_node(id: &str) -> GraphqlFailure {
    ("NOT_FOUND", format!("Could not resolve to a node with the global id of '{id}'"))
}

impl Fakes {
    pub(crate) fn graphql(
        &mut self,
        request: &ApiRequest,
        key: &str,
        caller: &ApiIdentity,
        partial: bool,
    ) -> ApiResponse {
        let Some(document) = request.text("query") else {
            return ApiResponse::error(400, "A query attribute must be specified and must be a string.");
        };
        let (operation, variables) = (operation_name(document), &request.json["variables"]);
        let ids = variables["ids"].as_array().map_or(&[][..], Vec::as_slice);
        if ids.len() > MOST {
            let message = "You may not provide more than 100 node ids; you provided too many";
            return error_response(&json!({"message": message, "extensions": {"code": "ARGUMENT_LIMIT"}}));
        }
        let Some((nodes, connections)) = size(operation, ids.len() as u64) else {
            self.unknown_requests.push(format!("graphql: {operation}"));
            return error_response(
                &json!({"message": format!("Unknown operation '{operation}'"), "extensions": {"code": "undefinedField"}}),
            );
        };
        if nodes > self.settings.graphql_502_above {
            return ApiResponse::json(502, &json!({"data": null, "errors": [{"message": BROKEN}]}));
        }
        let cost = (connections / 100).max(1);
        if !self.spend_graphql(key, cost) {
            return error_response(&json!({"type": "RATE_LIMITED", "message": "API rate limit exceeded"}));
        }
        if let "AddReaction" | "PinIssue" = operation {
            return self.mutation(operation, variables, caller);
        }
        let mut errors = Vec::new();
        let mut data = self.query(operation, variables, ids, &mut errors);
        let (remaining, reset) = self.graphql_left(key);
        data["rateLimit"] = json!({"cost": cost, "remaining": remaining, "resetAt": stamp(reset)});
        // Selecting `mergeable` makes GitHub compute it for the next query.
        for id in ids {
            if let Some(PullOrIssue::Pull(ix)) = self.node(id) {
                self.ask_mergeability(ix);
            }
        }
        if partial && let Some(first) = data["nodes"].as_array_mut().and_then(|nodes| nodes.first_mut()) {
            *first = Value::Null;
            errors.push(json!({"message": BROKEN, "path": ["nodes", 0]}));
        }
        respond(data, errors)
    }

    fn query(&self, operation: &str, variables: &Value, ids: &[Value], errors: &mut Vec<Value>) -> Value {
        let mut one = |id: &Value, path: Value, fields: &dyn Fn(PrIx) -> Value| match self.node(id) {
            Some(PullOrIssue::Pull(ix)) => fields(ix),
            Some(PullOrIssue::Issue(_)) => json!({"__typename": "Issue"}),
            None => {
                let (kind, message) = no_node(id.as_str().unwrap_or_default());
                errors.push(json!({"type": kind, "path": path, "message": message}));
                Value::Null
            }
        };
        let mut nodes = |fields: &dyn Fn(PrIx) -> Value| {
            ids.iter().enumerate().map(|(place, id)| one(id, json!(["nodes", place]), fields)).collect::<Value>()
        };
        match operation {
            "PullRequests" => json!({"nodes": nodes(&|ix| self.pull_request(ix))}),
            "Mergeable" => json!({"nodes": nodes(&|ix| self.mergeability(ix))}),
            "Contexts" => {
                let after = variables["after"].as_str();
                let fields = |ix| json!({"__typename": "PullRequest", "commits": self.head_commit(ix, after, true)});
                json!({"node": one(&variables["id"], json!(["node"]), &fields)})
            }
            _ => {
                let text = |name: &str| variables[name].as_str().unwrap_or_default();
                let name = format!("{}/{}", text("owner"), text("name"));
                let Some(repo) = self.repo_ix(&name) else {
                    let message = format!("Could not resolve to a Repository with the name '{name}'.");
                    errors.push(json!({"type": "NOT_FOUND", "path": ["repository"], "message": message}));
                    return json!({"repository": null});
                };
                match operation {
                    "OpenPullRequests" => {
                        let open = self.open_pulls[repo.0].iter().copied();
                        json!({"repository": self.pull_requests(open.collect(), variables)})
                    }
                    "ClosedPullRequests" => {
                        let closed = self.github.pulls_of(repo).rev().filter(|ix| !self.github.pull(*ix).is_open());
                        json!({"repository": self.pull_requests(closed.collect(), variables)})
                    }
                    _ => json!({"repository": self.comparisons(repo, variables, errors)}),
                }
            }
        }
    }

    fn node(&self, id: &Value) -> Option<PullOrIssue> {
        self.github.by_node.get(id.as_str()?).copied()
    }

    fn pull_request(&self, ix: PrIx) -> Value {
        let pull = self.github.pull(ix);
        let merged = pull.state == PullState::Merged;
        let review = |place: usize| {
            let review = &pull.reviews[place];
            json!({"state": review.state.name(), "submittedAt": stamp(review.submitted_at), "author": actor(&review.user),
                   "commit": {"oid": review.commit}})
        };
        let mut fields = self.mergeability(ix);
        let more = json!({
            "number": pull.number, "url": self.pull_html(pull.repo, pull.number), "title": pull.title, "body": pull.body, "isDraft": pull.draft,
            "isCrossRepository": pull.fork, "author": actor(&pull.author),
            "createdAt": stamp(pull.created_at), "closedAt": pull.closed_at.map(stamp),
            "mergedAt": pull.closed_at.filter(|_| merged).map(stamp), "additions": 12, "deletions": 3,
            "headRefName": pull.head_ref, "baseRefName": pull.base_ref,
            "repository": {"nameWithOwner": self.github.repo(pull.repo).settings.name},
            "mergedBy": pull.merged_by.as_deref().map(actor),
            "mergeQueueEntry": pull.queued_at.map(|at| json!(
                {"state": "AWAITING_CHECKS", "enqueuedAt": stamp(at), "enqueuer": actor(FakeBot::Automerge.login())})),
            "autoMergeRequest": pull.auto_merge.as_ref().map(|(login, at)| json!(
                {"enabledAt": stamp(*at), "enabledBy": actor(login)})),
            "labels": connection(&pull.labels, None, MOST, |name| json!({"name": name})),
            "latestOpinionatedReviews": connection(self.latest_opinions(ix), None, 50, review),
            "baseRef": self.base_ref(pull.repo),
            "commits": self.head_commit(ix, None, false),
        });
        extend(&mut fields, more);
        fields
    }

    /// The fields of `Mergeable`, which `PullRequests` selects as well.
    fn mergeability(&self, ix: PrIx) -> Value {
        let pull = self.github.pull(ix);
        let mergeable = match self.mergeable(ix).filter(|_| pull.is_open()) {
            None => "UNKNOWN",
            Some(true) => "MERGEABLE",
            Some(false) => "CONFLICTING",
        };
        let state = match pull.state {
            PullState::Open => "OPEN",
            PullState::Closed => "CLOSED",
            PullState::Merged => "MERGED",
        };
        json!({"__typename": "PullRequest", "id": pull.node_id, "state": state, "headRefOid": pull.head(),
               "mergeable": mergeable, "mergeStateStatus": self.merge_state(ix).name()})
    }

    fn base_ref(&self, repo: RepoIx) -> Value {
        let settings = &self.github.repo(repo).settings;
        let contexts: Vec<String> = settings.required_contexts().into_iter().map(|it| it.context).collect();
        let protected = settings.protection != ProtectionSource::None;
        let classic = settings.protection == ProtectionSource::Classic;
        let required: Value = contexts.iter().map(|context| json!({"context": context})).collect();
        let mut rules = Vec::new();
        if settings.protection == ProtectionSource::Ruleset {
            let parameters =
                json!({"strictRequiredStatusChecksPolicy": settings.strict, "requiredStatusChecks": required});
            rules.push(json!({"type": "DELETION", "parameters": null}));
            rules.push(json!({"type": "REQUIRED_STATUS_CHECKS", "parameters": parameters}));
        }
        json!({
            "branchProtectionRule": classic.then(|| json!(
                {"requiredStatusCheckContexts": contexts, "requiresStrictStatusChecks": settings.strict})),
            "refUpdateRule": protected.then(|| json!({"requiredStatusCheckContexts": contexts})),
            "rules": connection(rules, None, 50, |rule| rule),
        })
    }

    /// `commits(last: 1)`: the head and a page of its statuses and check runs. Without any, the rollup is null.
    fn head_commit(&self, ix: PrIx, after: Option<&str>, with_required: bool) -> Value {
        let pull = self.github.pull(ix);
        let checks = self.github.reported(ix).map_or_else(Vec::new, CommitReports::current_checks);
        let statuses = self.github.reported(ix).map_or_else(Vec::new, CommitReports::current_statuses);
        let required = self.github.repo(pull.repo).settings.required_contexts();
        let is_required = |name: &str, app: Option<u64>| {
            required.iter().any(|it| it.context == name && it.app_id.is_none_or(|id| app.is_none_or(|own| own == id)))
        };
        let check =
            |check: &&FakeCheckRun| (self.check_run(pull.repo, check), is_required(&check.name, Some(check.app_id)));
        let status = |status: &&FakeStatus| (status_context(status), is_required(&status.context, None));
        let contexts: Vec<(Value, bool)> = checks.iter().map(check).chain(statuses.iter().map(status)).collect();
        let context = |(mut fields, required): (Value, bool)| {
            if with_required {
                fields["isRequired"] = json!(required);
            }
            fields
        };
        let rollup = (!contexts.is_empty()).then(|| json!({"contexts": connection(contexts, after, MOST, context)}));
        json!({"nodes": [{"commit": {"oid": pull.head(), "statusCheckRollup": rollup}}]})
    }

    fn check_run(&self, repo: RepoIx, check: &FakeCheckRun) -> Value {
        let text = |given: &str| (!given.is_empty()).then(|| given.to_owned());
        let started = check.started_at.map(stamp);
        let completed = check.completed_at.map(stamp);
        json!({
            "__typename": "CheckRun", "databaseId": check.id,
            "resourcePath": format!("/{}/runs/{}", self.github.repo(repo).settings.name, check.id), "name": check.name,
            "status": check.status.to_ascii_uppercase(),
            "conclusion": check.conclusion.as_ref().map(|it| it.to_ascii_uppercase()),
            "startedAt": started, "completedAt": completed,
            "title": text(&check.title), "summary": text(&check.summary), "text": text(&check.text),
            "checkSuite": {"createdAt": started, "updatedAt": completed.as_ref().or(started.as_ref()),
                           "app": {"databaseId": check.app_id, "slug": check.app_slug}},
        })
    }

    fn pull_requests(&self, listed: Vec<PrIx>, variables: &Value) -> Value {
        let fields = |ix: PrIx| {
            let pull = self.github.pull(ix);
            let labels: Value = pull.labels.iter().map(|name| json!({"name": name})).collect();
            json!({"id": pull.node_id, "number": pull.number, "url": self.pull_html(pull.repo, pull.number), "title": pull.title, "body": pull.body, "isDraft": pull.draft,
                   "isCrossRepository": pull.fork,
                   "createdAt": stamp(pull.created_at), "updatedAt": stamp(pull.updated_at), "additions": 12, "deletions": 3,
                   "headRefName": pull.head_ref, "headRefOid": pull.head(), "baseRefName": pull.base_ref,
                   "author": actor(&pull.author), "labels": {"nodes": labels}})
        };
        json!({"pullRequests": connection(listed, variables["after"].as_str(), MOST, fields)})
    }

    /// `h0: compare(headRef: $h0) { behindBy }` and so on; the aliases are the names of the variables.
    fn comparisons(&self, repo: RepoIx, variables: &Value, errors: &mut Vec<Value>) -> Value {
        let base = variables["base"].as_str().unwrap_or_default();
        if base.strip_prefix("refs/heads/").unwrap_or(base) != self.github.repo(repo).settings.base {
            return json!({"ref": null});
        }
        let is_alias = |name: &str| name.strip_prefix('h').is_some_and(|rest| rest.parse::<u32>().is_ok());
        let mut compared = Map::new();
        for (alias, head) in variables.as_object().into_iter().flatten().filter(|(name, _)| is_alias(name)) {
            let head = head.as_str().unwrap_or_default();
            let named = |ix: &PrIx| self.github.pull(*ix).head_ref == head || **self.github.pull(*ix).head() == *head;
            let found = self.github.pulls_of(repo).rev().find(named);
            if found.is_none() {
                let message = format!("Could not resolve to a Ref or Commit with the name {head}.");
                errors.push(json!({"type": "NOT_FOUND", "path": ["repository", "ref", alias], "message": message}));
            }
            compared
                .insert(alias.clone(), found.map_or(Value::Null, |ix| json!({"behindBy": self.github.behind_by(ix)})));
        }
        json!({"ref": compared})
    }

    fn mutation(&mut self, operation: &str, variables: &Value, caller: &ApiIdentity) -> ApiResponse {
        let text = |name: &str| variables[name].as_str().unwrap_or_default();
        let (field, done) = match operation {
            "AddReaction" => ("addReaction", self.add_reaction(text("subject"), text("content"), caller.login())),
            _ => ("pinIssue", self.pin_issue(text("issue"), caller.login())),
        };
        match done {
            Ok(value) => respond(json!({field: value}), Vec::new()),
            Err((kind, message)) => {
                respond(json!({field: null}), vec![json!({"type": kind, "path": [field], "message": message})])
            }
        }
    }

    fn pin_issue(&mut self, id: &str, by: &str) -> Result<Value, GraphqlFailure> {
        let Some(PullOrIssue::Issue(place)) = self.github.by_node.get(id).copied() else { return Err(no_node(id)) };
        let (repo, number) = (self.github.issues[place].repo, self.github.issues[place].number);
        let pinned = self.github.issues.iter().filter(|issue| issue.repo == repo && issue.pinned).count();
        if pinned >= 3 && !self.github.issues[place].pinned {
            return Err(("UNPROCESSABLE", "Maximum 3 pinned issues per repository".to_owned()));
        }
        self.github.issues[place].pinned = true;
        let pr = self.pr_named(repo, number);
        self.log(by, AuditedAction::IssuePinned, Some(pr), None, "pinIssue");
        Ok(json!({"issue": {"id": id}}))
    }

    /// Adds a reaction to a comment or a review (REST cannot react to reviews). A repeated reaction of the same kind is
    /// ignored.
    fn add_reaction(&mut self, id: &str, word: &str, by: &str) -> Result<Value, GraphqlFailure> {
        let Some((word, content)) = REACTIONS.iter().find(|(known, _)| *known == word) else {
            return Err(("UNPROCESSABLE", format!("'{word}' is not a ReactionContent")));
        };
        let number = |prefix: &str| id.strip_prefix(prefix).and_then(|number| number.parse::<u64>().ok());
        if let Some(place) =
            number("IC_").and_then(|id| self.github.comments.binary_search_by_key(&id, |it| it.id).ok())
        {
            self.react(place, by, content);
        } else if let Some((ix, place)) = number("PRR_").and_then(|id| self.github.by_review.get(&id).copied()) {
            let known = &self.github.pull(ix).reviews[place].reactions;
            if !known.iter().any(|it| it.user == by && it.content == *content) {
                let reaction =
                    FakeReaction { id: self.github.id(), user: by.to_owned(), content: (*content).to_owned() };
                self.github.pulls[ix.0].reviews[place].reactions.push(reaction);
                self.note(by, AuditedAction::ReactionAdded, ix, format!("{content} on review"));
            }
        } else {
            return Err(no_node(id));
        }
        Ok(json!({"reaction": {"content": word}}))
    }
}

/// A response with data, and with `errors` if there are any.
fn respond(data: Value, errors: Vec<Value>) -> ApiResponse {
    let mut body = json!({"data": data});
    if !errors.is_empty() {
        body["errors"] = Value::Array(errors);
    }
    ApiResponse::ok(&body)
}

/// One page of a list. Cursors are indexes.
fn connection<I: IntoIterator<IntoIter: ExactSizeIterator>>(
    items: I,
    after: Option<&str>,
    first: usize,
    fields: impl Fn(I::Item) -> Value,
) -> Value {
    let items = items.into_iter();
    let place = after.and_then(|it| it.strip_prefix("c:")).and_then(|it| it.parse::<usize>().ok());
    let (total, from) = (items.len(), place.unwrap_or(0).min(items.len()));
    let to = total.min(from + first);
    let nodes: Value = items.skip(from).take(to - from).map(fields).collect();
    let end = (from < to).then(|| format!("c:{to}"));
    json!({"pageInfo": {"hasNextPage": to < total, "endCursor": end}, "nodes": nodes})
}

fn status_context(status: &FakeStatus) -> Value {
    json!({"__typename": "StatusContext", "context": status.context, "state": status.state.name().to_ascii_uppercase(),
           "description": status.description, "createdAt": stamp(status.created_at), "creator": actor(&status.creator)})
}

/// An account. GraphQL omits `[bot]` from the login.
fn actor(login: &str) -> Value {
    let name = login.strip_suffix("[bot]");
    json!({"__typename": if name.is_some() { "Bot" } else { "User" }, "login": name.unwrap_or(login)})
}
