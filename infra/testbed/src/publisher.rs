//! A publisher that records all messages.

use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use domain::bus::DetailType;
use domain::text::Notice;
use jiff::Timestamp;
use platform::publish::queue_message::QueueMessage;
use platform::publish::{Destination, OutboundMessage, PublishError, Publisher};

use crate::{Faults, SharedFakes, locked};

/// Records all published messages. Queue messages wait for `take_message`; bus events go to the fake bots, if there are any.
#[derive(Clone, Default)]
pub struct RecordingPublisher {
    pub faults: Arc<Faults>,
    bots: Option<SharedFakes>,
    is_unheard: Arc<AtomicBool>,
    published: Arc<Mutex<Published>>,
}

#[derive(Default)]
struct Published {
    all: Vec<OutboundMessage>,
    queue: VecDeque<QueuedBody>,
}

struct QueuedBody {
    id: String,
    body: String,
    /// The end of its delay.
    due_at: Timestamp,
}

impl fmt::Debug for RecordingPublisher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RecordingPublisher({} published)", locked(&self.published).all.len())
    }
}

impl RecordingPublisher {
    #[must_use]
    pub fn new(faults: &Arc<Faults>, bots: &SharedFakes) -> Self {
        Self { faults: Arc::clone(faults), bots: Some(Arc::clone(bots)), ..Self::default() }
    }

    /// Makes all publishing fail, or succeed again.
    pub fn set_down(&self, down: bool) {
        self.faults.fail_calls("publish ", down);
    }

    /// Takes the receivers of bus events away, as in `suture up` with a real GitHub.
    pub fn remove_receivers(&self) {
        self.is_unheard.store(true, Ordering::Relaxed);
    }

    /// All messages published so far, duplicates included.
    #[must_use]
    pub fn sent(&self) -> Vec<OutboundMessage> {
        locked(&self.published).all.clone()
    }

    /// The queue messages published so far: id and message.
    #[must_use]
    pub fn messages(&self) -> Vec<(String, QueueMessage)> {
        let message = |parcel: OutboundMessage| match parcel.destination {
            Destination::Queue { message, .. } => Some((parcel.id, message)),
            Destination::Bus { .. } | Destination::Notice(_) => None,
        };
        self.sent().into_iter().filter_map(message).collect()
    }

    /// The mails published so far: id and mail.
    #[must_use]
    pub fn mails(&self) -> Vec<(String, Notice)> {
        let mail = |parcel: OutboundMessage| match parcel.destination {
            Destination::Notice(notice) => Some((parcel.id, notice)),
            Destination::Queue { .. } | Destination::Bus { .. } => None,
        };
        self.sent().into_iter().filter_map(mail).collect()
    }

    /// Adds a message to the queue.
    pub fn enqueue(&self, id: &str, message: &QueueMessage) {
        self.enqueue_body(id, message.to_json().expect("message serializes"));
    }

    pub(crate) fn enqueue_body(&self, id: &str, body: String) {
        self.enqueue_at(id, body, Timestamp::MIN);
    }

    fn enqueue_at(&self, id: &str, body: String, due_at: Timestamp) {
        locked(&self.published).queue.push_back(QueuedBody { id: id.to_owned(), body, due_at });
    }

    /// Removes the next message from the queue, whatever its delay: id and body.
    #[must_use]
    pub fn take_message(&self) -> Option<(String, String)> {
        locked(&self.published).queue.pop_front().map(|message| (message.id, message.body))
    }

    /// Removes the next message whose delay has passed from the queue: id and body.
    pub(crate) fn take_due_message(&self) -> Option<(String, String)> {
        let now = self.now();
        let queue = &mut locked(&self.published).queue;
        let due = queue.iter().position(|message| message.due_at <= now)?;
        queue.remove(due).map(|message| (message.id, message.body))
    }

    fn now(&self) -> Timestamp {
        self.bots.as_ref().map_or(Timestamp::MAX, |bots| locked(bots).now())
    }

    /// Drops all messages of the queue.
    pub fn lose_queue(&self) {
        locked(&self.published).queue.clear();
    }

    fn publish(&self, parcel: &OutboundMessage) {
        locked(&self.published).all.push(parcel.clone());
        match (&parcel.destination, &self.bots) {
            (Destination::Queue { message, delay, hops, .. }, Some(_)) => {
                let due_at = if delay.is_zero() { Timestamp::MIN } else { self.now() + *delay };
                self.enqueue_at(&parcel.id, message.to_json_after(*hops).expect("message serializes"), due_at);
            }
            // Tests invoke the reconciler directly.
            (Destination::Bus { detail_type: DetailType::ReconcileRequested, .. }, _) => {}
            (Destination::Bus { detail_type, detail }, Some(bots)) => {
                locked(bots).bus_event(detail_type.name(), detail);
            }
            (Destination::Queue { .. } | Destination::Bus { .. } | Destination::Notice(_), _) => {}
        }
    }
}

impl Publisher for RecordingPublisher {
    fn has_receiver(&self, _: DetailType) -> bool {
        !self.is_unheard.load(Ordering::Relaxed)
    }

    async fn publish(&self, parcels: &[OutboundMessage]) -> Vec<Result<(), PublishError>> {
        let name = format!("publish {}", parcels.first().map_or("", |parcel| &parcel.id));
        let published = self.faults.call(name, async { parcels.iter().for_each(|parcel| self.publish(parcel)) }).await;
        parcels.iter().map(|_| published.clone().map_err(PublishError)).collect()
    }
}
