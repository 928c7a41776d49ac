//! Counts how many messages of the Car Bridge lead to each other. Lambda drops a message, and with it the whole batch, when a function has
//! invoked itself through a queue sixteen times in a row. Before that the next message stays in the outbox, and a sweep sends it: its
//! invocation is the first of a new row.

use domain::bus::DetailType;
use platform::publish::{Destination, OutboundMessage, PublishError, Publisher};
use tracing::warn;

/// A message with as many hops sends no further one.
pub(crate) const MAX_HOPS: u32 = 12;

tokio::task_local! {
    /// The hops of the message that is handled.
    static HOPS: u32;
}

/// Handles a message with this many hops.
pub(crate) async fn after<T>(hops: u32, work: impl Future<Output = T>) -> T {
    HOPS.scope(hops, work).await
}

/// A publisher that counts hops.
#[derive(Debug, Clone)]
pub struct HopCounter<O>(pub(crate) O);

impl<O: Publisher> Publisher for HopCounter<O> {
    fn has_receiver(&self, detail_type: DetailType) -> bool {
        self.0.has_receiver(detail_type)
    }

    async fn publish(&self, messages: &[OutboundMessage]) -> Vec<Result<(), PublishError>> {
        let hops = HOPS.try_with(|hops| *hops).unwrap_or(0);
        let counted: Vec<Option<OutboundMessage>> = messages.iter().map(|message| count_hop(message, hops)).collect();
        let to_send: Vec<OutboundMessage> = counted.iter().flatten().cloned().collect();
        let sent = if to_send.is_empty() { Vec::new() } else { self.0.publish(&to_send).await };
        let mut sent = sent.into_iter();
        let results = messages.iter().zip(&counted).map(|(message, counted)| {
            if counted.is_some() {
                return sent.next().unwrap_or_else(|| Err(PublishError("no result".to_owned())));
            }
            warn!(message = message.id, hops, "hop limit reached; message not sent");
            Err(PublishError(format!("{hops} messages led to this one")))
        });
        results.collect()
    }
}

/// The message with its number of hops; `None` above the limit.
fn count_hop(message: &OutboundMessage, before: u32) -> Option<OutboundMessage> {
    let mut message = message.clone();
    if let Destination::Queue { hops, .. } = &mut message.destination {
        if before >= MAX_HOPS {
            return None;
        }
        *hops = before + 1;
    }
    Some(message)
}
