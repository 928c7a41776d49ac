//! `suture setup`: serves a page that creates the GitHub App from its manifest, and writes the App's secrets into a file.

use std::fmt::Write as _;
use std::fs::OpenOptions;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::response::Html;
use axum::routing::get;
use bytes::Bytes;
use clap::Args;
use domain::policy::GithubUrl;
use http::{Request, StatusCode, Uri};
use platform::env::Environment;
use platform::transport::Transport;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::mpsc;

use crate::keys;

const MANIFEST: &str = include_str!("../../github-app/manifest.json");
const GITHUB_API: &str = "https://api.github.com";
const TIMEOUT: Duration = Duration::from_secs(30);
/// Time for the browser to receive the last page.
const GRACE: Duration = Duration::from_millis(500);

#[derive(Debug, Clone, Args)]
pub(crate) struct SetupOptions {
    /// Organisation that owns the App [default: your own account]
    #[arg(long, value_name = "NAME")]
    organization: Option<String>,
    /// Webhook URL of the App, if the stack is deployed already
    #[arg(long, value_name = "URL")]
    webhook_url: Option<String>,
    /// Port of the page on 127.0.0.1
    #[arg(long, default_value_t = 8000)]
    port: u16,
    /// File for the three secrets, by name; it must not exist
    #[arg(long, value_name = "FILE", default_value = "secrets.json")]
    out: PathBuf,
}

/// What GitHub answers to the code of a created App.
#[derive(Debug, Deserialize)]
struct CreatedApp {
    id: u64,
    slug: String,
    pem: String,
    /// Missing if the webhook is inactive.
    webhook_secret: Option<String>,
    html_url: String,
}

struct Setup {
    options: SetupOptions,
    api_url: String,
    /// Returned by GitHub, so that nobody else can finish the setup.
    state: String,
    transport: Transport,
    finished: mpsc::Sender<String>,
}

/// Serves the page until the App is created, and returns what to do next.
pub(crate) async fn run(
    options: SetupOptions,
    environment: &impl Environment,
    transport: Transport,
) -> Result<String, String> {
    if options.out.exists() {
        return Err(format!("{} exists: move it away, or choose another file with --out.", options.out.display()));
    }
    let address = format!("127.0.0.1:{}", options.port);
    let listener = TcpListener::bind(&address).await;
    let listener = listener.map_err(|error| format!("Cannot listen on {address}: {error}. Use --port."))?;
    let (finished, mut done) = mpsc::channel(1);
    let api_url = environment.get("SUTURE_GITHUB_API_URL").unwrap_or_else(|| GITHUB_API.to_owned());
    let setup = Setup { options, api_url, state: random()?, transport, finished };
    let server = tokio::spawn(async move { axum::serve(listener, router(setup)).await });
    let _ = writeln!(std::io::stdout(), "Open http://{address}/ in your browser. Stop with Ctrl-C.");
    let next = done.recv().await.ok_or("The page has stopped.")?;
    tokio::time::sleep(GRACE).await;
    server.abort();
    Ok(next)
}

fn random() -> Result<String, String> {
    keys::make("setup", "viewer", &[]).map(|made| made.key)
}

fn router(setup: Setup) -> Router {
    Router::new().route("/", get(page)).route("/created", get(created)).with_state(Arc::new(setup))
}

type Page = (StatusCode, Html<String>);

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// The form that sends the manifest to GitHub.
async fn page(State(setup): State<Arc<Setup>>) -> Page {
    let SetupOptions { organization, webhook_url, port, .. } = &setup.options;
    let mut manifest: Value = serde_json::from_str(MANIFEST).unwrap_or_default();
    manifest["redirect_url"] = json!(format!("http://127.0.0.1:{port}/created"));
    if let Some(url) = webhook_url {
        manifest["hook_attributes"] = json!({"url": url, "active": true});
    }
    let GithubUrl(github) = GithubUrl::from_api_url(&setup.api_url);
    let owner = organization.as_ref().map_or_else(String::new, |name| format!("/organizations/{name}"));
    let action = escaped(&format!("{github}{owner}/settings/apps/new?state={}", setup.state));
    let manifest = escaped(&manifest.to_string());
    let form = format!(
        "<!doctype html><title>Suture</title><form method=\"post\" action=\"{action}\"><input type=\"hidden\" name=\"manifest\" value=\"{manifest}\">\
         <p>GitHub asks for the name of the App and creates it.</p><button>Create the GitHub App</button></form>"
    );
    (StatusCode::OK, Html(form))
}

/// GitHub returns here with a code, which is valid once and for an hour.
async fn created(State(setup): State<Arc<Setup>>, uri: Uri) -> Page {
    let query = uri.query().unwrap_or_default();
    let parameter = |name: &str| query.split('&').find_map(|pair| pair.split_once('=').filter(|(key, _)| *key == name));
    let (code, state) = (parameter("code").map(|(_, code)| code), parameter("state").map(|(_, state)| state));
    let Some(code) =
        code.filter(|code| state == Some(setup.state.as_str()) && code.bytes().all(|c| c.is_ascii_alphanumeric()))
    else {
        return (StatusCode::BAD_REQUEST, Html("<p>This is not the answer to the App that was begun here.".to_owned()));
    };
    match finish(&setup, code).await {
        Ok(next) => {
            let _ = setup.finished.send(next).await;
            (StatusCode::OK, Html("<p>The App is created. Go on in the terminal.".to_owned()))
        }
        Err(why) => (StatusCode::BAD_GATEWAY, Html(format!("<p>{}", escaped(&why)))),
    }
}

/// Exchanges the code for the App's secrets and writes them.
async fn finish(setup: &Setup, code: &str) -> Result<String, String> {
    let request = Request::builder()
        .method("POST")
        .uri(format!("{}/app-manifests/{code}/conversions", setup.api_url.trim_end_matches('/')))
        .header("accept", "application/vnd.github+json")
        .header("user-agent", "suture")
        .body(Bytes::new())
        .map_err(|error| error.to_string())?;
    let response = setup.transport.send(request, TIMEOUT).await.map_err(|error| error.to_string())?;
    if !response.status().is_success() {
        return Err(format!("GitHub answered {} to the code. Begin again.", response.status()));
    }
    let app: CreatedApp = serde_json::from_slice(response.body()).map_err(|error| error.to_string())?;
    let key = keys::make("ops", "admin", &[])?;
    let webhook_secret = match &app.webhook_secret {
        Some(secret) => secret.clone(),
        None => random()?,
    };
    let secrets = json!({
        "suture": {"github_private_key": app.pem},
        "suture/webhook": {"webhook_secret": webhook_secret},
        "suture/admin": {"admin_keys": key.entry},
    });
    write_secrets(&setup.options.out, &secrets)?;
    Ok(next_steps(&app, &key.key, &setup.options.out))
}

/// Only the owner may read the file.
fn write_secrets(path: &Path, secrets: &Value) -> Result<(), String> {
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    let written = file.and_then(|mut file| file.write_all(secrets.to_string().as_bytes()));
    written.map_err(|error| format!("{} cannot be written: {error}", path.display()))
}

fn next_steps(app: &CreatedApp, key: &str, out: &Path) -> String {
    let (CreatedApp { id, slug, html_url, .. }, out) = (app, out.display());
    let mut text = format!("The App {slug} is created; its secrets are in {out}.\n\n");
    let _ = write!(
        text,
        "GitHubAppId      {id}\nGitHubLogin      {slug}[bot]\ninstall it       {html_url}/installations/new\nadmin key        {key}\n\n\
         The admin key cannot be shown again. Store the secrets (docs/setup.md, step 2), then delete {out}."
    );
    text
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;
    use std::sync::Mutex;

    use axum::body::{Body, to_bytes};
    use http::Response;
    use tower::ServiceExt as _;

    use super::*;

    type Asked = Arc<Mutex<Vec<String>>>;

    /// The page, the requests to GitHub, and the file for the secret.
    fn started(name: &str) -> (Router, Asked, mpsc::Receiver<String>, PathBuf) {
        let asked = Asked::default();
        let sink = Arc::clone(&asked);
        let transport = Transport::with_service(tower::service_fn(move |request: Request<Bytes>| {
            sink.lock().unwrap().push(format!("{} {}", request.method(), request.uri()));
            let app = json!({"id": 7, "slug": "suture-acme", "pem": "-----BEGIN", "webhook_secret": "w", "html_url": "https://github.com/apps/suture-acme"});
            async move { Ok::<_, std::io::Error>(Response::new(Bytes::from(app.to_string()))) }
        }));
        let out = std::env::temp_dir().join(format!("suture-setup-{name}-{}.json", std::process::id()));
        let _ = std::fs::remove_file(&out);
        let (finished, done) = mpsc::channel(1);
        let webhook_url = Some("https://suture.example/webhook/github".to_owned());
        let options = SetupOptions { organization: Some("acme".to_owned()), webhook_url, port: 8000, out: out.clone() };
        let setup = Setup { options, api_url: GITHUB_API.to_owned(), state: "s1".to_owned(), transport, finished };
        (router(setup), asked, done, out)
    }

    async fn get_page(router: &Router, path: &str) -> (StatusCode, String) {
        let request = Request::builder().uri(path).body(Body::empty()).unwrap();
        let response = router.clone().oneshot(request).await.unwrap();
        let status = response.status();
        let body = to_bytes(response.into_body(), 1 << 20).await.unwrap();
        (status, String::from_utf8_lossy(&body).into_owned())
    }

    #[tokio::test]
    async fn page_sends_the_manifest_to_the_organisation() {
        let (router, ..) = started("page");
        let (status, page) = get_page(&router, "/").await;
        assert_eq!(status, StatusCode::OK);
        assert!(page.contains("action=\"https://github.com/organizations/acme/settings/apps/new?state=s1\""), "{page}");
        let manifest = page.split("value=\"").nth(1).unwrap().split('"').next().unwrap().replace("&quot;", "\"");
        let manifest: Value = serde_json::from_str(&manifest).unwrap();
        assert_eq!(manifest["redirect_url"], "http://127.0.0.1:8000/created");
        assert_eq!(
            manifest["hook_attributes"],
            json!({"url": "https://suture.example/webhook/github", "active": true})
        );
        assert_eq!(manifest["default_permissions"]["checks"], "write");
    }

    #[tokio::test]
    async fn secrets_of_the_created_app_are_written_for_their_owner_only() {
        let (router, asked, mut done, out) = started("created");
        for foreign in ["/created?code=abc&state=other", "/created?code=abc", "/created?code=a%2Fb&state=s1"] {
            assert_eq!(get_page(&router, foreign).await.0, StatusCode::BAD_REQUEST, "{foreign}");
        }
        assert!(asked.lock().unwrap().is_empty() && !out.exists());
        assert_eq!(get_page(&router, "/created?code=abc&state=s1").await.0, StatusCode::OK);
        assert_eq!(*asked.lock().unwrap(), ["POST https://api.github.com/app-manifests/abc/conversions"]);
        let secrets: Value = serde_json::from_slice(&std::fs::read(&out).unwrap()).unwrap();
        assert_eq!(secrets["suture"], json!({"github_private_key": "-----BEGIN"}));
        assert_eq!(secrets["suture/webhook"], json!({"webhook_secret": "w"}));
        let keys = secrets["suture/admin"]["admin_keys"].as_str().unwrap();
        assert!(keys.starts_with("ops:admin:"), "{secrets}");
        assert_eq!(std::fs::metadata(&out).unwrap().permissions().mode() & 0o777, 0o600);
        let next = done.recv().await.unwrap();
        assert!(next.contains("suture-acme[bot]") && !next.contains("-----BEGIN"), "{next}");
        // A second App does not overwrite the secrets of the first.
        assert_eq!(get_page(&router, "/created?code=abc&state=s1").await.0, StatusCode::BAD_GATEWAY);
        std::fs::remove_file(out).unwrap();
    }
}
