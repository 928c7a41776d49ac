//! `POST /webhook/bot`: `{id, bot, repo, pr_number, head_sha, result, reason, occurred_at}` (R-HOOK-12).

use std::borrow::Cow;

use domain::event::{Actor, FactKind};
use domain::id::RepoName;
use domain::policy::{Policies, Policy};
use domain::signals::{ApprovalReport, CheckVerdict, MergeReport, RenewalMark};
use jiff::Timestamp;
use serde::Deserialize;

use crate::direct_report::{parse, parse_outcome, parsed_webhook, whole_seconds};
use crate::github::lenient::Lenient;
use crate::github::{ParseOutcome, ParseRejection, ParsedWebhook, PrSelector, is_delivery_id};
use platform::github::mapping;
use platform::hash::stable_id;

domain::named! {
    /// A bot that may report directly, by its name in `bot`.
    pub enum ReportingBot {
        Policy = "policy-bot",
        Approver = "approver-bot",
        Automerge = "automerge-bot",
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
struct BotReport<'a> {
    id: Lenient<Cow<'a, str>>,
    bot: Lenient<Cow<'a, str>>,
    repo: Lenient<Cow<'a, str>>,
    pr_number: Lenient<u64>,
    head_sha: Lenient<Cow<'a, str>>,
    result: Lenient<Cow<'a, str>>,
    reason: Lenient<Cow<'a, str>>,
    occurred_at: Lenient<Timestamp>,
}

/// The bot that an unverified report names: its secret must verify the report.
pub(crate) fn named_bot(body: &[u8]) -> Option<ReportingBot> {
    let report: BotReport<'_> = parse(body).ok()?;
    ReportingBot::ALL.into_iter().find(|bot| bot.name() == report.bot.text())
}

/// Parses a report of this bot.
pub(crate) fn read(body: &[u8], bot: ReportingBot, policies: &Policies) -> ParseOutcome {
    parse_outcome(parse(body).and_then(|report| translate(&report, bot, policies)))
}

fn translate(report: &BotReport<'_>, bot: ReportingBot, policies: &Policies) -> Result<ParsedWebhook, ParseRejection> {
    let repo: RepoName = report.repo.text().parse().map_err(|_| ParseRejection::missing("repo"))?;
    let head = report.head_sha.sha().ok_or_else(|| ParseRejection::missing("head_sha"))?;
    let at = report.occurred_at.0.map(whole_seconds).ok_or_else(|| ParseRejection::missing("occurred_at"))?;
    let policy = policies.for_repo(&repo);
    let result = report.result.text().to_ascii_lowercase();
    let reason = report.reason.text();
    let (actor, kind) = match bot {
        ReportingBot::Policy => {
            let verdict = match result.as_str() {
                "started" | "evaluating" | "pending" => CheckVerdict::Running,
                "passed" | "success" => CheckVerdict::Passed,
                "failed" | "failure" | "error" => CheckVerdict::Failed,
                _ => return Err(unknown_result(report)),
            };
            let report = mapping::policy_report(policy, verdict, &result, at, reason);
            (Actor::PolicyBot, FactKind::Policy { head: head.clone(), report })
        }
        ReportingBot::Approver => {
            let granted = match result.as_str() {
                "approved" | "granted" | "passed" => true,
                "dismissed" | "rejected" | "failed" => false,
                _ => return Err(unknown_result(report)),
            };
            let approval = ApprovalReport { by: approver(policy), granted, at };
            (Actor::ApproverBot, FactKind::Approval { head: head.clone(), approval })
        }
        ReportingBot::Automerge => {
            let failed = match result.as_str() {
                "started" | "attempted" | "merging" => false,
                "failed" | "failure" => true,
                "merged" | "succeeded" | "success" => {
                    return Err(ParseRejection::ignored("merges are taken from GitHub's own webhook"));
                }
                _ => return Err(unknown_result(report)),
            };
            let report = MergeReport { failed, at, text: reason.to_owned(), renewal: RenewalMark::None };
            (Actor::AutomergeBot, FactKind::Merge { head: head.clone(), report })
        }
    };
    let selector = report.pr_number.0.map_or(PrSelector::Head(head), |number| PrSelector::Numbers(vec![number]));
    Ok(parsed_webhook(repo, selector, id(report, bot), at, actor, kind))
}

/// The report's own id; without one, a hash of its content.
fn id(report: &BotReport<'_>, bot: ReportingBot) -> String {
    let (bot, id) = (bot.name(), report.id.text());
    if is_delivery_id(id) {
        return format!("{bot}:{id}");
    }
    let number = report.pr_number.0.map(|number| number.to_string()).unwrap_or_default();
    let at = report.occurred_at.0.map(|at| at.to_string()).unwrap_or_default();
    let parts =
        [id, bot, report.repo.text(), &number, report.head_sha.text(), report.result.text(), report.reason.text(), &at];
    format!("{bot}:{}", stable_id(&parts))
}

/// The approver bot's login, so that this report and the bot's review on GitHub count as one approval.
fn approver(policy: &Policy) -> String {
    policy.approver_bot.logins.first().map_or("approver-bot".to_owned(), |login| login.to_ascii_lowercase())
}

fn unknown_result(report: &BotReport<'_>) -> ParseRejection {
    let (bot, result) = (report.bot.text(), domain::event::truncate(report.result.text(), 50));
    ParseRejection::Malformed(format!("`{result}` is not a valid `result` for {bot}"))
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

    fn read_value(value: &Value) -> ParseOutcome {
        let body = value.to_string();
        read(body.as_bytes(), named_bot(body.as_bytes()).unwrap(), &Policies::default())
    }

    fn kind_of(bot: &str, result: &str) -> FactKind {
        let ParseOutcome::Parsed(webhook) = read_value(&report(bot, result)) else { panic!("{bot} {result}") };
        let fact = webhook.fact.unwrap();
        assert_eq!((fact.id.as_str(), fact.selector), (format!("{bot}:r-1").as_str(), PrSelector::Numbers(vec![42])));
        assert_eq!(fact.occurred_at.to_string(), "2026-03-02T09:00:00Z");
        fact.kind
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
                matches!(kind_of("policy-bot", result), FactKind::Policy { report, .. } if report.verdict == verdict),
                "{result}"
            );
        }
        for (result, granted) in [("approved", true), ("dismissed", false)] {
            let FactKind::Approval { approval, .. } = kind_of("approver-bot", result) else { panic!() };
            assert_eq!((approval.granted, approval.by.as_str()), (granted, "approver-bot[bot]"));
        }
        for (result, failed) in [("attempted", false), ("failed", true)] {
            assert!(
                matches!(kind_of("automerge-bot", result), FactKind::Merge { report, .. } if report.failed == failed)
            );
        }
        assert!(
            matches!(read_value(&report("automerge-bot", "merged")), ParseOutcome::Ignored(why) if why.contains("GitHub"))
        );
        for unnamed in [&report("sleepy-bot", "passed"), &json!({"bot": null}), &json!({}), &json!([])] {
            assert_eq!(named_bot(unnamed.to_string().as_bytes()), None, "{unnamed}");
        }
        for bot in ["policy-bot", "approver-bot", "automerge-bot"] {
            assert!(
                matches!(read_value(&report(bot, "odd")), ParseOutcome::Malformed(why) if why.contains("`odd`")),
                "{bot}"
            );
        }
    }

    #[test]
    fn report_without_id_gets_a_content_hash() {
        let id_of = |value: &Value| match read_value(value) {
            ParseOutcome::Parsed(webhook) => webhook.fact.unwrap().id,
            other @ (ParseOutcome::Installed { .. } | ParseOutcome::Ignored(_) | ParseOutcome::Malformed(_)) => {
                panic!("{other:?}")
            }
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
        let ParseOutcome::Parsed(webhook) = read_value(&report) else { panic!() };
        assert_eq!(webhook.fact.unwrap().selector, PrSelector::Head("a".repeat(40).parse().unwrap()));
        for field in ["repo", "head_sha", "occurred_at"] {
            let mut report = report.clone();
            report[field] = Value::Null;
            assert!(matches!(read_value(&report), ParseOutcome::Malformed(why) if why.contains(field)), "{field}");
        }
        assert!(matches!(read(b"<xml/>", ReportingBot::Policy, &Policies::default()), ParseOutcome::Malformed(_)));
    }
}
