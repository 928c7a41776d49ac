//! How fast we may go: what GitHub last said about its limits, the time before which nothing may be asked, the second
//! between two writes, and what need not be sent again because GitHub would only say that it has not changed.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, header};
use jiff::Timestamp;

/// What is left of one of GitHub's hourly allowances.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate {
    /// Requests (or points) per hour.
    pub limit: u32,
    /// How many are left.
    pub remaining: u32,
    /// When all are there again.
    pub resets_at: Timestamp,
}

/// What GitHub last said about its allowances: REST and GraphQL have one each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Rates {
    /// REST.
    pub rest: Option<Rate>,
    /// GraphQL.
    pub graphql: Option<Rate>,
}

/// Longest answer that is kept for its ETag.
const MOST_KEPT_BYTES: usize = 64 * 1024;
/// Answers kept at a time.
const MOST_KEPT: usize = 512;

/// An answer that is good as long as GitHub says that it has not changed. Where its next page is belongs to it: "not
/// modified" does not repeat that.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Kept {
    pub(super) etag: HeaderValue,
    pub(super) link: Option<HeaderValue>,
    pub(super) body: Bytes,
}

#[derive(Debug, Default)]
struct Known {
    rates: Rates,
    not_before: Option<Timestamp>,
    last_write: Option<Timestamp>,
    answers: BTreeMap<String, Kept>,
    oldest_first: VecDeque<String>,
}

/// All of it, shared by every call.
#[derive(Debug, Default)]
pub(super) struct Limits(Mutex<Known>);

impl Limits {
    fn known(&self) -> MutexGuard<'_, Known> {
        // Whoever panicked here left plain values behind; the worst is one request too many.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes what an answer says about the allowance.
    pub(super) fn note(&self, headers: &HeaderMap) {
        let text = |name: &str| headers.get(name)?.to_str().ok();
        let number = |name: &str| text(name)?.parse::<u32>().ok();
        let resets_at = text("x-ratelimit-reset").and_then(|secs| Timestamp::from_second(secs.parse().ok()?).ok());
        let (Some(limit), Some(remaining), Some(resets_at)) =
            (number("x-ratelimit-limit"), number("x-ratelimit-remaining"), resets_at)
        else {
            return;
        };
        let rate = Some(Rate { limit, remaining, resets_at });
        match text("x-ratelimit-resource") {
            Some("graphql") => self.known().rates.graphql = rate,
            Some("core") | None => self.known().rates.rest = rate,
            // Search and the like have their own; nothing here uses them.
            Some(_) => {}
        }
    }

    pub(super) fn rates(&self) -> Rates {
        self.known().rates
    }

    /// Nothing may be asked before this time.
    pub(super) fn hold(&self, until: Timestamp) {
        let mut known = self.known();
        known.not_before = known.not_before.max(Some(until));
    }

    /// Until when nothing may be asked, if that is still to come.
    pub(super) fn held(&self, now: Timestamp) -> Option<Timestamp> {
        self.known().not_before.filter(|until| *until > now)
    }

    /// Takes the next turn to write and says how long it is until then.
    pub(super) fn turn(&self, now: Timestamp, apart: Duration) -> Duration {
        let mut known = self.known();
        let next = known.last_write.and_then(|last| last.checked_add(apart).ok()).map_or(now, |next| next.max(now));
        known.last_write = Some(next);
        next.duration_since(now).unsigned_abs()
    }

    /// The answer last given to this question.
    pub(super) fn kept(&self, question: &str) -> Option<Kept> {
        self.known().answers.get(question).cloned()
    }

    /// Keeps an answer, if it has an ETag and is small; the oldest makes room.
    pub(super) fn keep(&self, question: String, headers: &HeaderMap, body: &Bytes) {
        let Some(etag) = headers.get(header::ETAG).cloned().filter(|_| body.len() <= MOST_KEPT_BYTES) else {
            return;
        };
        let kept = Kept { etag, link: headers.get(header::LINK).cloned(), body: body.clone() };
        let mut known = self.known();
        if known.answers.insert(question.clone(), kept).is_none() {
            known.oldest_first.push_back(question);
        }
        while known.answers.len() > MOST_KEPT {
            let Some(oldest) = known.oldest_first.pop_front() else { break };
            known.answers.remove(&oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(secs: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + secs).unwrap()
    }

    fn headers(list: &[(&'static str, &str)]) -> HeaderMap {
        list.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect()
    }

    #[test]
    fn writes_are_a_second_apart_and_wait_for_each_other() {
        let limits = Limits::default();
        let second = Duration::from_secs(1);
        assert_eq!(limits.turn(at(0), second), Duration::ZERO);
        assert_eq!(limits.turn(at(0), second), second);
        assert_eq!(limits.turn(at(0), second), 2 * second);
        assert_eq!(limits.turn(at(2), second), second);
        assert_eq!(limits.turn(at(9), second), Duration::ZERO);
    }

    #[test]
    fn a_hold_is_over_when_its_time_has_come_and_is_never_shortened() {
        let limits = Limits::default();
        assert_eq!(limits.held(at(0)), None);
        limits.hold(at(10));
        limits.hold(at(5));
        assert_eq!(limits.held(at(9)), Some(at(10)));
        assert_eq!(limits.held(at(10)), None);
    }

    #[test]
    fn each_allowance_is_noted_for_itself() {
        let limits = Limits::default();
        let reset = at(60).as_second().to_string();
        let says = |resource: &str, remaining: &str| {
            headers(&[
                ("x-ratelimit-limit", "5000"),
                ("x-ratelimit-remaining", remaining),
                ("x-ratelimit-reset", &reset),
                ("x-ratelimit-resource", resource),
            ])
        };
        limits.note(&says("core", "4999"));
        limits.note(&says("graphql", "7"));
        limits.note(&says("search", "1"));
        limits.note(&headers(&[("x-ratelimit-remaining", "3")]));
        let rates = limits.rates();
        let rate = |remaining| Some(Rate { limit: 5000, remaining, resets_at: at(60) });
        assert_eq!(rates, Rates { rest: rate(4999), graphql: rate(7) });
    }

    #[test]
    fn the_oldest_answers_make_room_and_large_ones_are_not_kept() {
        let limits = Limits::default();
        let tagged = |etag| headers(&[("etag", etag), ("link", "<https://api.github.com/2>; rel=\"next\"")]);
        let body = Bytes::from_static(b"{}");
        for n in 0..=MOST_KEPT {
            limits.keep(format!("/{n}"), &tagged("tag"), &body);
        }
        assert_eq!(limits.kept("/0"), None);
        let first = limits.kept("/1").unwrap();
        assert!(first.etag == "tag" && first.link.is_some() && first.body == body);
        limits.keep("/1".to_owned(), &tagged("newer"), &body);
        assert_eq!(limits.kept("/1").unwrap().etag, "newer");
        limits.keep("/large".to_owned(), &tagged("tag"), &Bytes::from(vec![b' '; MOST_KEPT_BYTES + 1]));
        limits.keep("/untagged".to_owned(), &headers(&[]), &body);
        assert_eq!((limits.kept("/large"), limits.kept("/untagged")), (None, None));
    }
}
