//! An in-process queue that behaves like SQS: at-least-once delivery, a visibility timeout, and a dead-letter queue. Callers pass
//! the time, so the simulator (virtual time) and `suture up` (real time, durable messages) share it.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// A message that was received this often without success becomes a dead letter, as in the deployed queue.
pub const MAX_RECEIVES: u32 = 5;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SimulatedMessage<K, T> {
    pub id: K,
    #[serde(flatten)]
    pub content: T,
    pub visible_at: Timestamp,
    pub receives: u32,
}

#[derive(Debug)]
pub struct SimulatedQueue<K, T> {
    messages: BTreeMap<K, SimulatedMessage<K, T>>,
    by_time: BTreeSet<(Timestamp, K)>,
    dead: BTreeMap<K, SimulatedMessage<K, T>>,
}

impl<K, T> Default for SimulatedQueue<K, T> {
    fn default() -> Self {
        Self { messages: BTreeMap::new(), by_time: BTreeSet::new(), dead: BTreeMap::new() }
    }
}

impl<K: Ord + Clone, T: Clone> SimulatedQueue<K, T> {
    pub fn put(&mut self, message: SimulatedMessage<K, T>) {
        self.by_time.insert((message.visible_at, message.id.clone()));
        self.messages.insert(message.id.clone(), message);
    }

    pub fn put_dead(&mut self, message: SimulatedMessage<K, T>) {
        self.dead.insert(message.id.clone(), message);
    }

    /// Moves visible messages that were received too often to the dead letters, and returns them.
    pub fn bury(&mut self, now: Timestamp) -> Vec<SimulatedMessage<K, T>> {
        let visible = self.by_time.iter().take_while(|(at, _)| *at <= now).map(|(_, id)| id.clone());
        let exhausted: Vec<K> = visible.filter(|id| self.messages[id].receives >= MAX_RECEIVES).collect();
        let exhausted: Vec<_> = exhausted.iter().filter_map(|id| self.remove(id)).collect();
        exhausted.iter().cloned().for_each(|message| self.put_dead(message));
        exhausted
    }

    /// Receives up to `most` visible messages and hides them until `hidden_until`.
    pub fn receive(&mut self, most: usize, now: Timestamp, hidden_until: Timestamp) -> Vec<SimulatedMessage<K, T>> {
        self.bury(now);
        let visible = self.by_time.iter().take_while(|(at, _)| *at <= now).take(most);
        let ids: Vec<K> = visible.map(|(_, id)| id.clone()).collect();
        ids.iter().filter_map(|id| self.hide(id, hidden_until)).collect()
    }

    /// Receives the visible message of the lowest rank, and of these the first, and hides it until `hidden_until`.
    pub fn receive_by(
        &mut self,
        rank: impl Fn(&T) -> u8,
        now: Timestamp,
        hidden_until: Timestamp,
    ) -> Option<SimulatedMessage<K, T>> {
        self.bury(now);
        let visible = self.by_time.iter().take_while(|(at, _)| *at <= now);
        let first = visible.min_by_key(|(_, id)| rank(&self.messages[id].content))?.1.clone();
        self.hide(&first, hidden_until)
    }

    /// Counts a receive and hides the message until `until`.
    fn hide(&mut self, id: &K, until: Timestamp) -> Option<SimulatedMessage<K, T>> {
        let mut message = self.remove(id)?;
        message.receives += 1;
        message.visible_at = until;
        self.put(message.clone());
        Some(message)
    }

    /// Changes the time at which a message becomes visible.
    pub fn set_visible_at(&mut self, id: &K, at: Timestamp) {
        if let Some(message) = self.remove(id) {
            self.put(SimulatedMessage { visible_at: at, ..message });
        }
    }

    /// Deletes a message and returns it, if it exists.
    pub fn remove(&mut self, id: &K) -> Option<SimulatedMessage<K, T>> {
        let message = self.messages.remove(id)?;
        self.by_time.remove(&(message.visible_at, id.clone()));
        Some(message)
    }

    pub fn take_dead(&mut self) -> Vec<SimulatedMessage<K, T>> {
        std::mem::take(&mut self.dead).into_values().collect()
    }

    /// Whether the queue or the dead letters contain this message.
    #[must_use]
    pub fn contains(&self, id: &K) -> bool {
        self.messages.contains_key(id) || self.dead.contains_key(id)
    }

    #[must_use]
    pub fn next_visible_at(&self) -> Option<Timestamp> {
        self.by_time.first().map(|(at, _)| *at)
    }

    /// Whether the queue has no messages, visible or hidden; dead letters do not count.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }

    pub fn dead(&self) -> impl ExactSizeIterator<Item = &SimulatedMessage<K, T>> {
        self.dead.values()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(secs: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + secs).unwrap()
    }

    fn queue_with_one(visible_at: Timestamp) -> SimulatedQueue<u64, &'static str> {
        let mut queue = SimulatedQueue::default();
        queue.put(SimulatedMessage { id: 1, content: "a", visible_at, receives: 0 });
        queue
    }

    #[test]
    fn message_is_visible_after_its_delay_and_again_after_its_timeout() {
        let mut queue = queue_with_one(at(10));
        assert!(queue.receive(1, at(9), at(370)).is_empty());
        assert_eq!(queue.receive(1, at(10), at(370)).len(), 1);
        assert!(queue.receive(1, at(369), at(370)).is_empty(), "hidden");
        assert_eq!(queue.receive(1, at(370), at(730)).len(), 1);
        queue.set_visible_at(&1, at(400));
        assert_eq!(queue.next_visible_at(), Some(at(400)));
        assert_eq!(queue.remove(&1).map(|message| message.receives), Some(2));
        assert!(queue.receive(1, at(10_000), at(10_360)).is_empty() && !queue.contains(&1));
    }

    #[test]
    fn first_message_of_the_lowest_rank_is_received() {
        let mut queue = SimulatedQueue::default();
        for (id, content) in [(1, "later"), (2, "now"), (3, "now"), (4, "later")] {
            queue.put(SimulatedMessage { id, content, visible_at: at(0), receives: 0 });
        }
        queue.put(SimulatedMessage { id: 5, content: "now", visible_at: at(10), receives: 0 });
        let mut next = || Some(queue.receive_by(|content| u8::from(*content == "later"), at(0), at(360))?.id);
        assert_eq!([next(), next(), next(), next(), next()], [Some(2), Some(3), Some(1), Some(4), None]);
    }

    #[test]
    fn message_received_too_often_becomes_a_dead_letter() {
        let mut queue = queue_with_one(at(0));
        for round in 0..i64::from(MAX_RECEIVES) {
            assert_eq!(queue.receive(1, at(360 * round), at(360 * (round + 1))).len(), 1, "{round}");
        }
        assert!(queue.receive(1, at(10_000), at(10_360)).is_empty());
        assert!(queue.is_empty() && queue.contains(&1));
        assert_eq!(queue.dead().len(), 1);
        assert_eq!(queue.take_dead().len(), 1);
        assert_eq!(queue.dead().len(), 0);
    }
}
