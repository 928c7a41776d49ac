//! Wires the Car Bridge and runs it behind the Lambda runtime.

use std::sync::Arc;

use aws_lambda_events::event::sqs::SqsEvent;
use jiff::Timestamp;
use lambda_runtime::{Error, LambdaEvent, run, service_fn, tracing};
use platform::bridge::{Bridge, World};
use platform::clock::SystemClock;
use platform::engine::Engine;
use platform::http::Transport;
use platform::telemetry::Log;
use platform::wiring::{self, Process};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Error> {
    tracing::init_default_subscriber();
    let bridge = bridge().await?;
    let log = Log::stdout();
    let (bridge, log) = (&bridge, &log);
    run(service_fn(move |event: LambdaEvent<SqsEvent>| async move {
        Ok::<_, Error>(car_bridge::handle(bridge, event.payload, log, Timestamp::now).await)
    }))
    .await
}

async fn bridge() -> anyhow::Result<Bridge<impl platform::store::Store, impl platform::outlets::Outlets>> {
    let policies = wiring::policies(&Process)?;
    let (store, outlets) = wiring::on_aws(&Process).await?;
    let world = World {
        github: wiring::github(&Process)?,
        jenkins: wiring::jenkins(&Process)?,
        http: Transport::https().map_err(|error| anyhow::anyhow!("no HTTPS: {error}"))?,
        clock: Arc::new(SystemClock),
    };
    Ok(Bridge::new(Engine::new(store, outlets, policies), world))
}
