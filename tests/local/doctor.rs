//! `doctor` against the fakes: a correct setup, and setups with mistakes.

use std::process::Command;
use std::sync::{Arc, Mutex};

use aws_lc_rs::encoding::{AsDer as _, Pkcs8V1Der};
use aws_lc_rs::rsa::{KeyPair, KeySize};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use fakes::{FakeServers, FakeSettings, Fakes, NewPullRequest, ProtectionSource, RepoSettings, StatusState};
use jiff::{SignedDuration, Timestamp};
use tests::local_aws::Folder;

use crate::child_process::{program, run};

fn private_key() -> String {
    let key = KeyPair::generate(KeySize::Rsa2048).expect("a key");
    let der: Pkcs8V1Der<'static> = key.as_der().expect("a key");
    format!("-----BEGIN PRIVATE KEY-----\n{}\n-----END PRIVATE KEY-----\n", BASE64_STANDARD.encode(der.as_ref()))
}

async fn serve_fakes(settings: FakeSettings) -> (Arc<Mutex<Fakes>>, FakeServers) {
    let fakes = Arc::new(Mutex::new(Fakes::new(5, settings)));
    let serving = fakes::serve(Arc::clone(&fakes)).await.expect("ports");
    (fakes, serving)
}

fn doctor_command(serving: &FakeServers, settings: &FakeSettings) -> Command {
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

/// Exit code and output. Runs on a blocking thread because the fakes need this thread's runtime.
async fn run_to_end(mut command: Command) -> (Option<i32>, String) {
    let output = tokio::task::spawn_blocking(move || run(&mut command)).await.expect("it runs");
    (output.status.code(), String::from_utf8(output.stdout).expect("text"))
}

fn line<'a>(output: &'a str, what: &str) -> &'a str {
    output.lines().find(|line| line.contains(what)).unwrap_or_else(|| panic!("no line about {what}:\n{output}"))
}

fn settings() -> FakeSettings {
    let start = Timestamp::now() - SignedDuration::from_hours(1);
    let bare = RepoSettings { protection: ProtectionSource::None, ..RepoSettings::new("acme/bare") };
    FakeSettings { start, repos: vec![RepoSettings::new("acme/payments"), bare], ..FakeSettings::default() }
}

#[tokio::test(flavor = "multi_thread")]
async fn correct_setup_has_only_ok_lines() {
    let settings = FakeSettings { repos: vec![RepoSettings::new("acme/payments")], ..settings() };
    let (fakes, serving) = serve_fakes(settings.clone()).await;
    let (code, output) = run_to_end(doctor_command(&serving, &settings)).await;
    assert_eq!(code, Some(0), "{output}");
    assert!(output.lines().all(|line| !line.starts_with("FAIL") && !line.starts_with("warn")), "{output}");
    for what in [
        "configuration",
        "credentials",
        "permissions",
        "events",
        "webhook",
        "deliveries",
        "installations",
        "acme/payments",
        "policy-bot",
        "sod-validator",
        "approver-bot",
        "automerge-bot",
        "codegenie",
        "jenkins",
        "admin keys",
        "tables",
    ] {
        assert!(line(&output, what).starts_with("ok"), "{output}");
    }
    assert_eq!(fakes.lock().expect("not poisoned").unknown_requests(), [] as [String; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn mistakes_are_reported_with_the_fix() {
    let settings = settings();
    let (fakes, serving) = serve_fakes(settings.clone()).await;
    let folder = Folder::new();
    let config = folder.path().join("suture.toml");
    std::fs::write(&config, "mode = \"maybe\"").expect("a file");
    {
        // A webhook that Suture rejected for its signature.
        let mut fakes = fakes.lock().expect("not poisoned");
        fakes.open_pr(NewPullRequest::default());
        fakes.advance(SignedDuration::from_secs(5));
        for delivery in fakes.take_webhooks() {
            fakes.webhook_answered(&delivery, 401);
        }
    }
    let mut command = doctor_command(&serving, &settings);
    command.arg("--config").arg(&config).env("SUTURE_JENKINS_TOKEN", "wrong").env_remove("SUTURE_ADMIN_KEYS");
    let (code, output) = run_to_end(command).await;
    assert_eq!(code, Some(1), "{output}");
    assert!(line(&output, "configuration").starts_with("FAIL"), "{output}");
    assert!(line(&output, "differ").starts_with("FAIL  webhook secret"), "{output}");
    assert!(line(&output, "SUTURE_JENKINS_TOKEN").starts_with("FAIL  jenkins"), "{output}");
    assert!(line(&output, "acme/bare").starts_with("warn"), "{output}");
    assert!(line(&output, "SUTURE_ADMIN_KEYS").starts_with("warn"), "{output}");
    assert!(output.trim_end().ends_with(" checks failed."), "{output}");
}

#[tokio::test(flavor = "multi_thread")]
async fn unknown_issue_repository_fails() {
    let settings = settings();
    let (_fakes, serving) = serve_fakes(settings.clone()).await;
    let folder = Folder::new();
    let config = folder.path().join("suture.toml");
    let text = "status_issue.repo = \"acme/payments\"\npost_merge_health.issue_repo = \"acme/paymnets\"";
    std::fs::write(&config, text).expect("a file");
    let mut command = doctor_command(&serving, &settings);
    command.arg("--config").arg(&config);
    let (code, output) = run_to_end(command).await;
    assert_eq!(code, Some(1), "{output}");
    assert!(line(&output, "status_issue.repo").starts_with("ok"), "{output}");
    let wrong = line(&output, "post_merge_health.issue_repo");
    assert!(
        wrong.starts_with("FAIL") && wrong.contains("`acme/paymnets`") && wrong.contains("check the name"),
        "{output}"
    );
}

/// Regression: in act mode without a bus, `close_and_reopen` closed pull requests and could not ask for their replacement.
#[tokio::test(flavor = "multi_thread")]
async fn bots_that_nobody_can_ask_are_named() {
    let settings = FakeSettings { repos: vec![RepoSettings::new("acme/payments")], ..settings() };
    let (_fakes, serving) = serve_fakes(settings.clone()).await;
    let folder = Folder::new();
    let config = folder.path().join("suture.toml");
    let text = "mode = \"act\"\nretrigger.policy_bot = { via = \"label\", target = \"recheck\" }\n\
                retrigger.approver_bot = { via = \"http\", target = \"https://approver.example/\" }\n\
                [repos.\"acme/payments\"]\nretrigger.codegenie = { via = \"comment\", target = \"@codegenie\" }";
    std::fs::write(&config, text).expect("a file");
    let with_bus = |bus: Option<&str>| {
        let mut command = doctor_command(&serving, &settings);
        command.arg("--config").arg(&config).envs(bus.map(|bus| ("SUTURE_EVENT_BUS", bus)));
        command.env("SUTURE_RETRIGGER_SECRET", "s");
        run_to_end(command)
    };
    let (code, output) = with_bus(None).await;
    assert_eq!(code, Some(0), "{output}");
    assert!(line(&output, "by adding the label `recheck`").starts_with("ok    policy-bot"), "{output}");
    assert!(line(&output, "signed POST to https://approver.example/").starts_with("ok    approver-bot"), "{output}");
    assert!(line(&output, "retrigger.automerge_bot").starts_with("warn  automerge-bot"), "{output}");
    assert!(line(&output, "retrigger.sod_validator").starts_with("warn  sod-validator"), "{output}");
    assert!(line(&output, "retrigger.codegenie").starts_with("warn  codegenie"), "{output}");
    assert!(line(&output, "comment `@codegenie`").starts_with("ok    codegenie"), "{output}");
    let (_, output) = with_bus(Some("suture-bus")).await;
    let asked = line(&output, "PullRequestRequested on the event bus `suture-bus`");
    assert!(asked.starts_with("ok    codegenie"), "{output}");
}

#[tokio::test(flavor = "multi_thread")]
async fn authors_of_policy_results_are_listed() {
    let settings = FakeSettings { repos: vec![RepoSettings::new("acme/payments")], ..settings() };
    let (fakes, serving) = serve_fakes(settings.clone()).await;
    {
        let mut fakes = fakes.lock().expect("not poisoned");
        let result = ("policy-bot: main", StatusState::Success, "All rules are approved");
        for login in ["policy-bot[bot]", "acme-policy-bot[bot]"] {
            let pr = fakes.open_pr(NewPullRequest::default());
            fakes.post_status_as(&pr, login, result);
        }
    }
    let (code, output) = run_to_end(doctor_command(&serving, &settings)).await;
    assert_eq!(code, Some(0), "{output}");
    assert!(line(&output, "posted by policy-bot[bot], which is configured").starts_with("ok"), "{output}");
    let other = line(&output, "posted by acme-policy-bot[bot], which does not count");
    assert!(other.starts_with("warn") && other.contains("policy_bot.logins"), "{output}");
}

#[tokio::test(flavor = "multi_thread")]
async fn missing_credentials_and_secrets_are_named() {
    let mut command = program();
    command.arg("doctor");
    let (code, output) = run_to_end(command).await;
    assert_eq!(code, Some(1), "{output}");
    assert!(line(&output, "SUTURE_GITHUB_APP_ID").starts_with("FAIL"), "{output}");
    assert!(line(&output, "SUTURE_WEBHOOK_SECRET").starts_with("FAIL"), "{output}");
    let mut command = program();
    command.arg("doctor").envs([("SUTURE_GITHUB_TOKEN", "wrong"), ("SUTURE_GITHUB_OWNER", "acme")]);
    let (_fakes, serving) = serve_fakes(settings()).await;
    command.env("SUTURE_GITHUB_API_URL", &serving.github_url);
    let (_, output) = run_to_end(command).await;
    assert!(line(&output, "credentials").starts_with("FAIL"), "{output}");
    // Only Apps can write check runs.
    let folder = Folder::new();
    let config = folder.path().join("suture.toml");
    std::fs::write(&config, "[repos.\"acme/payments\"]\ncheck_run.enabled = true").expect("a file");
    let mut command = program();
    command.arg("doctor").arg("--config").arg(&config).envs([("SUTURE_GITHUB_OWNER", "acme")]);
    command.env("SUTURE_GITHUB_TOKEN", &settings().tokens[0].0).env("SUTURE_GITHUB_API_URL", &serving.github_url);
    let (_, output) = run_to_end(command).await;
    assert!(line(&output, "check run ").starts_with("warn"), "{output}");
}
