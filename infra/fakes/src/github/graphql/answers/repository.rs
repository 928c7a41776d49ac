//! Repositories, their pull requests, and the rules of their base branch.

use serde_json::{Value, json};

use super::super::document::{Field, Selection};
use super::{Answering, state};
use crate::github::model::{Numbered, PrIx, RepoIx};
use crate::settings::{Protection, Required};

impl Answering<'_> {
    pub(super) fn repository_named(&mut self, field: &Field) -> Value {
        let text = |name: &str| self.argument(field, name).as_str().unwrap_or_default().to_owned();
        let name = format!("{}/{}", text("owner"), text("name"));
        match self.fakes.repo_ix(&name) {
            Some(repo) => self.repository(repo, &field.selections),
            None => {
                let message = format!("Could not resolve to a Repository with the name '{name}'.");
                self.errors.push(json!({"type": "NOT_FOUND", "path": [field.key], "message": message}));
                Value::Null
            }
        }
    }

    pub(super) fn repository(&mut self, ix: RepoIx, list: &[Selection]) -> Value {
        let fakes = self.fakes;
        let repo = fakes.github.repo(ix);
        self.select(list, "Repository", &mut |it, field| match field.name.as_str() {
            "id" => json!(format!("R_{}", repo.id)),
            "databaseId" => json!(repo.id),
            "name" => json!(repo.name),
            "nameWithOwner" => json!(repo.settings.name),
            "isArchived" => json!(false),
            "isPrivate" => json!(true),
            "url" => json!(fakes.repo_html(ix)),
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
                match it.argument(field, "number").as_u64().and_then(|number| fakes.github.pull_at(ix, number)) {
                    Some(pr) => it.pull(pr, &field.selections),
                    None => it.no_pull(field),
                }
            }
            "pullRequests" => {
                let found = it.wanted_pulls(ix, field);
                it.connection(field, &found, &mut |it, pr, list| it.pull(pr, list))
            }
            "issue" => match it.argument(field, "number").as_u64().and_then(|number| fakes.github.numbered(ix, number))
            {
                Some(Numbered::Issue(place)) => it.issue(place, &field.selections),
                Some(Numbered::Pull(_)) | None => Value::Null,
            },
            "issues" => {
                let found: Vec<usize> =
                    (0..fakes.github.issues.len()).filter(|place| fakes.github.issues[*place].repo == ix).collect();
                it.connection(field, &found, &mut |it, place, list| it.issue(place, list))
            }
            "pinnedIssues" => {
                let pinned =
                    |place: &usize| fakes.github.issues[*place].repo == ix && fakes.github.issues[*place].pinned;
                let found: Vec<usize> = (0..fakes.github.issues.len()).filter(pinned).collect();
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
        let fakes = self.fakes;
        let list = |name: &str| match self.argument(field, name) {
            Value::Null => None,
            Value::Array(items) => Some(items),
            one @ (Value::String(_) | Value::Bool(_) | Value::Number(_) | Value::Object(_)) => Some(vec![one]),
        };
        let (states, labels) = (list("states"), list("labels"));
        let named = |name: &str, own: &str| self.argument(field, name).as_str().is_none_or(|wanted| wanted == own);
        let wanted = |ix: &PrIx| {
            let pull = fakes.github.pull(*ix);
            states.as_ref().is_none_or(|states| states.contains(&json!(state(pull.state))))
                && labels.as_ref().is_none_or(|labels| pull.labels.iter().any(|own| labels.contains(&json!(own))))
                && named("headRefName", &pull.head_ref)
                && named("baseRefName", &pull.base_ref)
        };
        let only_open = states.as_ref().is_some_and(|states| *states == [json!("OPEN")]);
        let mut found: Vec<PrIx> = match only_open {
            true => fakes.open_pulls[repo.0].iter().copied().filter(wanted).collect(),
            false => fakes.github.pulls_of(repo).filter(wanted).collect(),
        };
        let order = self.argument(field, "orderBy");
        if order["field"] == "UPDATED_AT" {
            found.sort_by_key(|ix| fakes.github.pull(*ix).updated_at);
        }
        if order["direction"] == "DESC" {
            found.reverse();
        }
        found
    }

    /// The base branch; `head` is the pull request it is asked through.
    pub(super) fn base_ref(&mut self, ix: RepoIx, head: Option<PrIx>, list: &[Selection]) -> Value {
        let fakes = self.fakes;
        let settings = &fakes.github.repo(ix).settings;
        let contexts = || settings.required_contexts().into_iter().map(|it| it.context).collect::<Vec<_>>();
        self.select(list, "Ref", &mut |it, field| match field.name.as_str() {
            "id" => json!(format!("REF_{}", fakes.github.repo(ix).id)),
            "name" => json!(settings.base),
            "prefix" => json!("refs/heads/"),
            "target" => it.commit(ix, &fakes.github.base_tip(ix), &field.selections),
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
                        let one = |one: &Required| {
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
        let settings = &self.fakes.github.repo(ix).settings;
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
                    let one = |one: &Required| {
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
        let fakes = self.fakes;
        let named = |ix: &PrIx| fakes.github.pull(*ix).head_ref == wanted || **fakes.github.pull(*ix).head() == *wanted;
        let Some(ix) = head.filter(named).or_else(|| fakes.github.pulls_of(repo).rev().find(named)) else {
            let message = format!("Could not resolve to a Ref or Commit with the name {wanted}.");
            self.errors
                .push(json!({"type": "NOT_FOUND", "path": ["repository", "ref", field.key], "message": message}));
            return Value::Null;
        };
        let (behind, ahead) = (fakes.github.behind_by(ix), fakes.github.pull(ix).commits.len());
        self.select(&field.selections, "Comparison", &mut |_, field| match field.name.as_str() {
            "aheadBy" => json!(ahead),
            "behindBy" => json!(behind),
            "status" => json!(if behind > 0 { "DIVERGED" } else { "AHEAD" }),
            _ => json!("CMP_1"),
        })
    }
}
