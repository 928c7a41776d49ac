//! Activity by day: counts, dwell times per state, and the newest events, read from the by-day index of the event log. A
//! past day hardly changes, so it is cached for an hour; today and yesterday are cached for 30 seconds.

use std::collections::BTreeMap;
use std::sync::Arc;

use domain::event::Event;
use domain::id::{PrId, RepoName};
use domain::insights::{self, EventSample, Insights};
use domain::state::State;
use domain::text::pull_request as pr_text;
use domain::time::saturating_after;
use futures_util::future::try_join_all;
use jiff::civil::Date;
use jiff::{SignedDuration, Timestamp, ToSpan};

use serde::Serialize;
use utoipa::ToSchema;

use super::{AdminApi, AdminError, locked};
use crate::api_keys::ApiCaller;
use platform::overview::{DayActivity, DayCounts, read_day};
use platform::publish::Publisher;
use platform::store::queries::{self, DayQuery};
use platform::store::schema;
use platform::store::{Store, StoreError};

const DAYS: i64 = 14;
/// Days that dwell times are computed from.
const DWELL_DAYS: i64 = 7;
/// Days that are searched for the newest activity.
const ACTIVITY_DAYS: i64 = 7;
/// Activity entries of the overview.
const MAX_ACTIVITY: usize = 50;
/// How long a past day is cached, and how long one that may still change.
const PAST_DAY_CACHE: SignedDuration = SignedDuration::from_hours(1);
const RECENT_DAY_CACHE: SignedDuration = SignedDuration::from_secs(30);
/// Longest period of one export, in days.
const MAX_EXPORTED_DAYS: i64 = 31;

/// Insights from the event log of the last days.
#[derive(Debug, Clone, PartialEq)]
pub struct InsightPeriod {
    pub insights: Insights,
    pub days: usize,
    /// How many of these days were read only in part.
    pub cut_days: usize,
}

/// How long pull requests stay in a state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct StateDwellTime {
    #[schema(value_type = String)]
    pub state: State,
    pub count: u64,
    pub median_secs: u64,
    pub p95_secs: u64,
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct ActivityHistory {
    /// The last days, oldest first.
    pub days: Vec<(Date, DayCounts)>,
    pub dwell: Vec<StateDwellTime>,
    /// The newest notable events, newest first.
    pub activity: Vec<Event>,
}

impl<S: Store, O: Publisher> AdminApi<S, O> {
    /// The recent activity in the repositories that this caller can see.
    pub async fn history(&self, caller: &ApiCaller) -> Result<ActivityHistory, AdminError> {
        let today = schema::day_of(self.now());
        let dates = last_days(today);
        let days = try_join_all(dates.iter().map(|date| self.day(*date, today)));
        let (days, activity) = tokio::try_join!(days, self.activity(caller, today))?;
        let from = days.len().saturating_sub(usize::try_from(DWELL_DAYS).unwrap_or(0));
        let traces = days[from..].iter().flat_map(|day| &day.traces).filter(|trace| caller.can_see(&trace.pr.repo));
        let dwell = dwell(traces);
        let days =
            dates.into_iter().zip(&days).map(|(date, day)| (date, day.sum(|repo| caller.can_see(repo)))).collect();
        Ok(ActivityHistory { days, dwell, activity })
    }

    /// The insights of one repository, or of all that this caller can see.
    pub async fn insights(&self, caller: &ApiCaller, named: Option<&RepoName>) -> Result<InsightPeriod, AdminError> {
        let repo = match named {
            Some(_) => self.visible_repos(caller, named).await?.pop(),
            None => None,
        };
        let today = schema::day_of(self.now());
        let days = try_join_all(last_days(today).into_iter().map(|date| self.day(date, today))).await?;
        let wanted = |trace: &&EventSample| {
            caller.can_see(&trace.pr.repo) && repo.as_ref().is_none_or(|repo| *repo == trace.pr.repo)
        };
        let traces = days.iter().flat_map(|day| &day.traces).filter(wanted);
        let insights = insights::aggregate(traces, self.engine().policies());
        Ok(InsightPeriod { insights, days: days.len(), cut_days: days.iter().filter(|day| day.truncated).count() })
    }

    async fn day(&self, date: Date, today: Date) -> Result<Arc<DayActivity>, StoreError> {
        let now = self.now();
        let max_age = if date < today.saturating_sub(1.days()) { PAST_DAY_CACHE } else { RECENT_DAY_CACHE };
        let known = locked(&self.days).get(&date).cloned();
        if let Some((at, day)) = known
            && at <= now
            && now < saturating_after(at, max_age)
        {
            return Ok(day);
        }
        let day = Arc::new(read_day(self.store(), date, now).await?);
        let mut days = locked(&self.days);
        days.insert(date, (now, Arc::clone(&day)));
        days.retain(|date, _| *date >= today.saturating_sub(DAYS.days()));
        Ok(day)
    }

    async fn activity(&self, caller: &ApiCaller, today: Date) -> Result<Vec<Event>, StoreError> {
        let mut found = Vec::new();
        for back in 0..ACTIVITY_DAYS {
            let most = u32::try_from(2 * MAX_ACTIVITY).unwrap_or(u32::MAX);
            let reading = DayQuery { day: today.saturating_sub(back.days()), backwards: true, most };
            let (events, _) = queries::events_of_day(self.store(), reading, self.now()).await?;
            let is_notable = |event: &Event| caller.can_see(&event.pr.repo) && pr_text::activity(event).is_some();
            found.extend(events.into_iter().filter(is_notable));
            if found.len() >= MAX_ACTIVITY {
                break;
            }
        }
        found.truncate(MAX_ACTIVITY);
        Ok(found)
    }

    /// The events of a period that changed a state or are notable, in order of time, at most `most`. If there are more, also
    /// the time to continue from: that of the last event, which is then repeated.
    pub async fn export(
        &self,
        caller: &ApiCaller,
        from: Timestamp,
        to: Timestamp,
        most: usize,
    ) -> Result<(Vec<Event>, Option<Timestamp>), AdminError> {
        let last = schema::day_of(to);
        let mut day = schema::day_of(from);
        if to < from || day.saturating_add(MAX_EXPORTED_DAYS.days()) < last {
            let why = format!("`from` must be before `to`, and at most {MAX_EXPORTED_DAYS} days before it");
            // Each value is valid by itself, so this is a conflict and not a malformed request.
            return Err(AdminError::Conflict { code: "BAD_RANGE", why });
        }
        let mut found: Vec<Event> = Vec::new();
        while day <= last {
            let (events, _) = self.whole_day(day).await?;
            let wanted = |event: &Event| (from..=to).contains(&event.occurred_at) && caller.can_see(&event.pr.repo);
            found.extend(events.into_iter().filter(wanted));
            if found.len() > most {
                found.truncate(most);
                let next = found.last().map(|event| event.occurred_at);
                return Ok((found, next));
            }
            day = day.saturating_add(1.days());
        }
        Ok((found, None))
    }

    async fn whole_day(&self, day: Date) -> Result<(Vec<Event>, bool), StoreError> {
        queries::events_of_day(self.store(), DayQuery { day, backwards: false, most: u32::MAX }, self.now()).await
    }
}

/// The days of the activity history, oldest first.
fn last_days(today: Date) -> Vec<Date> {
    (0..DAYS).rev().map(|back| today.saturating_sub(back.days())).collect()
}

/// The dwell times of each live state whose start and end are both in the log.
fn dwell<'a>(traces: impl Iterator<Item = &'a EventSample>) -> Vec<StateDwellTime> {
    let mut traces: Vec<&EventSample> = traces.collect();
    traces.sort_by_key(|trace| trace.at);
    let mut since: BTreeMap<&PrId, (State, Timestamp)> = BTreeMap::new();
    let mut spans: BTreeMap<State, Vec<u64>> = BTreeMap::new();
    for trace in traces {
        let Some(to) = trace.to else { continue };
        if let Some((state, at)) = since.insert(&trace.pr, (to, trace.at))
            && trace.from == Some(state)
        {
            let secs = u64::try_from(trace.at.duration_since(at).as_secs()).unwrap_or(0);
            spans.entry(state).or_default().push(secs);
        }
    }
    let live = State::ALL.into_iter().filter(|state| state.is_live());
    live.map(|state| {
        let mut secs = spans.remove(&state).unwrap_or_default();
        secs.sort_unstable();
        let at = |percent: usize| secs.get((secs.len() * percent / 100).min(secs.len().saturating_sub(1))).copied();
        let (median_secs, p95_secs) = (at(50).unwrap_or(0), at(95).unwrap_or(0));
        StateDwellTime { state, count: secs.len() as u64, median_secs, p95_secs }
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use domain::event::EventKind;

    use super::*;

    #[test]
    fn dwell_time_needs_start_and_end_of_a_state() {
        let at = |secs: i64| Timestamp::from_second(secs).unwrap();
        let hop = |number: u64, secs: i64, from: Option<State>, to: State| {
            let event = Event {
                pr: PrId::new("acme/shop".parse().unwrap(), number),
                occurred_at: at(secs),
                id: domain::id::EventId::new("e"),
                hop: 0,
                kind: EventKind::ChecksStarted,
                source: domain::event::Actor::GithubWebhook,
                from,
                to: Some(to),
                payload: domain::event::EventPayload::default(),
                ttl: at(secs),
            };
            EventSample::of(&event).unwrap()
        };
        let hops = [
            hop(1, 0, None, State::Created),
            hop(2, 5, Some(State::ChecksPassed), State::PolicyEvaluating),
            hop(1, 60, Some(State::Created), State::ChecksRunning),
            hop(1, 160, Some(State::ChecksRunning), State::ChecksPassed),
            hop(3, 0, None, State::Created),
            hop(3, 20, Some(State::Created), State::ChecksRunning),
            hop(3, 30, Some(State::Approved), State::Merging),
        ];
        let dwell = dwell(hops.iter());
        assert_eq!(dwell.len(), 9);
        assert_eq!(dwell[0], StateDwellTime { state: State::Created, count: 2, median_secs: 60, p95_secs: 60 });
        assert_eq!(dwell[1], StateDwellTime { state: State::ChecksRunning, count: 1, median_secs: 100, p95_secs: 100 });
        assert!(dwell[2..].iter().all(|dwell| dwell.count == 0), "a state without a logged start has no dwell time");
    }
}
