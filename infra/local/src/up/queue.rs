//! The durable queue of `suture up`: the in-process queue of `simulate`, with a row in a separate table for every
//! message, so that a killed process loses none (ADR 0027).

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::error::{DisplayErrorContext, ProvideErrorMetadata};
use aws_sdk_dynamodb::types::{
    AttributeDefinition, AttributeValue, BillingMode, KeySchemaElement, KeyType, ScalarAttributeType,
};
use domain::event::truncate;
use domain::time::saturating_after;
use jiff::{SignedDuration, Timestamp};
use platform::clock::Clock;
use platform::publish::dead_letters::{DeadLetter, DeadLetterQueue, DeadLetterSource, LocalDeadLetters};
use platform::publish::queue_message::QueueName;
use platform::publish::visibility::retry_delay;
use serde::{Deserialize, Serialize};
use simulate::queue::{MAX_RECEIVES, SimulatedMessage, SimulatedQueue};
use tokio::runtime::Handle;
use tokio::sync::watch;

const TABLE: &str = "suture-queue";
/// The longest duration of a sweep.
const VISIBILITY_TIMEOUT: SignedDuration = SignedDuration::from_mins(30);
const MAX_REASON: usize = 300;
/// Facts received at once, as in the deployed queue.
const MAX_FACTS: usize = 100;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Consumer {
    /// The Car Bridge, for commands and tasks.
    Bridge,
    Reconciler,
    /// The Car Bridge, for deferred facts.
    Facts,
}

impl From<QueueName> for Consumer {
    fn from(queue: QueueName) -> Self {
        match queue {
            QueueName::Commands => Self::Bridge,
            QueueName::Facts => Self::Facts,
        }
    }
}

/// One queue for each consumer.
type Queues = [SimulatedQueue<String, QueueContent>; 3];

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct QueueContent {
    consumer: Consumer,
    pub(super) body: String,
    sent_at: Timestamp,
    /// Why the last attempt failed.
    reason: Option<String>,
}

pub(super) type QueuedMessage = SimulatedMessage<String, QueueContent>;

#[derive(Serialize, Deserialize)]
struct QueueRow {
    #[serde(flatten)]
    message: QueuedMessage,
    dead: bool,
}

pub(super) struct DurableQueue {
    client: Client,
    clock: Arc<dyn Clock>,
    queues: Mutex<Queues>,
    sent: std::sync::atomic::AtomicU64,
    changed: watch::Sender<()>,
    /// The dead letters, as the admin API shows them.
    dead_letters: Arc<LocalDeadLetters>,
}

impl std::fmt::Debug for DurableQueue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("DurableQueue")
    }
}

fn dead_letter(message: &QueuedMessage) -> DeadLetter {
    let SimulatedMessage { id, content, receives, .. } = message.clone();
    let queue = match content.consumer {
        Consumer::Bridge => DeadLetterSource::Commands,
        Consumer::Facts => DeadLetterSource::Facts,
        Consumer::Reconciler => DeadLetterSource::Sweeps,
    };
    DeadLetter { id, queue, sent_at: Some(content.sent_at), receive_count: receives, body: content.body }
}

impl DurableQueue {
    /// Opens the queue and loads the messages left by a previous process.
    pub(super) async fn open(client: Client, clock: Arc<dyn Clock>) -> Result<Arc<Self>, String> {
        create_table(&client).await?;
        let mut queues = Queues::default();
        let mut rows = client.scan().table_name(TABLE).into_paginator().items().send();
        while let Some(row) = rows.next().await {
            let row = row.map_err(|error| DisplayErrorContext(error).to_string())?;
            let QueueRow { message, dead } =
                serde_dynamo::from_item(row).map_err(|error| format!("a stored message is corrupt: {error}"))?;
            let queue = &mut queues[message.content.consumer as usize];
            if dead { queue.put_dead(message) } else { queue.put(message) }
        }
        let dead: Vec<DeadLetter> = queues.iter().flat_map(SimulatedQueue::dead).map(dead_letter).collect();
        let queue = Arc::new_cyclic(|queue: &Weak<Self>| {
            let (queue, runtime) = (Weak::clone(queue), Handle::current());
            let (deleted_from, on) = (Weak::clone(&queue), runtime.clone());
            let delete = move |id: &str| {
                if let Some(queue) = deleted_from.upgrade() {
                    let id = id.to_owned();
                    drop(on.spawn(async move { queue.delete_dead(&id).await }));
                }
            };
            // Called once per message, but the first call redrives all of them; the others find none.
            let redrive = move |_| {
                if let Some(queue) = queue.upgrade() {
                    drop(runtime.spawn(async move { queue.redrive().await }));
                }
            };
            let dead_letters = Arc::new(LocalDeadLetters::new(redrive).with_delete(delete));
            let (queues, sent) = (Mutex::new(queues), 0.into());
            Self { client, clock, queues, sent, changed: watch::Sender::new(()), dead_letters }
        });
        dead.into_iter().for_each(|dead| queue.dead_letters.add(dead));
        Ok(queue)
    }

    pub(super) fn dlq(&self) -> DeadLetterQueue {
        DeadLetterQueue::Local(Arc::clone(&self.dead_letters))
    }

    fn queues(&self) -> MutexGuard<'_, Queues> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The message is durable when this returns.
    pub(super) async fn send(&self, consumer: Consumer, body: String, delay: Duration) -> Result<(), String> {
        let now = self.clock.now();
        let number = self.sent.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let message = SimulatedMessage {
            // Ordered by send time, also across restarts, because the clock never goes back.
            id: format!("{:013}-{number:06}", now.as_millisecond()),
            content: QueueContent { consumer, body, sent_at: now, reason: None },
            visible_at: saturating_after(now, SignedDuration::try_from(delay).unwrap_or(SignedDuration::MAX)),
            receives: 0,
        };
        self.write_row(&message, false).await?;
        self.put(message);
        Ok(())
    }

    fn put(&self, message: QueuedMessage) {
        self.queues()[message.content.consumer as usize].put(message);
        self.changed.send_replace(());
    }

    /// Waits for the next message of this consumer, or for up to `MAX_FACTS` facts, which are applied together.
    pub(super) async fn receive(&self, consumer: Consumer) -> Vec<QueuedMessage> {
        let mut changed = self.changed.subscribe();
        loop {
            changed.mark_unchanged();
            let now = self.clock.now();
            let (dead, received, next) = {
                let queue = &mut self.queues()[consumer as usize];
                let dead = queue.bury(now);
                let hidden_until = saturating_after(now, VISIBILITY_TIMEOUT);
                let rank = |content: &QueueContent| car_bridge::rank(&content.body);
                let received = match consumer {
                    Consumer::Bridge => queue.receive_by(rank, now, hidden_until).into_iter().collect(),
                    Consumer::Reconciler => queue.receive(1, now, hidden_until),
                    Consumer::Facts => queue.receive(MAX_FACTS, now, hidden_until),
                };
                (dead, received, queue.next_visible_at())
            };
            for message in &dead {
                self.write_dead(message).await;
            }
            for message in &received {
                // Store the receive count before the message is handled, so that a message that crashes the process
                // becomes a dead letter. After a restart it is visible at once. A failed write does not prevent
                // handling.
                let _ = self
                    .write_row(&SimulatedMessage { visible_at: message.content.sent_at, ..message.clone() }, false)
                    .await;
            }
            if !received.is_empty() {
                return received;
            }
            let pause = next.map_or(SignedDuration::from_hours(1), |at| at.duration_since(now));
            let pause = Duration::try_from(pause).unwrap_or_default() + Duration::from_millis(1);
            tokio::select! {
                _ = changed.changed() => {}
                () = self.clock.sleep(pause) => {}
            }
        }
    }

    /// Deletes a handled message. If that fails, the message is delivered again, and its consumer recognises the id.
    pub(super) async fn delete(&self, message: &QueuedMessage) {
        let key = HashMap::from([("id".to_owned(), AttributeValue::S(message.id.clone()))]);
        let deleted = self.client.delete_item().table_name(TABLE).set_key(Some(key)).send().await;
        let queue = &mut self.queues()[message.content.consumer as usize];
        match deleted {
            Ok(_) => drop(queue.remove(&message.id)),
            Err(_) => queue.set_visible_at(&message.id, self.clock.now()),
        }
        self.changed.send_replace(());
    }

    /// Retries a message later, or makes it a dead letter. If the write fails, the change is in memory only, and a
    /// restart repeats the attempt.
    pub(super) async fn retry(&self, mut message: QueuedMessage, why: &str) {
        let pause = SignedDuration::try_from(retry_delay(message.receives)).unwrap_or(VISIBILITY_TIMEOUT);
        message.visible_at = saturating_after(self.clock.now(), pause);
        message.content.reason = Some(truncate(why, MAX_REASON));
        self.queues()[message.content.consumer as usize].remove(&message.id);
        if message.receives >= MAX_RECEIVES {
            self.write_dead(&message).await;
            self.queues()[message.content.consumer as usize].put_dead(message);
        } else {
            let _ = self.write_row(&message, false).await;
            self.put(message);
        }
    }

    async fn write_dead(&self, message: &QueuedMessage) {
        let _ = self.write_row(message, true).await;
        self.dead_letters.add(dead_letter(message));
    }

    /// Sends all dead letters again. A message that cannot be written stays a dead letter.
    async fn redrive(&self) {
        let dead: Vec<_> = self.queues().iter_mut().flat_map(SimulatedQueue::take_dead).collect();
        for message in dead {
            let fresh = SimulatedMessage { receives: 0, visible_at: self.clock.now(), ..message.clone() };
            match self.write_row(&fresh, false).await {
                Ok(()) => self.put(fresh),
                Err(_) => {
                    self.dead_letters.add(dead_letter(&message));
                    self.queues()[message.content.consumer as usize].put_dead(message);
                }
            }
        }
    }

    /// Deletes a dead letter. If that fails, it is shown again after a restart.
    async fn delete_dead(&self, id: &str) {
        let dead: Vec<_> = self.queues().iter_mut().flat_map(SimulatedQueue::take_dead).collect();
        for message in dead {
            if message.id == id {
                self.delete(&message).await;
            } else {
                self.queues()[message.content.consumer as usize].put_dead(message);
            }
        }
    }

    async fn write_row(&self, message: &QueuedMessage, dead: bool) -> Result<(), String> {
        let row = QueueRow { message: message.clone(), dead };
        let item = serde_dynamo::to_item(row).map_err(|error| error.to_string())?;
        let sent = self.client.put_item().table_name(TABLE).set_item(Some(item)).send().await;
        sent.map(drop).map_err(|error| DisplayErrorContext(error).to_string())
    }
}

async fn create_table(client: &Client) -> Result<(), String> {
    let id = AttributeDefinition::builder().attribute_name("id").attribute_type(ScalarAttributeType::S).build();
    let key = KeySchemaElement::builder().attribute_name("id").key_type(KeyType::Hash).build();
    let made = client
        .create_table()
        .table_name(TABLE)
        .billing_mode(BillingMode::PayPerRequest)
        .attribute_definitions(id.map_err(|error| error.to_string())?)
        .key_schema(key.map_err(|error| error.to_string())?)
        .send()
        .await;
    match made {
        Err(error) if error.code() != Some("ResourceInUseException") => Err(DisplayErrorContext(error).to_string()),
        Ok(_) | Err(_) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::super::scaled_clock::ScaledClock;
    use super::super::tables::LocalTables;
    use super::*;

    struct QueueTables(PathBuf);

    impl QueueTables {
        fn new(name: &str) -> Self {
            let folder = std::env::temp_dir().join(format!("suture-local-{name}-{}", std::process::id()));
            std::fs::create_dir_all(&folder).unwrap();
            Self(folder)
        }
    }

    impl Drop for QueueTables {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    /// Ten minutes per real second.
    fn clock() -> Arc<dyn Clock> {
        Arc::new(ScaledClock::new("2036-03-03T09:00:00Z".parse().unwrap(), 600.0))
    }

    async fn next(queue: &DurableQueue, reader: Consumer) -> Option<QueuedMessage> {
        tokio::time::timeout(Duration::from_secs(1), queue.receive(reader)).await.ok()?.pop()
    }

    #[tokio::test]
    async fn unfinished_messages_survive_a_restart() {
        let folder = QueueTables::new("restart");
        let tables = LocalTables::open(&folder.0.join("suture.db")).await.unwrap();
        let queue = DurableQueue::open(tables.client.clone(), clock()).await.unwrap();
        for body in ["a", "b", "c"] {
            queue.send(Consumer::Bridge, body.to_owned(), Duration::ZERO).await.unwrap();
        }
        queue.send(Consumer::Reconciler, "sweep".to_owned(), Duration::ZERO).await.unwrap();
        let first = next(&queue, Consumer::Bridge).await.unwrap();
        assert_eq!((first.content.body.as_str(), first.receives), ("a", 1));
        queue.delete(&first).await;
        let second = next(&queue, Consumer::Bridge).await.unwrap();
        assert_eq!(second.content.body, "b");
        // The process dies while it works on the second.
        drop(queue);
        let queue = DurableQueue::open(tables.client.clone(), clock()).await.unwrap();
        let again = next(&queue, Consumer::Bridge).await.unwrap();
        assert_eq!(
            (again.id, again.content.body.as_str(), again.receives),
            (second.id, "b", 2),
            "the same message, and its receives are counted"
        );
        assert_eq!(next(&queue, Consumer::Bridge).await.unwrap().content.body, "c");
        assert_eq!(next(&queue, Consumer::Bridge).await, None, "received messages are hidden");
        assert_eq!(next(&queue, Consumer::Reconciler).await.unwrap().content.body, "sweep");
    }

    /// A storm of facts waited behind commands, whose writes to GitHub are a second apart.
    #[tokio::test]
    async fn facts_have_a_queue_of_their_own_and_are_received_together() {
        let folder = QueueTables::new("facts");
        let tables = LocalTables::open(&folder.0.join("suture.db")).await.unwrap();
        let queue = DurableQueue::open(tables.client.clone(), clock()).await.unwrap();
        queue.send(QueueName::Commands.into(), "command".to_owned(), Duration::ZERO).await.unwrap();
        for n in 0..3 {
            queue.send(QueueName::Facts.into(), format!("fact {n}"), Duration::ZERO).await.unwrap();
        }
        let facts = queue.receive(Consumer::Facts).await;
        let bodies: Vec<&str> = facts.iter().map(|message| message.content.body.as_str()).collect();
        assert_eq!(bodies, ["fact 0", "fact 1", "fact 2"]);
        assert_eq!(next(&queue, Consumer::Bridge).await.unwrap().content.body, "command");
    }

    #[tokio::test]
    async fn delayed_message_waits_and_a_new_one_wakes_the_consumer() {
        let folder = QueueTables::new("delay");
        let tables = LocalTables::open(&folder.0.join("suture.db")).await.unwrap();
        let queue = DurableQueue::open(tables.client.clone(), clock()).await.unwrap();
        queue.send(Consumer::Bridge, "later".to_owned(), Duration::from_secs(1500)).await.unwrap();
        assert_eq!(next(&queue, Consumer::Bridge).await, None);
        let waiting = tokio::spawn({
            let queue = Arc::clone(&queue);
            async move { queue.receive(Consumer::Bridge).await.remove(0).content.body }
        });
        tokio::time::sleep(Duration::from_millis(20)).await;
        queue.send(Consumer::Bridge, "now".to_owned(), Duration::ZERO).await.unwrap();
        assert_eq!(waiting.await.unwrap(), "now");
        let later = tokio::time::timeout(Duration::from_secs(10), queue.receive(Consumer::Bridge)).await.unwrap();
        assert_eq!(later[0].content.body, "later");
    }

    #[tokio::test]
    async fn message_is_a_dead_letter_after_five_attempts_until_redriven() {
        let folder = QueueTables::new("dead");
        let tables = LocalTables::open(&folder.0.join("suture.db")).await.unwrap();
        let queue = DurableQueue::open(tables.client.clone(), clock()).await.unwrap();
        queue.send(Consumer::Bridge, "poison".to_owned(), Duration::ZERO).await.unwrap();
        for tries in 1..=MAX_RECEIVES {
            let entry = next(&queue, Consumer::Bridge).await.unwrap();
            assert_eq!(entry.receives, tries);
            queue.retry(entry, "undecodable").await;
        }
        assert_eq!(next(&queue, Consumer::Bridge).await, None);
        let queue = DurableQueue::open(tables.client.clone(), clock()).await.unwrap();
        assert_eq!(queue.dlq().peek().await.unwrap().messages[0].body, "poison", "dead letters survive a restart");
        assert_eq!(queue.dlq().redrive().await, Ok(1));
        let redriven = tokio::time::timeout(Duration::from_secs(10), queue.receive(Consumer::Bridge)).await.unwrap();
        let entry = redriven.into_iter().next().unwrap();
        assert_eq!(
            (entry.content.body.as_str(), entry.receives, entry.content.reason.as_deref()),
            ("poison", 1, Some("undecodable"))
        );
        assert_eq!(queue.dlq().count().await, Ok(0));
        queue.delete(&entry).await;
        let queue = DurableQueue::open(tables.client.clone(), clock()).await.unwrap();
        assert_eq!(next(&queue, Consumer::Bridge).await, None);
    }
}
