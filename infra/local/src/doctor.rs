//! `suture doctor`: checks everything Suture needs from others, and says what to fix. It only reads.

use std::collections::BTreeSet;
use std::fmt;

use domain::id::RepoName;
use domain::policy::{Mode, Policies, Policy, RebuildVia};
use jiff::{SignedDuration, Timestamp};
use platform::clients;
use platform::env::Environment;
use platform::github::{AppWebhook, FailedDelivery, GitHub, GitHubApp};
use platform::jenkins::{Jenkins, JenkinsJob};
use platform::transport::ApiError;

/// Repositories that are checked one by one; the others are most likely like these.
const MAX_REPOS: usize = 20;
/// How far back failed webhooks are looked for.
const LATELY: SignedDuration = SignedDuration::from_hours(24);

/// Permissions the App must have, and what for.
const REQUIRED: [(&str, &str, &str); 6] = [
    ("pull_requests", "write", "to close, label and comment"),
    ("contents", "write", "to merge the base branch into a head"),
    ("issues", "write", "to answer people and to keep its status issue"),
    ("checks", "write", "to show its own check run and to run checks again"),
    ("statuses", "read", "to see what Jenkins and Policy Bot report"),
    ("metadata", "read", "to see repositories at all"),
];
const OPTIONAL: [(&str, &str, &str); 1] = [("administration", "read", "to read which checks a branch requires")];
const EVENTS: [&str; 7] =
    ["check_run", "check_suite", "issue_comment", "pull_request", "pull_request_review", "push", "status"];

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum FindingLevel {
    Ok,
    /// Suture works, but not as well as it could.
    Warn,
    /// Suture does not work like this.
    Fail,
}

pub(crate) struct DoctorFinding {
    pub(crate) verdict: FindingLevel,
    what: String,
    /// What was found, and what to do about it.
    text: String,
}

impl fmt::Display for DoctorFinding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verdict = match self.verdict {
            FindingLevel::Ok => "ok",
            FindingLevel::Warn => "warn",
            FindingLevel::Fail => "FAIL",
        };
        write!(f, "{verdict:<4}  {:<18}  {}", self.what, self.text)
    }
}

#[derive(Default)]
struct DoctorReport(Vec<DoctorFinding>);

impl DoctorReport {
    fn add(&mut self, verdict: FindingLevel, what: impl fmt::Display, text: impl fmt::Display) {
        self.0.push(DoctorFinding { verdict, what: what.to_string(), text: text.to_string() });
    }

    fn ok(&mut self, what: impl fmt::Display, text: impl fmt::Display) {
        self.add(FindingLevel::Ok, what, text);
    }

    fn warn(&mut self, what: impl fmt::Display, text: impl fmt::Display) {
        self.add(FindingLevel::Warn, what, text);
    }

    fn fail(&mut self, what: impl fmt::Display, text: impl fmt::Display) {
        self.add(FindingLevel::Fail, what, text);
    }
}

/// Checks everything: one failure does not keep the next thing from being checked.
pub(crate) async fn examine(
    policies: Result<Policies, String>,
    environment: &impl Environment,
    now: Timestamp,
) -> Vec<DoctorFinding> {
    let mut findings = DoctorReport::default();
    match policies.as_ref().map(|policies| policies.base().mode) {
        Ok(Mode::Act) => findings.ok("configuration", "can be read; mode act: Suture applies remedies"),
        Ok(Mode::Observe) => {
            findings.ok("configuration", "can be read; mode observe: Suture only says what it would do");
        }
        Err(error) => findings.fail("configuration", error),
    }
    let policies = policies.unwrap_or_default();
    let repos = github(&mut findings, &policies, environment, now).await;
    secrets(&mut findings, environment);
    jenkins(&mut findings, &policies, environment, &repos).await;
    keys(&mut findings, environment);
    tables(&mut findings, environment, now).await;
    findings.0
}

/// The base policy and those of repositories.
fn all(policies: &Policies) -> impl Iterator<Item = &Policy> {
    std::iter::once(policies.base()).chain(policies.overrides().map(|(_, policy)| policy))
}

async fn github(
    findings: &mut DoctorReport,
    policies: &Policies,
    environment: &impl Environment,
    now: Timestamp,
) -> Vec<RepoName> {
    const WHAT: &str = "credentials";
    let set = "set SUTURE_GITHUB_APP_ID and SUTURE_GITHUB_PRIVATE_KEY, or SUTURE_GITHUB_TOKEN";
    let health = match clients::github(environment) {
        Ok(github) => github.health().await.map(|health| (github, health)),
        Err(bad) => {
            findings.fail(WHAT, format!("{bad}: {set}"));
            return Vec::new();
        }
    };
    let (github, health) = match health {
        Ok(health) => health,
        Err(error) => {
            let advice = if matches!(error, ApiError::Unauthorized { .. }) {
                "GitHub does not know this key or token; make a new one"
            } else {
                "GitHub cannot be reached: is SUTURE_GITHUB_API_URL right, and the network up?"
            };
            findings.fail(WHAT, format!("{error}: {advice}"));
            return Vec::new();
        }
    };
    let mut owners: Vec<String> = environment.get("SUTURE_GITHUB_OWNER").into_iter().collect();
    if let Some(app) = &health.app {
        findings.ok(WHAT, format!("GitHub knows us as the App `{}`", app.slug));
        permissions(findings, app, policies);
        events(findings, app);
        hook(findings, &github, now).await;
        installations(findings, &github, &mut owners).await;
    } else {
        findings.warn(WHAT, "GitHub accepts the token. An App would be better: only an App can ask for lost webhooks again, and its permissions can be checked");
        if all(policies).any(|policy| policy.check_run.enabled) {
            findings.warn(
                "check run",
                "`check_run.enabled` has no effect: only Apps can write check runs, and Suture has a token",
            );
        }
        if owners.is_empty() {
            findings.fail("repositories", "a token does not say whose repositories are meant: set SUTURE_GITHUB_OWNER");
        }
    }
    issue_repos(findings, &github, policies).await;
    repositories(findings, &github, policies, &owners).await
}

/// The repositories that get issues of ours: otherwise a sweep would find out about a misspelt name, at night.
async fn issue_repos(findings: &mut DoctorReport, github: &GitHub, policies: &Policies) {
    let settings = |policy: &Policy| {
        [("status.repo", policy.status.repo.clone()), ("sentinel.issue_repo", policy.sentinel.issue_repo.clone())]
    };
    let named: BTreeSet<(&str, String)> =
        all(policies).flat_map(settings).filter(|(_, repo)| !repo.is_empty()).collect();
    for (setting, repo) in named {
        let read = match repo.parse::<RepoName>() {
            Ok(repo) => github.default_branch(&repo).await.map_err(|error| error.to_string()),
            Err(error) => Err(error.to_string()),
        };
        match read {
            Ok(_) => findings.ok(setting, format!("issues are kept in {repo}")),
            Err(error) => {
                let advice = "is the name right, and the App installed there?";
                findings.fail(setting, format!("`{repo}` cannot be read ({error}): {advice}"));
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
        findings.ok("permissions", "the App has all it needs");
    } else {
        let advice = "grant it in the App's settings, then accept it where it is installed";
        findings.fail("permissions", format!("the App lacks {required}: {advice}"));
    }
    let mut optional = missing(&OPTIONAL);
    if policies.base().rebuild.via == RebuildVia::GitHub && !has("actions", "write") {
        optional.push("`actions: write` to run failed jobs again".to_owned());
    }
    if !optional.is_empty() {
        findings.warn("permissions", format!("the App could use {}", optional.join("; ")));
    }
}

fn events(findings: &mut DoctorReport, app: &GitHubApp) {
    let missing: Vec<&str> =
        EVENTS.into_iter().filter(|event| !app.events.iter().any(|given| given == event)).collect();
    if missing.is_empty() {
        findings.ok("events", "the App gets every webhook it needs");
    } else {
        let missing = missing.join(", ");
        findings.fail("events", format!("the App does not get {missing}: subscribe to them in the App's settings"));
    }
}

async fn hook(findings: &mut DoctorReport, github: &GitHub, now: Timestamp) {
    match github.hook().await {
        Ok(hook) => webhook_address(findings, &hook),
        Err(error) => findings.warn("webhook", format!("where GitHub sends webhooks cannot be read: {error}")),
    }
    let since = now.saturating_sub(LATELY).unwrap_or(Timestamp::MIN);
    match github.failed_deliveries(since).await {
        Ok(failed) => failed_deliveries(findings, &failed),
        Err(error) => findings.warn("deliveries", format!("whether webhooks failed cannot be read: {error}")),
    }
}

fn webhook_address(findings: &mut DoctorReport, AppWebhook { url, content_type, secret, .. }: &AppWebhook) {
    if url.is_empty() {
        findings.fail("webhook", "the App has no webhook address: set it to https://<your host>/webhook/github");
        return;
    }
    if !url.ends_with("/webhook/github") {
        let advice = "that is right only if it forwards to /webhook/github";
        findings.warn("webhook", format!("GitHub sends to {url}: {advice}"));
    } else if content_type != "json" {
        findings.fail("webhook", format!("GitHub sends {content_type} to {url}: choose application/json"));
    } else {
        findings.ok("webhook", format!("GitHub sends to {url}"));
    }
    if secret.as_deref().is_none_or(str::is_empty) {
        let advice = "give the App's webhook the secret of SUTURE_WEBHOOK_SECRET";
        findings.fail("webhook secret", format!("GitHub signs nothing: {advice}"));
    }
}

fn failed_deliveries(findings: &mut DoctorReport, failed: &[FailedDelivery]) {
    let Some(last) = failed.last() else {
        return findings.ok("deliveries", "no webhook of the last 24 hours failed for good");
    };
    let unauthorized = failed.iter().filter(|delivery| delivery.status_code == 401).count();
    if unauthorized > 0 {
        let why = "SUTURE_WEBHOOK_SECRET and the App's webhook secret differ";
        let text = format!("{unauthorized} webhooks of the last 24 hours had an invalid signature: {why}");
        return findings.fail("webhook secret", text);
    }
    let (count, at) = (failed.len(), last.delivered_at);
    let text = format!(
        "{count} webhooks of the last 24 hours failed, the last at {at}: the next inventory asks for them again"
    );
    findings.warn("deliveries", text);
}

async fn installations(findings: &mut DoctorReport, github: &GitHub, owners: &mut Vec<String>) {
    match github.installations().await {
        Ok(all) if all.is_empty() => {
            findings.fail("installations", "the App is installed nowhere: install it for your organisation");
        }
        Ok(all) => {
            let names: Vec<String> = all.into_iter().map(|one| one.owner).collect();
            findings.ok("installations", names.join(", "));
            owners.extend(names);
            owners.sort_by_key(|owner| owner.to_ascii_lowercase());
            owners.dedup_by(|one, other| one.eq_ignore_ascii_case(other));
        }
        Err(error) => findings.fail("installations", format!("where the App is installed cannot be read: {error}")),
    }
}

async fn repositories(
    findings: &mut DoctorReport,
    github: &GitHub,
    policies: &Policies,
    owners: &[String],
) -> Vec<RepoName> {
    let mut repos = Vec::new();
    for owner in owners {
        match github.repositories(owner).await {
            Ok(some) if some.is_empty() => findings.warn("repositories", format!("none of {owner}'s can be seen")),
            Ok(some) => repos.extend(some),
            Err(error) => findings.fail("repositories", format!("{owner}'s cannot be listed: {error}")),
        }
    }
    if repos.len() > MAX_REPOS {
        findings.ok("repositories", format!("{} can be seen; the first {MAX_REPOS} are checked", repos.len()));
        repos.truncate(MAX_REPOS);
    }
    for repo in &repos {
        required_checks(findings, github, policies.for_repo(repo), repo).await;
    }
    repos
}

/// What a repository's default branch requires, and whether Suture can know it.
async fn required_checks(findings: &mut DoctorReport, github: &GitHub, policy: &Policy, repo: &RepoName) {
    let branch = match github.default_branch(repo).await {
        Ok(branch) => branch,
        Err(error) => return findings.fail(repo, format!("cannot be read: {error}")),
    };
    let contexts = match github.required(repo, &branch).await {
        Ok(required) => required.contexts.unwrap_or_default(),
        Err(error) => return findings.fail(repo, format!("what `{branch}` requires cannot be read: {error}")),
    };
    let list = contexts.join(", ");
    if contexts.iter().any(|name| policy.is_policy_context(name)) {
        findings.ok(repo, format!("`{branch}` requires {list}"));
    } else if !contexts.is_empty() {
        let prefix = &policy.policy_bot.context_prefix;
        let text = format!(
            "`{branch}` requires {list}, but no status of Policy Bot (`{prefix}…`): it could be merged without one"
        );
        findings.warn(repo, text);
    } else if !policy.checks.required.is_empty() {
        findings.ok(repo, format!("requires {} by configuration", policy.checks.required.join(", ")));
    } else {
        let advice = "protect it, grant `administration: read`, or list checks.required";
        findings.warn(repo, format!("`{branch}` requires nothing that Suture can see: {advice}"));
    }
}

fn secrets(findings: &mut DoctorReport, environment: &impl Environment) {
    match webhook::config::secrets(environment, "SUTURE_WEBHOOK_SECRET") {
        Ok(Some(_)) => findings.ok("webhook secret", "SUTURE_WEBHOOK_SECRET is set"),
        Ok(None) => {
            findings.fail("webhook secret", "SUTURE_WEBHOOK_SECRET is not set: choose one, and give GitHub the same");
        }
        Err(bad) => findings.fail("webhook secret", bad),
    }
    for (name, whose) in [("SUTURE_JENKINS_WEBHOOK_SECRET", "Jenkins"), ("SUTURE_BOT_SECRET", "the bots")] {
        match webhook::config::secrets(environment, name) {
            Ok(Some(_)) => findings.ok("other secrets", format!("{name} is set: {whose} may report directly")),
            Ok(None) => {}
            Err(bad) => findings.fail("other secrets", bad),
        }
    }
}

async fn jenkins(findings: &mut DoctorReport, policies: &Policies, environment: &impl Environment, repos: &[RepoName]) {
    const WHAT: &str = "jenkins";
    let jenkins = match clients::jenkins(environment) {
        Ok(Some(jenkins)) => jenkins,
        Ok(None) => {
            return match policies.base().rebuild.via {
                RebuildVia::Jenkins | RebuildVia::Replay | RebuildVia::Rescan => findings.warn(WHAT, "SUTURE_JENKINS_URL is not set: builds cannot be run again; set it, or choose rebuild.via = \"comment\" or \"github\""),
                RebuildVia::Comment | RebuildVia::GitHub => findings.ok(WHAT, "not used"),
            };
        }
        Err(bad) => return findings.fail(WHAT, bad),
    };
    let url = jenkins.base_url();
    let mut visible = 0;
    for repo in repos {
        let job = folder_of(policies.for_repo(repo), repo);
        match jenkins.job_exists(&job).await {
            Ok(true) => visible += 1,
            Ok(false) => findings.warn(WHAT, format!("there is no job `{job}` for {repo}, or it is not visible to us: see rebuild.job, and the user's permission to read jobs")),
            Err(error) => return findings.fail(WHAT, unreachable(&jenkins, &error)),
        }
    }
    if repos.is_empty() {
        match jenkins.job_exists(&JenkinsJob::new("suture-doctor")).await {
            Ok(_) => findings.ok(WHAT, format!("{url} answers and accepts the login")),
            Err(error) => findings.fail(WHAT, unreachable(&jenkins, &error)),
        }
    } else if visible > 0 {
        let count = repos.len();
        findings.ok(
            WHAT,
            format!("{url} answers, accepts the login, and shows the jobs of {visible} of {count} repositories"),
        );
    }
}

/// The folder of a repository's jobs.
fn folder_of(policy: &Policy, repo: &RepoName) -> JenkinsJob {
    let path = policy.rebuild.job.replace("{owner}", repo.owner()).replace("{repo}", repo.name());
    let job = JenkinsJob::new(&path);
    if path.contains('{') { job.parent().unwrap_or(job) } else { job }
}

fn unreachable(jenkins: &Jenkins, error: &ApiError) -> String {
    let url = jenkins.base_url();
    if matches!(error, ApiError::Unauthorized { .. } | ApiError::Refused { status: 401 | 403, .. }) {
        format!("{url} does not accept the login ({error}): check SUTURE_JENKINS_USER and SUTURE_JENKINS_TOKEN")
    } else {
        format!("{url} cannot be reached ({error}): is SUTURE_JENKINS_URL right?")
    }
}

fn keys(findings: &mut DoctorReport, environment: &impl Environment) {
    let is_admin = |entry: &str| entry.split(':').nth(1) == Some("admin");
    match (admin::config::keys(environment), environment.get("SUTURE_ADMIN_KEYS")) {
        (Err(bad), _) => findings.fail("admin keys", bad),
        (Ok(_), None) => findings.warn("admin keys", "SUTURE_ADMIN_KEYS is not set: a deployment lets nobody in (`cargo run` makes a key of its own); `new-key NAME ROLE` makes one"),
        (Ok(_), Some(text)) if text.split(';').any(is_admin) => {
            findings.ok("admin keys", "can be read, and one of them is an admin's");
        }
        (Ok(_), Some(_)) => {
            findings.warn("admin keys", "none of them is an admin's: nobody can pause Suture or reset the breaker");
        }
    }
}

async fn tables(findings: &mut DoctorReport, environment: &impl Environment, now: Timestamp) {
    const WHAT: &str = "tables";
    if environment.get("SUTURE_STATE_TABLE").is_none() && environment.get("SUTURE_EVENTS_TABLE").is_none() {
        return findings.ok(WHAT, "SUTURE_STATE_TABLE is not set: `cargo run` keeps its own in its data directory");
    }
    if environment.get("SUTURE_COMMAND_QUEUE_URL").is_none() {
        findings.fail("queue", "SUTURE_COMMAND_QUEUE_URL is not set");
    }
    #[cfg(not(feature = "aws"))]
    {
        let _ = now;
        findings.warn(WHAT, "not checked: this needs `cargo run --features aws -- doctor`");
    }
    #[cfg(feature = "aws")]
    match platform::aws::backends(environment).await {
        Err(bad) => findings.fail(WHAT, bad),
        Ok((store, _)) => {
            for key in [platform::store::Key::state("BREAKER"), platform::store::Key::event("doctor", "doctor")] {
                if let Err(error) = platform::store::Store::get(&store, &key, now).await {
                    let hint = "are the names, the region and the credentials right?";
                    return findings.fail(WHAT, format!("{error}: {hint}"));
                }
            }
            findings.ok(WHAT, "both can be read");
        }
    }
}
