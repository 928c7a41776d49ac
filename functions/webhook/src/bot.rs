//! `POST /webhook/bot`: `{id, bot, repo, pr_number, head_sha, result, reason, occurred_at}` (R-HOOK-12).

use std::borrow::Cow;

use domain::event::{Actor, Happened};
use domain::id::RepoName;
use domain::policy::{Policies, Policy};
use domain::signals::{Approval, MergeReport, Renewal};
use jiff::Timestamp;
use serde::Deserialize;

use crate::direct_report::{parse, reading, told, whole_seconds};
use crate::github::lenient::Soft;
use crate::github::{About, NoFact, Reading, Told, is_delivery_id};
use platform::github::mapping;
use platform::hash::hashed;

#[derive(Debug, Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
struct Report<'a> {
    id: Soft<Cow<'a, str>>,
    bot: Soft<Cow<'a, str>>,
    repo: Soft<Cow<'a, str>>,
    pr_number: Soft<u64>,
    head_sha: Soft<Cow<'a, str>>,
    result: Soft<Cow<'a, str>>,
    reason: Soft<Cow<'a, str>>,
    occurred_at: Soft<Timestamp>,
}

pub(crate) fn read(body: &[u8], policies: &Policies) -> Reading {
    reading(parse(body).and_then(|report| translate(&report, policies)))
}

fn translate(report: &Report<'_>, policies: &Policies) -> Result<Told, NoFact> {
    let repo: RepoName = report.repo.text().parse().map_err(|_| NoFact::missing("repo"))?;
    let head = report.head_sha.sha().ok_or_else(|| NoFact::missing("head_sha"))?;
    let at = report.occurred_at.0.map(whole_seconds).ok_or_else(|| NoFact::missing("occurred_at"))?;
    let policy = policies.for_repo(&repo);
    let result = report.result.text().to_ascii_lowercase();
    let reason = report.reason.text();
    let (actor, what) = match report.bot.text() {
        "policy-bot" => {
            let state = match result.as_str() {
                "started" | "evaluating" | "pending" => "pending",
                "passed" | "success" => "success",
                "failed" | "failure" => "failure",
                "error" => "error",
                _ => return Err(unknown_result(report)),
            };
            let verdict = mapping::policy_verdict(policy, state, reason).ok_or_else(|| unknown_result(report))?;
            (
                Actor::PolicyBot,
                Happened::Policy { head: head.clone(), report: mapping::policy_report(verdict, at, reason) },
            )
        }
        "approver-bot" => {
            let granted = match result.as_str() {
                "approved" | "granted" | "passed" => true,
                "dismissed" | "rejected" | "failed" => false,
                _ => return Err(unknown_result(report)),
            };
            let approval = Approval { by: approver(policy), granted, at };
            (Actor::ApproverBot, Happened::Approval { head: head.clone(), approval })
        }
        "automerge-bot" => {
            let failed = match result.as_str() {
                "started" | "attempted" | "merging" => false,
                "failed" | "failure" => true,
                "merged" | "succeeded" | "success" => {
                    return Err(NoFact::ignored("merges are taken from GitHub's own webhook"));
                }
                _ => return Err(unknown_result(report)),
            };
            let report = MergeReport { failed, at, text: reason.to_owned(), renewal: Renewal::None };
            (Actor::AutomergeBot, Happened::Merge { head: head.clone(), report })
        }
        other => {
            let known = "expected policy-bot, approver-bot or automerge-bot";
            return Err(NoFact::Ignored(format!("unknown bot `{}`: {known}", domain::event::cut(other, 50))));
        }
    };
    let about = report.pr_number.0.map_or(About::Head(head), |number| About::Numbers(vec![number]));
    Ok(told(repo, about, id(report), at, actor, what))
}

/// The report's own id; without one, a hash of its content.
fn id(report: &Report<'_>) -> String {
    let (bot, id) = (report.bot.text(), report.id.text());
    if is_delivery_id(id) {
        return format!("{bot}:{id}");
    }
    let number = report.pr_number.0.map(|number| number.to_string()).unwrap_or_default();
    let at = report.occurred_at.0.map(|at| at.to_string()).unwrap_or_default();
    let parts =
        [id, bot, report.repo.text(), &number, report.head_sha.text(), report.result.text(), report.reason.text(), &at];
    format!("{bot}:{}", hashed(&parts))
}

/// The approver bot's login, so that this report and the bot's review on GitHub count as one approval.
fn approver(policy: &Policy) -> String {
    policy.approver_bot.logins.first().map_or("approver-bot".to_owned(), |login| login.to_ascii_lowercase())
}

fn unknown_result(report: &Report<'_>) -> NoFact {
    let (bot, result) = (report.bot.text(), domain::event::cut(report.result.text(), 50));
    NoFact::Malformed(format!("`{result}` is not a valid `result` for {bot}"))
}

#[cfg(test)]
mod tests {
    use domain::signals::PolicyVerdict;
    use domain::state::Substatus;
    use serde_json::{Value, json};

    use super::*;

    fn report(bot: &str, result: &str) -> Value {
        json!({
            "id": "r-1", "bot": bot, "repo": "acme/shop", "pr_number": 42, "head_sha": "a".repeat(40),
            "result": result, "reason": "SOD check failed", "occurred_at": "2026-03-02T09:00:00.250Z"
        })
    }

    fn read_value(value: &Value) -> Reading {
        read(value.to_string().as_bytes(), &Policies::default())
    }

    fn what(bot: &str, result: &str) -> Happened {
        let Reading::Told(told) = read_value(&report(bot, result)) else { panic!("{bot} {result}") };
        let news = told.news.unwrap();
        assert_eq!((news.id.as_str(), news.about), (format!("{bot}:r-1").as_str(), About::Numbers(vec![42])));
        assert_eq!(news.occurred_at.to_string(), "2026-03-02T09:00:00Z");
        news.what
    }

    #[test]
    fn results_map_to_facts_for_each_bot() {
        for (result, verdict) in [
            ("started", PolicyVerdict::Evaluating),
            ("Passed", PolicyVerdict::Passed),
            ("failed", PolicyVerdict::Failed(Substatus::SodFailure)),
            ("error", PolicyVerdict::Failed(Substatus::SodFailure)),
        ] {
            assert!(
                matches!(what("policy-bot", result), Happened::Policy { report, .. } if report.verdict == verdict),
                "{result}"
            );
        }
        for (result, granted) in [("approved", true), ("dismissed", false)] {
            let Happened::Approval { approval, .. } = what("approver-bot", result) else { panic!() };
            assert_eq!((approval.granted, approval.by.as_str()), (granted, "approver-bot[bot]"));
        }
        for (result, failed) in [("attempted", false), ("failed", true)] {
            assert!(matches!(what("automerge-bot", result), Happened::Merge { report, .. } if report.failed == failed));
        }
        assert!(
            matches!(read_value(&report("automerge-bot", "merged")), Reading::Ignored(why) if why.contains("GitHub"))
        );
        assert!(
            matches!(read_value(&report("sleepy-bot", "passed")), Reading::Ignored(why) if why.contains("sleepy-bot"))
        );
        for bot in ["policy-bot", "approver-bot", "automerge-bot"] {
            assert!(
                matches!(read_value(&report(bot, "odd")), Reading::Malformed(why) if why.contains("`odd`")),
                "{bot}"
            );
        }
    }

    #[test]
    fn report_without_id_gets_a_content_hash() {
        let id_of = |value: &Value| match read_value(value) {
            Reading::Told(told) => told.news.unwrap().id,
            other @ (Reading::Installed { .. } | Reading::Ignored(_) | Reading::Malformed(_)) => panic!("{other:?}"),
        };
        let mut unidentified = report("policy-bot", "passed");
        unidentified["id"] = Value::Null;
        let id = id_of(&unidentified);
        assert_eq!((id_of(&unidentified), id.as_str().len()), (id.clone(), "policy-bot:".len() + 64));
        unidentified["result"] = json!("failed");
        assert_ne!(id_of(&unidentified), id);
        unidentified["id"] = json!("a#b");
        assert!(!id_of(&unidentified).as_str().contains('#'));
    }

    #[test]
    fn report_without_number_is_matched_by_commit_and_missing_fields_are_named() {
        let mut report = report("policy-bot", "passed");
        report["pr_number"] = Value::Null;
        let Reading::Told(told) = read_value(&report) else { panic!() };
        assert_eq!(told.news.unwrap().about, About::Head("a".repeat(40).parse().unwrap()));
        for field in ["repo", "head_sha", "occurred_at"] {
            let mut report = report.clone();
            report[field] = Value::Null;
            assert!(matches!(read_value(&report), Reading::Malformed(why) if why.contains(field)), "{field}");
        }
        assert!(matches!(read(b"<xml/>", &Policies::default()), Reading::Malformed(_)));
    }
}
