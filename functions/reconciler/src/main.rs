//! Wires the reconciler and runs it behind the Lambda runtime.

use std::sync::Arc;

use jiff::Timestamp;
use lambda_runtime::{Error, LambdaEvent, run, service_fn, tracing};
use platform::clock::SystemClock;
use platform::http::Transport;
use platform::secrets::Vault;
use platform::sweep::Sweep;
use platform::wiring::{self, Clients, Environment};
use reconciler::Moment;
use serde_json::Value;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Error> {
    tracing::init_default_subscriber();
    let vault = wiring::vault().await?;
    let clients = Clients::connect(&vault)?;
    let sweep = sweep(&vault, &clients).await?;
    let log = wiring::log(&*vault);
    let (sweep, clients, log) = (&sweep, &clients, &log);
    run(service_fn(move |event: LambdaEvent<Value>| async move {
        let deadline = i64::try_from(event.context.deadline).ok().and_then(|ms| Timestamp::from_millisecond(ms).ok());
        let now = Timestamp::now();
        clients.freshen(now).await;
        let moment = Moment { request: &event.context.request_id, now, deadline: deadline.unwrap_or(now) };
        Ok::<_, Error>(reconciler::handle(sweep, event.payload, &moment, log).await?)
    }))
    .await
}

async fn sweep(
    vault: &Vault,
    clients: &Clients,
) -> anyhow::Result<Sweep<impl platform::store::Store + use<>, impl platform::outlets::Outlets + use<>>> {
    let policies = wiring::policies(vault)?;
    let (store, outlets) = wiring::on_aws(vault)?;
    let (github, jenkins) = (clients.github.clone(), clients.jenkins.clone());
    let owners = vault.get("SUTURE_GITHUB_OWNER").into_iter().collect();
    let http = Transport::https().map_err(|error| anyhow::anyhow!("no way out: {error}"))?;
    Ok(Sweep::new(store, outlets, policies, github, jenkins, Arc::new(SystemClock), owners).asking_through(http))
}
