//! Messages that wait: each is a row with a due date, and the sweep after that date sends it. A message that the Car Bridge sent to its own
//! queue again and again would be dropped by Lambda's recursion detection, and SQS delays a message by fifteen minutes at most.

use domain::id::RepoName;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::versioned::{self, Versioned, write_if};
use super::{Condition, Key, RowWrite, Store, StoreError, VERSION, number, schema};
use crate::hash::stable_id;
use crate::publish::queue_message::QueueMessage;
use crate::publish::{Destination, OutboundMessage};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WaitingMessage {
    /// The message as it was on the queue.
    pub message: String,
    /// Its message group.
    pub repo: RepoName,
}

pub fn waiting_key(id: &str) -> Key {
    Key::state(format!("WAIT#{id}"))
}

impl WaitingMessage {
    /// The same message waits only once, however often it was delivered.
    fn id(&self) -> String {
        stable_id(&[&self.message])
    }

    /// The message to send.
    pub fn outbound(&self) -> Result<OutboundMessage, StoreError> {
        let id = self.id();
        let message = QueueMessage::from_json(&self.message)
            .map_err(|error| StoreError::Corrupt(waiting_key(&id), error.to_string()))?;
        let destination = Destination::queue(message, self.repo.clone(), std::time::Duration::ZERO);
        Ok(OutboundMessage { id: format!("wait-{id}"), destination })
    }
}

/// Keeps a message until then.
pub async fn put<S: Store>(
    store: &S,
    waiting: &WaitingMessage,
    until: Timestamp,
    now: Timestamp,
) -> Result<(), StoreError> {
    let key = waiting_key(&waiting.id());
    let mut item = schema::row(&key, waiting)?;
    // Each time it waits it has another version, so that `delete` does not delete the next wait of the same message.
    item.inner_mut().insert(VERSION.to_owned(), number(until.as_millisecond()));
    schema::set_due(&mut item, schema::DUE_URGENT, Some(until));
    store.write(vec![RowWrite::Put { key, item, only_if: Condition::Always }], now).await
}

pub async fn load<S: Store>(
    store: &S,
    id: &str,
    now: Timestamp,
) -> Result<Option<Versioned<WaitingMessage>>, StoreError> {
    versioned::load(store, &waiting_key(id), now).await
}

/// Deletes a message that was sent, unless it waits again.
pub async fn delete<S: Store>(store: &S, id: &str, version: u64, now: Timestamp) -> Result<(), StoreError> {
    let delete = RowWrite::Delete { key: waiting_key(id), only_if: Condition::Version(version) };
    write_if(store, delete, now).await.map(drop)
}
