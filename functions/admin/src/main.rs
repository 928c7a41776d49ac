//! Runs the admin function on Lambda, behind API Gateway.

use std::process::ExitCode;
use std::sync::Arc;

use admin::{Admin, AdminSettings, config, router};
use axum::body::Body;
use jiff::Timestamp;
use lambda_http::{Error, Request, tracing};
use platform::clients::Clients;
use platform::clock::SystemClock;
use platform::engine::Engine;
use platform::env::{ConfigError, Environment};
use platform::publish::Publisher;
use platform::secrets::{SecretEnv, SecretRefresher};
use platform::store::Store;
use platform::{api_gateway, aws, env};
use tower::ServiceExt;

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    tracing::init_default_subscriber();
    match start().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Returning the error would print its Debug form; Display names the setting and the fix.
            tracing::error!(%error, "admin exited with an error");
            ExitCode::FAILURE
        }
    }
}

async fn start() -> Result<(), Error> {
    let secret_env = aws::environment().await?;
    let clients = Clients::connect_if_set(&secret_env)?;
    // Only live explanations need the clients, so they are optional.
    let router = router(Arc::new(build(&secret_env, clients.as_ref()).await?));
    let (router, clients) = (&router, &clients);
    api_gateway::run(move |request: Request| async move {
        if let Some(clients) = clients {
            clients.refresh_if_stale(Timestamp::now()).await;
        }
        Ok::<_, Error>(router.clone().oneshot(request.map(Body::new)).await?)
    })
    .await
}

async fn build(
    secret_env: &Arc<SecretEnv>,
    clients: Option<&Clients>,
) -> Result<Admin<impl Store + 'static + use<>, impl Publisher + 'static + use<>>, ConfigError> {
    let policies = env::policies(&**secret_env)?;
    let (store, publisher) = aws::backends(&**secret_env).await?;
    let settings = AdminSettings {
        keys: config::keys(&**secret_env)?,
        owner: secret_env.get("SUTURE_GITHUB_OWNER"),
        github: clients.map(|clients| clients.github.clone()),
        jenkins: clients.and_then(|clients| clients.jenkins.clone()),
        dlq: aws::dead_letters(&**secret_env).await?,
        clock: Arc::new(SystemClock),
        log: env::log(&**secret_env),
    };
    let admin = Admin::new(Engine::new(store, publisher, policies), settings);
    let renewed = |secret_env: &SecretEnv| {
        let keys = config::keys(secret_env);
        keys.inspect_err(|error| tracing::error!(%error, "rotated API keys are invalid; keeping the old keys")).ok()
    };
    Ok(admin.with_secret_refresh(SecretRefresher::new(secret_env, Timestamp::now, renewed)))
}
