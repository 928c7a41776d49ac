//! Test support besides `testbed`: sample facts, local AWS services and functions as processes.

#![expect(clippy::expect_used, clippy::missing_panics_doc, reason = "test support may panic")]

pub mod lambda;
pub mod local_aws;

use std::sync::{Arc, Mutex};

use domain::diagnosis::{DiagnosisInput, classify};
use domain::event::{Actor, DiagnosisFact, Fact, FactKind, PullRequestDetails};
use domain::id::{EventId, PrId, RunId, Sha};
use domain::policy::Policies;
use domain::signals::{
    ApprovalReport, CheckKind, CheckReport, CheckVerdict, MergeReport, PolicyReport, PolicyVerdict, RenewalMark,
};
use domain::text::EscalationHistory;
use jiff::{SignedDuration, Timestamp};
use platform::engine::{ApplyResult, Engine};
use platform::publish::Publisher;
use platform::store::Store;
use testbed::{Testbed, pr_id};

/// Start time of every test: a Monday in the future of the machine's clock. dynoxide's TTL sweep uses that clock and
/// would delete rows with a TTL of ninety days.
#[must_use]
pub fn start() -> Timestamp {
    "2036-03-03T09:00:00Z".parse().expect("a time")
}

/// [`start`] plus this many minutes.
#[must_use]
pub fn minute(count: i64) -> Timestamp {
    start() + SignedDuration::from_mins(count)
}

/// `acme/shop#<number>`.
#[must_use]
pub fn pr(number: u64) -> PrId {
    format!("acme/shop#{number}").parse().expect("a pull request")
}

/// A commit SHA of one digit, repeated forty times.
#[must_use]
pub fn sha(digit: char) -> Sha {
    digit.to_string().repeat(40).parse().expect("a commit")
}

/// Default policies in act mode.
#[must_use]
pub fn acting() -> Policies {
    Policies::parse("mode = \"act\"").expect("a configuration")
}

/// A webhook fact with this event id.
#[must_use]
pub fn fact(pr: &PrId, id: impl Into<String>, at: Timestamp, what: FactKind) -> Fact {
    Fact {
        id: EventId::new(id),
        pr: pr.clone(),
        occurred_at: at,
        actor: Actor::GithubWebhook,
        kind: what,
        described: None,
    }
}

/// The fact that opens the pull request with head `a`.
#[must_use]
pub fn opened(pr: &PrId, id: impl Into<String>, at: Timestamp) -> Fact {
    let described = PullRequestDetails {
        node_id: Some(format!("PR_kwDOJ8x2Pc5{:08}", pr.number)),
        html_url: None,
        branch: "codegenie/fix".to_owned(),
        base_branch: "main".to_owned(),
        head: sha('a'),
        labels: vec![],
        draft: false,
        vulnerability_id: Some("CVE-2026-1234".to_owned()),
        created_at: at,
        size: Some(12),
        required_checks: Some(vec![]),
    };
    fact(pr, id, at, FactKind::Opened(described))
}

/// A check run report for head `a`.
#[must_use]
pub fn check(pr: &PrId, id: impl Into<String>, name: &str, verdict: CheckVerdict, at: Timestamp) -> Fact {
    let check = CheckReport {
        name: name.to_owned(),
        kind: CheckKind::Run,
        verdict,
        id: Some(18_446_744_073),
        started_at: Some(start()),
        at,
        failure: None,
        renewal: RenewalMark::None,
        posted_by: None,
    };
    fact(pr, id, at, FactKind::Check { head: sha('a'), check })
}

/// The facts of a typical pull request: three checks, Policy Bot, Approver Bot and Automerge Bot, merged within the
/// hour.
#[must_use]
pub fn typical_life(pr: &PrId) -> Vec<Fact> {
    let head = || sha('a');
    let policy = |verdict, at| PolicyReport {
        verdict,
        text: "All rules are approved".to_owned(),
        at,
        renewal: RenewalMark::None,
    };
    let policy_bot = |id: &str, verdict, at| Fact {
        actor: Actor::PolicyBot,
        ..fact(pr, id, at, FactKind::Policy { head: head(), report: policy(verdict, at) })
    };
    let mut life = vec![opened(pr, "72d3162e-cc78-11e3-81ab-4c9367dc0958", start())];
    for (n, name) in ["continuous-integration/jenkins/pr-merge", "lint", "unit-tests"].into_iter().enumerate() {
        let at = minute(1 + i64::try_from(n).unwrap_or(0));
        life.push(check(pr, format!("delivery-{n}-started"), name, CheckVerdict::Running, at));
        life.push(check(
            pr,
            format!("delivery-{n}-passed"),
            name,
            CheckVerdict::Passed,
            at + SignedDuration::from_mins(9),
        ));
    }
    life.sort_by_key(|fact| fact.occurred_at);
    life.push(policy_bot("policy-started", PolicyVerdict::Evaluating, minute(13)));
    life.push(policy_bot("policy-passed", PolicyVerdict::Passed, minute(14)));
    let approval = ApprovalReport { granted: true, by: "approver-bot[bot]".to_owned(), at: minute(15) };
    life.push(fact(pr, "approved", minute(15), FactKind::Approval { head: head(), approval }));
    let report = MergeReport { failed: false, text: String::new(), at: minute(16), renewal: RenewalMark::None };
    life.push(fact(pr, "merging", minute(16), FactKind::Merge { head: head(), report }));
    life.push(fact(pr, "merged", minute(17), FactKind::Merged { by: None, by_automerge_bot: true }));
    life
}

/// The diagnosis fact that claims a remedy for the stored pull request in this run, under the engine's policies.
///
/// # Panics
/// If the pull request has no record.
pub async fn claim<S: Store, O: Publisher>(engine: &Engine<S, O>, pr: &PrId, run: &str, now: Timestamp) -> Fact {
    let record = engine.load(pr, now).await.expect("a store").expect("a record");
    let policy = engine.policies().for_repo(&pr.repo);
    let case = DiagnosisInput { record: &record, live: None, vulnerability: None, policy, now };
    let found = DiagnosisFact {
        diagnosis: classify(&case),
        run: RunId::new(run),
        vulnerability: None,
        history: EscalationHistory::default(),
    };
    fact(pr, format!("sweep-{run}"), now, FactKind::Diagnosed(Box::new(found)))
}

/// Claims a remedy the way a sweep of the reconciler does.
pub async fn claim_in(testbed: &Testbed, pr: &fakes::FakePrId, run: &str) -> ApplyResult {
    let (engine, now) = (testbed.bridge.engine(), testbed.now());
    engine.apply(&claim(engine, &pr_id(pr), run, now).await, now).await.expect("a store")
}

/// Writer whose output can be read back.
#[derive(Debug, Clone, Default)]
pub struct Written(Arc<Mutex<Vec<u8>>>);

impl Written {
    /// The output so far.
    ///
    /// # Panics
    /// If it is not UTF-8.
    #[must_use]
    pub fn text(&self) -> String {
        String::from_utf8(self.0.lock().expect("a lock that is not poisoned").clone()).expect("text")
    }
}

impl std::io::Write for Written {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().expect("a lock that is not poisoned").extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}
