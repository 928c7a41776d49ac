//! Settings of the fakes: repositories, people, secrets, delays, limits.

use jiff::Timestamp;

use crate::faults::FaultRates;

/// A bot that examines pull requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FakeBot {
    /// Posts the status `policy-bot: <base>`.
    Policy,
    /// Approves by a review.
    Approver,
    Automerge,
}

impl FakeBot {
    pub const ALL: [Self; 3] = [Self::Policy, Self::Approver, Self::Automerge];

    /// Its login, as REST and webhooks write it.
    pub fn login(self) -> &'static str {
        match self {
            Self::Policy => "policy-bot[bot]",
            Self::Approver => "approver-bot[bot]",
            Self::Automerge => "automerge-bot[bot]",
        }
    }
}

/// What retriggers a bot, besides its ordinary events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BotTriggers {
    /// Events on the bus, such as `PolicyEvaluationRequested`.
    pub bus: bool,
    /// A label added or removed.
    pub labels: bool,
    pub comments: bool,
    /// Also posts its results to `POST /webhook/bot`.
    pub reports: bool,
}

/// Where required checks are configured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProtectionSource {
    /// No protection: no check is required.
    None,
    Classic,
    Ruleset,
}

/// How Jenkins reports to GitHub.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JenkinsReporting {
    /// GitHub Branch Source: the status `continuous-integration/jenkins/pr-merge`.
    Status,
    /// github-checks: the check run `Jenkins`.
    CheckRun,
    Both,
    /// No Jenkins: GitHub Actions builds, and reports the check run `build`.
    Actions,
}

/// A required status check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequiredContext {
    /// The status' context or the check run's name.
    pub context: String,
    /// The App that must report it, if restricted to one.
    pub app_id: Option<u64>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RepoSettings {
    /// `owner/name`.
    pub name: String,
    pub base: String,
    /// Whether a branch must be up to date with the base before it is merged.
    pub strict: bool,
    /// Where required contexts are configured.
    pub protection: ProtectionSource,
    /// Required contexts; empty means the contexts that Jenkins and Policy Bot report.
    pub required: Vec<RequiredContext>,
    pub reports: JenkinsReporting,
    /// Merges go through a merge queue.
    pub merge_queue: bool,
    /// A push dismisses approvals.
    pub dismiss_stale_reviews: bool,
}

impl RepoSettings {
    /// The default: base `main`, classic protection, not strict, Jenkins reports statuses.
    pub fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            base: "main".to_owned(),
            strict: false,
            protection: ProtectionSource::Classic,
            required: Vec::new(),
            reports: JenkinsReporting::Status,
            merge_queue: false,
            dismiss_stale_reviews: true,
        }
    }

    /// The configured contexts, or by default those that Jenkins and Policy Bot report.
    pub fn required_contexts(&self) -> Vec<RequiredContext> {
        if self.protection == ProtectionSource::None || !self.required.is_empty() {
            return self.required.clone();
        }
        let required = |context: String| RequiredContext { context, app_id: None };
        let mut contexts = match self.reports {
            JenkinsReporting::Status => vec![required(JENKINS_CONTEXT.to_owned())],
            JenkinsReporting::CheckRun => vec![required(JENKINS_CHECK.to_owned())],
            JenkinsReporting::Both => vec![required(JENKINS_CONTEXT.to_owned()), required(JENKINS_CHECK.to_owned())],
            JenkinsReporting::Actions => vec![required(ACTIONS_CHECK.to_owned())],
        };
        contexts.push(required(format!("policy-bot: {}", self.base)));
        contexts
    }
}

pub(crate) const JENKINS_CONTEXT: &str = "continuous-integration/jenkins/pr-merge";
pub(crate) const JENKINS_CHECK: &str = "Jenkins";
pub(crate) const ACTIONS_CHECK: &str = "build";

/// A user with permissions in the repositories.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FakePerson {
    pub login: String,
    /// `admin`, `maintain`, `write`, `triage` or `read`.
    pub permission: String,
}

/// Durations in milliseconds, each as an inclusive range.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FakeTiming {
    /// Delay of a webhook.
    pub webhook_ms: (u64, u64),
    /// Time to compute mergeability after the first request for it.
    pub mergeable_ms: (u64, u64),
    /// Delay until Jenkins notices a new head.
    pub notice_ms: (u64, u64),
    /// Time a queued build waits for an executor.
    pub queue_ms: (u64, u64),
    pub build_ms: (u64, u64),
    pub bot_ms: (u64, u64),
    pub policy_ms: (u64, u64),
    /// Time CodeGenie needs for a pull request.
    pub genie_ms: (u64, u64),
    /// Duration of the merge queue's tests.
    pub merge_queue_ms: (u64, u64),
    /// How long a bot ignores a pull request after an `…-asleep` fault.
    pub asleep_ms: (u64, u64),
    /// Time between the opening of a pull request and a push to its base.
    pub base_moves_ms: (u64, u64),
}

impl Default for FakeTiming {
    fn default() -> Self {
        Self {
            webhook_ms: (200, 3_000),
            mergeable_ms: (1_000, 4_000),
            notice_ms: (2_000, 8_000),
            queue_ms: (2_000, 30_000),
            build_ms: (180_000, 720_000),
            bot_ms: (1_000, 15_000),
            policy_ms: (2_000, 20_000),
            genie_ms: (20_000, 90_000),
            merge_queue_ms: (60_000, 240_000),
            asleep_ms: (60_000, 180_000),
            base_moves_ms: (30_000, 300_000),
        }
    }
}

#[derive(Debug, Clone)]
pub struct FakeSettings {
    pub start: Timestamp,
    pub repos: Vec<RepoSettings>,
    /// Numbers of each repository that earlier fakes have used, known to the receiver. These numbers, and the ids and
    /// vulnerabilities that belong to them, are not used again.
    pub numbers_used_before: u64,
    /// Users with permissions; all others may read.
    pub people: Vec<FakePerson>,
    pub faults: FaultRates,
    pub timing: FakeTiming,
    /// Triggers of Policy Bot, Approver Bot and Automerge Bot, in this order.
    pub listening: [BotTriggers; 3],
    /// CodeGenie opens a replacement when a comment that begins with this text is written on a pull request, or when the
    /// label of this name is added.
    pub codegenie_trigger: Option<String>,
    /// A merge adds a commit to the base, so that other branches fall behind.
    pub merges_move_base: bool,
    /// Base URL of GitHub's API, as it appears in responses.
    pub api_url: String,
    pub jenkins_url: String,
    pub webhook_secret: String,
    /// The secret of Jenkins' notifier.
    pub jenkins_secret: String,
    /// Whether Jenkins' notifier posts to `/webhook/jenkins`.
    pub jenkins_notifies: bool,
    /// Personal access tokens: token and login.
    pub tokens: Vec<(String, String)>,
    /// Id of the GitHub App that is the client.
    pub app_id: u64,
    /// The App's slug; its login is `<slug>[bot]`.
    pub app_slug: String,
    pub installation_id: u64,
    pub jenkins_user: String,
    /// An API token of that user: needs no crumb.
    pub jenkins_token: String,
    /// The password of that user: needs a crumb and the session it belongs to.
    pub jenkins_password: String,
    /// Requests per hour for each token.
    pub rate_limit: u64,
    /// GraphQL points per hour for each token.
    pub graphql_limit: u64,
    /// Whether secondary limits are enforced (900 points a minute, 80 content writes a minute, 500 an hour).
    pub secondary_limits: bool,
    /// A GraphQL query that touches more nodes than this gets a 502.
    pub graphql_502_above: u64,
    /// Lifetime of an installation token, in seconds.
    pub token_secs: i64,
}

impl FakeSettings {
    /// The secret with which a bot reports directly.
    pub fn bot_secret(&self, bot: FakeBot) -> String {
        format!("{} secret of this world", bot.login())
    }
}

impl Default for FakeSettings {
    fn default() -> Self {
        let bus = BotTriggers { bus: true, labels: false, comments: false, reports: false };
        Self {
            start: Timestamp::from_second(1_767_225_600).unwrap_or(Timestamp::UNIX_EPOCH),
            repos: vec![RepoSettings::new("acme/payments")],
            numbers_used_before: 0,
            people: vec![
                FakePerson { login: "danny".to_owned(), permission: "write".to_owned() },
                FakePerson { login: "maria".to_owned(), permission: "admin".to_owned() },
                FakePerson { login: "guest".to_owned(), permission: "read".to_owned() },
            ],
            faults: FaultRates::none(),
            timing: FakeTiming::default(),
            listening: [bus, bus, BotTriggers { labels: true, comments: true, ..bus }],
            codegenie_trigger: None,
            merges_move_base: true,
            api_url: "https://api.github.com".to_owned(),
            jenkins_url: "https://jenkins.example".to_owned(),
            webhook_secret: "webhook secret of this world".to_owned(),
            jenkins_secret: "jenkins secret of this world".to_owned(),
            jenkins_notifies: false,
            tokens: vec![("world-token".to_owned(), "suture-operator".to_owned())],
            app_id: 4711,
            app_slug: "suture".to_owned(),
            installation_id: 815,
            jenkins_user: "suture".to_owned(),
            jenkins_token: "world-jenkins-token".to_owned(),
            jenkins_password: "world-jenkins-password".to_owned(),
            rate_limit: 5_000,
            graphql_limit: 5_000,
            secondary_limits: true,
            graphql_502_above: 20_000,
            token_secs: 3_600,
        }
    }
}
