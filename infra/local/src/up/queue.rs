//! The command queue in this process, as SQS is one: a message that was taken comes back unless it is done with, and after
//! five tries it lies in the dead-letter queue. Every message is a row beside the two tables before it counts as sent, so
//! that a killed process loses none.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::error::{DisplayErrorContext, ProvideErrorMetadata};
use aws_sdk_dynamodb::types::{
    AttributeDefinition, AttributeValue, BillingMode, KeySchemaElement, KeyType, ScalarAttributeType,
};
use domain::event::cut;
use jiff::{SignedDuration, Timestamp};
use platform::clock::Clock;
use platform::outlets::dlq::{Dead, Dlq, Parked};
use serde::{Deserialize, Serialize};
use tokio::runtime::Handle;
use tokio::sync::watch;

/// The table of messages.
const TABLE: &str = "suture-local-queue";
/// A message is tried this often, as the deployed queue has it.
const MOST_TRIES: u32 = 5;
/// A message that could not be handled comes back after this long, and after twice as long each further time: the last try is made
/// when the lease of whoever died over it has ended.
const AGAIN_AFTER: SignedDuration = SignedDuration::from_secs(30);
/// Longest reason kept, in characters.
const MAX_REASON: usize = 300;

/// Who is to read a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Consumer {
    /// The Car Bridge.
    Bridge,
    /// The reconciler, asked for a sweep.
    Reconciler,
}

/// A message as its row keeps it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct QueuedMessage {
    /// The queue's own name for it, the same in every delivery.
    pub(super) id: String,
    pub(super) reader: Consumer,
    pub(super) body: String,
    pub(super) sent_at: Timestamp,
    visible_at: Timestamp,
    /// How often it was taken.
    pub(super) tries: u32,
    /// Why the last try failed.
    pub(super) reason: Option<String>,
    /// It lies in the dead-letter queue.
    dead: bool,
}

#[derive(Default)]
struct Kept {
    messages: BTreeMap<String, QueuedMessage>,
    /// Taken by somebody of this process, and not done with.
    taken: Vec<String>,
    sent: u64,
}

/// The queue.
pub(super) struct Queue {
    client: Client,
    clock: Arc<dyn Clock>,
    kept: Mutex<Kept>,
    /// Something has changed: whoever waits looks again.
    news: watch::Sender<()>,
    /// What is shown of the dead-letter queue.
    parked: Arc<Parked>,
}

impl QueuedMessage {
    fn as_dead(&self) -> Dead {
        let Self { id, body, sent_at, tries, .. } = self;
        Dead { id: id.clone(), sent_at: Some(*sent_at), receive_count: *tries, body: body.clone() }
    }
}

impl std::fmt::Debug for Queue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Queue")
    }
}

impl Queue {
    /// Opens it with everything that a former process has left. What that one had taken is free again: it is dead, or the
    /// data directory would not be ours.
    pub(super) async fn open(client: Client, clock: Arc<dyn Clock>) -> Result<Arc<Self>, String> {
        create(&client).await?;
        let mut kept = Kept::default();
        let mut rows = client.scan().table_name(TABLE).into_paginator().items().send();
        while let Some(row) = rows.next().await {
            let row = row.map_err(|error| DisplayErrorContext(error).to_string())?;
            let entry: QueuedMessage =
                serde_dynamo::from_item(row).map_err(|error| format!("a message is damaged: {error}"))?;
            kept.messages.insert(entry.id.clone(), entry);
        }
        let dead: Vec<Dead> = kept.messages.values().filter(|entry| entry.dead).map(QueuedMessage::as_dead).collect();
        let queue = Arc::new_cyclic(|queue: &Weak<Self>| {
            let (queue, runtime) = (Weak::clone(queue), Handle::current());
            // Called for each message; the first one brings all of them back, which is what is meant.
            let back = move |_| {
                if let Some(queue) = queue.upgrade() {
                    drop(runtime.spawn(async move { queue.redrive().await }));
                }
            };
            let parked = Arc::new(Parked::new(back));
            Self { client, clock, kept: Mutex::new(kept), news: watch::Sender::new(()), parked }
        });
        dead.into_iter().for_each(|dead| queue.parked.park(dead));
        Ok(queue)
    }

    /// The dead-letter queue, as the admin function sees it.
    pub(super) fn dlq(&self) -> Dlq {
        Dlq::Local(Arc::clone(&self.parked))
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends a message, not to be read before this has passed. It is durable when this answers.
    pub(super) async fn send(&self, reader: Consumer, body: String, delay: Duration) -> Result<(), String> {
        let now = self.clock.now();
        let number = {
            let mut kept = self.kept();
            kept.sent += 1;
            kept.sent
        };
        let delay = SignedDuration::try_from(delay).unwrap_or(SignedDuration::MAX);
        let entry = QueuedMessage {
            // In the order of sending, also over restarts: the clock never goes back.
            id: format!("{:013}-{number:06}", now.as_millisecond()),
            reader,
            body,
            sent_at: now,
            visible_at: now.saturating_add(delay).unwrap_or(Timestamp::MAX),
            tries: 0,
            reason: None,
            dead: false,
        };
        self.put(&entry).await?;
        self.kept().messages.insert(entry.id.clone(), entry);
        self.news.send_replace(());
        Ok(())
    }

    /// The next message for this reader; waits until there is one.
    pub(super) async fn take(&self, reader: Consumer) -> QueuedMessage {
        let mut news = self.news.subscribe();
        loop {
            news.mark_unchanged();
            let (found, next) = self.free(reader);
            match found {
                Some(mut entry) if entry.tries >= MOST_TRIES => {
                    entry.dead = true;
                    self.settle(entry).await;
                }
                Some(mut entry) => {
                    entry.tries += 1;
                    // Counted before it is tried: a message that kills the process must not do so for ever. If that cannot
                    // be written, the try is made all the same.
                    let _ = self.put(&entry).await;
                    self.kept().messages.insert(entry.id.clone(), entry.clone());
                    return entry;
                }
                None => self.wait(next, &mut news).await,
            }
        }
    }

    /// The first message that may be taken, now taken; else when the next may be.
    fn free(&self, reader: Consumer) -> (Option<QueuedMessage>, Option<Timestamp>) {
        let now = self.clock.now();
        let mut kept = self.kept();
        let waiting = |entry: &&QueuedMessage| entry.reader == reader && !entry.dead && !kept.taken.contains(&entry.id);
        let first = kept.messages.values().filter(waiting).min_by_key(|entry| (entry.visible_at, entry.id.clone()));
        match first.cloned() {
            Some(entry) if entry.visible_at <= now => {
                kept.taken.push(entry.id.clone());
                (Some(entry), None)
            }
            later => (None, later.map(|entry| entry.visible_at)),
        }
    }

    async fn wait(&self, next: Option<Timestamp>, news: &mut watch::Receiver<()>) {
        let pause = next.map_or(SignedDuration::from_hours(1), |at| at.duration_since(self.clock.now()));
        let pause = Duration::try_from(pause).unwrap_or_default() + Duration::from_millis(1);
        tokio::select! {
            _ = news.changed() => {}
            () = self.clock.sleep(pause) => {}
        }
    }

    /// The message is done with.
    pub(super) async fn done(&self, id: &str) {
        let key = HashMap::from([("id".to_owned(), AttributeValue::S(id.to_owned()))]);
        let gone = self.client.delete_item().table_name(TABLE).set_key(Some(key)).send().await;
        let mut kept = self.kept();
        kept.taken.retain(|taken| taken != id);
        if gone.is_ok() {
            kept.messages.remove(id);
        }
        drop(kept);
        // If it could not be forgotten it comes again, and its reader knows it by its id.
        self.news.send_replace(());
    }

    /// The message comes back after a while.
    pub(super) async fn again(&self, mut entry: QueuedMessage, why: &str) {
        let pause = AGAIN_AFTER.saturating_mul(1 << entry.tries.saturating_sub(1).min(MOST_TRIES));
        entry.visible_at = self.clock.now().saturating_add(pause).unwrap_or(Timestamp::MAX);
        entry.reason = Some(cut(why, MAX_REASON));
        entry.dead = entry.tries >= MOST_TRIES;
        self.settle(entry).await;
    }

    async fn settle(&self, entry: QueuedMessage) {
        // What cannot be written is known here at least; after a restart it is tried once more.
        let _ = self.put(&entry).await;
        if entry.dead {
            self.parked.park(entry.as_dead());
        }
        let mut kept = self.kept();
        kept.taken.retain(|taken| *taken != entry.id);
        kept.messages.insert(entry.id.clone(), entry);
        drop(kept);
        self.news.send_replace(());
    }

    /// Puts everything of the dead-letter queue back. What could not be written stays there, and is shown again.
    async fn redrive(&self) {
        let dead: Vec<QueuedMessage> = self.kept().messages.values().filter(|entry| entry.dead).cloned().collect();
        for entry in dead {
            let fresh = QueuedMessage { dead: false, tries: 0, visible_at: self.clock.now(), ..entry.clone() };
            match self.put(&fresh).await {
                Ok(()) => drop(self.kept().messages.insert(fresh.id.clone(), fresh)),
                Err(_) => self.parked.park(entry.as_dead()),
            }
            self.news.send_replace(());
        }
    }

    async fn put(&self, entry: &QueuedMessage) -> Result<(), String> {
        let item = serde_dynamo::to_item(entry).map_err(|error| error.to_string())?;
        let sent = self.client.put_item().table_name(TABLE).set_item(Some(item)).send().await;
        sent.map(drop).map_err(|error| DisplayErrorContext(error).to_string())
    }
}

async fn create(client: &Client) -> Result<(), String> {
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
    use super::super::tables::Tables;
    use super::*;

    /// A folder for one test, gone with it.
    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Self {
            let folder = std::env::temp_dir().join(format!("suture-local-{name}-{}", std::process::id()));
            std::fs::create_dir_all(&folder).unwrap();
            Self(folder)
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    /// Ten minutes in a second.
    fn clock() -> Arc<dyn Clock> {
        Arc::new(ScaledClock::new("2036-03-03T09:00:00Z".parse().unwrap(), 600.0))
    }

    async fn next(queue: &Queue, reader: Consumer) -> Option<QueuedMessage> {
        tokio::time::timeout(Duration::from_secs(1), queue.take(reader)).await.ok()
    }

    #[tokio::test]
    async fn what_was_not_done_with_is_there_after_a_restart() {
        let folder = Folder::new("restart");
        let tables = Tables::open(&folder.0.join("suture.db")).await.unwrap();
        let queue = Queue::open(tables.client.clone(), clock()).await.unwrap();
        for body in ["a", "b", "c"] {
            queue.send(Consumer::Bridge, body.to_owned(), Duration::ZERO).await.unwrap();
        }
        queue.send(Consumer::Reconciler, "sweep".to_owned(), Duration::ZERO).await.unwrap();
        let first = next(&queue, Consumer::Bridge).await.unwrap();
        assert_eq!((first.body.as_str(), first.tries), ("a", 1));
        queue.done(&first.id).await;
        let second = next(&queue, Consumer::Bridge).await.unwrap();
        assert_eq!(second.body, "b");
        // The process dies while it works on the second.
        drop(queue);
        let queue = Queue::open(tables.client.clone(), clock()).await.unwrap();
        let again = next(&queue, Consumer::Bridge).await.unwrap();
        assert_eq!((again.id, again.body.as_str(), again.tries), (second.id, "b", 2), "the same, and counted");
        assert_eq!(next(&queue, Consumer::Bridge).await.unwrap().body, "c");
        assert_eq!(next(&queue, Consumer::Bridge).await, None, "what is taken is nobody else's");
        assert_eq!(next(&queue, Consumer::Reconciler).await.unwrap().body, "sweep");
    }

    #[tokio::test]
    async fn a_delay_is_waited_for_and_whoever_waits_is_woken() {
        let folder = Folder::new("delay");
        let tables = Tables::open(&folder.0.join("suture.db")).await.unwrap();
        let queue = Queue::open(tables.client.clone(), clock()).await.unwrap();
        queue.send(Consumer::Bridge, "later".to_owned(), Duration::from_secs(1500)).await.unwrap();
        assert_eq!(next(&queue, Consumer::Bridge).await, None);
        let waiting = tokio::spawn({
            let queue = Arc::clone(&queue);
            async move { queue.take(Consumer::Bridge).await.body }
        });
        tokio::time::sleep(Duration::from_millis(20)).await;
        queue.send(Consumer::Bridge, "now".to_owned(), Duration::ZERO).await.unwrap();
        assert_eq!(waiting.await.unwrap(), "now");
        let later = tokio::time::timeout(Duration::from_secs(10), queue.take(Consumer::Bridge)).await.unwrap();
        assert_eq!(later.body, "later");
    }

    #[tokio::test]
    async fn after_five_tries_it_is_dead_until_it_is_sent_back() {
        let folder = Folder::new("dead");
        let tables = Tables::open(&folder.0.join("suture.db")).await.unwrap();
        let queue = Queue::open(tables.client.clone(), clock()).await.unwrap();
        queue.send(Consumer::Bridge, "poison".to_owned(), Duration::ZERO).await.unwrap();
        for tries in 1..=MOST_TRIES {
            let entry = next(&queue, Consumer::Bridge).await.unwrap();
            assert_eq!(entry.tries, tries);
            queue.again(entry, "nobody understands it").await;
        }
        assert_eq!(next(&queue, Consumer::Bridge).await, None);
        let queue = Queue::open(tables.client.clone(), clock()).await.unwrap();
        assert_eq!(queue.dlq().look().await.unwrap().messages[0].body, "poison", "a restart forgets no dead ones");
        assert_eq!(queue.dlq().redrive().await, Ok(1));
        let entry = tokio::time::timeout(Duration::from_secs(10), queue.take(Consumer::Bridge)).await.unwrap();
        assert_eq!(
            (entry.body.as_str(), entry.tries, entry.reason.as_deref()),
            ("poison", 1, Some("nobody understands it"))
        );
        assert_eq!(queue.dlq().count().await, Ok(0));
        queue.done(&entry.id).await;
        let queue = Queue::open(tables.client.clone(), clock()).await.unwrap();
        assert_eq!(next(&queue, Consumer::Bridge).await, None);
    }
}
