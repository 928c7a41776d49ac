//! `doctor` in the pretended world, well and unwell.

use std::process::Command;
use std::sync::{Arc, Mutex};

use aws_lc_rs::encoding::{AsDer as _, Pkcs8V1Der};
use aws_lc_rs::rsa::{KeyPair, KeySize};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use fakes::{FakeServers, FakeSettings, Fakes, NewPullRequest, ProtectionSource, RepoSettings};
use jiff::{SignedDuration, Timestamp};
use tests::local_aws::Folder;

use crate::child_process::{program, run};

fn private_key() -> String {
    let key = KeyPair::generate(KeySize::Rsa2048).expect("a key");
    let der: Pkcs8V1Der<'static> = key.as_der().expect("a key");
    format!("-----BEGIN PRIVATE KEY-----\n{}\n-----END PRIVATE KEY-----\n", BASE64_STANDARD.encode(der.as_ref()))
}

async fn served(settings: FakeSettings) -> (Arc<Mutex<Fakes>>, FakeServers) {
    let world = Arc::new(Mutex::new(Fakes::new(5, settings)));
    let serving = fakes::serve(Arc::clone(&world)).await.expect("ports");
    (world, serving)
}

fn well(serving: &FakeServers, settings: &FakeSettings) -> Command {
    let mut command = program();
    let entry = admin::keys::new_key("ops", domain::command::ApiRole::Admin).expect("a key").1;
    command.arg("doctor").envs([
        ("SUTURE_GITHUB_API_URL", serving.github_url.as_str()),
        ("SUTURE_GITHUB_APP_ID", "4711"),
        ("SUTURE_GITHUB_PRIVATE_KEY", &private_key()),
        ("SUTURE_WEBHOOK_SECRET", &settings.webhook_secret),
        ("SUTURE_JENKINS_URL", serving.jenkins_url.as_str()),
        ("SUTURE_JENKINS_USER", &settings.jenkins_user),
        ("SUTURE_JENKINS_TOKEN", &settings.jenkins_token),
        ("SUTURE_ADMIN_KEYS", &entry),
    ]);
    command
}

/// Runs beside the world, which needs this thread's runtime.
async fn told(mut command: Command) -> (Option<i32>, String) {
    let output = tokio::task::spawn_blocking(move || run(&mut command)).await.expect("it runs");
    (output.status.code(), String::from_utf8(output.stdout).expect("text"))
}

fn line<'a>(said: &'a str, what: &str) -> &'a str {
    said.lines().find(|line| line.contains(what)).unwrap_or_else(|| panic!("nothing about {what}:\n{said}"))
}

fn settings() -> FakeSettings {
    let start = Timestamp::now() - SignedDuration::from_hours(1);
    let bare = RepoSettings { protection: ProtectionSource::None, ..RepoSettings::new("acme/bare") };
    FakeSettings { start, repos: vec![RepoSettings::new("acme/payments"), bare], ..FakeSettings::default() }
}

#[tokio::test(flavor = "multi_thread")]
async fn all_is_well() {
    let settings = FakeSettings { repos: vec![RepoSettings::new("acme/payments")], ..settings() };
    let (world, serving) = served(settings.clone()).await;
    let (code, said) = told(well(&serving, &settings)).await;
    assert_eq!(code, Some(0), "{said}");
    assert!(said.lines().all(|line| !line.starts_with("FAIL") && !line.starts_with("warn")), "{said}");
    for what in [
        "configuration",
        "credentials",
        "permissions",
        "events",
        "webhook",
        "deliveries",
        "installations",
        "acme/payments",
        "jenkins",
        "admin keys",
        "tables",
    ] {
        assert!(line(&said, what).starts_with("ok"), "{said}");
    }
    assert_eq!(world.lock().expect("nobody panicked").unknown_requests(), [] as [String; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_wrong_is_said_with_what_to_do() {
    let settings = settings();
    let (world, serving) = served(settings.clone()).await;
    let folder = Folder::new();
    let config = folder.path().join("suture.toml");
    std::fs::write(&config, "mode = \"maybe\"").expect("a file");
    {
        // A webhook that Suture did not believe.
        let mut world = world.lock().expect("nobody panicked");
        world.open_pr(NewPullRequest::default());
        world.advance(SignedDuration::from_secs(5));
        for delivery in world.take_webhooks() {
            world.webhook_answered(&delivery, 401);
        }
    }
    let mut command = well(&serving, &settings);
    command.arg("--config").arg(&config).env("SUTURE_JENKINS_TOKEN", "wrong").env_remove("SUTURE_ADMIN_KEYS");
    let (code, said) = told(command).await;
    assert_eq!(code, Some(1), "{said}");
    assert!(line(&said, "configuration").starts_with("FAIL"), "{said}");
    assert!(line(&said, "differ").starts_with("FAIL  webhook secret"), "{said}");
    assert!(line(&said, "SUTURE_JENKINS_TOKEN").starts_with("FAIL  jenkins"), "{said}");
    assert!(line(&said, "acme/bare").starts_with("warn"), "{said}");
    assert!(line(&said, "SUTURE_ADMIN_KEYS").starts_with("warn"), "{said}");
    assert!(said.trim_end().ends_with("things keep Suture from working."), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn repositories_that_get_issues_must_be_there() {
    let settings = settings();
    let (_world, serving) = served(settings.clone()).await;
    let folder = Folder::new();
    let config = folder.path().join("suture.toml");
    let text = "status.repo = \"acme/payments\"\nsentinel.issue_repo = \"acme/paymnets\"";
    std::fs::write(&config, text).expect("a file");
    let mut command = well(&serving, &settings);
    command.arg("--config").arg(&config);
    let (code, said) = told(command).await;
    assert_eq!(code, Some(1), "{said}");
    assert!(line(&said, "status.repo").starts_with("ok"), "{said}");
    let wrong = line(&said, "sentinel.issue_repo");
    assert!(
        wrong.starts_with("FAIL") && wrong.contains("`acme/paymnets`") && wrong.contains("is the name right"),
        "{said}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn without_anything_set_it_says_what_to_set() {
    let mut command = program();
    command.arg("doctor");
    let (code, said) = told(command).await;
    assert_eq!(code, Some(1), "{said}");
    assert!(line(&said, "SUTURE_GITHUB_APP_ID").starts_with("FAIL"), "{said}");
    assert!(line(&said, "SUTURE_WEBHOOK_SECRET").starts_with("FAIL"), "{said}");
    let mut command = program();
    command.arg("doctor").envs([("SUTURE_GITHUB_TOKEN", "wrong"), ("SUTURE_GITHUB_OWNER", "acme")]);
    let (_world, serving) = served(settings()).await;
    command.env("SUTURE_GITHUB_API_URL", &serving.github_url);
    let (_, said) = told(command).await;
    assert!(line(&said, "credentials").starts_with("FAIL"), "{said}");
    // Check runs are for Apps.
    let folder = Folder::new();
    let config = folder.path().join("suture.toml");
    std::fs::write(&config, "[repos.\"acme/payments\"]\ncheck_run.enabled = true").expect("a file");
    let mut command = program();
    command.arg("doctor").arg("--config").arg(&config).envs([("SUTURE_GITHUB_OWNER", "acme")]);
    command.env("SUTURE_GITHUB_TOKEN", &settings().tokens[0].0).env("SUTURE_GITHUB_API_URL", &serving.github_url);
    let (_, said) = told(command).await;
    assert!(line(&said, "check run ").starts_with("warn"), "{said}");
}
