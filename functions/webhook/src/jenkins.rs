//! `POST /webhook/jenkins`: payloads of Jenkins' Notification plugin, sent when a build is queued, starts and ends. Jenkins reports to
//! GitHub separately, and sometimes fails to.

use std::borrow::Cow;

use domain::event::{Actor, FactKind};
use domain::id::{RepoName, Sha};
use domain::policy::{Policies, Policy, ReportAuthor};
use domain::signals::{CheckKind, CheckVerdict};
use jiff::Timestamp;
use serde::Deserialize;

use crate::direct_report::{parse, parse_outcome, parsed_webhook, whole_seconds};
use crate::github::lenient::{Lenient, LenientObject};
use crate::github::{ParseOutcome, ParseRejection, ParsedWebhook, PrSelector};
use platform::github::mapping::{self, CheckReportSource};
use platform::hash::stable_id;

/// The status context that Jenkins' branch source plugin uses for pull requests, unless the configuration names another one.
const CONTEXT: &str = "continuous-integration/jenkins/pr-merge";

type Text<'a> = Lenient<Cow<'a, str>>;

#[derive(Debug, Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
struct JenkinsNotification<'a> {
    name: Text<'a>,
    url: Text<'a>,
    build: LenientObject<JenkinsBuild<'a>>,
    /// Not sent by the plugin. A custom notifier sets the context, repository or commit if Jenkins does not know them.
    context: Text<'a>,
    repo: Text<'a>,
    head_sha: Text<'a>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
struct JenkinsBuild<'a> {
    full_url: Text<'a>,
    number: Lenient<u64>,
    phase: Text<'a>,
    status: Text<'a>,
    timestamp: Lenient<Timestamp>,
    scm: LenientObject<JenkinsScm<'a>>,
    parameters: LenientObject<JenkinsParameters<'a>>,
    log: Text<'a>,
    notes: Text<'a>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
struct JenkinsScm<'a> {
    url: Text<'a>,
    commit: Text<'a>,
}

/// Only the parameter that names the head commit: the build's own commit may be the merge with the base.
#[derive(Debug, Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
struct JenkinsParameters<'a> {
    #[serde(rename = "ghprbActualCommit", alias = "HEAD_SHA", alias = "head_sha")]
    head: Text<'a>,
}

pub(crate) fn read(body: &[u8], policies: &Policies) -> ParseOutcome {
    parse_outcome(parse(body).and_then(|notification| translate(&notification, policies)))
}

fn translate(notification: &JenkinsNotification<'_>, policies: &Policies) -> Result<ParsedWebhook, ParseRejection> {
    let build = notification.build.0.as_ref().ok_or_else(|| ParseRejection::missing("build"))?;
    let repo = repo(notification, build).ok_or_else(|| ParseRejection::missing("build.scm.url"))?;
    let head = head(notification, build).ok_or_else(|| ParseRejection::missing("build.scm.commit"))?;
    let policy = policies.for_repo(&repo);
    let (phase, status) = (build.phase.text(), build.status.text());
    let verdict = verdict(phase, status)?;
    let at = build.timestamp.0.map(whole_seconds).ok_or_else(|| ParseRejection::missing("build.timestamp"))?;
    let text = [build.notes.text(), build.log.text()].map(str::trim).join("\n");
    let reported = CheckReportSource {
        name: context(notification, policy),
        kind: CheckKind::Status,
        verdict,
        conclusion: if status.is_empty() { phase } else { status },
        id: None,
        started_at: None,
        at,
        text: &text,
        author: ReportAuthor::Account("the Jenkins notifier"),
    };
    let check = mapping::check(policy, &reported);
    let number = build.number.0.map(|number| number.to_string()).unwrap_or_default();
    let job = [notification.name.text(), notification.url.text(), build.full_url.text()].join("\n");
    let id = format!("jenkins:{}", stable_id(&[&job, &number, phase, status]));
    let kind = FactKind::Check { head: head.clone(), check };
    Ok(parsed_webhook(repo, PrSelector::Head(head), id, at, Actor::Jenkins, kind))
}

fn verdict(phase: &str, status: &str) -> Result<CheckVerdict, ParseRejection> {
    match (phase.to_ascii_uppercase().as_str(), status.to_ascii_uppercase().as_str()) {
        ("QUEUED", _) => Ok(CheckVerdict::Queued),
        ("STARTED", _) => Ok(CheckVerdict::Running),
        ("COMPLETED" | "FINALIZED", "SUCCESS") => Ok(CheckVerdict::Passed),
        ("COMPLETED" | "FINALIZED", "FAILURE" | "UNSTABLE" | "ABORTED" | "NOT_BUILT") => Ok(CheckVerdict::Failed),
        (_, _) => {
            let state = domain::event::truncate(format!("{phase} {status}").trim(), 50);
            Err(ParseRejection::Ignored(format!("unhandled build phase `{state}`")))
        }
    }
}

/// From `repo`, or from a URL such as `https://github.com/acme/shop.git` or `git@github.com:acme/shop.git`.
fn repo(notification: &JenkinsNotification<'_>, build: &JenkinsBuild<'_>) -> Option<RepoName> {
    if let Some(repo) = notification.repo.0.as_deref() {
        return repo.parse().ok();
    }
    let url = build.scm.0.as_ref().map(|scm| scm.url.text())?;
    let path = url.trim_end_matches('/').trim_end_matches(".git");
    let mut parts = path.rsplit(['/', ':']);
    let (name, owner) = (parts.next()?, parts.next()?);
    format!("{owner}/{name}").parse().ok()
}

fn head(notification: &JenkinsNotification<'_>, build: &JenkinsBuild<'_>) -> Option<Sha> {
    let parameter = || build.parameters.0.as_ref().and_then(|parameters| parameters.head.sha());
    let built = || build.scm.0.as_ref().and_then(|scm| scm.commit.sha());
    notification.head_sha.sha().or_else(parameter).or_else(built)
}

/// The status context that GitHub shows for the same build, so that both reports update one check.
fn context<'a>(notification: &'a JenkinsNotification<'_>, policy: &'a Policy) -> &'a str {
    let required = || policy.checks.required.iter().find(|name| policy.checks.is_jenkins(name)).map(String::as_str);
    notification.context.0.as_deref().filter(|context| !context.is_empty()).or_else(required).unwrap_or(CONTEXT)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn notification(phase: &str, status: Value) -> Value {
        json!({
            "name": "shop/PR-42", "url": "job/shop/job/PR-42/",
            "build": {
                "full_url": "https://jenkins.example/job/shop/job/PR-42/7/", "number": 7, "phase": phase, "status": status,
                "timestamp": 1_772_442_000_750_u64, "scm": {"url": "git@github.com:acme/shop.git", "commit": "b".repeat(40)},
                "log": "Cannot contact agent-3: java.lang.InterruptedException"
            }
        })
    }

    fn read_value(value: &Value, policies: &Policies) -> ParseOutcome {
        read(value.to_string().as_bytes(), policies)
    }

    #[track_caller]
    fn check(value: &Value, policies: &Policies) -> (String, String, domain::signals::CheckReport) {
        let ParseOutcome::Parsed(webhook) = read_value(value, policies) else { panic!("{value}") };
        assert_eq!(webhook.repo.as_str(), "acme/shop");
        let fact = webhook.fact.unwrap();
        assert_eq!(fact.actor, Actor::Jenkins);
        let FactKind::Check { head, check } = fact.kind else { panic!() };
        assert_eq!(fact.selector, PrSelector::Head(head.clone()));
        (fact.id.to_string(), head.to_string(), check)
    }

    #[test]
    fn build_maps_to_the_check_on_github() {
        let policies = Policies::default();
        let (id, head, lost) = check(&notification("COMPLETED", json!("FAILURE")), &policies);
        assert_eq!((head, lost.name.as_str(), lost.verdict), ("b".repeat(40), CONTEXT, CheckVerdict::Failed));
        assert_eq!(lost.failure.unwrap().transient_rule.as_deref(), Some("agent-lost"));
        assert_eq!(lost.at.to_string(), "2026-03-02T09:00:00Z");
        assert_eq!((id.len(), id.starts_with("jenkins:")), ("jenkins:".len() + 64, true));
        let (_, _, green) = check(&notification("FINALIZED", json!("SUCCESS")), &policies);
        assert_eq!((green.verdict, green.failure), (CheckVerdict::Passed, None));
        for (phase, verdict) in
            [("QUEUED", CheckVerdict::Queued), ("STARTED", CheckVerdict::Running), ("started", CheckVerdict::Running)]
        {
            assert_eq!(check(&notification(phase, Value::Null), &policies).2.verdict, verdict);
        }
    }

    #[test]
    fn report_id_depends_on_build_phase_and_status() {
        let id = |phase: &str, status: Value| check(&notification(phase, status), &Policies::default()).0;
        let ids = [id("STARTED", Value::Null), id("COMPLETED", json!("FAILURE")), id("COMPLETED", json!("SUCCESS"))];
        assert!(ids[0] != ids[1] && ids[1] != ids[2]);
        assert_eq!(ids[0], id("STARTED", Value::Null));
        let mut next = notification("STARTED", Value::Null);
        next["build"]["number"] = json!(8);
        assert_ne!(check(&next, &Policies::default()).0, ids[0]);
    }

    #[test]
    fn context_repository_and_head_can_be_set_explicitly() {
        let required = Policies::parse("[checks]\nrequired = ['lint', 'ci/Jenkins']").unwrap();
        let mut report = notification("STARTED", Value::Null);
        assert_eq!(check(&report, &required).2.name, "ci/Jenkins");
        report["context"] = json!("build");
        report["build"]["parameters"] = json!({"ghprbActualCommit": "c".repeat(40)});
        let (_, head, named) = check(&report, &required);
        assert_eq!((head, named.name.as_str()), ("c".repeat(40), "build"));
        report["head_sha"] = json!("d".repeat(40));
        report["build"]["scm"] = json!({"url": "https://github.com/acme/shop/"});
        assert_eq!(check(&report, &required).1, "d".repeat(40));
        report["repo"] = json!("acme/shop");
        report["build"]["scm"] = Value::Null;
        assert_eq!(check(&report, &required).1, "d".repeat(40));
    }

    #[test]
    fn unhandled_phase_is_ignored_and_missing_fields_are_named() {
        let policies = Policies::default();
        assert!(matches!(read_value(&notification("DELETED", Value::Null), &policies), ParseOutcome::Ignored(_)));
        assert!(matches!(read_value(&notification("COMPLETED", Value::Null), &policies), ParseOutcome::Ignored(_)));
        for (pointer, name) in [("/build", "build"), ("/build/timestamp", "timestamp"), ("/build/scm", "scm.url")] {
            let mut invalid = notification("STARTED", Value::Null);
            *invalid.pointer_mut(pointer).unwrap() = json!(["x"]);
            assert!(
                matches!(read_value(&invalid, &policies), ParseOutcome::Malformed(why) if why.contains(name)),
                "{pointer}"
            );
        }
    }
}
