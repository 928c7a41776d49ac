//! What a webhook costs in the store, in capacity units, for the cost model of docs/operations.md.

use domain::event::Happened;
use platform::engine::Engine;
use platform::store::Store;
use testbed::RecordingPublisher;
use tests::lambda::root;
use tests::rig::Dynoxide;
use tests::{acting, minute, pr, typical_life};
use webhook::github::{About, News, Told};
use webhook::ingest::Intake;

/// Units per webhook of a typical life: a pull request that is opened, checked three times, judged, approved and merged.
#[tokio::test]
async fn the_cost_model_rests_on_what_a_typical_life_costs() {
    let dynamo = Dynoxide::in_memory().await;
    let engine = Engine::new(dynamo.store().await, RecordingPublisher::default(), acting());
    let intake = Intake::new(engine, acting());
    let life = typical_life(&pr(1));
    let before = intake.engine().store().spent().so_far();
    for fact in &life {
        let news = News {
            about: About::Numbers(vec![fact.pr.number]),
            id: fact.id.clone(),
            occurred_at: fact.occurred_at,
            actor: fact.actor,
            what: fact.what.clone(),
            begins: matches!(fact.what, Happened::Opened(_)),
        };
        let told = Told { repo: fact.pr.repo.clone(), news: Some(news), commands: Vec::new() };
        intake.take(&told, minute(60)).await.unwrap();
    }
    let spent = intake.engine().store().spent().so_far();
    let per = |total: f64| total / life.len() as f64;
    let (requests, units) = (per((spent.requests - before.requests) as f64), per(spent.units - before.units));
    eprintln!("{} webhooks: {requests:.1} requests and {units:.1} units each", life.len());
    let stated = std::fs::read_to_string(root().join("docs/operations.md")).unwrap();
    assert!(stated.contains(&format!("{units:.1} units")), "docs/operations.md must say {units:.1} units");
}
