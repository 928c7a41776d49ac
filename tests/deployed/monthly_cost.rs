//! Compares the cost model in docs/operations.md with the capacity units that a webhook really consumes.

use domain::event::FactKind;
use platform::engine::Engine;
use platform::store::Store;
use testbed::RecordingPublisher;
use tests::lambda::root;
use tests::local_aws::Dynoxide;
use tests::{acting, minute, pr, typical_life};
use webhook::github::{ParsedWebhook, PrSelector, WebhookFact};
use webhook::ingest::Ingester;

/// Units per webhook of a typical pull request: opened, checked three times, passed by the policy bot, approved and merged.
#[tokio::test]
async fn cost_model_states_units_of_a_typical_pull_request() {
    let dynamo = Dynoxide::in_memory().await;
    let engine = Engine::new(dynamo.store().await, RecordingPublisher::default(), acting());
    let ingester = Ingester::new(engine, acting());
    let life = typical_life(&pr(1));
    let before = ingester.engine().store().usage().usage();
    for fact in &life {
        let webhook_fact = WebhookFact {
            selector: PrSelector::Numbers(vec![fact.pr.number]),
            id: fact.id.clone(),
            occurred_at: fact.occurred_at,
            actor: fact.actor,
            kind: fact.kind.clone(),
            managed: matches!(fact.kind, FactKind::Opened(_)),
            described: None,
        };
        let webhook = ParsedWebhook { repo: fact.pr.repo.clone(), fact: Some(webhook_fact), commands: Vec::new() };
        ingester.ingest(&webhook, minute(60)).await.unwrap();
    }
    let after = ingester.engine().store().usage().usage();
    let per = |total: f64| total / life.len() as f64;
    let (requests, units) = (per((after.requests - before.requests) as f64), per(after.units - before.units));
    eprintln!("{} webhooks: {requests:.1} requests and {units:.1} units each", life.len());
    let document = std::fs::read_to_string(root().join("docs/operations.md")).unwrap();
    assert!(document.contains(&format!("{units:.1} units")), "docs/operations.md must say {units:.1} units");
}
