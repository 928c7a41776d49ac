//! Runs the Car Bridge on Lambda, behind the command queue and the facts queue.

use std::sync::Arc;

use aws_lambda_events::event::sqs::SqsEvent;
use car_bridge::{BotHttp, CarBridge, ExternalClients, RETRIGGER_SECRET};
use domain::policy::Policies;
use jiff::Timestamp;
use lambda_runtime::{Error, LambdaEvent, run, service_fn, tracing};
use platform::clients::Clients;
use platform::clock::SystemClock;
use platform::engine::Engine;
use platform::env::Environment;
use platform::publish::Publisher;
use platform::publish::visibility::SqsVisibility;
use platform::secrets::{SecretEnv, SecretRefresher};
use platform::store::Store;
use platform::telemetry::InvocationIds;
use platform::transport::Transport;
use platform::{aws, env};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Error> {
    tracing::init_default_subscriber();
    let secret_env = aws::environment().await?;
    let clients = Clients::connect(&secret_env)?;
    let policies = env::policies(&*secret_env)?;
    let https = Transport::https().map_err(|error| anyhow::anyhow!("cannot build HTTPS client: {error}"))?;
    let http = BotHttp::from_environment(https, &*secret_env, &policies)?;
    let retrigger_secret = SecretRefresher::new(&secret_env, Timestamp::now, |env| env.get(RETRIGGER_SECRET));
    let bridge = build(&secret_env, &clients, policies, http.clone()).await?;
    let log = env::log(&*secret_env);
    let visibility = SqsVisibility::new(&aws::config().await?, aws::queues(&*secret_env)?);
    let (bridge, clients, http, retrigger_secret) = (&bridge, &clients, &http, &retrigger_secret);
    let (log, visibility) = (&log, &visibility);
    run(service_fn(move |event: LambdaEvent<SqsEvent>| async move {
        let deadline = i64::try_from(event.context.deadline).ok().and_then(|ms| Timestamp::from_millisecond(ms).ok());
        clients.refresh_if_stale(Timestamp::now()).await;
        if let Some(secret) = retrigger_secret.refresh_if_stale(Timestamp::now()).await {
            http.use_secret(secret);
        }
        let deadline = deadline.unwrap_or(Timestamp::MAX);
        let ids = InvocationIds::new(&event.context.request_id, event.context.xray_trace_id.as_deref());
        let handle = car_bridge::handle(bridge, &event.payload, log, Timestamp::now, deadline);
        let response = ids.scope(handle).await;
        visibility.give_back(&car_bridge::returned(&event.payload, &response)).await;
        Ok::<_, Error>(response)
    }))
    .await
}

async fn build(
    secret_env: &SecretEnv,
    clients: &Clients,
    policies: Policies,
    http: BotHttp,
) -> anyhow::Result<CarBridge<impl Store + use<>, impl Publisher + use<>>> {
    let (store, publisher) = aws::backends(secret_env).await?;
    let world = ExternalClients {
        github: clients.github.clone(),
        jenkins: clients.jenkins.clone(),
        http,
        clock: Arc::new(SystemClock),
    };
    Ok(CarBridge::new(Engine::new(store, publisher, policies), world))
}
