//! Requests the redelivery of failed webhooks, after each inventory: GitHub never repeats one by itself. Commands and reviews come first,
//! because they exist nowhere else; sweeps read everything else from GitHub. The Car Bridge sends the requests.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use platform::github::FailedDelivery;
use platform::publish::queue_message::{QueueMessage, Task};
use platform::publish::{Destination, OutboundMessage, Publisher};
use platform::store::not_before;
use platform::store::queries;
use platform::store::versioned;
use platform::store::{Key, Store, StoreError};
use platform::sweep_summary::SweepSummary;
use serde::{Deserialize, Serialize};
use tracing::warn;

use crate::context::{SweepContext, saturating_after};
use crate::limits::rate_budget::{WorkKind, shed_until};

/// GitHub redelivers webhooks for three days.
const REDELIVERABLE: SignedDuration = SignedDuration::from_hours(72);
/// The same redelivery is not requested again for this long.
const RETRY_AFTER: SignedDuration = SignedDuration::from_hours(6);
/// Redeliveries requested in one sweep; the rest waits for the next inventory.
const MAX_REDELIVERIES: usize = 100;
/// The message group of redeliveries, which belong to no repository.
const GROUP: &str = "suture/errands";

/// Until when all failed deliveries were listed and requested.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct ListedDeliveries {
    until: Timestamp,
}

fn key() -> Key {
    Key::state("DELIVERIES")
}

/// Lists what has failed since the last complete list. A redelivery that failed again is found too: as long as it is not requested again
/// the list goes back to the first request.
fn list_since(listed: Option<ListedDeliveries>, now: Timestamp) -> Timestamp {
    let before = |by: SignedDuration| now.saturating_sub(by).unwrap_or(Timestamp::MIN);
    let last_complete = listed.map_or(Timestamp::MIN, |listed| listed.until);
    last_complete.min(before(RETRY_AFTER)).max(before(REDELIVERABLE))
}

pub(crate) async fn run<S: Store, O: Publisher>(
    cx: &SweepContext<'_, S, O>,
    summary: &mut SweepSummary,
) -> Result<(), StoreError> {
    let now = cx.now();
    let shed = shed_until(&cx.github.rate_limits(), WorkKind::Redelivery, now).is_some();
    if !cx.github.is_app() || shed || !cx.should_continue(summary).await {
        return Ok(());
    }
    let listed = queries::read(cx.store(), &key(), now).await?;
    let failed = match cx.github.failed_deliveries(list_since(listed, now)).await {
        Ok(failed) => failed,
        Err(error) => {
            warn!(run = %cx.trigger.run, %error, "cannot list failed webhook deliveries");
            summary.fail("redelivery", &error);
            return Ok(());
        }
    };
    let all_requested = request_all(cx, failed.deliveries, summary).await?;
    if failed.is_complete && all_requested {
        let listed = ListedDeliveries { until: now };
        versioned::put(cx.store(), &key(), &listed, saturating_after(now, REDELIVERABLE), now).await?;
    }
    Ok(())
}

/// Requests the most important ones that were not requested recently. Returns whether those are all.
async fn request_all<S: Store, O: Publisher>(
    cx: &SweepContext<'_, S, O>,
    mut failed: Vec<FailedDelivery>,
    summary: &mut SweepSummary,
) -> Result<bool, StoreError> {
    failed.sort_by_key(|delivery| (delivery.content, delivery.delivered_at));
    let mut requested = 0;
    for group in failed.chunks(MAX_REDELIVERIES) {
        let keys: Vec<Key> = group.iter().map(|delivery| not_before::key(&limit_name(delivery))).collect();
        let known = cx.store().get_many(&keys, cx.now()).await?;
        let is_new = |delivery: &&FailedDelivery| not_before::read(&known, &limit_name(delivery), cx.now()).is_none();
        for delivery in group.iter().filter(is_new) {
            if requested == MAX_REDELIVERIES || !request(cx, delivery, summary).await? {
                return Ok(false);
            }
            requested += 1;
        }
    }
    Ok(true)
}

fn limit_name(delivery: &FailedDelivery) -> String {
    format!("redelivery-{}", delivery.guid)
}

/// Returns whether the request is on the queue.
async fn request<S: Store, O: Publisher>(
    cx: &SweepContext<'_, S, O>,
    delivery: &FailedDelivery,
    summary: &mut SweepSummary,
) -> Result<bool, StoreError> {
    let Ok(repo) = GROUP.parse() else { return Ok(false) };
    let message = QueueMessage::Task(Task::Redeliver { delivery: delivery.id });
    let destination = Destination::queue(message, repo, Duration::ZERO);
    let outbound = OutboundMessage { id: format!("redeliver-{}", delivery.id), destination };
    if let Err(error) = cx.engine.publisher().send_now(outbound).await {
        warn!(delivery = delivery.id, %error, "cannot request webhook redelivery");
        return Ok(false);
    }
    summary.redelivered += 1;
    summary.count_failure(&delivery.event);
    let now = cx.now();
    not_before::set(cx.store(), &limit_name(delivery), saturating_after(now, RETRY_AFTER), now).await?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn list_goes_back_to_the_last_complete_one_or_six_hours_and_never_beyond_three_days() {
        let now: Timestamp = "2036-03-10T09:00:00Z".parse().unwrap();
        let ago = |hours: i64| now - SignedDuration::from_hours(hours);
        for (complete, since) in [(None, 72), (Some(0), 6), (Some(5), 6), (Some(20), 20), (Some(200), 72)] {
            let listed = complete.map(|hours| ListedDeliveries { until: ago(hours) });
            assert_eq!(list_since(listed, now), ago(since), "{complete:?}");
        }
    }
}
