//! The webhook function without a network, for counting instructions (`scripts/bench`): reads deliveries from a file, one JSON object per
//! line, and handles the first COUNT of them on an in-memory store, or only verifies their signatures.
//!
//!     pure FILE signature|whole COUNT SECRET

#![expect(clippy::print_stdout, reason = "a program for the benchmarks")]

use anyhow::{Context, bail};
use domain::policy::Policies;
use http::Request;
use jiff::Timestamp;
use platform::publish::{OutboundMessage, PublishError, Publisher};
use platform::telemetry::MetricLog;
use serde_json::Value;
use testbed::MemoryStore;
use webhook::github::BotIdentity;
use webhook::signature::SenderSecrets;
use webhook::{WebhookHandler, WebhookSecrets};

/// Discards all messages, so that publishing adds no instructions.
struct DiscardingPublisher;

impl Publisher for DiscardingPublisher {
    async fn publish(&self, parcels: &[OutboundMessage]) -> Vec<Result<(), PublishError>> {
        parcels.iter().map(|_| Ok(())).collect()
    }
}

/// The allocator of the function.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, file, what, count, secret] = arguments.as_slice() else { bail!("pure FILE signature|whole COUNT SECRET") };
    let count: usize = count.parse()?;
    let secrets = SenderSecrets::parse(secret)?;
    let policies = Policies::parse(include_str!("../../../tests/bench/suture.toml"))?;
    let senders = WebhookSecrets { github: secrets.clone(), jenkins: None, bots: std::collections::BTreeMap::new() };
    let log = MetricLog::writing_to(std::io::sink());
    let webhook =
        WebhookHandler::new(MemoryStore::new(), DiscardingPublisher, policies, BotIdentity::default(), senders, log);
    let now: Timestamp = "2026-11-16T09:00:00Z".parse()?;
    // The whole file is read for every COUNT, because the benchmark compares the instructions of two counts.
    let mut deliveries = Vec::new();
    for line in std::fs::read_to_string(file)?.lines() {
        let line: Value = serde_json::from_str(line)?;
        let text = |name: &str| line[name].as_str().map(str::to_owned).with_context(|| format!("no `{name}`"));
        let request = Request::builder().method("POST").uri("/webhook/github");
        let request = request.header("x-github-event", text("event")?).header("x-github-delivery", text("id")?);
        let (parts, ()) = request.header("x-hub-signature-256", text("signature")?).body(())?.into_parts();
        deliveries.push((parts, text("signature")?, text("body")?));
    }
    let mut succeeded = 0;
    for (parts, signature, body) in deliveries.iter().take(count) {
        let good = match what.as_str() {
            "signature" => secrets.check_signature(body.as_bytes(), Some(signature)).is_ok(),
            "whole" => webhook.handle(parts, body.as_bytes(), now).await.status().is_success(),
            other => bail!("`{other}` is neither `signature` nor `whole`"),
        };
        succeeded += usize::from(good);
    }
    println!("{succeeded}");
    Ok(())
}
