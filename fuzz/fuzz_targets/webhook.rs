//! Fuzzes the webhook parser: no combination of headers and body may cause a panic in signature check, parsing or decision. The same fact
//! applied twice must not be an anomaly.
//!
//! Depends on the webhook function without its feature `aws`, so the AWS SDK is not compiled.

#![no_main]

use std::sync::LazyLock;

use domain::decide::{FactOutcome, decide};
use domain::id::PrId;
use domain::policy::Policies;
use jiff::Timestamp;
use libfuzzer_sys::fuzz_target;
use webhook::github::{BotIdentity, GithubDelivery, ParseOutcome, PrSelector, parse_delivery};
use webhook::signature::{SenderSecrets, sign};

static POLICIES: LazyLock<Policies> = LazyLock::new(|| {
    Policies::parse(
        "mode = 'act'\nmanaged.branch_prefixes = ['c']\napprover_bot.logins = ['a']\nautomerge_bot.logins = ['a']",
    )
    .expect("valid configuration")
});
static SECRETS: LazyLock<SenderSecrets> = LazyLock::new(|| SenderSecrets::parse("now,before").expect("valid secrets"));

fuzz_target!(|data: &[u8]| {
    // One line each for event, delivery id and signature, then the body.
    let mut parts = data.splitn(4, |byte| *byte == b'\n');
    let mut header = || std::str::from_utf8(parts.next().unwrap_or_default()).unwrap_or_default();
    let (event, id, signature) = (header(), header(), header());
    let body = parts.next().unwrap_or_default();
    assert!(SECRETS.check_signature(body, Some(signature)).is_err(), "the fuzzer produced a valid signature");
    assert!(SECRETS.check_signature(body, Some(&sign("before", body))).is_ok());
    let bot = BotIdentity { app_id: Some(7), login: Some("s".to_owned()) };
    let outcome = parse_delivery(&GithubDelivery { event, id, body }, &POLICIES, &bot);
    let ParseOutcome::Parsed(parsed) = outcome else { return };
    for command in &parsed.commands {
        assert!(command.command_id.as_str().starts_with("cmd:"));
    }
    let Some(webhook_fact) = parsed.fact else { return };
    let number = match &webhook_fact.selector {
        PrSelector::Numbers(numbers) => *numbers.first().expect("at least one number"),
        PrSelector::Head(_) | PrSelector::Base(_) => 1,
    };
    let fact = webhook_fact.fact(PrId::new(parsed.repo.clone(), number));
    let now: Timestamp = "2026-03-02T09:00:00Z".parse().expect("valid timestamp");
    let policy = POLICIES.for_repo(&parsed.repo);
    let first = decide(policy, None, &fact, now);
    if let Some(record) = first.record {
        let second = decide(policy, Some(record), &fact, now);
        assert_ne!(second.outcome, FactOutcome::Anomaly, "{}", second.reason);
    }
});
