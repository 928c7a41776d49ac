//! `doctor`: looks at everything Suture needs from others, and says what to fix. It only reads.

use std::collections::BTreeSet;
use std::fmt;

use domain::id::RepoName;
use domain::policy::{Mode, Policies, Policy, RebuildVia};
use jiff::{SignedDuration, Timestamp};
use platform::github::{App, FailedDelivery, GitHub, Hook};
use platform::http::CallError;
use platform::jenkins::{Jenkins, Job};
use platform::store::{Key, Store};
use platform::wiring::{self, Environment};

/// Repositories that are looked at one by one; those beyond are most likely like these.
const MOST_REPOS: usize = 20;
/// How far back failed webhooks are looked for.
const LATELY: SignedDuration = SignedDuration::from_hours(24);

/// What the App must be allowed to do, and what for.
const PERMISSIONS: [(&str, &str, &str); 6] = [
    ("pull_requests", "write", "to close, label and comment"),
    ("contents", "write", "to merge the base branch into a head"),
    ("issues", "write", "to answer people and to keep its status issue"),
    ("checks", "write", "to show its own check run and to run checks again"),
    ("statuses", "read", "to see what Jenkins and Policy Bot report"),
    ("metadata", "read", "to see repositories at all"),
];
/// What it should be allowed besides.
const WISHES: [(&str, &str, &str); 1] = [("administration", "read", "to read which checks a branch requires")];
/// The webhooks it must get.
const EVENTS: [&str; 7] =
    ["check_run", "check_suite", "issue_comment", "pull_request", "pull_request_review", "push", "status"];

/// How something looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    /// As it should be.
    Ok,
    /// Suture works, but not as well as it could.
    Warn,
    /// Suture does not work like this.
    Fail,
}

/// One thing that was looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// How it looks.
    pub verdict: Verdict,
    /// What was looked at.
    pub what: String,
    /// What was seen, and what to do about it.
    pub text: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verdict = match self.verdict {
            Verdict::Ok => "ok",
            Verdict::Warn => "warn",
            Verdict::Fail => "FAIL",
        };
        write!(f, "{verdict:<4}  {:<18}  {}", self.what, self.text)
    }
}

/// What was found so far.
#[derive(Debug, Default)]
struct Findings(Vec<Finding>);

impl Findings {
    fn note(&mut self, verdict: Verdict, what: impl Into<String>, text: impl Into<String>) {
        self.0.push(Finding { verdict, what: what.into(), text: text.into() });
    }

    fn ok(&mut self, what: impl Into<String>, text: impl Into<String>) {
        self.note(Verdict::Ok, what, text);
    }

    fn warn(&mut self, what: impl Into<String>, text: impl Into<String>) {
        self.note(Verdict::Warn, what, text);
    }

    fn fail(&mut self, what: impl Into<String>, text: impl Into<String>) {
        self.note(Verdict::Fail, what, text);
    }
}

/// Looks at everything, worst things included: one that fails does not keep the next from being looked at.
pub async fn examine(
    policies: Result<Policies, String>,
    environment: &impl Environment,
    now: Timestamp,
) -> Vec<Finding> {
    let mut findings = Findings::default();
    let policies = match policies {
        Ok(policies) => {
            match policies.base().mode {
                Mode::Act => findings.ok("configuration", "can be read; mode act: Suture applies remedies"),
                Mode::Observe => {
                    findings.ok("configuration", "can be read; mode observe: Suture only says what it would do")
                }
            }
            policies
        }
        Err(sentence) => {
            findings.fail("configuration", sentence);
            Policies::default()
        }
    };
    let repos = github(&mut findings, &policies, environment, now).await;
    secrets(&mut findings, environment);
    jenkins(&mut findings, &policies, environment, &repos).await;
    keys(&mut findings, environment);
    tables(&mut findings, environment, now).await;
    findings.0
}

async fn github(
    findings: &mut Findings,
    policies: &Policies,
    environment: &impl Environment,
    now: Timestamp,
) -> Vec<RepoName> {
    let github = match wiring::github(environment) {
        Ok(github) => github,
        Err(bad) => {
            findings.fail(
                "credentials",
                format!("{bad}: set SUTURE_GITHUB_APP_ID and SUTURE_GITHUB_PRIVATE_KEY, or SUTURE_GITHUB_TOKEN"),
            );
            return Vec::new();
        }
    };
    let health = match github.health().await {
        Ok(health) => health,
        Err(error @ CallError::Unauthorized { .. }) => {
            findings.fail("credentials", format!("{error}: GitHub does not know this key or token; make a new one"));
            return Vec::new();
        }
        Err(error) => {
            findings.fail(
                "credentials",
                format!("GitHub cannot be asked ({error}): is SUTURE_GITHUB_API_URL right, and the network up?"),
            );
            return Vec::new();
        }
    };
    let mut owners: Vec<String> = environment.get("SUTURE_GITHUB_OWNER").into_iter().collect();
    match &health.app {
        Some(app) => {
            findings.ok("credentials", format!("GitHub knows us as the App `{}`", app.slug));
            permissions(findings, app, policies);
            events(findings, app);
            hook(findings, &github, now).await;
            installations(findings, &github, &mut owners).await;
        }
        None => {
            findings.warn("credentials", "GitHub accepts the token. An App would be better: only an App can ask for lost webhooks again, and its permissions can be checked");
            if std::iter::once(policies.base())
                .chain(policies.overrides().map(|(_, policy)| policy))
                .any(|policy| policy.check_run.enabled)
            {
                findings.warn(
                    "check run",
                    "`check_run.enabled` shows nothing: check runs are for GitHub Apps, and Suture has a token",
                );
            }
            if owners.is_empty() {
                findings
                    .fail("repositories", "a token does not say whose repositories are meant: set SUTURE_GITHUB_OWNER");
            }
        }
    }
    written_to(findings, &github, policies).await;
    repositories(findings, &github, policies, &owners).await
}

/// The repositories that get issues of ours: a name with a slip in it would be found out by a sweep, at night.
async fn written_to(findings: &mut Findings, github: &GitHub, policies: &Policies) {
    let all = std::iter::once(policies.base()).chain(policies.overrides().map(|(_, policy)| policy));
    let settings = |policy: &Policy| {
        [("status.repo", policy.status.repo.clone()), ("sentinel.issue_repo", policy.sentinel.issue_repo.clone())]
    };
    let named: BTreeSet<(&str, String)> = all.flat_map(settings).filter(|(_, repo)| !repo.is_empty()).collect();
    for (setting, repo) in named {
        let seen = match repo.parse::<RepoName>() {
            Ok(repo) => github.default_branch(&repo).await.map_err(|error| error.to_string()),
            Err(error) => Err(error.to_string()),
        };
        match seen {
            Ok(_) => findings.ok(setting, format!("issues are kept in {repo}")),
            Err(error) => findings.fail(
                setting,
                format!("`{repo}` cannot be read ({error}): is the name right, and the App installed there?"),
            ),
        }
    }
}

fn permissions(findings: &mut Findings, app: &App, policies: &Policies) {
    let has = |area: &str, level: &str| {
        app.permissions.get(area).is_some_and(|given| given == level || given == "write" || given == "admin")
    };
    let missing = |options: &[(&str, &str, &str)]| -> Vec<String> {
        let lacking = options.iter().filter(|(area, level, _)| !has(area, level));
        lacking.map(|(area, level, why)| format!("`{area}: {level}` {why}")).collect()
    };
    let needed = missing(&PERMISSIONS);
    if needed.is_empty() {
        findings.ok("permissions", "the App may do all it must");
    } else {
        findings.fail(
            "permissions",
            format!(
                "the App lacks {}: grant it in the App's settings, then accept it where it is installed",
                needed.join("; ")
            ),
        );
    }
    let mut wished = missing(&WISHES);
    if policies.base().rebuild.via == RebuildVia::GitHub && !has("actions", "write") {
        wished.push("`actions: write` to run failed jobs again".to_owned());
    }
    if !wished.is_empty() {
        findings.warn("permissions", format!("the App could use {}", wished.join("; ")));
    }
}

fn events(findings: &mut Findings, app: &App) {
    let missing: Vec<&str> =
        EVENTS.into_iter().filter(|event| !app.events.iter().any(|given| given == event)).collect();
    if missing.is_empty() {
        findings.ok("events", "the App gets every webhook it needs");
    } else {
        findings.fail(
            "events",
            format!("the App does not get {}: subscribe to them in the App's settings", missing.join(", ")),
        );
    }
}

async fn hook(findings: &mut Findings, github: &GitHub, now: Timestamp) {
    match github.hook().await {
        Ok(hook) => address(findings, &hook),
        Err(error) => findings.warn("webhook", format!("where GitHub sends webhooks cannot be read: {error}")),
    }
    let since = now.saturating_sub(LATELY).unwrap_or(Timestamp::MIN);
    match github.failed_deliveries(since).await {
        Ok(failed) if failed.is_empty() => findings.ok("deliveries", "no webhook of the last 24 hours failed for good"),
        Ok(failed) => deliveries(findings, &failed),
        Err(error) => findings.warn("deliveries", format!("whether webhooks failed cannot be read: {error}")),
    }
}

fn address(findings: &mut Findings, hook: &Hook) {
    if hook.url.is_empty() {
        return findings
            .fail("webhook", "the App has no webhook address: set it to https://<your host>/webhook/github");
    }
    if !hook.url.ends_with("/webhook/github") {
        findings.warn(
            "webhook",
            format!("GitHub sends to {}: that is right only if it forwards to /webhook/github", hook.url),
        );
    } else if hook.content_type != "json" {
        findings
            .fail("webhook", format!("GitHub sends {} to {}: choose application/json", hook.content_type, hook.url));
    } else {
        findings.ok("webhook", format!("GitHub sends to {}", hook.url));
    }
    if hook.secret.as_deref().is_none_or(str::is_empty) {
        findings
            .fail("webhook secret", "GitHub signs nothing: give the App's webhook the secret of SUTURE_WEBHOOK_SECRET");
    }
}

fn deliveries(findings: &mut Findings, failed: &[FailedDelivery]) {
    let refused = failed.iter().filter(|delivery| delivery.status_code == 401).count();
    if refused > 0 {
        let text = format!(
            "{refused} webhooks of the last 24 hours had a signature Suture did not believe: SUTURE_WEBHOOK_SECRET and the App's webhook secret differ"
        );
        return findings.fail("webhook secret", text);
    }
    let newest = failed.last().map_or(String::new(), |delivery| format!(", the last at {}", delivery.delivered_at));
    findings.warn(
        "deliveries",
        format!(
            "{} webhooks of the last 24 hours failed{newest}: the next inventory asks for them again",
            failed.len()
        ),
    );
}

async fn installations(findings: &mut Findings, github: &GitHub, owners: &mut Vec<String>) {
    match github.installations().await {
        Ok(all) if all.is_empty() => {
            findings.fail("installations", "the App is installed nowhere: install it for your organisation")
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
    findings: &mut Findings,
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
    if repos.len() > MOST_REPOS {
        findings.ok("repositories", format!("{} can be seen; the first {MOST_REPOS} are looked at", repos.len()));
        repos.truncate(MOST_REPOS);
    }
    for repo in &repos {
        required(findings, github, policies.for_repo(repo), repo).await;
    }
    repos
}

/// What a repository's base requires, and whether Suture can know it.
async fn required(findings: &mut Findings, github: &GitHub, policy: &Policy, repo: &RepoName) {
    let branch = match github.default_branch(repo).await {
        Ok(branch) => branch,
        Err(error) => return findings.fail(repo.to_string(), format!("cannot be read: {error}")),
    };
    let contexts = match github.required(repo, &branch).await {
        Ok(required) => required.contexts.filter(|contexts| !contexts.is_empty()),
        Err(error) => {
            return findings.fail(repo.to_string(), format!("what `{branch}` requires cannot be read: {error}"));
        }
    };
    match contexts {
        None if policy.checks.required.is_empty() => findings.warn(
            repo.to_string(),
            format!("`{branch}` requires nothing that Suture can see: protect it, grant `administration: read`, or list checks.required"),
        ),
        None => findings.ok(repo.to_string(), format!("requires {} by configuration", policy.checks.required.join(", "))),
        Some(contexts) if contexts.iter().any(|name| policy.is_policy_context(name)) => {
            findings.ok(repo.to_string(), format!("`{branch}` requires {}", contexts.join(", ")));
        }
        Some(contexts) => findings.warn(
            repo.to_string(),
            format!("`{branch}` requires {}, but no status of Policy Bot (`{}…`): it could be merged without one", contexts.join(", "), policy.policy_bot.context_prefix),
        ),
    }
}

fn secrets(findings: &mut Findings, environment: &impl Environment) {
    match wiring::secrets(environment, "SUTURE_WEBHOOK_SECRET") {
        Ok(Some(_)) => findings.ok("webhook secret", "SUTURE_WEBHOOK_SECRET is set"),
        Ok(None) => {
            findings.fail("webhook secret", "SUTURE_WEBHOOK_SECRET is not set: choose one, and give GitHub the same")
        }
        Err(bad) => findings.fail("webhook secret", bad.to_string()),
    }
    for (name, whose) in [("SUTURE_JENKINS_WEBHOOK_SECRET", "Jenkins"), ("SUTURE_BOT_SECRET", "the bots")] {
        match wiring::secrets(environment, name) {
            Ok(Some(_)) => findings.ok("other secrets", format!("{name} is set: {whose} may report directly")),
            Ok(None) => {}
            Err(bad) => findings.fail("other secrets", bad.to_string()),
        }
    }
}

async fn jenkins(findings: &mut Findings, policies: &Policies, environment: &impl Environment, repos: &[RepoName]) {
    let jenkins = match wiring::jenkins(environment) {
        Ok(Some(jenkins)) => jenkins,
        Ok(None) => {
            match policies.base().rebuild.via {
                RebuildVia::Jenkins | RebuildVia::Replay | RebuildVia::Rescan => findings.warn(
                    "jenkins",
                    "SUTURE_JENKINS_URL is not set: builds cannot be run again; set it, or choose rebuild.via = \"comment\" or \"github\"",
                ),
                RebuildVia::Comment | RebuildVia::GitHub => findings.ok("jenkins", "not used"),
            }
            return;
        }
        Err(bad) => return findings.fail("jenkins", bad.to_string()),
    };
    let mut seen = 0;
    for repo in repos {
        let job = folder_of(policies.for_repo(repo), repo);
        match jenkins.knows(&job).await {
            Ok(true) => seen += 1,
            Ok(false) => findings.warn("jenkins", format!("there is no job `{job}` for {repo}, or it is not shown to us: see rebuild.job, and the user's permission to read jobs")),
            Err(error) => return findings.fail("jenkins", unreachable(&jenkins, &error)),
        }
    }
    if repos.is_empty() {
        match jenkins.knows(&Job::new("suture-doctor")).await {
            Ok(_) => findings.ok("jenkins", format!("{} answers and accepts the login", jenkins.base_url())),
            Err(error) => findings.fail("jenkins", unreachable(&jenkins, &error)),
        }
    } else if seen > 0 {
        findings.ok(
            "jenkins",
            format!(
                "{} answers, accepts the login, and shows the jobs of {seen} of {} repositories",
                jenkins.base_url(),
                repos.len()
            ),
        );
    }
}

/// The folder of a repository's jobs.
fn folder_of(policy: &Policy, repo: &RepoName) -> Job {
    let path = policy.rebuild.job.replace("{owner}", repo.owner()).replace("{repo}", repo.name());
    let job = Job::new(&path);
    if path.contains('{') { job.parent().unwrap_or(job) } else { job }
}

fn unreachable(jenkins: &Jenkins, error: &CallError) -> String {
    let address = jenkins.base_url();
    match error {
        CallError::Unauthorized { .. } | CallError::Refused { status: 401 | 403, .. } => {
            format!("{address} does not accept the login ({error}): check SUTURE_JENKINS_USER and SUTURE_JENKINS_TOKEN")
        }
        CallError::Gone { .. }
        | CallError::Refused { .. }
        | CallError::Conflict { .. }
        | CallError::RateLimited { .. }
        | CallError::Unavailable { .. }
        | CallError::Unreadable { .. } => format!("{address} cannot be asked ({error}): is SUTURE_JENKINS_URL right?"),
    }
}

fn keys(findings: &mut Findings, environment: &impl Environment) {
    match (wiring::keys(environment), environment.get("SUTURE_ADMIN_KEYS")) {
        (Err(bad), _) => findings.fail("admin keys", bad.to_string()),
        (Ok(_), None) => findings.warn(
            "admin keys",
            "SUTURE_ADMIN_KEYS is not set: a deployment lets nobody in (`cargo run` makes a key of its own); `new-key NAME ROLE` makes one",
        ),
        (Ok(_), Some(text)) if text.split(';').any(|entry| entry.split(':').nth(1) == Some("admin")) => {
            findings.ok("admin keys", "can be read, and one of them is an admin's");
        }
        (Ok(_), Some(_)) => findings.warn("admin keys", "none of them is an admin's: nobody can pause Suture or reset the breaker"),
    }
}

async fn tables(findings: &mut Findings, environment: &impl Environment, now: Timestamp) {
    if environment.get("SUTURE_STATE_TABLE").is_none() && environment.get("SUTURE_EVENTS_TABLE").is_none() {
        return findings
            .ok("tables", "SUTURE_STATE_TABLE is not set: `cargo run` keeps its own in its data directory");
    }
    let store = match wiring::on_aws(environment) {
        Ok((store, _)) => store,
        Err(bad) => return findings.fail("tables", bad.to_string()),
    };
    let asked = [Key::state("BREAKER"), Key::event("doctor", "doctor")];
    for key in asked {
        if let Err(error) = store.get(&key, now).await {
            return findings.fail("tables", format!("{error}: are the names, the region and the credentials right?"));
        }
    }
    findings.ok("tables", "both can be read");
}
