//! Runs the reconciler on Lambda, behind the schedule and the event bus.

use std::process::ExitCode;
use std::sync::Arc;

use jiff::Timestamp;
use lambda_runtime::{Error, LambdaEvent, run, service_fn, tracing};
use platform::clients::Clients;
use platform::clock::SystemClock;
use platform::env::Environment;
use platform::publish::Publisher;
use platform::secrets::SecretEnv;
use platform::store::Store;
use platform::telemetry::InvocationIds;
use platform::transport::Transport;
use platform::{aws, env};
use reconciler::{Invocation, Reconciler};
use serde_json::Value;

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    tracing::init_default_subscriber();
    match start().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Returning the error would print its Debug form; Display names the setting and the fix.
            tracing::error!(%error, "reconciler exited with an error");
            ExitCode::FAILURE
        }
    }
}

async fn start() -> Result<(), Error> {
    let secret_env = aws::environment().await?;
    let clients = Clients::connect(&secret_env)?;
    let sweep = build(&secret_env, &clients).await?;
    let log = env::log(&*secret_env);
    let (sweep, clients, log) = (&sweep, &clients, &log);
    run(service_fn(move |event: LambdaEvent<Value>| async move {
        let deadline = i64::try_from(event.context.deadline).ok().and_then(|ms| Timestamp::from_millisecond(ms).ok());
        let now = Timestamp::now();
        clients.refresh_if_stale(now).await;
        let invocation = Invocation { request_id: &event.context.request_id, now, deadline: deadline.unwrap_or(now) };
        let ids = InvocationIds::new(&event.context.request_id, event.context.xray_trace_id.as_deref());
        Ok::<_, Error>(ids.scope(reconciler::handle(sweep, event.payload, &invocation, log)).await?)
    }))
    .await
}

async fn build(
    secret_env: &SecretEnv,
    clients: &Clients,
) -> anyhow::Result<Reconciler<impl Store + use<>, impl Publisher + use<>>> {
    let policies = env::policies(secret_env)?;
    let (store, publisher) = aws::backends(secret_env).await?;
    let (github, jenkins) = (clients.github.clone(), clients.jenkins.clone());
    let owners = secret_env.get("SUTURE_GITHUB_OWNER").into_iter().collect();
    let http = Transport::https().map_err(|error| anyhow::anyhow!("cannot build HTTPS client: {error}"))?;
    Ok(Reconciler::new(store, publisher, policies, github, jenkins, Arc::new(SystemClock), owners).with_clients(http))
}
