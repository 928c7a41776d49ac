//! Headers and body of a webhook, whatever they are: it is believed or not, read, and decided upon, and nothing breaks. What
//! is decided twice is no news the second time.
//!
//! The reader is compiled in by its path: the crate it belongs to would bring the whole AWS SDK, and it needs nothing of it.

#![no_main]

#[path = "../../shared/platform/src/github/webhook/mod.rs"]
#[allow(dead_code, unreachable_pub, unused_imports, reason = "only the reader is used, and this crate exports nothing")]
mod webhook;

use std::sync::LazyLock;

use domain::decide::{Outcome, decide};
use domain::id::PrId;
use domain::policy::Policies;
use jiff::Timestamp;
use libfuzzer_sys::fuzz_target;
use webhook::signature::{Secrets, sign};
use webhook::{About, Delivery, Own, Reading, read};

static POLICIES: LazyLock<Policies> = LazyLock::new(|| {
    Policies::parse("mode = 'act'\nours.branch_prefixes = ['c']\napprover_bot.logins = ['a']\nautomerge_bot.logins = ['a']")
        .expect("a configuration")
});
static SECRETS: LazyLock<Secrets> = LazyLock::new(|| Secrets::parse("now,before").expect("secrets"));

fuzz_target!(|data: &[u8]| {
    // Three lines of headers, then the body.
    let mut parts = data.splitn(4, |byte| *byte == b'\n');
    let mut header = || std::str::from_utf8(parts.next().unwrap_or_default()).unwrap_or_default();
    let (event, id, signature) = (header(), header(), header());
    let body = parts.next().unwrap_or_default();
    assert!(SECRETS.check_signature(body, Some(signature)).is_err(), "somebody guessed a signature");
    assert!(SECRETS.check_signature(body, Some(&sign("before", body))).is_ok());
    let own = Own { app_id: Some(7), login: Some("s".to_owned()) };
    let Reading::Told(told) = read(&Delivery { event, id, body }, &POLICIES, &own) else { return };
    for command in &told.commands {
        assert!(command.command_id.as_str().starts_with(&format!("cmd:{id}#")));
    }
    let Some(news) = told.news else { return };
    let number = match &news.about {
        About::Numbers(numbers) => *numbers.first().expect("a number"),
        About::Head(_) | About::Base(_) => 1,
    };
    let fact = news.fact(PrId::new(told.repo.clone(), number));
    let now: Timestamp = "2026-03-02T09:00:00Z".parse().expect("a time");
    let policy = POLICIES.for_repo(&told.repo);
    let first = decide(policy, None, &fact, now);
    if let Some(record) = first.record {
        let again = decide(policy, Some(record), &fact, now);
        assert_ne!(again.outcome, Outcome::Anomaly, "{}", again.reason);
    }
});
