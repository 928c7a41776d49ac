//! What GitHub says about each repository: its required checks, and who posts policy results on recent heads.

use domain::id::{PrId, RepoName};
use domain::policy::{Policies, Policy};
use platform::github::GitHub;

use super::DoctorReport;

/// Limit on the repositories checked one by one, which keeps the command fast in a large organisation.
const MAX_REPOS: usize = 20;
/// Limit on the heads of one repository that are searched for policy results.
const MAX_HEADS: usize = 25;

/// Checks the visible repositories of the owners, and returns them.
pub(super) async fn check(
    findings: &mut DoctorReport,
    github: &GitHub,
    policies: &Policies,
    owners: &[String],
) -> Vec<RepoName> {
    let mut repos = Vec::new();
    for owner in owners {
        match github.repositories(owner).await {
            Ok(some) if some.is_empty() => {
                findings.warn("repositories", format!("no repository of {owner} is visible"));
            }
            Ok(some) => repos.extend(some),
            Err(error) => findings.fail("repositories", format!("cannot list the repositories of {owner}: {error}")),
        }
    }
    if repos.len() > MAX_REPOS {
        findings.ok("repositories", format!("{} are visible; the first {MAX_REPOS} are checked", repos.len()));
        repos.truncate(MAX_REPOS);
    }
    for repo in &repos {
        required_checks(findings, github, policies.for_repo(repo), repo).await;
        policy_authors(findings, github, policies.for_repo(repo), repo).await;
    }
    repos
}

/// Lists who posts under Policy Bot's context on recent heads, and whether Suture believes them.
async fn policy_authors(findings: &mut DoctorReport, github: &GitHub, policy: &Policy, repo: &RepoName) {
    let subject = format!("policy of {repo}");
    let listed = match github.open_pulls(repo, policy).await {
        Ok(listed) => listed,
        Err(error) => return findings.warn(subject, format!("cannot list the open pull requests: {error}")),
    };
    let managed = listed.into_iter().filter(|pull| pull.is_managed(policy)).rev().take(MAX_HEADS);
    let heads: Vec<(PrId, String)> = managed.filter_map(|pull| Some((pull.id, pull.described.node_id?))).collect();
    let authors = github.policy_authors(&heads, policy).await;
    let prefix = &policy.policy_bot.context_prefix;
    if authors.is_empty() {
        let text = format!("nobody has posted `{prefix}…` on the {} newest open pull requests", heads.len());
        findings.ok(&subject, text);
    }
    for (author, is_policy_bot) in authors {
        if is_policy_bot {
            findings.ok(&subject, format!("`{prefix}…` is posted by {author}, which is configured"));
        } else {
            let advice = "if this is your Policy Bot, add it to policy_bot.logins or policy_bot.app_ids; otherwise find out who posts it";
            findings.warn(&subject, format!("`{prefix}…` is posted by {author}, which does not count: {advice}"));
        }
    }
}

/// Checks which status checks a repository's default branch requires, and whether Suture can read that.
async fn required_checks(findings: &mut DoctorReport, github: &GitHub, policy: &Policy, repo: &RepoName) {
    let branch = match github.default_branch(repo).await {
        Ok(branch) => branch,
        Err(error) => return findings.fail(repo, format!("cannot read the repository: {error}")),
    };
    let contexts = match github.required(repo, &branch).await {
        Ok(required) => required.contexts.unwrap_or_default(),
        Err(error) => return findings.fail(repo, format!("cannot read the required checks of `{branch}`: {error}")),
    };
    let list = contexts.join(", ");
    if contexts.iter().any(|name| policy.is_policy_context(name)) {
        findings.ok(repo, format!("`{branch}` requires {list}"));
    } else if !contexts.is_empty() {
        let prefix = &policy.policy_bot.context_prefix;
        let text = format!(
            "`{branch}` requires {list}, but no Policy Bot status (`{prefix}…`): pull requests can merge without it"
        );
        findings.warn(repo, text);
    } else if !policy.checks.required.is_empty() {
        findings.ok(repo, format!("checks.required in the configuration lists {}", policy.checks.required.join(", ")));
    } else {
        let advice = "protect the branch, grant `administration: read`, or set checks.required";
        findings.warn(repo, format!("Suture can see no required checks on `{branch}`: {advice}"));
    }
}
