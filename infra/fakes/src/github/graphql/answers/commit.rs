//! What hangs on a commit: the rollup of check runs and statuses.

use serde_json::{Value, json};

use super::super::document::{Field, Selection};
use super::{Answering, actor};
use crate::clock::stamp;
use crate::github::commit::{CheckRun, Reported, Status, StatusState};
use crate::github::model::{Numbered, PrIx, RepoIx, Sha};

/// A line of the rollup.
#[derive(Clone, Copy)]
enum Context<'a> {
    Check(&'a CheckRun),
    Status(&'a Status),
}

impl Answering<'_> {
    pub(super) fn commit(&mut self, repo: RepoIx, sha: &Sha, list: &[Selection]) -> Value {
        let fakes = self.fakes;
        self.select(list, "Commit", &mut |it, field| match field.name.as_str() {
            "oid" => json!(sha),
            "abbreviatedOid" => json!(sha.get(..7)),
            "message" => json!("Repair"),
            "committedDate" => json!(stamp(fakes.now())),
            "statusCheckRollup" => it.rollup(repo, sha, &field.selections),
            "checkSuites" => {
                let checks = fakes.github.commits.get(sha).map_or_else(Vec::new, Reported::current_checks);
                it.connection(field, &checks, &mut |it, check, list| it.suite(check, list))
            }
            _ => json!(format!("C_{sha}")),
        })
    }

    /// Nothing reported, no rollup.
    pub(super) fn rollup(&mut self, repo: RepoIx, sha: &Sha, list: &[Selection]) -> Value {
        let Some(reported) = self.fakes.github.commits.get(sha) else { return Value::Null };
        let (checks, statuses) = (reported.current_checks(), reported.current_statuses());
        if checks.is_empty() && statuses.is_empty() {
            return Value::Null;
        }
        let state = rollup_state(&checks, &statuses);
        let contexts: Vec<Context<'_>> =
            checks.into_iter().map(Context::Check).chain(statuses.into_iter().map(Context::Status)).collect();
        self.select(list, "StatusCheckRollup", &mut |it, field| match field.name.as_str() {
            "state" => json!(state),
            "contexts" => it.connection(field, &contexts, &mut |it, context, list| match context {
                Context::Check(check) => it.check_run(repo, check, list),
                Context::Status(status) => it.status(repo, status, list),
            }),
            _ => json!(format!("SCR_{sha}")),
        })
    }

    fn check_run(&mut self, repo: RepoIx, check: &CheckRun, list: &[Selection]) -> Value {
        let name_with_owner = &self.fakes.github.repo(repo).settings.name;
        let path = format!("/{name_with_owner}/runs/{}", check.id);
        let text = |given: &str| if given.is_empty() { Value::Null } else { json!(given) };
        self.select(list, "CheckRun", &mut |it, field| match field.name.as_str() {
            "id" => json!(format!("CR_{}", check.id)),
            "databaseId" => json!(check.id),
            "name" => json!(check.name),
            "status" => json!(check.status.to_ascii_uppercase()),
            "conclusion" => json!(check.conclusion.as_ref().map(|it| it.to_ascii_uppercase())),
            "startedAt" => json!(check.started_at.map(stamp)),
            "completedAt" => json!(check.completed_at.map(stamp)),
            "detailsUrl" => json!(check.details_url),
            "externalId" => json!(check.external_id),
            "title" => text(&check.title),
            "summary" => text(&check.summary),
            "text" => text(&check.text),
            "resourcePath" => json!(path),
            "isRequired" => it.is_required(repo, field, &check.name, Some(check.app_id)),
            "checkSuite" => it.suite(check, &field.selections),
            _ => json!(format!("https://github.com{path}")),
        })
    }

    fn suite(&mut self, check: &CheckRun, list: &[Selection]) -> Value {
        let created = check.started_at.map(stamp);
        self.select(list, "CheckSuite", &mut |it, field| match field.name.as_str() {
            "id" => json!(format!("CS_{}", check.suite_id)),
            "databaseId" => json!(check.suite_id),
            "status" => json!(check.status.to_ascii_uppercase()),
            "conclusion" => json!(check.conclusion.as_ref().map(|it| it.to_ascii_uppercase())),
            "createdAt" => json!(created),
            "updatedAt" => json!(check.completed_at.map(stamp).or_else(|| created.clone())),
            "app" => it.app(check.app_id, &check.app_slug, &field.selections),
            _ => Value::Null,
        })
    }

    pub(super) fn app(&mut self, id: u64, slug: &str, list: &[Selection]) -> Value {
        self.select(list, "App", &mut |_, field| match field.name.as_str() {
            "databaseId" => json!(id),
            "slug" | "name" => json!(slug),
            _ => json!(format!("A_{id}")),
        })
    }

    fn status(&mut self, repo: RepoIx, status: &Status, list: &[Selection]) -> Value {
        self.select(list, "StatusContext", &mut |it, field| match field.name.as_str() {
            "context" => json!(status.context),
            "state" => json!(status.state.name().to_ascii_uppercase()),
            "description" => json!(status.description),
            "createdAt" => json!(stamp(status.created_at)),
            "targetUrl" => json!(status.target_url),
            "creator" => actor(it, Some(&status.creator), &field.selections),
            "isRequired" => it.is_required(repo, field, &status.context, None),
            _ => json!(format!("SC_{}", status.id)),
        })
    }

    /// `isRequired` wants to know for which pull request.
    fn is_required(&mut self, repo: RepoIx, field: &Field, name: &str, app_id: Option<u64>) -> Value {
        let by_id = self.argument(field, "pullRequestId");
        let by_id =
            by_id.as_str().and_then(|id| self.fakes.github.by_node.get(id)).and_then(|numbered| match numbered {
                Numbered::Pull(ix) => Some(*ix),
                Numbered::Issue(_) => None,
            });
        let by_number = || {
            self.argument(field, "pullRequestNumber")
                .as_u64()
                .and_then(|number| self.fakes.github.pull_at(repo, number))
        };
        let found: Option<PrIx> = by_id.or_else(by_number);
        if found.is_none() {
            self.errors.push(json!({"type": "UNPROCESSABLE", "message": "A pull request ID or pull request number is required.", "path": [field.key]}));
            return Value::Null;
        }
        let required = self.fakes.github.repo(repo).settings.required_contexts();
        json!(
            required
                .iter()
                .any(|it| it.context == name && it.app_id.is_none_or(|id| app_id.is_none_or(|own| own == id)))
        )
    }
}

fn rollup_state(checks: &[&CheckRun], statuses: &[&Status]) -> &'static str {
    let any = |state: StatusState| statuses.iter().any(|status| status.state == state);
    if any(StatusState::Error) {
        "ERROR"
    } else if any(StatusState::Failure) || checks.iter().any(|check| check.conclusion.is_some() && !check.is_green()) {
        "FAILURE"
    } else if any(StatusState::Pending) || checks.iter().any(|check| check.conclusion.is_none()) {
        "PENDING"
    } else {
        "SUCCESS"
    }
}
