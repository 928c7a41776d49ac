//! Holds the mails of a sweep until their number is known: a few are sent one by one, more become one digest.
//! Until they are sent they stay in the outbox like every effect, so that a crash loses none.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use domain::bus::DetailType;
use domain::id::EffectId;
use domain::text::{self, Notice};
use jiff::Timestamp;
use tokio::time::timeout;
use tracing::warn;

use platform::hash::stable_id;
use platform::publish::{Destination, OutboundMessage, PublishError, Publisher};
use platform::store::schema;
use platform::store::versioned::write_if;
use platform::store::{Condition, MAX_WRITES, RowWrite, Store, StoreError};

pub const MAX_SINGLE_MAILS: usize = 5;
const SEND_TIMEOUT: Duration = Duration::from_secs(5);

/// Publishes queue and bus messages immediately, and holds mails for the digest.
#[derive(Debug)]
pub(crate) struct DigestingPublisher<O> {
    publisher: O,
    held: Mutex<Vec<OutboundMessage>>,
}

impl<O: Publisher> DigestingPublisher<O> {
    pub(crate) fn new(publisher: O) -> Self {
        Self { publisher, held: Mutex::default() }
    }

    /// Sends a message immediately, mails included.
    pub(crate) async fn send_now(&self, message: OutboundMessage) -> Result<(), PublishError> {
        let sent = timeout(SEND_TIMEOUT, self.publisher.send_one(message)).await;
        sent.unwrap_or_else(|_| Err(PublishError("timed out".to_owned())))
    }

    fn take(&self) -> Vec<OutboundMessage> {
        std::mem::take(&mut *self.held.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn hold(&self, message: &OutboundMessage) {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        if held.iter().all(|known| known.id != message.id) {
            held.push(message.clone());
        }
    }

    pub(crate) fn is_held(&self, id: &EffectId) -> bool {
        self.held.lock().unwrap_or_else(PoisonError::into_inner).iter().any(|message| message.id == id.as_str())
    }

    /// Sends the held mails and deletes them from the outbox. Returns how many were sent; mails that could not be sent
    /// stay in the outbox and are due again at `later`.
    pub(crate) async fn send_held<S: Store>(
        &self,
        store: &S,
        later: Timestamp,
        now: Timestamp,
    ) -> Result<u32, StoreError> {
        let held = self.take();
        if held.is_empty() {
            return Ok(0);
        }
        let is_digest = held.len() > MAX_SINGLE_MAILS;
        let messages = if is_digest { vec![digest(&held)] } else { held.clone() };
        let results = timeout(SEND_TIMEOUT, self.publisher.publish(&messages))
            .await
            .unwrap_or_else(|_| messages.iter().map(|_| Err(PublishError("timed out".to_owned()))).collect());
        let sent = results.iter().filter(|result| result.is_ok()).count();
        let (mut delivered, mut deferred) = (Vec::new(), Vec::new());
        for (index, message) in held.iter().enumerate() {
            let key = schema::effect_key(&EffectId::new(message.id.as_str()));
            let result = results.get(if is_digest { 0 } else { index });
            if matches!(result, Some(Ok(()))) {
                delivered.push(RowWrite::Delete { key, only_if: Condition::Always });
            } else {
                warn!(effect = %message.id, ?result, "cannot send mail; left in outbox");
                deferred.push(schema::set_due_at(key, later, Condition::Present));
            }
        }
        for chunk in delivered.chunks(MAX_WRITES) {
            store.write(chunk.to_vec(), now).await?;
        }
        for write in deferred {
            // If the condition fails, another sweep has sent the mail meanwhile.
            write_if(store, write, now).await?;
        }
        Ok(u32::try_from(sent).unwrap_or(u32::MAX))
    }
}

/// One mail that lists many. The same mails give the same id, so that a repeated digest can be recognised.
fn digest(held: &[OutboundMessage]) -> OutboundMessage {
    let mut ids: Vec<&str> = held.iter().map(|message| message.id.as_str()).collect();
    // The next sweep may read them in another order.
    ids.sort_unstable();
    let notices: Vec<&Notice> = held.iter().filter_map(notice_of).collect();
    OutboundMessage {
        id: format!("digest-{}", &stable_id(&ids)[..16]),
        destination: Destination::Notice(text::sweep::digest(&notices)),
    }
}

fn notice_of(message: &OutboundMessage) -> Option<&Notice> {
    match &message.destination {
        Destination::Notice(notice) => Some(notice),
        Destination::Queue { .. } | Destination::Bus { .. } => None,
    }
}

impl<O: Publisher> Publisher for DigestingPublisher<O> {
    fn has_receiver(&self, detail_type: DetailType) -> bool {
        self.publisher.has_receiver(detail_type)
    }

    async fn publish(&self, messages: &[OutboundMessage]) -> Vec<Result<(), PublishError>> {
        let others: Vec<OutboundMessage> =
            messages.iter().filter(|message| notice_of(message).is_none()).cloned().collect();
        let results = if others.is_empty() { Vec::new() } else { self.publisher.publish(&others).await };
        let mut results = results.into_iter();
        let missing = || Err(PublishError("the publisher returned no result".to_owned()));
        messages
            .iter()
            .map(|message| {
                if notice_of(message).is_none() {
                    return results.next().unwrap_or_else(missing);
                }
                self.hold(message);
                Err(PublishError("held for the digest".to_owned()))
            })
            .collect()
    }
}
