//! Issues that become pull requests (R-COORD-5 to R-COORD-9). An issue's labels say which stage it is in: `discovered` waits for
//! a person, `approved` for room, `in-progress` for CodeGenie's pull request, `pr-open` for its end. What lies around for too
//! long is rejected, asked for again, or made urgent. People's labels are obeyed and never touched, and whatever people do to an
//! issue wins: each step says which stage it was decided on.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use super::{LABEL_HUMAN, has, is_held};
use crate::id::RepoName;
use crate::policy::Backlog;
use crate::priority::{self, Priority};
use crate::time::saturating_after;

named! {
    /// Where an issue is, the furthest last.
    pub enum Stage {
        /// Found by somebody or something; nobody has said yes.
        Discovered = "discovered",
        Approved = "approved",
        InProgress = "in-progress",
        PrOpen = "pr-open",
        /// A review of its pull request failed.
        ReviewFailed = "review-failed",
    }
}

impl Stage {
    pub fn label(self, settings: &Backlog) -> String {
        format!("{}{}", settings.label_prefix, self.name())
    }

    /// The furthest stage that these labels name: a person who approves an issue need not take `discovered` off.
    pub fn of(labels: &[String], settings: &Backlog) -> Option<Self> {
        Self::ALL.into_iter().rev().find(|stage| has(labels, &stage.label(settings)))
    }
}

/// How an issue's last pull request ended, or that it has not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pull {
    /// There is none that we know of.
    None,
    Open {
        number: u64,
        approved: bool,
        /// Whether a person holds it, it is a draft, or a remedy is under way: then it is not to be closed.
        taken: bool,
    },
    Merged {
        number: u64,
        at: Timestamp,
    },
    /// It was closed without a merge.
    Closed(u64),
}

/// An open issue with a label of the pipeline, as it was just read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Issue {
    pub repo: RepoName,
    pub number: u64,
    pub labels: Vec<String>,
    pub assigned: bool,
    pub created_at: Timestamp,
    pub vulnerability: Option<String>,
    /// Whether a person gave that vulnerability up with `/cancel`.
    pub abandoned: bool,
    pub pull: Pull,
}

impl Issue {
    fn key(&self) -> String {
        format!("{}#{}", self.repo, self.number)
    }
}

/// What is remembered about an issue.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Remembered {
    /// The stage it was last seen in.
    pub stage: Stage,
    pub since: Timestamp,
    #[serde(default)]
    pub requests: u32,
    /// When it was asked for the pull request that is awaited now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asked_at: Option<Timestamp>,
    /// When it was last listed: what is not listed any more is forgotten after a while.
    pub seen_at: Timestamp,
}

/// All that is remembered, by `owner/name#number`.
pub type Memory = BTreeMap<String, Remembered>;

/// Issues that are remembered at most: they share one row.
pub const MOST_REMEMBERED: usize = 2_000;
/// An issue that was not listed for this long is forgotten.
const FORGOTTEN_AFTER: SignedDuration = SignedDuration::from_hours(24);

/// What to do about an issue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    pub repo: RepoName,
    pub number: u64,
    /// The stage it was decided on: if the issue is not there any more, somebody was faster.
    pub from: Stage,
    /// Since when it was there, which makes the step the same however often it is taken.
    pub since: Timestamp,
    pub what: What,
}

/// What there is to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum What {
    /// Ask CodeGenie for a pull request, for the nth time.
    Ask {
        vulnerability: String,
        /// Which request it is, from 1.
        request: u32,
    },
    Opened(u64),
    /// Approved again: nobody opened a pull request, or it was closed.
    Requeue(Why),
    /// Close a pull request that nobody fixes, and approve the issue again.
    GiveUp(u64),
    /// Nobody has said yes for too long: close it.
    Reject,
    /// Its pull request was merged: close it.
    Done(u64),
    Urge(Why),
}

/// Why something is asked for again, or urgent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Why {
    NoPull,
    PullClosed(u64),
    /// Its pull request was not approved in time.
    NotApproved(u64),
    /// CodeGenie was asked as often as it may be.
    AskedEnough(u32),
}

/// What may be done at all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct May {
    pub ask: bool,
    pub tidy: bool,
}

/// The label of an issue that a person should look at.
pub fn urgent_label(settings: &Backlog) -> String {
    format!("{}urgent", settings.label_prefix)
}

/// What follows from a look at the backlog.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Plan {
    pub steps: Vec<Step>,
    pub memory: Memory,
    pub waiting: u32,
}

/// Looks at all issues of all repositories. `settings` is asked for each repository's own; issues of repositories that could not
/// be listed now are not among `issues`, and what is remembered of them still counts as under way.
pub fn plan<'s>(
    issues: &[Issue],
    memory: Memory,
    settings: impl Fn(&RepoName) -> &'s Backlog,
    wip_limit: u32,
    may: May,
    now: Timestamp,
) -> Plan {
    let mut plan = Plan { memory, ..Plan::default() };
    let mut wishes: Vec<(i64, &Issue, String)> = Vec::new();
    for issue in issues {
        let own = settings(&issue.repo);
        let Some(stage) = Stage::of(&issue.labels, own) else { continue };
        let known = plan.notice(issue, stage, own.every_minutes, now);
        match step(issue, &known, own, now) {
            Next::Nothing => {}
            Next::Wish(vulnerability) => {
                let score = priority::score(Priority::from_labels(&issue.labels), issue.created_at, now, None);
                wishes.push((score, issue, vulnerability));
            }
            Next::Do(What::Reject | What::Urge(_)) if !may.tidy => {}
            Next::Do(what) => plan.push(issue, &known, what),
        }
    }
    plan.memory.retain(|_, known| saturating_after(known.seen_at, FORGOTTEN_AFTER) > now);
    plan.grant(wishes, wip_limit, may, now);
    plan
}

/// What an issue is ready for.
enum Next {
    Nothing,
    /// To be asked for, if there is room.
    Wish(String),
    Do(What),
}

fn step(issue: &Issue, known: &Remembered, settings: &Backlog, now: Timestamp) -> Next {
    if is_held(&issue.labels) {
        return Next::Nothing;
    }
    let late = |hours: u32| now >= saturating_after(known.since, SignedDuration::from_hours(hours.into()));
    let urge = |why| {
        let said = has(&issue.labels, &urgent_label(settings));
        if said { Next::Nothing } else { Next::Do(What::Urge(why)) }
    };
    // A pull request that came and was merged between two looks.
    let asked_at = known.asked_at.or((known.stage == Stage::InProgress).then_some(known.since));
    if let (Pull::Merged { number, at }, Some(asked_at)) = (issue.pull, asked_at)
        && at >= asked_at
    {
        return Next::Do(What::Done(number));
    }
    match (known.stage, issue.pull) {
        (Stage::Discovered, _) => {
            let somebodys = issue.assigned || has(&issue.labels, LABEL_HUMAN);
            if late(settings.discovered_hours) && !somebodys { Next::Do(What::Reject) } else { Next::Nothing }
        }
        (Stage::Approved | Stage::InProgress, Pull::Open { number, .. }) => Next::Do(What::Opened(number)),
        (Stage::Approved, Pull::None | Pull::Closed(_) | Pull::Merged { .. }) => match &issue.vulnerability {
            Some(_) if issue.abandoned || issue.assigned => Next::Nothing,
            // Without an id nobody could tell whether its pull request is there: asking might never end.
            None => Next::Nothing,
            // What was asked for already is only repeated, under the same name.
            Some(_) if known.asked_at.is_none() && known.requests >= settings.max_requests => {
                urge(Why::AskedEnough(known.requests))
            }
            Some(id) => Next::Wish(id.clone()),
        },
        (Stage::InProgress, Pull::None | Pull::Closed(_) | Pull::Merged { .. }) => {
            if late(settings.in_progress_hours) {
                Next::Do(What::Requeue(Why::NoPull))
            } else {
                Next::Nothing
            }
        }
        (Stage::PrOpen | Stage::ReviewFailed, Pull::Merged { number, .. }) => Next::Do(What::Done(number)),
        (Stage::PrOpen | Stage::ReviewFailed, Pull::Closed(number)) => Next::Do(What::Requeue(Why::PullClosed(number))),
        (Stage::PrOpen, Pull::Open { number, approved, .. }) => {
            if late(settings.pr_open_hours) && !approved {
                urge(Why::NotApproved(number))
            } else {
                Next::Nothing
            }
        }
        (Stage::ReviewFailed, Pull::Open { number, taken, .. }) => {
            if late(settings.review_failed_hours) && !taken {
                Next::Do(What::GiveUp(number))
            } else {
                Next::Nothing
            }
        }
        // A person has put the label there, or we have not heard of the pull request yet.
        (Stage::PrOpen | Stage::ReviewFailed, Pull::None) => Next::Nothing,
    }
}

impl Plan {
    /// Remembers an issue as it is now, and answers what is known about it then.
    fn notice(&mut self, issue: &Issue, stage: Stage, every_minutes: u32, now: Timestamp) -> Remembered {
        let unseen_for = SignedDuration::from_mins(2 * i64::from(every_minutes) + 5);
        let fresh = Remembered { stage, since: now, requests: 0, asked_at: None, seen_at: now };
        // One that was closed, or without its label, meanwhile begins anew: a person brought it back.
        let known = self.memory.get(&issue.key()).filter(|known| saturating_after(known.seen_at, unseen_for) > now);
        let known = match known {
            None => fresh,
            Some(known) if known.stage == stage => Remembered { seen_at: now, ..known.clone() },
            // CodeGenie has had its time since it was asked, not since the label was seen.
            Some(known) if stage == Stage::InProgress => {
                Remembered { since: known.asked_at.unwrap_or(now), requests: known.requests, ..fresh }
            }
            Some(known) => Remembered { requests: known.requests, ..fresh },
        };
        if self.memory.len() < MOST_REMEMBERED || self.memory.contains_key(&issue.key()) {
            self.memory.insert(issue.key(), known.clone());
        }
        known
    }

    fn push(&mut self, issue: &Issue, known: &Remembered, what: What) {
        let (repo, number) = (issue.repo.clone(), issue.number);
        self.steps.push(Step { repo, number, from: known.stage, since: known.since, what });
    }

    /// Asks for as many as there is room for: the highest score first, then the oldest. What was asked for and does not show
    /// yet is repeated, and counts as under way.
    fn grant(&mut self, mut wishes: Vec<(i64, &Issue, String)>, wip_limit: u32, may: May, now: Timestamp) {
        let under_way = |known: &&Remembered| {
            known.stage == Stage::InProgress || (known.stage == Stage::Approved && known.asked_at.is_some())
        };
        let mut room =
            wip_limit.saturating_sub(u32::try_from(self.memory.values().filter(under_way).count()).unwrap_or(u32::MAX));
        wishes.sort_by_key(|(score, issue, _)| (Reverse(*score), issue.created_at, issue.key()));
        let mut granted: Vec<&str> = Vec::new();
        for (_, issue, vulnerability) in &wishes {
            // Who is not remembered could be asked for without end.
            let Some(known) = self.memory.get_mut(&issue.key()) else { continue };
            let again = known.asked_at.is_some();
            // Two issues about one vulnerability become one pull request.
            let doubled = granted.contains(&vulnerability.as_str());
            if !may.ask || doubled || (room == 0 && !again) {
                self.waiting += 1;
                continue;
            }
            if !again {
                room -= 1;
                known.requests += 1;
                known.asked_at = Some(now);
            }
            let known = known.clone();
            granted.push(vulnerability);
            let (vulnerability, request) = (vulnerability.clone(), known.requests);
            self.push(issue, &known, What::Ask { vulnerability, request });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hour(hour: i64) -> Timestamp {
        Timestamp::from_second(1_772_000_000 + 3_600 * hour).unwrap()
    }

    fn issue(number: u64, labels: &[&str]) -> Issue {
        Issue {
            repo: "acme/shop".parse().unwrap(),
            number,
            labels: labels.iter().map(|label| (*label).to_owned()).collect(),
            assigned: false,
            created_at: hour(-1),
            vulnerability: Some(format!("CVE-2026-{}", 10_000 + number)),
            abandoned: false,
            pull: Pull::None,
        }
    }

    fn open(number: u64) -> Pull {
        Pull::Open { number, approved: false, taken: false }
    }

    fn merged(number: u64, at: i64) -> Pull {
        Pull::Merged { number, at: hour(at) }
    }

    const ALL: May = May { ask: true, tidy: true };

    /// Looks once an hour or less often.
    fn seldom() -> Backlog {
        Backlog { every_minutes: 1_440, ..Backlog::default() }
    }

    fn planned(issues: &[Issue], memory: Memory, wip_limit: u32, now: Timestamp) -> Plan {
        let settings = seldom();
        plan(issues, memory, |_| &settings, wip_limit, ALL, now)
    }

    fn whats(plan: &Plan) -> Vec<(u64, What)> {
        plan.steps.iter().map(|step| (step.number, step.what.clone())).collect()
    }

    fn ask(number: u64, request: u32) -> (u64, What) {
        (number, What::Ask { vulnerability: format!("CVE-2026-{}", 10_000 + number), request })
    }

    #[test]
    fn the_furthest_label_is_the_stage() {
        let settings = Backlog::default();
        let of = |labels: &[&str]| Stage::of(&issue(1, labels).labels, &settings);
        assert_eq!(of(&["bug"]), None);
        assert_eq!(of(&["Pipeline/Discovered"]), Some(Stage::Discovered));
        assert_eq!(of(&["pipeline/discovered", "pipeline/approved"]), Some(Stage::Approved));
        assert_eq!(of(&["pipeline/review-failed", "pipeline/pr-open"]), Some(Stage::ReviewFailed));
    }

    #[test]
    fn approved_issues_are_asked_for_up_to_the_limit_by_priority_then_age() {
        let mut issues: Vec<Issue> = (1..=4).map(|number| issue(number, &["pipeline/approved"])).collect();
        issues[1].created_at = hour(-5);
        issues[3].labels.push("suture/priority-p0".to_owned());
        let first = planned(&issues, Memory::new(), 2, hour(0));
        assert_eq!((whats(&first), first.waiting), (vec![ask(4, 1), ask(2, 1)], 2));
        // As long as GitHub shows no change, the same is asked for again, and nothing more.
        let again = planned(&issues, first.memory.clone(), 2, hour(0));
        assert_eq!(again.steps, first.steps);
        // One is in progress now: the room is still taken.
        issues[3].labels[0] = "pipeline/in-progress".to_owned();
        let then = planned(&issues, again.memory, 2, hour(1));
        assert_eq!(whats(&then), [ask(2, 1)]);
        // Its pull request is open: there is room again.
        issues[3].labels[0] = "pipeline/pr-open".to_owned();
        issues[3].pull = open(9);
        let last = planned(&issues, then.memory, 2, hour(1));
        assert_eq!((whats(&last), last.waiting), (vec![ask(2, 1), ask(1, 1)], 1));
    }

    #[test]
    fn what_is_somebodys_or_has_no_id_is_not_asked_for() {
        let approved = |number| issue(number, &["pipeline/approved"]);
        let issues = [
            Issue { assigned: true, ..approved(1) },
            Issue { vulnerability: None, ..approved(2) },
            Issue { abandoned: true, ..approved(3) },
            issue(4, &["pipeline/approved", "suture/hold"]),
            issue(5, &["pipeline/approved", "suture/ignore"]),
            Issue { pull: open(77), ..approved(6) },
        ];
        assert_eq!(whats(&planned(&issues, Memory::new(), 10, hour(0))), [(6, What::Opened(77))]);
        // Two issues about one vulnerability are one pull request.
        let twins = [approved(7), Issue { vulnerability: approved(7).vulnerability, ..approved(8) }];
        assert_eq!(whats(&planned(&twins, Memory::new(), 10, hour(0))), [ask(7, 1)]);
    }

    #[test]
    fn an_issue_without_a_pull_request_is_asked_for_again_after_two_hours_and_not_for_ever() {
        let mut one = [issue(1, &["pipeline/approved"])];
        let (mut memory, mut now) = (Memory::new(), 0);
        for request in 1..=3 {
            let asked = planned(&one, memory, 10, hour(now));
            assert_eq!(whats(&asked), [ask(1, request)]);
            one[0].labels = vec!["pipeline/in-progress".to_owned()];
            let quiet = planned(&one, asked.memory, 10, hour(now + 1));
            assert_eq!(whats(&quiet), []);
            let late = planned(&one, quiet.memory, 10, hour(now + 2));
            assert_eq!(whats(&late), [(1, What::Requeue(Why::NoPull))], "counted from the request");
            one[0].labels = vec!["pipeline/approved".to_owned()];
            (memory, now) = (late.memory, now + 3);
        }
        let enough = planned(&one, memory, 10, hour(now));
        assert_eq!(whats(&enough), [(1, What::Urge(Why::AskedEnough(3)))]);
        one[0].labels.push("pipeline/urgent".to_owned());
        assert_eq!(whats(&planned(&one, enough.memory, 10, hour(now + 20))), []);
    }

    #[test]
    fn what_nobody_approves_for_a_day_is_rejected_unless_it_is_somebodys() {
        let issues = [
            Issue { created_at: hour(-500), ..issue(1, &["pipeline/discovered"]) },
            issue(2, &["pipeline/discovered", "source/human"]),
            Issue { assigned: true, ..issue(3, &["pipeline/discovered"]) },
            issue(4, &["pipeline/discovered", "suture/hold"]),
        ];
        let first = planned(&issues, Memory::new(), 10, hour(0));
        assert_eq!(whats(&first), [], "who labels an old issue gets a day, too");
        assert_eq!(whats(&planned(&issues, first.memory.clone(), 10, hour(23))), []);
        let settings = seldom();
        let spare = May { ask: true, tidy: false };
        let scarce = plan(&issues, first.memory.clone(), |_| &settings, 10, spare, hour(24));
        assert_eq!(whats(&scarce), []);
        let late = planned(&issues, first.memory, 10, hour(24));
        assert_eq!(whats(&late), [(1, What::Reject)]);
        assert_eq!((late.steps[0].from, late.steps[0].since), (Stage::Discovered, hour(0)));
    }

    #[test]
    fn what_a_person_brings_back_begins_anew() {
        let settings = Backlog::default();
        let one = [issue(1, &["pipeline/discovered"])];
        let look = |memory, minute: i64| {
            let now = hour(0) + SignedDuration::from_mins(minute);
            plan(&one, memory, |_| &settings, 10, ALL, now)
        };
        let mut memory = Memory::new();
        for minute in (0..24 * 60).step_by(5) {
            memory = look(memory, minute).memory;
        }
        let rejected = look(memory, 24 * 60);
        assert_eq!(whats(&rejected), [(1, What::Reject)]);
        assert_eq!(whats(&look(rejected.memory.clone(), 24 * 60 + 14)), [(1, What::Reject)], "it is still there");
        assert_eq!(whats(&look(rejected.memory, 24 * 60 + 15)), [], "it was closed, and is open again");
    }

    #[test]
    fn a_pull_request_that_ends_ends_its_issue_or_brings_it_back() {
        let with = |number, pull| Issue { pull, ..issue(number, &["pipeline/pr-open"]) };
        let approved = Pull::Open { number: 14, approved: true, taken: false };
        let issues = [with(1, merged(11, -5)), with(2, Pull::Closed(12)), with(3, open(13)), with(4, approved)];
        let first = planned(&issues, Memory::new(), 10, hour(0));
        let closed = What::Requeue(Why::PullClosed(12));
        assert_eq!(whats(&first), [(1, What::Done(11)), (2, closed.clone())]);
        let late = planned(&issues, first.memory, 10, hour(4));
        assert_eq!(whats(&late)[2..], [(3, What::Urge(Why::NotApproved(13)))]);
    }

    #[test]
    fn a_pull_request_that_came_and_went_between_two_looks_ends_its_issue() {
        let mut one = [Issue { pull: merged(9, -1), ..issue(1, &["pipeline/approved"]) }];
        let asked = planned(&one, Memory::new(), 10, hour(0));
        assert_eq!(whats(&asked), [ask(1, 1)], "what was merged before it was approved is another story");
        one[0].pull = merged(10, 1);
        assert_eq!(whats(&planned(&one, asked.memory.clone(), 10, hour(1))), [(1, What::Done(10))]);
        one[0].labels = vec!["pipeline/in-progress".to_owned()];
        assert_eq!(whats(&planned(&one, asked.memory, 10, hour(1))), [(1, What::Done(10))]);
    }

    #[test]
    fn a_failed_review_nobody_fixes_gives_the_pull_request_up_unless_it_is_taken() {
        let failed = |number, taken| Issue {
            pull: Pull::Open { number: number + 10, approved: false, taken },
            ..issue(number, &["pipeline/pr-open", "pipeline/review-failed"])
        };
        let issues = [failed(1, false), failed(2, true)];
        let first = planned(&issues, Memory::new(), 10, hour(0));
        assert_eq!(whats(&first), []);
        assert_eq!(whats(&planned(&issues, first.memory, 10, hour(4))), [(1, What::GiveUp(11))]);
    }

    #[test]
    fn nothing_is_asked_for_when_it_may_not_be_and_what_could_not_be_listed_still_counts() {
        let settings = Backlog::default();
        let one = [issue(1, &["pipeline/approved"])];
        let none = plan(&one, Memory::new(), |_| &settings, 10, May { ask: false, tidy: true }, hour(0));
        assert_eq!((none.steps.len(), none.waiting), (0, 1));
        let other = planned(&[issue(2, &["pipeline/in-progress"])], Memory::new(), 10, hour(0));
        let full = planned(&one, other.memory, 1, hour(1));
        assert_eq!((full.steps.len(), full.waiting), (0, 1));
        let forgotten = planned(&one, full.memory, 1, hour(26));
        assert_eq!(whats(&forgotten), [ask(1, 1)]);
    }

    #[test]
    fn memory_is_bounded_and_who_is_not_remembered_is_not_asked_for() {
        let many: Vec<Issue> =
            (1..=u64::try_from(MOST_REMEMBERED).unwrap() + 5).map(|n| issue(n, &["pipeline/approved"])).collect();
        let plan = planned(&many, Memory::new(), 1_000_000, hour(0));
        assert_eq!((plan.memory.len(), plan.steps.len()), (MOST_REMEMBERED, MOST_REMEMBERED));
    }
}
