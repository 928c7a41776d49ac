//! The check run on the head: what it shows in each step, and that it is updated only if its content changes.

use crate::command::{Command, CommandSource};
use crate::decide::EffectKind;
use crate::event::{FactKind, PullRequestDetails, RemedyUpdate};
use crate::signals::{CheckVerdict, PolicyVerdict};
use crate::state::{State, Substatus};
use crate::tests::fixture::{PrScenario, described, minutes, start};
use crate::text::check_run::{CHECK_RUN_NAME, CheckConclusion, CheckRunButton, CheckRunText};

/// A pull request with the check run enabled.
fn with_check_run() -> PrScenario {
    let mut scenario = PrScenario::new();
    scenario.policy.check_run.enabled = true;
    scenario.apply(FactKind::Opened(described(&scenario.head.clone())));
    scenario
}

/// The check run text of the last decision.
fn shown(scenario: &PrScenario) -> Option<CheckRunText> {
    let texts: Vec<CheckRunText> = scenario
        .last()
        .effects
        .iter()
        .filter_map(|effect| match &effect.what {
            EffectKind::CheckRun { text, as_of } => {
                assert_eq!(effect.head_sha, scenario.record().head_sha);
                assert_eq!(Some(*as_of), scenario.record().published_check.as_ref().map(|shown| shown.at));
                Some(text.clone())
            }
            EffectKind::Command(_) | EffectKind::Notice(_) => None,
        })
        .collect();
    assert!(texts.len() <= 1, "one check run, one text");
    texts.into_iter().next()
}

fn press(scenario: &mut PrScenario, button: CheckRunButton, permission: Result<(), String>) -> String {
    scenario.advance_minutes(1);
    scenario.command_by(button.command(), CommandSource::CheckRun, permission);
    shown(scenario).map(|text| text.summary).unwrap_or_default()
}

fn stuck_in_failure() -> PrScenario {
    let mut scenario = with_check_run();
    scenario.advance_minutes(1);
    scenario.check("build", CheckVerdict::Running);
    scenario.advance_minutes(1);
    scenario.fail("build", Some("timeout"), "timed out after 60 min");
    scenario
}

#[test]
fn check_run_shows_each_step_of_a_remedy() {
    let mut scenario = with_check_run();
    let mut told = vec![shown(&scenario)];
    type Step = fn(&mut PrScenario);
    let steps: [(i64, Step); 12] = [
        (1, |scenario| scenario.check("build", CheckVerdict::Running)),
        (5, |scenario| scenario.fail("build", Some("timeout"), "timed out after 60 min")),
        (31, |scenario| _ = scenario.sweep(scenario.github())),
        (0, |scenario| scenario.remedy_update(RemedyUpdate::Accepted)),
        (1, |scenario| scenario.rerun("build", CheckVerdict::Running, 8)),
        (5, |scenario| scenario.rerun("build", CheckVerdict::Passed, 8)),
        (1, |scenario| scenario.policy_bot(PolicyVerdict::Evaluating)),
        (1, |scenario| scenario.policy_bot(PolicyVerdict::Passed)),
        (1, |scenario| scenario.approve()),
        (1, |scenario| scenario.merge_attempt()),
        (1, |scenario| scenario.apply(FactKind::Merged { by: None, by_automerge_bot: true })),
        (1, |scenario| scenario.command(Command::Status)),
    ];
    for (pause, step) in steps {
        scenario.advance_minutes(pause);
        step(&mut scenario);
        told.push(shown(&scenario));
    }
    let page = |text: &CheckRunText| format!("{:?}: {}\n{}\n{:?}", text.mood, text.title, text.summary, text.buttons);
    let pages: Vec<String> = told.iter().map(|text| text.as_ref().map_or("(nothing new)".to_owned(), page)).collect();
    insta::assert_snapshot!(pages.join("\n\n==========\n\n"));
}

#[test]
fn check_run_is_off_by_default_and_in_observe_mode() {
    for (enabled, observes) in [(false, false), (true, true)] {
        let mut scenario = PrScenario::new();
        scenario.policy.check_run.enabled = enabled;
        if observes {
            scenario.policy.mode = crate::policy::Mode::Observe;
        }
        scenario.apply(FactKind::Opened(described(&scenario.head.clone())));
        scenario.check("build", CheckVerdict::Running);
        assert_eq!((shown(&scenario), scenario.record().published_check.clone()), (None, None));
    }
    // A pull request that ended before the check run was enabled gets none.
    let mut scenario = PrScenario::at(State::Merged);
    scenario.policy.check_run.enabled = true;
    scenario.command(Command::Status);
    assert_eq!(shown(&scenario), None);
}

#[test]
fn check_run_is_not_updated_for_changed_times() {
    let mut scenario = with_check_run();
    scenario.check("build", CheckVerdict::Running);
    assert!(shown(&scenario).is_some());
    let due = scenario.record().due_at;
    for (n, what) in [
        // These facts change only the due date.
        FactKind::Verified(Box::new(scenario.github())),
        FactKind::Skipped { why: "GitHub is slow".to_owned(), until: None, gate: None },
        FactKind::Skipped { why: "the breaker is open".to_owned(), until: Some(start() + minutes(600)), gate: None },
        FactKind::BaseMoved { base: "main".to_owned() },
    ]
    .into_iter()
    .enumerate()
    {
        scenario.advance_minutes(1);
        scenario.apply(what);
        assert!(scenario.last().record.is_some(), "{n}: it is written");
        assert_eq!(shown(&scenario), None, "{n}");
    }
    assert_ne!(scenario.record().due_at, due);
    // One of many checks, while others are running.
    for check in ["lint", "scan", "docs"] {
        scenario.check(check, CheckVerdict::Running);
        assert_eq!(shown(&scenario), None, "{check}");
    }
    scenario.check("lint", CheckVerdict::Passed);
    assert_eq!(shown(&scenario), None);
    scenario.fail("scan", None, "3 tests failed");
    assert!(shown(&scenario).is_some_and(|text| text.summary.contains("3 tests failed")));
}

#[test]
fn newer_check_run_text_has_a_later_version_despite_clock_skew() {
    let mut scenario = with_check_run();
    let mut last = scenario.record().published_check.clone().unwrap().at;
    scenario.check("build", CheckVerdict::Running);
    assert!(scenario.record().published_check.as_ref().unwrap().at > last, "at the same time");
    last = scenario.record().published_check.clone().unwrap().at;
    scenario.now -= minutes(5);
    scenario.check("build", CheckVerdict::Passed);
    assert!(
        shown(&scenario).is_some() && scenario.record().published_check.as_ref().unwrap().at > last,
        "a slow clock"
    );
}

#[test]
fn new_head_gets_its_own_check_run() {
    let mut scenario = with_check_run();
    scenario.check("build", CheckVerdict::Running);
    assert!(shown(&scenario).is_some());
    scenario.advance_minutes(1);
    scenario.push('b', false);
    assert!(shown(&scenario).is_some_and(|text| text.summary.contains("at commit bbbbbbb")));
}

#[test]
fn escalated_check_run_shows_action_required_and_the_diagnosis() {
    let mut scenario = with_check_run();
    scenario.check("build", CheckVerdict::Running);
    scenario.fail("build", None, "3 tests failed");
    scenario.advance_minutes(31);
    scenario.sweep(scenario.github());
    let text = shown(&scenario).unwrap();
    assert_eq!(
        (scenario.state(), text.mood, text.title.as_str()),
        (State::NeedsIntervention, CheckConclusion::Person, "A person is needed")
    );
    assert!(
        text.summary.contains("Rule 4 (CHECKS FAILED — PERSISTENT): `build` failed: 3 tests failed."),
        "{}",
        text.summary
    );
    assert_eq!(text.buttons, [CheckRunButton::Rebuild, CheckRunButton::Resume, CheckRunButton::Explain]);
    scenario.advance_minutes(1);
    scenario.push('b', false);
    let text = shown(&scenario).unwrap();
    assert_eq!((text.mood, text.summary.contains("Rule 4")), (CheckConclusion::Quiet, false), "{}", text.summary);
}

#[test]
fn button_runs_its_command_and_shows_the_result() {
    let mut scenario = stuck_in_failure();
    let held = press(&mut scenario, CheckRunButton::Hold, Ok(()));
    assert!(scenario.record().hold && held.contains("**Last command:** danny asked for `/hold`."), "{held}");
    assert!(shown(&scenario).unwrap().buttons.contains(&CheckRunButton::Resume));
    let resumed = press(&mut scenario, CheckRunButton::Resume, Ok(()));
    assert!(!scenario.record().hold && resumed.contains("danny asked for `/resume`."), "{resumed}");
    let refused = press(&mut scenario, CheckRunButton::Rebuild, Err("`/rebuild` needs write permission".to_owned()));
    assert!(refused.contains("but Suture refused: `/rebuild` needs write permission."), "{refused}");
    assert_eq!(scenario.record().active_run, None);
    let asked = press(&mut scenario, CheckRunButton::Rebuild, Ok(()));
    assert!(asked.contains("Suture is about to run the checks again."), "{asked}");
    assert!(scenario.record().active_run.as_ref().is_some_and(|run| run.human));
    scenario.remedy_update(RemedyUpdate::Dropped { why: "a build is under way".to_owned() });
    let text = shown(&scenario).unwrap().summary;
    assert!(
        text.contains("**Last command:** Suture was asked to run the checks again: dropped: a build is under way."),
        "{text}"
    );
    // A newer command in a comment removes the result of the button.
    scenario.command(Command::Hold);
    assert!(shown(&scenario).is_some_and(|text| !text.summary.contains("**Last command:**")));
}

#[test]
fn explanation_is_shown_for_every_request() {
    let mut scenario = stuck_in_failure();
    for _ in 0..2 {
        let text = press(&mut scenario, CheckRunButton::Explain, Ok(()));
        for part in ["danny asked for `/explain`.", "Rule 3 (CHECKS FAILED — TRANSIENT)", "- `/rebuild`: "] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }
    scenario.advance_minutes(1);
    scenario.rerun("build", CheckVerdict::Running, 8);
    let text = shown(&scenario).unwrap().summary;
    assert!(!text.contains("`/explain`") && !text.contains("Rule 3"), "that state is over: {text}");
}

#[test]
fn own_check_run_is_never_required() {
    let required = |scenario: &PrScenario| scenario.record().required_checks.clone();
    let described = |scenario: &PrScenario| PullRequestDetails {
        required_checks: Some(vec![CHECK_RUN_NAME.to_owned(), "build".to_owned()]),
        ..described(&scenario.head)
    };
    let mut scenario = PrScenario::new();
    scenario.policy.check_run.enabled = true;
    scenario.apply(FactKind::Opened(described(&scenario)));
    assert_eq!(required(&scenario), ["build"]);
    let mut github = scenario.github();
    github.required_checks = Some(vec![CHECK_RUN_NAME.to_owned(), "build".to_owned()]);
    scenario.verify(github);
    assert_eq!(required(&scenario), ["build"]);
    scenario.check("build", CheckVerdict::Passed);
    assert_eq!(scenario.state(), State::ChecksPassed);
    // If Suture's check run is disabled, a check of that name belongs to somebody else.
    let mut other = PrScenario::new();
    other.apply(FactKind::Opened(described(&other)));
    assert_eq!(required(&other), ["suture", "build"]);
    let wrong = crate::policy::Policies::parse("check_run.enabled = true\nchecks.required = ['suture']").unwrap_err();
    assert!(wrong.to_string().contains("Suture would wait for itself"), "{wrong}");
}

#[test]
fn buttons_respect_github_length_limits() {
    for identifier in ["rebuild", "hold", "resume", "explain"] {
        let button = CheckRunButton::from_identifier(identifier).unwrap();
        assert!(button.label().len() <= 20 && button.description().len() <= 40, "{identifier}");
        assert_eq!((button.identifier(), button.command().name()), (identifier, format!("/{identifier}").as_str()));
    }
    assert_eq!(CheckRunButton::from_identifier("merge"), None);
}

#[test]
fn policy_rejection_is_shown_with_its_text() {
    let mut scenario = with_check_run();
    scenario.check("build", CheckVerdict::Passed);
    scenario.advance_minutes(1);
    let mut report =
        crate::tests::fixture::policy_says(PolicyVerdict::Failed(Substatus::OtherPolicyFailure), scenario.now);
    report.text = "needs two reviewers".to_owned();
    scenario.apply(FactKind::Policy { head: scenario.head.clone(), report });
    let text = shown(&scenario).unwrap();
    assert!(
        text.summary.contains("Policy Bot rejected it (OTHER_POLICY_FAILURE): needs two reviewers."),
        "{}",
        text.summary
    );
    assert!(text.summary.contains("If nothing changes, Suture will escalate to a person at "), "{}", text.summary);
}
