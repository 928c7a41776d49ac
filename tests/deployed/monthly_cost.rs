//! What a webhook costs in the store, in capacity units, for the cost model of docs/operations.md.

use domain::event::FactKind;
use platform::engine::Engine;
use platform::store::Store;
use testbed::RecordingPublisher;
use tests::lambda::root;
use tests::local_aws::Dynoxide;
use tests::{acting, minute, pr, typical_life};
use webhook::github::{ParsedWebhook, PrSelector, WebhookFact};
use webhook::ingest::Ingester;

/// Units per webhook of a typical life: a pull request that is opened, checked three times, judged, approved and merged.
#[tokio::test]
async fn the_cost_model_rests_on_what_a_typical_life_costs() {
    let dynamo = Dynoxide::in_memory().await;
    let engine = Engine::new(dynamo.store().await, RecordingPublisher::default(), acting());
    let intake = Ingester::new(engine, acting());
    let life = typical_life(&pr(1));
    let before = intake.engine().store().usage().usage();
    for fact in &life {
        let news = WebhookFact {
            selector: PrSelector::Numbers(vec![fact.pr.number]),
            id: fact.id.clone(),
            occurred_at: fact.occurred_at,
            actor: fact.actor,
            kind: fact.kind.clone(),
            creates_record: matches!(fact.kind, FactKind::Opened(_)),
        };
        let told = ParsedWebhook { repo: fact.pr.repo.clone(), fact: Some(news), commands: Vec::new() };
        intake.ingest(&told, minute(60)).await.unwrap();
    }
    let spent = intake.engine().store().usage().usage();
    let per = |total: f64| total / life.len() as f64;
    let (requests, units) = (per((spent.requests - before.requests) as f64), per(spent.units - before.units));
    eprintln!("{} webhooks: {requests:.1} requests and {units:.1} units each", life.len());
    let stated = std::fs::read_to_string(root().join("docs/operations.md")).unwrap();
    assert!(stated.contains(&format!("{units:.1} units")), "docs/operations.md must say {units:.1} units");
}
