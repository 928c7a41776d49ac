//! The explain route: one sentence per state, the rule with its evidence, and the live status of GitHub.

use domain::event::{FactKind, RemedyUpdate};
use domain::id::RunId;
use domain::policy::Policies;
use serde_json::{Value, json};
use testbed::MemoryStore;
use tests::{claim, fact, minute, opened, pr, start};

use crate::harness::{Caller, Harness, Options};
use crate::{failed_check, seed_records};

async fn explain(harness: &Harness<MemoryStore>, number: u64, query: &str) -> Value {
    let response = harness.get(Caller::Operator, &format!("/api/pr/shop/{number}/explain{query}")).await;
    assert_eq!(response.status, 200, "{}", response.text);
    response.json()
}

/// A typical lifecycle, stopped after this many facts and queried an hour after the last one.
async fn stopped_after(facts: usize) -> Value {
    let harness = Harness::new();
    let life = tests::typical_life(&pr(1));
    for fact in &life[..facts] {
        harness.apply_fact(fact).await;
    }
    harness.clock.set(life[facts - 1].occurred_at + jiff::SignedDuration::from_hours(1));
    explain(&harness, 1, "").await
}

#[tokio::test]
async fn explain_has_one_sentence_per_state() {
    let mut sentences = Vec::new();
    for facts in [1, 2, 7, 8, 9, 10, 11, 12] {
        let explained = stopped_after(facts).await;
        let rule = explained["rule"]["number"].as_str().unwrap_or("–").to_owned();
        let summary = explained["summary"].as_str().unwrap();
        assert!(summary.ends_with('.') && summary.matches(". ").count() == 0, "{summary}");
        assert!(explained["text"].as_str().unwrap().contains(summary));
        let state = explained["state"].as_str().unwrap();
        sentences.push(format!("{state} | {rule} {} | {summary}", explained["classification"].as_str().unwrap()));
    }
    let sentences = sentences.join("\n");
    let expected = "\
CREATED | 9a RETRY_CHECKS | No check has started yet; in this state for 1 h (threshold 5 min).
CHECKS_RUNNING | 9b NO_ACTION | Checks are running: `continuous-integration/jenkins/pr-merge`; in this state for 1 h (threshold 1 h).
CHECKS_PASSED | 5 RETRIGGER_POLICY_BOT | The checks passed, but Policy Bot has not reported yet; in this state for 1 h (threshold 30 min).
POLICY_EVALUATING | 5 RETRIGGER_POLICY_BOT | Policy Bot is evaluating; in this state for 1 h (threshold 30 min).
POLICY_PASSED | 8 RETRIGGER_APPROVER_BOT | The policies are met, but Approver Bot has not approved it yet; in this state for 1 h (threshold 15 min).
APPROVED | 9 RETRIGGER_MERGE | It is approved, but Automerge Bot has not merged it yet; in this state for 1 h (threshold 10 min).
MERGING | 9c RETRIGGER_MERGE | Automerge Bot is merging it; in this state for 1 h (threshold 5 min).
MERGED | – NO_ACTION | It is merged.";
    assert_eq!(sentences, expected);
}

#[tokio::test]
async fn explain_shows_evidence_next_action_and_commands() {
    let harness = Harness::new();
    seed_records(&harness).await;
    harness.clock.set(minute(35));
    let why = explain(&harness, 1, "").await;
    assert_eq!((&why["rule"]["number"], &why["classification"]), (&json!("3"), &json!("RETRY_CHECKS")));
    assert_eq!(why["evidence"], json!(["`build` failed, transient by rule `network`: connection reset"]));
    let next = "Suture will run the checks again in the next sweep, unless GitHub shows a different state by then.";
    assert_eq!((&why["next_action"], &why["next_action_at"]), (&json!(next), &json!("2036-03-03T09:33:00Z")));
    assert_eq!(why["would_have_matched"], "rule 11 (FALLTHROUGH)");
    assert_eq!((&why["you_can"], &why["commands"][0]["command"]), (&json!([]), &json!("/rebuild")));
    assert!(why["text"].as_str().unwrap().contains("- `/rebuild`: Runs the Jenkins build again."), "{why}");
    assert_eq!((&why["live"], &why["live_error"]), (&json!(false), &json!(null)));
    // Without GitHub credentials the response says so and still explains.
    let live = explain(&harness, 1, "?live=true").await;
    assert_eq!((&live["live"], &live["classification"]), (&json!(false), &json!("RETRY_CHECKS")));
    assert!(live["live_error"].as_str().unwrap().starts_with("cannot read GitHub: "));
}

#[tokio::test]
async fn explain_names_spent_budget_hold_escalation_and_observe_mode() {
    let harness = Harness::new();
    harness.apply_fact(&opened(&pr(1), "d1", start())).await;
    let engine = harness.admin.engine();
    // Three failed rebuilds.
    let mut at = 10;
    for n in 1..=3 {
        harness.apply_fact(&failed_check(&pr(1), &format!("f{n}"), at)).await;
        at += 60;
        let claimed = claim(engine, &pr(1), &format!("run-{n}"), minute(at)).await;
        engine.apply(&claimed, minute(at)).await.unwrap();
        let failed = RemedyUpdate::Failed {
            error: "Jenkins is gone".to_owned(),
            failure: domain::backoff::AttemptFailure::Unavailable,
        };
        let update = FactKind::Remedy { run: RunId::new(format!("run-{n}")), update: failed };
        engine.apply(&fact(&pr(1), format!("n{n}"), minute(at + 1), update), minute(at + 1)).await.unwrap();
        at += 60;
    }
    at += 600;
    harness.clock.set(minute(at));
    let spent = explain(&harness, 1, "").await;
    assert_eq!((&spent["classification"], &spent["rule"]["number"]), (&json!("NEEDS_INTERVENTION"), &json!("3")));
    assert_eq!(spent["evidence"][1], "Retry budget exhausted for rebuild (3/3)");
    assert_eq!(spent["budgets"][0], json!({"strategy": "rebuild", "used": 3, "max": 3, "remaining": 0}));
    let escalated = claim(engine, &pr(1), "run-9", minute(at)).await;
    engine.apply(&escalated, minute(at)).await.unwrap();
    let gave_up = explain(&harness, 1, "").await;
    assert_eq!((&gave_up["state"], &gave_up["rule"]), (&json!("NEEDS_INTERVENTION"), &json!(null)));
    assert_eq!(gave_up["summary"], "Suture gave up: Retry budget exhausted for rebuild (3/3).");
    assert_eq!(gave_up["you_can"][0], "Fix the cause and push to the branch: Suture then resumes automatically.");
    let overview = harness.get(Caller::Viewer, "/api/overview").await.json();
    assert_eq!((&overview["needs_person"][0]["number"], &overview["repos"][0]["needs_person"]), (&json!(1), &json!(1)));
    let observing = Options { policies: Policies::default(), ..Options::default() };
    let watcher = Harness::on(MemoryStore::new(), observing);
    watcher.apply_fact(&opened(&pr(1), "d1", start())).await;
    watcher.clock.set(minute(60));
    let watched = explain(&watcher, 1, "").await;
    assert_eq!(watched["next_action"], "Suture would run the checks again, but this repository is in observe mode.");
    let would = claim(watcher.admin.engine(), &pr(1), "run-1", minute(60)).await;
    watcher.admin.engine().apply(&would, minute(60)).await.unwrap();
    let stale = watcher.get(Caller::Viewer, "/api/prs/stale").await.json();
    assert_eq!(stale["prs"][0]["number"], 1, "observed pull requests are stale too");
}
