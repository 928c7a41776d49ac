//! The command queue as SQS keeps it: at least once, in no particular order, hidden for a while when somebody has taken a
//! message, and put aside when it was taken too often.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};

/// A message somebody has taken is hidden from the others for this long: six times a worker's own limit, as AWS advises.
pub(crate) const HIDDEN_FOR: SignedDuration = SignedDuration::from_mins(6);
/// A message that was taken this often without success goes to the dead-letter queue.
pub(crate) const MOST_RECEIVES: u32 = 5;

/// One message.
#[derive(Debug, Clone)]
pub(crate) struct Message {
    pub(crate) id: u64,
    pub(crate) body: String,
    visible_at: Timestamp,
    received: u32,
}

/// What waits, what is being worked on, and what nobody could work on.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    waiting: BTreeMap<u64, Message>,
    /// When each can be seen, in that order.
    by_time: BTreeSet<(Timestamp, u64)>,
    last: u64,
    dead: Vec<Message>,
    done: BTreeSet<u64>,
}

impl Queue {
    /// Puts a message onto the queue, to be seen from then on. Answers its name.
    pub(crate) fn put(&mut self, body: String, visible_at: Timestamp) -> u64 {
        self.last += 1;
        self.by_time.insert((visible_at, self.last));
        self.waiting.insert(self.last, Message { id: self.last, body, visible_at, received: 0 });
        self.last
    }

    /// Whether this message is still here, or set aside: not lost.
    pub(crate) fn has(&self, id: u64) -> bool {
        self.waiting.contains_key(&id) || self.dead.iter().any(|message| message.id == id)
    }

    /// Takes messages that can be seen now, and hides them. What was taken too often is set aside instead.
    pub(crate) fn take(&mut self, most: usize, now: Timestamp) -> Vec<Message> {
        let mut taken = Vec::new();
        while taken.len() < most {
            let Some((at, id)) = self.by_time.first().copied().filter(|(at, _)| *at <= now) else { break };
            self.by_time.remove(&(at, id));
            let Some(message) = self.waiting.get_mut(&id) else { continue };
            if message.received >= MOST_RECEIVES {
                self.dead.extend(self.waiting.remove(&id));
                continue;
            }
            message.received += 1;
            message.visible_at = later(now, HIDDEN_FOR);
            self.by_time.insert((message.visible_at, id));
            taken.push(message.clone());
        }
        taken
    }

    /// Somebody else may see a taken message from then on, although it is being worked on.
    pub(crate) fn show(&mut self, id: u64, at: Timestamp) {
        if let Some(message) = self.waiting.get_mut(&id) {
            self.by_time.remove(&(message.visible_at, id));
            message.visible_at = at;
            self.by_time.insert((at, id));
        }
    }

    /// It is done with.
    pub(crate) fn done(&mut self, id: u64) {
        if let Some(message) = self.waiting.remove(&id) {
            self.by_time.remove(&(message.visible_at, id));
            self.done.insert(id);
        }
    }

    /// Whether somebody has worked on it to the end.
    pub(crate) fn was_done(&self, id: u64) -> bool {
        self.done.contains(&id)
    }

    /// It vanishes, as no queue should let it.
    pub(crate) fn lose(&mut self, id: u64) {
        self.done(id);
        self.done.remove(&id);
    }

    /// When the next one can be seen.
    pub(crate) fn next_at(&self) -> Option<Timestamp> {
        self.by_time.first().map(|(at, _)| *at)
    }

    /// How many are here, seen or not.
    pub(crate) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// What nobody could work on.
    pub(crate) fn dead(&self) -> &[Message] {
        &self.dead
    }
}

/// A time so much later.
pub(crate) fn later(at: Timestamp, by: SignedDuration) -> Timestamp {
    at.saturating_add(by).unwrap_or(Timestamp::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(secs: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + secs).unwrap()
    }

    #[test]
    fn a_message_is_seen_after_its_delay_and_again_when_nobody_has_finished_it() {
        let mut queue = Queue::default();
        let id = queue.put("a".to_owned(), at(10));
        assert!(queue.take(1, at(9)).is_empty());
        assert_eq!(queue.take(1, at(10)).len(), 1);
        assert!(queue.take(1, at(369)).is_empty(), "hidden for six minutes");
        assert_eq!(queue.take(1, at(370)).len(), 1);
        queue.done(id);
        assert!(queue.take(1, at(10_000)).is_empty() && !queue.has(id));
    }

    #[test]
    fn what_is_taken_too_often_is_set_aside_and_not_lost() {
        let mut queue = Queue::default();
        let id = queue.put("a".to_owned(), at(0));
        for round in 0..5 {
            assert_eq!(queue.take(1, at(360 * round)).len(), 1, "{round}");
        }
        assert!(queue.take(1, at(10_000)).is_empty());
        assert_eq!((queue.len(), queue.dead().len(), queue.has(id)), (0, 1, true));
    }
}
