//! Parses what invokes the reconciler: EventBridge Scheduler's payload, a scheduled rule's event, or
//! `ReconcileRequested` on the bus.

use aws_lambda_events::event::eventbridge::EventBridgeEvent;
use domain::id::{PrId, RepoName, RunId};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use thiserror::Error;

use crate::Moment;
use crate::trigger::{Scope, Wish};

/// The scheduled sweep's name, where the schedule gives it none.
const SCHEDULE: &str = "sweep";

/// An event that is not the reconciler's. It says what it is, so that whoever wrote the rule sees it.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Unclear {
    /// Another kind of event.
    #[error("`detail-type` is `{0}`: the reconciler knows `ReconcileRequested` and scheduled events")]
    Unknown(String),
    #[error("the event cannot be read: {0}")]
    Malformed(String),
}

/// What our schedule sends, or a scheduled rule's event. `aws_lambda_events` has no type for the first, and its types
/// want fields that may be missing here.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Tick {
    schedule: Option<String>,
    /// `<aws.scheduler.scheduled-time>`; these very words if Scheduler did not replace them.
    slot: Option<String>,
    time: Option<String>,
}

/// The detail of `ReconcileRequested`. All of it may be left out: then everything is requested.
#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(default)]
struct Detail {
    repo: Option<String>,
    pr_number: Option<u64>,
    base: Option<String>,
    dry_run: bool,
    run_id: Option<String>,
    requested_by: Option<String>,
}

pub fn wish_of(event: Value, moment: &Moment<'_>) -> Result<Wish, Unclear> {
    let event: Option<Map<String, Value>> = read(event)?;
    let mut event = event.unwrap_or_default();
    match read::<Option<String>>(event.get("detail-type").cloned().unwrap_or_default())?.as_deref() {
        Some("ReconcileRequested") => {
            // AWS's type wants a source. Nothing here needs it, and who invokes by hand leaves it out.
            event.insert("source".to_owned(), Value::String(String::new()));
            requested(read(Value::Object(event))?, moment)
        }
        Some("Scheduled Event") | None => {
            let tick: Tick = read(Value::Object(event))?;
            let slot = tick.slot.or(tick.time).and_then(|slot| slot.parse::<Timestamp>().ok());
            let schedule = tick.schedule.unwrap_or_else(|| SCHEDULE.to_owned());
            Ok(Wish::scheduled(&schedule, slot.unwrap_or(moment.now), moment.request))
        }
        Some(other) => Err(Unclear::Unknown(other.to_owned())),
    }
}

fn read<T: for<'de> Deserialize<'de>>(json: Value) -> Result<T, Unclear> {
    serde_json::from_value(json).map_err(|error| Unclear::Malformed(error.to_string()))
}

fn requested(event: EventBridgeEvent<Option<Detail>>, moment: &Moment<'_>) -> Result<Wish, Unclear> {
    let detail = event.detail.unwrap_or_default();
    let malformed = |error: domain::id::BadId| Unclear::Malformed(error.to_string());
    let repo: Option<RepoName> = detail.repo.as_deref().map(str::parse).transpose().map_err(malformed)?;
    let base = detail.base.filter(|base| !base.is_empty());
    let scope = match (repo, detail.pr_number, base) {
        (Some(repo), Some(number), _) => Scope::One(PrId::new(repo, number)),
        (Some(repo), None, Some(base)) => Scope::Base(repo, base),
        (Some(repo), None, None) => Scope::Repo(repo),
        (None, None, None) => Scope::All,
        (None, Some(number), _) => return Err(Unclear::Malformed(format!("#{number} of which repository?"))),
        (None, None, Some(base)) => return Err(Unclear::Malformed(format!("`{base}` of which repository?"))),
    };
    // An event that is delivered twice has the same id, and so is swept once.
    let run = detail.run_id.unwrap_or_else(|| format!("requested-{}", event.id.as_deref().unwrap_or(moment.request)));
    let mut wish = Wish::requested(RunId::new(run), scope, detail.dry_run, moment.request);
    wish.requested_by = detail.requested_by;
    // When it happened, not when it was delivered: a late delivery is not newer for that.
    wish.at = event.time.and_then(|time| Timestamp::from_millisecond(time.timestamp_millis()).ok());
    Ok(wish)
}

#[cfg(test)]
mod tests {
    use domain::run::RunTrigger;
    use serde_json::json;

    use super::*;

    fn moment() -> Moment<'static> {
        let now = "2036-03-03T09:07:12Z".parse().unwrap();
        Moment { request: "req-1", now, deadline: now }
    }

    fn run_of(event: Value) -> String {
        wish_of(event, &moment()).unwrap().run.to_string()
    }

    #[test]
    fn a_slot_is_the_schedules_and_not_the_clocks() {
        let tick = json!({"schedule": "sweep", "slot": "2036-03-03T09:05:00Z"});
        let wish = wish_of(tick, &moment()).unwrap();
        assert_eq!((wish.run.as_str(), wish.trigger), ("sweep-20360303T0905Z", RunTrigger::Schedule));
        assert_eq!(wish.key.as_deref(), Some("scheduler:sweep:2036-03-03T09:05:00Z"));
        assert_eq!((wish.scope, wish.dry_run, wish.holder.as_str()), (Scope::All, false, "req-1"));
        let rule = json!({"detail-type": "Scheduled Event", "source": "aws.events", "time": "2036-03-03T09:06:00Z", "detail": {}});
        assert_eq!(run_of(rule), "sweep-20360303T0906Z");
    }

    #[test]
    fn without_a_time_the_slot_is_this_minute() {
        for event in [json!(null), json!({}), json!({"slot": "<aws.scheduler.scheduled-time>"})] {
            assert_eq!(run_of(event), "sweep-20360303T0907Z");
        }
        assert_eq!(run_of(json!({"schedule": "nightly"})), "nightly-20360303T0907Z");
    }

    #[test]
    fn a_request_names_what_it_wants() {
        let asked = |detail: Value| json!({"id": "e-1", "detail-type": "ReconcileRequested", "detail": detail});
        let wish = |detail: Value| wish_of(asked(detail), &moment()).unwrap();
        assert_eq!((wish(json!({})).scope, wish(json!({})).run.to_string()), (Scope::All, "requested-e-1".to_owned()));
        let one =
            wish(json!({"repo": "acme/shop", "pr_number": 7, "dry_run": true, "run_id": "r-9", "requested_by": "ops"}));
        assert_eq!(one.scope, Scope::One("acme/shop#7".parse().unwrap()));
        assert_eq!((one.dry_run, one.run.as_str(), one.requested_by.as_deref()), (true, "r-9", Some("ops")));
        assert_eq!(wish(json!({"repo": "acme/shop"})).scope, Scope::Repo("acme/shop".parse().unwrap()));
        let base = wish(json!({"repo": "acme/shop", "base": "main"}));
        assert_eq!((base.scope.to_string().as_str(), base.at), ("base:acme/shop#main", None));
        let mut late = asked(json!({}));
        late["time"] = json!("2036-03-03T09:01:00Z");
        assert_eq!(wish_of(late, &moment()).unwrap().at, "2036-03-03T09:01:00Z".parse().ok());
    }

    #[test]
    fn what_is_unclear_is_said() {
        let say = |event: Value| wish_of(event, &moment()).unwrap_err().to_string();
        assert!(say(json!({"detail-type": "MergeRequested"})).contains("`MergeRequested`"));
        assert!(say(json!("hello")).starts_with("the event cannot be read"));
        let nowhere = json!({"detail-type": "ReconcileRequested", "detail": {"pr_number": 7}});
        assert_eq!(say(nowhere), "the event cannot be read: #7 of which repository?");
        let nowhere = json!({"detail-type": "ReconcileRequested", "detail": {"base": "main"}});
        assert_eq!(say(nowhere), "the event cannot be read: `main` of which repository?");
        let bad = json!({"detail-type": "ReconcileRequested", "detail": {"repo": "shop"}});
        assert!(say(bad).contains("expected `owner/name`"));
    }
}
