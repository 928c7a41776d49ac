//! Wires the admin function and runs it behind the Lambda runtime.

use std::sync::Arc;

use admin::{Admin, Settings, router};
use lambda_http::{Error, run, tracing};
use platform::clock::SystemClock;
use platform::engine::Engine;
use platform::telemetry::Log;
use platform::wiring::{self, BadWiring, Environment, Process};

#[tokio::main]
async fn main() -> Result<(), Error> {
    tracing::init_default_subscriber();
    let admin = admin().await?;
    run(router(Arc::new(admin))).await
}

async fn admin()
-> anyhow::Result<Admin<impl platform::store::Store + 'static, impl platform::outlets::Outlets + 'static>> {
    let policies = wiring::policies(&Process)?;
    let (store, outlets) = wiring::on_aws(&Process).await?;
    let github = match wiring::github(&Process) {
        Ok(github) => Some(github),
        // Only live explanations need it.
        Err(BadWiring::Missing(_)) => None,
        Err(error) => return Err(error.into()),
    };
    let settings = Settings {
        keys: wiring::keys(&Process)?,
        owner: Process.get("SUTURE_GITHUB_OWNER"),
        github,
        jenkins: wiring::jenkins(&Process)?,
        dlq: wiring::dlq(&Process).await?,
        clock: Arc::new(SystemClock),
        log: Log::stdout(),
    };
    Ok(Admin::new(Engine::new(store, outlets, policies), settings))
}
