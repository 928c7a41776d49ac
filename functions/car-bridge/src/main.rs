//! Runs the Car Bridge on Lambda, behind the command queue.

use std::sync::Arc;

use aws_lambda_events::event::sqs::SqsEvent;
use car_bridge::{CarBridge, ExternalClients};
use jiff::Timestamp;
use lambda_runtime::{Error, LambdaEvent, run, service_fn, tracing};
use platform::clients::Clients;
use platform::clock::SystemClock;
use platform::engine::Engine;
use platform::publish::Publisher;
use platform::secrets::SecretEnv;
use platform::store::Store;
use platform::transport::Transport;
use platform::{aws, env};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Error> {
    tracing::init_default_subscriber();
    let secret_env = aws::environment().await?;
    let clients = Clients::connect(&secret_env)?;
    let bridge = build(&secret_env, &clients).await?;
    let log = env::log(&*secret_env);
    let (bridge, clients, log) = (&bridge, &clients, &log);
    run(service_fn(move |event: LambdaEvent<SqsEvent>| async move {
        let deadline = i64::try_from(event.context.deadline).ok().and_then(|ms| Timestamp::from_millisecond(ms).ok());
        clients.refresh_if_stale(Timestamp::now()).await;
        let deadline = deadline.unwrap_or(Timestamp::MAX);
        Ok::<_, Error>(car_bridge::handle(bridge, event.payload, log, Timestamp::now, deadline).await)
    }))
    .await
}

async fn build(
    secret_env: &SecretEnv,
    clients: &Clients,
) -> anyhow::Result<CarBridge<impl Store + use<>, impl Publisher + use<>>> {
    let policies = env::policies(secret_env)?;
    let (store, publisher) = aws::backends(secret_env).await?;
    let world = ExternalClients {
        github: clients.github.clone(),
        jenkins: clients.jenkins.clone(),
        http: Transport::https().map_err(|error| anyhow::anyhow!("cannot build HTTPS client: {error}"))?,
        clock: Arc::new(SystemClock),
    };
    Ok(CarBridge::new(Engine::new(store, publisher, policies), world))
}
