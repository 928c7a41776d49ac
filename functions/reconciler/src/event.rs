//! Parses the invocation event: the payload of EventBridge Scheduler, the event of a scheduled rule, or
//! `ReconcileRequested` from the event bus.

use aws_lambda_events::event::eventbridge::EventBridgeEvent;
use domain::id::{PrId, RepoName, RunId};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use thiserror::Error;

use crate::Invocation;
use crate::trigger::{ReconcileScope, SweepTrigger};

/// The name of a scheduled sweep if the schedule does not set one.
const SCHEDULE: &str = "sweep";

/// The event is not one that the reconciler handles. The error names the event, so that the faulty rule can be found.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum InvalidEvent {
    #[error("unknown `detail-type` `{0}`: the reconciler handles `ReconcileRequested` and scheduled events")]
    Unknown(String),
    #[error("malformed event: {0}")]
    Malformed(String),
}

/// The payload of our schedule, or the event of a scheduled rule. `aws_lambda_events` has no type for the first, and
/// its types require fields that may be missing here.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ScheduledEvent {
    schedule: Option<String>,
    /// `<aws.scheduler.scheduled-time>`, which Scheduler replaces by the time; the literal text if it did not.
    slot: Option<String>,
    time: Option<String>,
}

/// The detail of `ReconcileRequested`. Every field is optional; without any, the request covers everything.
#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(default)]
struct ReconcileDetail {
    repo: Option<String>,
    pr_number: Option<u64>,
    base: Option<String>,
    dry_run: bool,
    run_id: Option<String>,
    requested_by: Option<String>,
}

pub fn parse_event(event: Value, invocation: &Invocation<'_>) -> Result<SweepTrigger, InvalidEvent> {
    let event: Option<Map<String, Value>> = read(event)?;
    let mut event = event.unwrap_or_default();
    match read::<Option<String>>(event.get("detail-type").cloned().unwrap_or_default())?.as_deref() {
        Some("ReconcileRequested") => {
            // The AWS type requires `source`. It is not used here, and manual invocations omit it.
            event.insert("source".to_owned(), Value::String(String::new()));
            requested(read(Value::Object(event))?, invocation)
        }
        Some("Scheduled Event") | None => {
            let tick: ScheduledEvent = read(Value::Object(event))?;
            let slot = tick.slot.or(tick.time).and_then(|slot| slot.parse::<Timestamp>().ok());
            let schedule = tick.schedule.unwrap_or_else(|| SCHEDULE.to_owned());
            Ok(SweepTrigger::scheduled(&schedule, slot.unwrap_or(invocation.now), invocation.request_id))
        }
        Some(other) => Err(InvalidEvent::Unknown(other.to_owned())),
    }
}

fn read<T: for<'de> Deserialize<'de>>(json: Value) -> Result<T, InvalidEvent> {
    serde_json::from_value(json).map_err(|error| InvalidEvent::Malformed(error.to_string()))
}

fn requested(
    event: EventBridgeEvent<Option<ReconcileDetail>>,
    invocation: &Invocation<'_>,
) -> Result<SweepTrigger, InvalidEvent> {
    let detail = event.detail.unwrap_or_default();
    let malformed = |error: domain::id::InvalidId| InvalidEvent::Malformed(error.to_string());
    let repo: Option<RepoName> = detail.repo.as_deref().map(str::parse).transpose().map_err(malformed)?;
    let base = detail.base.filter(|base| !base.is_empty());
    let scope = match (repo, detail.pr_number, base) {
        (Some(repo), Some(number), _) => ReconcileScope::One(PrId::new(repo, number)),
        (Some(repo), None, Some(base)) => ReconcileScope::Base(repo, base),
        (Some(repo), None, None) => ReconcileScope::Repo(repo),
        (None, None, None) => ReconcileScope::All,
        (None, Some(_), _) => return Err(InvalidEvent::Malformed("`pr_number` needs a `repo`".to_owned())),
        (None, None, Some(_)) => return Err(InvalidEvent::Malformed("`base` needs a `repo`".to_owned())),
    };
    // An event that is delivered twice has the same id, so it starts one sweep.
    let run =
        detail.run_id.unwrap_or_else(|| format!("requested-{}", event.id.as_deref().unwrap_or(invocation.request_id)));
    let mut trigger = SweepTrigger::requested(RunId::new(run), scope, detail.dry_run, invocation.request_id);
    trigger.requested_by = detail.requested_by;
    // The time of the event, not of its delivery: a late delivery must not supersede a newer request.
    trigger.at = event.time.and_then(|time| Timestamp::from_millisecond(time.timestamp_millis()).ok());
    Ok(trigger)
}

#[cfg(test)]
mod tests {
    use domain::run::RunTrigger;
    use serde_json::json;

    use super::*;

    fn invocation() -> Invocation<'static> {
        let now = "2036-03-03T09:07:12Z".parse().unwrap();
        Invocation { request_id: "req-1", now, deadline: now }
    }

    fn run_of(event: Value) -> String {
        parse_event(event, &invocation()).unwrap().run.to_string()
    }

    #[test]
    fn slot_comes_from_the_schedule_not_the_clock() {
        let tick = json!({"schedule": "sweep", "slot": "2036-03-03T09:05:00Z"});
        let trigger = parse_event(tick, &invocation()).unwrap();
        assert_eq!((trigger.run.as_str(), trigger.kind), ("sweep-20360303T0905Z", RunTrigger::Schedule));
        assert_eq!(trigger.key.as_deref(), Some("scheduler:sweep:2036-03-03T09:05:00Z"));
        assert_eq!((trigger.scope, trigger.dry_run, trigger.holder.as_str()), (ReconcileScope::All, false, "req-1"));
        let rule = json!({"detail-type": "Scheduled Event", "source": "aws.events", "time": "2036-03-03T09:06:00Z", "detail": {}});
        assert_eq!(run_of(rule), "sweep-20360303T0906Z");
    }

    #[test]
    fn slot_is_the_current_minute_without_a_time() {
        for event in [json!(null), json!({}), json!({"slot": "<aws.scheduler.scheduled-time>"})] {
            assert_eq!(run_of(event), "sweep-20360303T0907Z");
        }
        assert_eq!(run_of(json!({"schedule": "nightly"})), "nightly-20360303T0907Z");
    }

    #[test]
    fn request_detail_sets_the_scope() {
        let request = |detail: Value| json!({"id": "e-1", "detail-type": "ReconcileRequested", "detail": detail});
        let trigger = |detail: Value| parse_event(request(detail), &invocation()).unwrap();
        assert_eq!(
            (trigger(json!({})).scope, trigger(json!({})).run.to_string()),
            (ReconcileScope::All, "requested-e-1".to_owned())
        );
        let one = trigger(
            json!({"repo": "acme/shop", "pr_number": 7, "dry_run": true, "run_id": "r-9", "requested_by": "ops"}),
        );
        assert_eq!(one.scope, ReconcileScope::One("acme/shop#7".parse().unwrap()));
        assert_eq!((one.dry_run, one.run.as_str(), one.requested_by.as_deref()), (true, "r-9", Some("ops")));
        assert_eq!(trigger(json!({"repo": "acme/shop"})).scope, ReconcileScope::Repo("acme/shop".parse().unwrap()));
        let base = trigger(json!({"repo": "acme/shop", "base": "main"}));
        assert_eq!((base.scope.to_string().as_str(), base.at), ("base:acme/shop#main", None));
        let mut late = request(json!({}));
        late["time"] = json!("2036-03-03T09:01:00Z");
        assert_eq!(parse_event(late, &invocation()).unwrap().at, "2036-03-03T09:01:00Z".parse().ok());
    }

    #[test]
    fn invalid_event_is_explained() {
        let error_of = |event: Value| parse_event(event, &invocation()).unwrap_err().to_string();
        assert!(error_of(json!({"detail-type": "MergeRequested"})).contains("`MergeRequested`"));
        assert!(error_of(json!("hello")).starts_with("malformed event"));
        let without_repo = json!({"detail-type": "ReconcileRequested", "detail": {"pr_number": 7}});
        assert_eq!(error_of(without_repo), "malformed event: `pr_number` needs a `repo`");
        let without_repo = json!({"detail-type": "ReconcileRequested", "detail": {"base": "main"}});
        assert_eq!(error_of(without_repo), "malformed event: `base` needs a `repo`");
        let bad_repo = json!({"detail-type": "ReconcileRequested", "detail": {"repo": "shop"}});
        assert!(error_of(bad_repo).contains("expected `owner/name`"));
    }
}
