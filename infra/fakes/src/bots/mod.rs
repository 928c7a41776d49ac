//! The bots that examine pull requests: Policy Bot with its SOD validator, Approver Bot, Automerge Bot. A change
//! triggers a bot, which examines the pull request after a delay and acts on its state at that time. CodeGenie, which
//! opens pull requests, is in `codegenie`.

pub(crate) mod codegenie;

use std::sync::Arc;

use serde_json::{Value, json};

use crate::audit::AuditedAction;
use crate::clock::{TimedEvent, later, stamp};
use crate::fakes::{FakePrId, Fakes};
use crate::faults::Fault;
use crate::github::changes::NewStatus;
use crate::github::commit::StatusState;
use crate::github::model::{PrIx, ReviewState, Sha};
use crate::github::webhooks::WebhookTarget;
use crate::settings::FakeBot;

/// Labels that prevent Automerge Bot from merging.
const HOLD: [&str; 3] = ["do not merge", "hold", "wip"];

fn place(bot: FakeBot) -> usize {
    match bot {
        FakeBot::Policy => 0,
        FakeBot::Approver => 1,
        FakeBot::Automerge => 2,
    }
}

impl Fakes {
    /// Delivers a bus event to the bots, as an EventBridge rule would. Returns false if the type is unknown, the detail
    /// is invalid, or the pull request does not exist.
    pub fn bus_event(&mut self, detail_type: &str, detail: &str) -> bool {
        let Ok(json) = serde_json::from_str::<Value>(detail) else { return false };
        let repo = json["repo"].as_str().unwrap_or_default();
        let pr = FakePrId { repo: repo.to_owned(), number: json["pr_number"].as_u64().unwrap_or(0) };
        let head = json["head_sha"].as_str().map(str::to_owned);
        self.log("bus", AuditedAction::BusEvent, Some(pr.clone()), head, format!("{detail_type} {detail}"));
        let ix = self.ix(&pr);
        let bot = match (detail_type, ix) {
            ("PullRequestRequested", _) => return self.genie_requested(&json, ix),
            ("SodCheckRequested", Some(ix)) => {
                // The validator refreshes its data and triggers Policy Bot.
                self.fault_plans[ix.0].sod_stale = false;
                FakeBot::Policy
            }
            ("PolicyEvaluationRequested", Some(_)) => FakeBot::Policy,
            ("ApprovalRequested", Some(_)) => FakeBot::Approver,
            ("MergeRequested", Some(_)) => FakeBot::Automerge,
            _ => return false,
        };
        if let Some(ix) = ix.filter(|_| self.settings.listening[place(bot)].bus) {
            self.retrigger(bot, ix);
        }
        true
    }

    /// Retriggers a bot: it examines the pull request even if it ignored it before.
    pub(crate) fn retrigger(&mut self, bot: FakeBot, ix: PrIx) {
        let plan = &mut self.fault_plans[ix.0];
        plan.asleep_until[place(bot)] = None;
        plan.retriggered[place(bot)] = true;
        self.schedule_examination(bot, ix);
    }

    fn schedule_examination(&mut self, bot: FakeBot, ix: PrIx) {
        if !self.github.pull(ix).is_open()
            || std::mem::replace(&mut self.fault_plans[ix.0].examination_scheduled[place(bot)], true)
        {
            return;
        }
        let ms = self.delay(ix, self.settings.timing.bot_ms);
        self.clock.after_ms(ms, TimedEvent::BotExamines(bot, ix));
    }

    /// Policy Bot examines every new head, green or not.
    pub(crate) fn schedule_policy_examination(&mut self, ix: PrIx) {
        self.schedule_examination(FakeBot::Policy, ix);
    }

    /// After a change, triggers every bot that has work on the pull request, unless a fault makes it ignore it.
    pub(crate) fn trigger_bots_with_work(&mut self, ix: PrIx) {
        if !self.github.pull(ix).is_open() {
            return;
        }
        // GitHub's own auto-merge is not subject to faults.
        if let Some((login, _)) = self.github.pull(ix).auto_merge.clone()
            && self.is_ready(ix)
        {
            self.merge(ix, &login);
            return;
        }
        for (bot, asleep) in
            FakeBot::ALL.into_iter().zip([Fault::PolicyAsleep, Fault::ApproverAsleep, Fault::AutomergeAsleep])
        {
            if !self.has_work(bot, ix) || self.fault_plans[ix.0].examination_scheduled[place(bot)] {
                continue;
            }
            let now = self.now();
            if self.strikes(ix, asleep) {
                let ms = self.delay(ix, self.settings.timing.asleep_ms);
                self.fault_plans[ix.0].asleep_until[place(bot)] = Some(later(now, ms));
            }
            if self.fault_plans[ix.0].asleep_until[place(bot)].is_none_or(|until| until <= now) {
                self.schedule_examination(bot, ix);
            }
        }
    }

    fn has_work(&self, bot: FakeBot, ix: PrIx) -> bool {
        match bot {
            FakeBot::Policy => !self.has_verdict(ix) && !self.fault_plans[ix.0].evaluating && self.checks_green(ix),
            FakeBot::Approver => !self.is_approved_by_bot(ix) && !self.github.pull(ix).draft && self.policy_passed(ix),
            FakeBot::Automerge => self.is_ready(ix),
        }
    }

    fn policy_status(&self, ix: PrIx) -> Option<(StatusState, &str)> {
        let statuses = self.github.reported(ix).map_or(&[][..], |reported| &reported.statuses);
        let own = statuses.iter().rev().find(|status| status.context.starts_with("policy-bot"))?;
        Some((own.state, &own.description))
    }

    fn has_verdict(&self, ix: PrIx) -> bool {
        self.policy_status(ix).is_some_and(|(state, _)| state != StatusState::Pending)
    }

    fn policy_passed(&self, ix: PrIx) -> bool {
        self.policy_status(ix).is_some_and(|(state, _)| state == StatusState::Success)
    }

    fn is_approved_by_bot(&self, ix: PrIx) -> bool {
        let pull = self.github.pull(ix);
        pull.reviews.iter().any(|review| {
            review.user == FakeBot::Approver.login()
                && review.state == ReviewState::Approved
                && review.commit == *pull.head()
        })
    }

    /// Whether Automerge Bot would merge.
    pub(crate) fn is_ready(&self, ix: PrIx) -> bool {
        let pull = self.github.pull(ix);
        let strict = self.github.repo(pull.repo).settings.strict;
        pull.is_open()
            && !pull.draft
            && !pull.conflicts
            && pull.queued_at.is_none()
            && self.is_approved(ix)
            && !(strict && self.github.behind_by(ix) > 0)
            && !pull.labels.iter().any(|label| HOLD.contains(&label.to_ascii_lowercase().as_str()))
            && self.checks_green(ix)
            && self.required_green(ix)
    }

    pub(crate) fn bot_examines(&mut self, bot: FakeBot, ix: PrIx) {
        let plan = &mut self.fault_plans[ix.0];
        plan.examination_scheduled[place(bot)] = false;
        let retriggered = std::mem::take(&mut plan.retriggered[place(bot)]);
        if !self.github.pull(ix).is_open() {
            return;
        }
        match bot {
            FakeBot::Policy => self.policy_examines(ix, retriggered),
            FakeBot::Approver => self.approver_examines(ix),
            FakeBot::Automerge => self.automerge_examines(ix, retriggered),
        }
    }

    fn policy_examines(&mut self, ix: PrIx, retriggered: bool) {
        if !self.checks_green(ix) {
            if self.policy_status(ix).is_none() || retriggered {
                self.post_policy_status(ix, StatusState::Pending, "0/3 rules approved: waiting for the build");
            }
            return;
        }
        if self.fault_plans[ix.0].evaluating || (self.has_verdict(ix) && !retriggered) {
            return;
        }
        self.fault_plans[ix.0].evaluating = true;
        self.post_policy_status(ix, StatusState::Pending, "Evaluating policies");
        let (ms, sha) = (self.delay(ix, self.settings.timing.policy_ms), Arc::clone(self.github.pull(ix).head()));
        self.clock.after_ms(ms, TimedEvent::PolicyAnswers(ix, sha));
    }

    pub(crate) fn policy_answers(&mut self, ix: PrIx, sha: &Sha) {
        self.fault_plans[ix.0].evaluating = false;
        if !self.github.pull(ix).is_open() {
            return;
        }
        if self.github.pull(ix).head() != sha || !self.checks_green(ix) {
            self.schedule_policy_examination(ix);
            return;
        }
        if self.strikes(ix, Fault::SodTiming) {
            self.fault_plans[ix.0].sod_stale = true;
        }
        // The policy stays invalid until a person repairs it.
        let misconfigured =
            self.awaits_repair(ix, Fault::PolicyMisconfigured) || self.strikes(ix, Fault::PolicyMisconfigured);
        let (state, description) = if misconfigured {
            (StatusState::Error, "Invalid policy in .policy.yml: unknown field `aproval`")
        } else if self.fault_plans[ix.0].sod_stale {
            (StatusState::Failure, "Separation of duties not satisfied: no record of the author")
        } else {
            (StatusState::Success, "All rules are approved")
        };
        let times = if self.strikes(ix, Fault::BotAnswersTwice) { 2 } else { 1 };
        for _ in 0..times {
            self.post_policy_status(ix, state, description);
        }
    }

    fn post_policy_status(&mut self, ix: PrIx, state: StatusState, description: &str) {
        let pull = self.github.pull(ix);
        let (repo, sha) = (pull.repo, Arc::clone(pull.head()));
        let context = format!("policy-bot: {}", pull.base_ref);
        let target_url =
            format!("https://policy-bot.example/details/{}/{}", self.github.repo(repo).settings.name, pull.number);
        self.post_status(
            repo,
            &sha,
            FakeBot::Policy.login(),
            NewStatus { context: &context, state, description, target_url: &target_url },
        );
        let result = match state {
            StatusState::Pending => "started",
            StatusState::Success => "passed",
            StatusState::Failure | StatusState::Error => "failed",
        };
        self.report(FakeBot::Policy, ix, result, description);
    }

    fn approver_examines(&mut self, ix: PrIx) {
        if !self.has_work(FakeBot::Approver, ix) || !self.checks_green(ix) {
            return;
        }
        let times = if self.strikes(ix, Fault::BotAnswersTwice) { 2 } else { 1 };
        for _ in 0..times {
            self.review(ix, FakeBot::Approver.login(), ReviewState::Approved, "All policies are met.");
        }
        self.report(FakeBot::Approver, ix, "passed", "approved");
    }

    fn automerge_examines(&mut self, ix: PrIx, retriggered: bool) {
        if !self.is_ready(ix) {
            if retriggered {
                self.report(FakeBot::Automerge, ix, "failed", "the pull request cannot be merged");
            }
            return;
        }
        self.report(FakeBot::Automerge, ix, "started", "merging");
        if self.github.repo(self.github.pull(ix).repo).settings.merge_queue {
            self.enqueue(ix, FakeBot::Automerge.login());
        } else {
            self.merge(ix, FakeBot::Automerge.login());
        }
    }

    /// Posts a result to `/webhook/bot` if the bot reports directly.
    fn report(&mut self, bot: FakeBot, ix: PrIx, result: &str, reason: &str) {
        if !self.settings.listening[place(bot)].reports {
            return;
        }
        let pull = self.github.pull(ix);
        let payload = json!({
            "id": self.id_rng.guid(), "bot": bot.login().trim_end_matches("[bot]"), "repo": self.github.repo(pull.repo).settings.name,
            "pr_number": pull.number, "head_sha": pull.head(), "result": result, "reason": reason, "occurred_at": stamp(self.now()),
        });
        self.send_direct(WebhookTarget::Bot(bot), "bot", Some(ix), &payload);
    }
}
