//! Wires the reconciler and runs it behind the Lambda runtime.

use std::sync::Arc;

use jiff::Timestamp;
use lambda_runtime::{Error, LambdaEvent, run, service_fn, tracing};
use platform::clock::SystemClock;
use platform::sweep::Sweep;
use platform::telemetry::Log;
use platform::wiring::{self, Environment, Process};
use reconciler::Moment;
use serde_json::Value;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Error> {
    tracing::init_default_subscriber();
    let sweep = sweep().await?;
    let log = Log::stdout();
    let (sweep, log) = (&sweep, &log);
    run(service_fn(move |event: LambdaEvent<Value>| async move {
        let deadline = i64::try_from(event.context.deadline).ok().and_then(|ms| Timestamp::from_millisecond(ms).ok());
        let now = Timestamp::now();
        let moment = Moment { request: &event.context.request_id, now, deadline: deadline.unwrap_or(now) };
        Ok::<_, Error>(reconciler::handle(sweep, event.payload, &moment, log).await?)
    }))
    .await
}

async fn sweep() -> anyhow::Result<Sweep<impl platform::store::Store, impl platform::outlets::Outlets>> {
    let policies = wiring::policies(&Process)?;
    let (store, outlets) = wiring::on_aws(&Process).await?;
    let (github, jenkins) = (wiring::github(&Process)?, wiring::jenkins(&Process)?);
    let owners = Process.get("SUTURE_GITHUB_OWNER").into_iter().collect();
    Ok(Sweep::new(store, outlets, policies, github, jenkins, Arc::new(SystemClock), owners))
}
