//! `suture doctor`: checks GitHub, Jenkins, bots, secrets, keys and tables, and says what to fix. It is read-only.
//! `repositories` checks them one by one.

mod repositories;

use std::collections::BTreeSet;
use std::fmt;

use car_bridge::RETRIGGER_SECRET;
use domain::bus::RemedyTarget;
use domain::id::RepoName;
use domain::policy::{BotRetrigger, Mode, Policies, Policy, RebuildVia, RetriggerVia};
use domain::state::Strategy;
use domain::text;
use jiff::{SignedDuration, Timestamp};
use platform::clients;
use platform::env::Environment;
use platform::github::{AppWebhook, FailedDelivery, GitHub, GitHubApp};
use platform::jenkins::{Jenkins, JenkinsJob};
use platform::transport::ApiError;

/// How far back to look for failed webhook deliveries.
const DELIVERY_WINDOW: SignedDuration = SignedDuration::from_hours(24);

/// Permissions the App must have, each with the reason.
const REQUIRED: [(&str, &str, &str); 6] = [
    ("pull_requests", "write", "to close, label and comment"),
    ("contents", "write", "to merge the base branch into a pull request's branch"),
    ("issues", "write", "to reply to commands and to update the status issue"),
    ("checks", "write", "to publish its own check run and to rerun checks"),
    ("statuses", "read", "to read what Jenkins and Policy Bot report"),
    ("metadata", "read", "to list repositories"),
];
const OPTIONAL: [(&str, &str, &str); 1] = [("administration", "read", "to read which checks a branch requires")];
const EVENTS: [&str; 8] = [
    "check_run",
    "check_suite",
    "issue_comment",
    "pull_request",
    "pull_request_review",
    "pull_request_review_comment",
    "push",
    "status",
];

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum FindingLevel {
    Ok,
    /// Suture works, with limitations.
    Warn,
    /// Suture cannot work until this is fixed.
    Fail,
}

pub(crate) struct DoctorFinding {
    pub(crate) level: FindingLevel,
    subject: String,
    /// The result and, if something is wrong, the fix.
    text: String,
}

impl fmt::Display for DoctorFinding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let level = match self.level {
            FindingLevel::Ok => "ok",
            FindingLevel::Warn => "warn",
            FindingLevel::Fail => "FAIL",
        };
        write!(f, "{level:<4}  {:<18}  {}", self.subject, self.text)
    }
}

#[derive(Default)]
struct DoctorReport(Vec<DoctorFinding>);

impl DoctorReport {
    fn add(&mut self, level: FindingLevel, subject: impl fmt::Display, text: impl fmt::Display) {
        self.0.push(DoctorFinding { level, subject: subject.to_string(), text: text.to_string() });
    }

    fn ok(&mut self, subject: impl fmt::Display, text: impl fmt::Display) {
        self.add(FindingLevel::Ok, subject, text);
    }

    fn warn(&mut self, subject: impl fmt::Display, text: impl fmt::Display) {
        self.add(FindingLevel::Warn, subject, text);
    }

    fn fail(&mut self, subject: impl fmt::Display, text: impl fmt::Display) {
        self.add(FindingLevel::Fail, subject, text);
    }
}

/// Runs all checks, including those after a failed one.
pub(crate) async fn examine(
    policies: Result<Policies, String>,
    environment: &impl Environment,
    now: Timestamp,
) -> Vec<DoctorFinding> {
    let mut findings = DoctorReport::default();
    match policies.as_ref().map(|policies| policies.base().mode) {
        Ok(Mode::Act) => findings.ok("configuration", "valid; mode act: Suture applies remedies"),
        Ok(Mode::Observe) => {
            findings.ok("configuration", "valid; mode observe: Suture logs what it would do and changes nothing");
        }
        Err(error) => findings.fail("configuration", error),
    }
    let policies = policies.unwrap_or_default();
    let repos = github(&mut findings, &policies, environment, now).await;
    bots(&mut findings, &policies, environment);
    secrets(&mut findings, environment);
    jenkins(&mut findings, &policies, environment, &repos).await;
    keys(&mut findings, environment);
    tables(&mut findings, environment, now).await;
    findings.0
}

/// The base policy and all repository overrides.
fn all(policies: &Policies) -> impl Iterator<Item = &Policy> {
    std::iter::once(policies.base()).chain(policies.overrides().map(|(_, policy)| policy))
}

async fn github(
    findings: &mut DoctorReport,
    policies: &Policies,
    environment: &impl Environment,
    now: Timestamp,
) -> Vec<RepoName> {
    const SUBJECT: &str = "credentials";
    let fix = "Set SUTURE_GITHUB_APP_ID and SUTURE_GITHUB_PRIVATE_KEY, or SUTURE_GITHUB_TOKEN";
    let health = match clients::github(environment) {
        Ok(github) => github.health().await.map(|health| (github, health)),
        Err(bad) => {
            findings.fail(SUBJECT, format!("{bad}. {fix}"));
            return Vec::new();
        }
    };
    let (github, health) = match health {
        Ok(health) => health,
        Err(error) => {
            let advice = if matches!(error, ApiError::Unauthorized { .. }) {
                "GitHub rejects this key or token; create a new one"
            } else {
                "cannot reach GitHub; check SUTURE_GITHUB_API_URL and the network"
            };
            findings.fail(SUBJECT, format!("{error}: {advice}"));
            return Vec::new();
        }
    };
    let mut owners: Vec<String> = environment.get("SUTURE_GITHUB_OWNER").into_iter().collect();
    if let Some(app) = &health.app {
        findings.ok(SUBJECT, format!("authenticated as the GitHub App `{}`", app.slug));
        permissions(findings, app, policies);
        events(findings, app);
        hook(findings, &github, now).await;
        installations(findings, &github, &mut owners).await;
    } else {
        findings.warn(SUBJECT, "GitHub accepts the token. Prefer a GitHub App: Suture can then redeliver failed webhooks, and doctor can check its permissions");
        if all(policies).any(|policy| policy.check_run.enabled) {
            findings.warn(
                "check run",
                "`check_run.enabled` has no effect with a token: only a GitHub App can write check runs",
            );
        }
        if owners.is_empty() {
            findings.fail(
                "repositories",
                "a token does not determine the owner of the repositories: set SUTURE_GITHUB_OWNER",
            );
        }
    }
    issue_repos(findings, &github, policies).await;
    repositories::check(findings, &github, policies, &owners).await
}

/// Checks the repositories in which Suture opens issues, so that a misspelt name shows up here and not first in a
/// sweep.
async fn issue_repos(findings: &mut DoctorReport, github: &GitHub, policies: &Policies) {
    let settings = |policy: &Policy| {
        [
            ("status_issue.repo", policy.status_issue.repo.clone()),
            ("post_merge_health.issue_repo", policy.post_merge_health.issue_repo.clone()),
        ]
    };
    let named: BTreeSet<(&str, String)> =
        all(policies).flat_map(settings).filter(|(_, repo)| !repo.is_empty()).collect();
    for (setting, repo) in named {
        let read = match repo.parse::<RepoName>() {
            Ok(repo) => github.default_branch(&repo).await.map_err(|error| error.to_string()),
            Err(error) => Err(error.to_string()),
        };
        match read {
            Ok(_) => findings.ok(setting, format!("issues are opened in {repo}")),
            Err(error) => {
                let advice = "check the name, and install the App there";
                findings.fail(setting, format!("cannot read `{repo}` ({error}): {advice}"));
            }
        }
    }
}

fn permissions(findings: &mut DoctorReport, app: &GitHubApp, policies: &Policies) {
    let has = |area: &str, level: &str| {
        app.permissions.get(area).is_some_and(|given| given == level || given == "write" || given == "admin")
    };
    let missing = |wanted: &[(&str, &str, &str)]| -> Vec<String> {
        let missing = wanted.iter().filter(|(area, level, _)| !has(area, level));
        missing.map(|(area, level, why)| format!("`{area}: {level}` {why}")).collect()
    };
    let required = missing(&REQUIRED).join("; ");
    if required.is_empty() {
        findings.ok("permissions", "the App has all required permissions");
    } else {
        let advice = "grant it in the App's settings, then accept the change in each installation";
        findings.fail("permissions", format!("the App lacks {required}: {advice}"));
    }
    let mut optional = missing(&OPTIONAL);
    if policies.base().rebuild.via == RebuildVia::GitHub && !has("actions", "write") {
        optional.push("`actions: write` to rerun failed jobs".to_owned());
    }
    if !optional.is_empty() {
        findings.warn("permissions", format!("optional permissions are missing: {}", optional.join("; ")));
    }
}

fn events(findings: &mut DoctorReport, app: &GitHubApp) {
    let missing: Vec<&str> =
        EVENTS.into_iter().filter(|event| !app.events.iter().any(|given| given == event)).collect();
    if missing.is_empty() {
        findings.ok("events", "the App is subscribed to all required events");
    } else {
        let missing = missing.join(", ");
        findings.fail("events", format!("the App is not subscribed to {missing}: subscribe in the App's settings"));
    }
}

async fn hook(findings: &mut DoctorReport, github: &GitHub, now: Timestamp) {
    match github.hook().await {
        Ok(hook) => webhook_address(findings, &hook),
        Err(error) => findings.warn("webhook", format!("cannot read the App's webhook settings: {error}")),
    }
    let since = now.saturating_sub(DELIVERY_WINDOW).unwrap_or(Timestamp::MIN);
    match github.failed_deliveries(since).await {
        Ok(failed) => failed_deliveries(findings, &failed.deliveries),
        Err(error) => findings.warn("deliveries", format!("cannot list failed webhook deliveries: {error}")),
    }
}

fn webhook_address(findings: &mut DoctorReport, AppWebhook { url, content_type, secret, .. }: &AppWebhook) {
    if url.is_empty() {
        findings.fail("webhook", "the App has no webhook URL: set it to https://<your host>/webhook/github");
        return;
    }
    if !url.ends_with("/webhook/github") {
        let advice = "this works only if that URL forwards to /webhook/github";
        findings.warn("webhook", format!("GitHub sends webhooks to {url}: {advice}"));
    } else if content_type != "json" {
        findings
            .fail("webhook", format!("GitHub sends {content_type} to {url}: set the content type to application/json"));
    } else {
        findings.ok("webhook", format!("GitHub sends webhooks to {url}"));
    }
    if secret.as_deref().is_none_or(str::is_empty) {
        let advice = "set the App's webhook secret to the value of SUTURE_WEBHOOK_SECRET";
        findings.fail("webhook secret", format!("GitHub does not sign webhooks: {advice}"));
    }
}

fn failed_deliveries(findings: &mut DoctorReport, failed: &[FailedDelivery]) {
    let Some(last) = failed.last() else {
        return findings.ok("deliveries", "no undelivered webhooks in the last 24 hours");
    };
    let unauthorized = failed.iter().filter(|delivery| delivery.status_code == 401).count();
    if unauthorized > 0 {
        let why = "SUTURE_WEBHOOK_SECRET and the App's webhook secret differ";
        let text = format!("{unauthorized} webhooks in the last 24 hours had an invalid signature: {why}");
        return findings.fail("webhook secret", text);
    }
    let (count, at) = (failed.len(), last.delivered_at);
    let text = format!(
        "{count} webhook deliveries failed in the last 24 hours, the last at {at}: the next inventory requests redelivery of those that still need it"
    );
    findings.warn("deliveries", text);
}

async fn installations(findings: &mut DoctorReport, github: &GitHub, owners: &mut Vec<String>) {
    match github.installations().await {
        Ok(all) if all.is_empty() => {
            findings.fail("installations", "the App has no installation: install it in your organisation");
        }
        Ok(all) => {
            let names: Vec<String> = all.into_iter().map(|one| one.owner).collect();
            findings.ok("installations", names.join(", "));
            owners.extend(names);
            owners.sort_by_key(|owner| owner.to_ascii_lowercase());
            owners.dedup_by(|one, other| one.eq_ignore_ascii_case(other));
        }
        Err(error) => findings.fail("installations", format!("cannot list the App's installations: {error}")),
    }
}

/// How each bot is asked, and whether somebody can receive the request. The bus of `cargo run` is in its own process:
/// only the demo's bots receive its events.
fn bots(findings: &mut DoctorReport, policies: &Policies, environment: &impl Environment) {
    let bus = environment.get("SUTURE_EVENT_BUS");
    for strategy in Strategy::ALL {
        let target = RemedyTarget::of(strategy);
        let mut reported = Vec::new();
        let settings = all(policies).filter_map(|policy| Some((policy.mode, policy.retrigger.of(strategy)?)));
        for setting in settings {
            if reported.contains(&setting) {
                continue;
            }
            reported.push(setting);
            let (mode, BotRetrigger { via, target: with }) = setting;
            match (via, &bus, mode) {
                (RetriggerVia::Bus, Some(bus), _) => {
                    let event = target.detail_type().map_or("", |event| event.name());
                    let text = format!("asked by {event} on the event bus `{bus}`: a rule there has to forward it");
                    findings.ok(target, text);
                }
                (RetriggerVia::Bus, None, Mode::Act) => findings.warn(target, text::no_receiver(target)),
                (RetriggerVia::Bus, None, Mode::Observe) => {
                    let text = format!("not asked in mode observe. For mode act: {}", text::no_receiver(target));
                    findings.ok(target, text);
                }
                (RetriggerVia::Label, ..) => findings.ok(target, format!("asked by adding the label `{with}`")),
                (RetriggerVia::Comment, ..) => findings.ok(target, format!("asked by the comment `{with}`")),
                (RetriggerVia::Http, ..) if environment.get(RETRIGGER_SECRET).is_none() => {
                    let text = format!(
                        "asked by a POST to {with}, but {RETRIGGER_SECRET} is not set: nothing is sent unsigned"
                    );
                    findings.fail(target, text);
                }
                (RetriggerVia::Http, ..) => findings.ok(target, format!("asked by a signed POST to {with}")),
            }
        }
    }
}

fn secrets(findings: &mut DoctorReport, environment: &impl Environment) {
    match webhook::config::secrets(environment, "SUTURE_WEBHOOK_SECRET") {
        Ok(Some(_)) => findings.ok("webhook secret", "SUTURE_WEBHOOK_SECRET is set"),
        Ok(None) => {
            findings.fail(
                "webhook secret",
                "SUTURE_WEBHOOK_SECRET is not set: choose a secret, and set the same one in the App's webhook settings",
            );
        }
        Err(bad) => findings.fail("webhook secret", bad),
    }
    match webhook::config::secrets(environment, "SUTURE_JENKINS_WEBHOOK_SECRET") {
        Ok(Some(_)) => {
            findings.ok("other secrets", "SUTURE_JENKINS_WEBHOOK_SECRET is set: accepts webhooks from Jenkins");
        }
        Ok(None) => {}
        Err(bad) => findings.fail("other secrets", bad),
    }
    match webhook::config::bot_secrets(environment) {
        Ok(bots) => {
            for bot in bots.keys() {
                findings.ok("other secrets", format!("{bot} has a secret: accepts its reports"));
            }
        }
        Err(bad) => findings.fail("other secrets", bad),
    }
}

async fn jenkins(findings: &mut DoctorReport, policies: &Policies, environment: &impl Environment, repos: &[RepoName]) {
    const SUBJECT: &str = "jenkins";
    let jenkins = match clients::jenkins(environment) {
        Ok(Some(jenkins)) => jenkins,
        Ok(None) => {
            return match policies.base().rebuild.via {
                RebuildVia::Jenkins | RebuildVia::Replay | RebuildVia::Rescan => findings.warn(SUBJECT, "SUTURE_JENKINS_URL is not set, so Suture cannot rerun builds: set it, or set rebuild.via to \"comment\" or \"github\""),
                RebuildVia::Comment | RebuildVia::GitHub => findings.ok(SUBJECT, "not used"),
            };
        }
        Err(bad) => return findings.fail(SUBJECT, bad),
    };
    let url = jenkins.base_url();
    let mut visible = 0;
    for repo in repos {
        let job = folder_of(policies.for_repo(repo), repo);
        match jenkins.job_exists(&job).await {
            Ok(true) => visible += 1,
            Ok(false) => findings.warn(SUBJECT, format!("job `{job}` for {repo} does not exist or is not visible: check rebuild.job, and the Jenkins user's permission to read jobs")),
            Err(error) => return findings.fail(SUBJECT, unreachable(&jenkins, &error)),
        }
    }
    if repos.is_empty() {
        match jenkins.job_exists(&JenkinsJob::new("suture-doctor")).await {
            Ok(_) => findings.ok(SUBJECT, format!("{url} accepts the login")),
            Err(error) => findings.fail(SUBJECT, unreachable(&jenkins, &error)),
        }
    } else if visible > 0 {
        let count = repos.len();
        findings.ok(SUBJECT, format!("{url} accepts the login; jobs of {visible} of {count} repositories are visible"));
    }
}

/// The Jenkins folder that contains a repository's jobs.
fn folder_of(policy: &Policy, repo: &RepoName) -> JenkinsJob {
    let path = policy.rebuild.job.replace("{owner}", repo.owner()).replace("{repo}", repo.name());
    let job = JenkinsJob::new(&path);
    if path.contains('{') { job.parent().unwrap_or(job) } else { job }
}

fn unreachable(jenkins: &Jenkins, error: &ApiError) -> String {
    let url = jenkins.base_url();
    if matches!(error, ApiError::Unauthorized { .. } | ApiError::Refused { status: 401 | 403, .. }) {
        format!("{url} rejects the login ({error}): check SUTURE_JENKINS_USER and SUTURE_JENKINS_TOKEN")
    } else {
        format!("cannot reach {url} ({error}): check SUTURE_JENKINS_URL")
    }
}

fn keys(findings: &mut DoctorReport, environment: &impl Environment) {
    let is_admin = |entry: &str| entry.split(':').nth(1) == Some("admin");
    match (admin::config::keys(environment), environment.get("SUTURE_ADMIN_KEYS")) {
        (Err(bad), _) => findings.fail("admin keys", bad),
        (Ok(_), None) => findings.warn("admin keys", "SUTURE_ADMIN_KEYS is not set: a deployment would reject every API request. Create a key with `new-key NAME ROLE` (`cargo run` creates its own)"),
        (Ok(_), Some(text)) if text.split(';').any(is_admin) => {
            findings.ok("admin keys", "valid; at least one key has the admin role");
        }
        (Ok(_), Some(_)) => {
            findings.warn("admin keys", "no key has the admin role, which is required to pause Suture or reset the breaker: create one with `new-key NAME admin`");
        }
    }
}

async fn tables(findings: &mut DoctorReport, environment: &impl Environment, now: Timestamp) {
    const SUBJECT: &str = "tables";
    if environment.get("SUTURE_STATE_TABLE").is_none() && environment.get("SUTURE_EVENTS_TABLE").is_none() {
        return findings
            .ok(SUBJECT, "SUTURE_STATE_TABLE is not set: `cargo run` uses local tables in its data directory");
    }
    for name in ["SUTURE_COMMAND_QUEUE_URL", "SUTURE_FACTS_QUEUE_URL"] {
        if environment.get(name).is_none() {
            findings.fail("queue", format!("{name} is not set: set it to the URL of the queue"));
        }
    }
    #[cfg(not(feature = "aws"))]
    {
        let _ = now;
        findings.warn(SUBJECT, "not checked: run `cargo run --features aws -- doctor`");
    }
    #[cfg(feature = "aws")]
    match platform::aws::backends(environment).await {
        Err(bad) => findings.fail(SUBJECT, bad),
        Ok((store, _)) => {
            for key in [platform::store::Key::state("BREAKER"), platform::store::Key::event("doctor", "doctor")] {
                if let Err(error) = platform::store::Store::get(&store, &key, now).await {
                    let hint = "check the table names, the region and the credentials";
                    return findings.fail(SUBJECT, format!("{error}: {hint}"));
                }
            }
            findings.ok(SUBJECT, "both tables are readable");
        }
    }
}
