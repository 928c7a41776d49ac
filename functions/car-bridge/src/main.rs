//! Wires the Car Bridge and runs it behind the Lambda runtime.

use std::sync::Arc;

use aws_lambda_events::event::sqs::SqsEvent;
use jiff::Timestamp;
use lambda_runtime::{Error, LambdaEvent, run, service_fn, tracing};
use platform::bridge::{Bridge, World};
use platform::clock::SystemClock;
use platform::engine::Engine;
use platform::http::Transport;
use platform::secrets::Vault;
use platform::wiring::{self, Clients};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Error> {
    tracing::init_default_subscriber();
    let vault = wiring::vault().await?;
    let clients = Clients::connect(&vault)?;
    let bridge = bridge(&vault, &clients).await?;
    let log = wiring::log(&*vault);
    let (bridge, clients, log) = (&bridge, &clients, &log);
    run(service_fn(move |event: LambdaEvent<SqsEvent>| async move {
        clients.freshen(Timestamp::now()).await;
        Ok::<_, Error>(car_bridge::handle(bridge, event.payload, log, Timestamp::now).await)
    }))
    .await
}

async fn bridge(
    vault: &Vault,
    clients: &Clients,
) -> anyhow::Result<Bridge<impl platform::store::Store + use<>, impl platform::outlets::Outlets + use<>>> {
    let policies = wiring::policies(vault)?;
    let (store, outlets) = wiring::on_aws(vault)?;
    let world = World {
        github: clients.github.clone(),
        jenkins: clients.jenkins.clone(),
        http: Transport::https().map_err(|error| anyhow::anyhow!("no HTTPS: {error}"))?,
        clock: Arc::new(SystemClock),
    };
    Ok(Bridge::new(Engine::new(store, outlets, policies), world))
}
