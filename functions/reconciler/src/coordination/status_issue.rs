//! The status issue: the numbers of `/api/overview`, counted by the same functions, worded by the domain, kept up to
//! date by the Car Bridge. It is asked for when something else is to be said, and once in a while in case that was
//! lost.

use domain::comment::coordination as words;
use domain::comment::desk as reasons;
use domain::coordination::backlog::{Memory, Stage};
use domain::coordination::sentinel::Watch;
use domain::coordination::status::{Issues, Lane, Numbers, Repo, Waiting};
use domain::id::RepoName;
use domain::policy::Status;
use domain::pull_request::Record;
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use platform::sweep_summary::Coordinated;

use super::{Coordinator, Failed, backlog};
use crate::context::after;
use crate::limits::rate_budget::WorkKind;
use platform::breaker;
use platform::guards;
use platform::hash::hashed;
use platform::outlets::Outlets;
use platform::outlets::message::{Chore, OwnIssue};
use platform::overview::{self, Counted};
use platform::store::versioned::{self, Versioned};
use platform::store::{Key, Store};

const LABEL: &str = "suture/status";
/// Even if nothing has changed, it is asked for again after this long.
const ASK_AGAIN: SignedDuration = SignedDuration::from_hours(1);
/// What was said is remembered this long.
const REMEMBERED_FOR: SignedDuration = SignedDuration::from_hours(24 * 14);

/// What a status issue was last asked to say.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Said {
    what: String,
    at: Timestamp,
}

/// A status issue: where it is, and what it shows.
struct Shown<'p> {
    repo: RepoName,
    settings: &'p Status,
    /// One repository, or all of the owner's.
    of: Option<RepoName>,
}

impl Shown<'_> {
    fn key(&self) -> String {
        self.of.as_ref().map_or_else(|| "status".to_owned(), |of| format!("status-{of}"))
    }

    fn name(&self) -> &str {
        self.of.as_ref().map_or_else(|| self.repo.owner(), |of| of.as_str())
    }

    fn shows(&self, repo: &RepoName) -> bool {
        match &self.of {
            Some(of) => of.as_str().eq_ignore_ascii_case(repo.as_str()),
            // Another owner's repositories are none of this one's business.
            None => self.repo.owner().eq_ignore_ascii_case(repo.owner()),
        }
    }
}

impl<S: Store, O: Outlets> Coordinator<'_, S, O> {
    pub(super) async fn status(&self, summary: &mut Coordinated) -> Result<(), Failed> {
        let all = self.shown();
        if all.is_empty() || self.is_scarce(WorkKind::Status, "status", summary) {
            return Ok(());
        }
        let (mut counted, mut last) = (None, Ok(()));
        for shown in &all {
            // One that cannot be written does not keep the others from it.
            match self.show(shown, &mut counted).await {
                Ok(sent) => summary.status += u32::from(sent),
                Err(why) => last = Err(why),
            }
        }
        last
    }

    /// Asks for one status issue, if something else is to be said. Whether it was asked for.
    async fn show(&self, shown: &Shown<'_>, counted: &mut Option<Counted>) -> Result<bool, Failed> {
        let now = self.cx.now();
        let row = Key::state(format!("STATUS#{}#{}", shown.repo, shown.key()));
        let known: Option<Versioned<Said>> = versioned::load(self.cx.store(), &row, now).await?;
        let version = known.as_ref().map(|known| known.version);
        let said = known.map(|known| known.value);
        // A little earlier: the sweep of that very minute is to do it, whatever second it begins in.
        let every = SignedDuration::from_mins(shown.settings.every_minutes.into());
        let pause = every.saturating_sub(SignedDuration::from_secs(30));
        let just_said = said.as_ref().is_some_and(|said| now < after(said.at, pause));
        if just_said || !self.acts_in(&shown.repo) {
            return Ok(false);
        }
        let counted = match counted {
            Some(counted) => counted,
            None => counted.insert(overview::count(self.cx.store(), self.cx.policies(), now).await?),
        };
        let body = words::status_body(&self.numbers(shown, counted).await?);
        let what = hashed(&[&body]);
        if said.is_some_and(|said| said.what == what && now < after(said.at, ASK_AGAIN)) {
            return Ok(false);
        }
        let (repo, title) = (shown.repo.clone(), words::status_title(shown.name()));
        let (key, label, pin) = (shown.key(), LABEL.to_owned(), shown.settings.pin);
        let id = format!("{key}-{repo}-{}", &what[..16]);
        let issue = OwnIssue { key, label, labels: Vec::new(), title, body, as_of: now, kept: true, pin };
        // Sent, then remembered: what was not sent is said by the next sweep, and what is said twice is written once.
        self.send(id, Chore::Issue { repo, issue: Box::new(issue) }).await?;
        versioned::save(self.cx.store(), &row, &Said { what, at: now }, version, Some(after(now, REMEMBERED_FOR)), now)
            .await?;
        Ok(true)
    }

    /// The status issues that are configured: one of the whole, and those of single repositories.
    fn shown(&self) -> Vec<Shown<'_>> {
        let policies = self.cx.policies();
        let base = &policies.base().status;
        let mut all = Vec::new();
        if let Ok(repo) = base.repo.parse() {
            all.push(Shown { repo, settings: base, of: None });
        }
        for (name, policy) in policies.overrides() {
            let own = &policy.status;
            // What is only inherited is shown with the whole.
            if own.repo != base.repo
                && let (Ok(repo), Ok(of)) = (own.repo.parse(), name.parse())
            {
                all.push(Shown { repo, settings: own, of: Some(of) });
            }
        }
        all
    }

    async fn numbers(&self, shown: &Shown<'_>, counted: &Counted) -> Result<Numbers, Failed> {
        let (store, now) = (self.cx.store(), self.cx.now());
        let seen = |repo: &RepoName| counted.repos.contains(repo) && shown.shows(repo);
        let today = overview::today(store, seen, now).await?;
        let lanes = counted.lanes(seen).into_iter();
        let waiting = |record: &&Record| {
            let why = reasons::why(record, self.cx.policies().for_repo(&record.id.repo), now);
            Waiting { pr: record.id.clone(), since: record.progressed_at, why }
        };
        Ok(Numbers {
            states: lanes.map(|lane| Lane { state: lane.state, count: lane.count, stale: lane.stale }).collect(),
            repos: counted
                .by_repo(seen)
                .into_iter()
                .map(|(repo, [open, needs_person, stale])| Repo { repo, open, needs_person, stale })
                .collect(),
            needs_person: counted.needs_person(seen).iter().map(waiting).collect(),
            today,
            breaker: breaker::load(store, now).await?.state.name().to_owned(),
            paused: guards::paused(store, now).await?,
            backlog: self.issues(shown).await?,
            outages: self.outages(shown).await?,
        })
    }

    /// The backlog as it was last seen, if it is looked after.
    async fn issues(&self, shown: &Shown<'_>) -> Result<Option<Issues>, Failed> {
        let known: Option<Versioned<Memory>> = versioned::load(self.cx.store(), &backlog::key(), self.cx.now()).await?;
        let Some(known) = known else { return Ok(None) };
        let wip_limit = self.cx.policies().base().coordination.wip_limit;
        let mut issues = Issues { wip_limit, ..Issues::default() };
        for (key, known) in &known.value {
            let here = key.split_once('#').and_then(|(repo, _)| repo.parse().ok()).is_some_and(|it| shown.shows(&it));
            if !here {
                continue;
            }
            match known.stage {
                Stage::Discovered => issues.discovered += 1,
                Stage::Approved => issues.approved += 1,
                Stage::InProgress => issues.in_progress += 1,
                Stage::PrOpen | Stage::ReviewFailed => issues.pr_open += 1,
            }
        }
        Ok(Some(issues))
    }

    async fn outages(&self, shown: &Shown<'_>) -> Result<Vec<(Timestamp, String)>, Failed> {
        let mut outages = Vec::new();
        for target in self.targets().await? {
            if target.repos.iter().any(|repo| shown.shows(repo)) {
                let known: Option<Versioned<Watch>> =
                    versioned::load(self.cx.store(), &target.key(), self.cx.now()).await?;
                let outage = known.and_then(|known| known.value.goes_on().cloned());
                outages.extend(outage.map(|outage| (outage.since, outage.what)));
            }
        }
        Ok(outages)
    }
}
