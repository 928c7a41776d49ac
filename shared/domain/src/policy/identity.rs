//! Whose a pull request and a report are. A branch, a label or a status context is a name that anybody can choose; an
//! author's login and an App's id are not (R-HOOK-8, R-SIGNAL-15).

use std::fmt;

use super::sections::{ManagedSelector, PolicyBot, contains};

/// Where a pull request comes from, as far as it is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PullRequestOrigin<'a> {
    /// The author's login; empty if unknown.
    pub author: &'a str,
    /// The head branch.
    pub branch: &'a str,
    /// Whether the head is in another repository than the base, or in one that does not exist any more. Everybody can
    /// open such a pull request, and name its branch.
    pub fork: bool,
}

impl ManagedSelector {
    /// Whether Suture manages a pull request: by its author, or, if head and base are in one repository, by its branch
    /// or one of its labels. This is the only place that decides it.
    pub fn matches<'l>(&self, origin: &PullRequestOrigin<'_>, labels: impl IntoIterator<Item = &'l str>) -> bool {
        let by_branch = || self.branch_prefixes.iter().any(|prefix| origin.branch.starts_with(prefix.as_str()));
        let by_label = || labels.into_iter().any(|label| contains(&self.labels, label));
        self.is_author(origin) || (!origin.fork && (by_branch() || by_label()))
    }

    /// Whether the texts of a pull request may name the vulnerability that it fixes. A stranger's may not: it would take
    /// the place of the real fix.
    pub fn may_claim_vulnerability(&self, origin: &PullRequestOrigin<'_>) -> bool {
        !origin.fork || self.is_author(origin)
    }

    fn is_author(&self, origin: &PullRequestOrigin<'_>) -> bool {
        contains(&self.authors, origin.author)
    }
}

/// Who posted a status or a check run. Its name proves nothing: any workflow token can post `policy-bot: main`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReportAuthor<'a> {
    /// The account that posted a status, by its login; empty if it is unknown.
    Account(&'a str),
    /// The App that posted a check run.
    App { id: Option<u64>, slug: &'a str },
}

impl PolicyBot {
    /// Whether Policy Bot is the author. The login of an App is its slug and `[bot]`.
    pub fn is(&self, author: ReportAuthor<'_>) -> bool {
        match author {
            ReportAuthor::Account(login) => contains(&self.logins, login),
            ReportAuthor::App { id, slug } => {
                let is_slug =
                    |login: &String| login.strip_suffix("[bot]").is_some_and(|own| own.eq_ignore_ascii_case(slug));
                id.is_some_and(|id| self.app_ids.contains(&id)) || self.logins.iter().any(is_slug)
            }
        }
    }
}

/// As an operator would configure it.
impl fmt::Display for ReportAuthor<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Account("") | Self::App { id: None, slug: "" } => f.write_str("an unknown account"),
            Self::Account(login) => f.write_str(login),
            Self::App { id: Some(id), slug } => write!(f, "{slug}[bot] (App {id})"),
            Self::App { id: None, slug } => write!(f, "{slug}[bot]"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policy_bot_is_known_by_login_or_app_id() {
        let bot = PolicyBot { app_ids: vec![4711], ..PolicyBot::default() };
        for author in [
            ReportAuthor::Account("Policy-Bot[bot]"),
            ReportAuthor::App { id: Some(4711), slug: "renamed" },
            ReportAuthor::App { id: Some(1), slug: "policy-bot" },
        ] {
            assert!(bot.is(author), "{author}");
        }
        for author in [
            ReportAuthor::Account("policy-bot"),
            ReportAuthor::Account("github-actions[bot]"),
            ReportAuthor::Account(""),
            ReportAuthor::App { id: Some(15368), slug: "github-actions" },
            ReportAuthor::App { id: None, slug: "" },
        ] {
            assert!(!bot.is(author), "{author}");
        }
        assert_eq!(ReportAuthor::App { id: Some(15368), slug: "ci" }.to_string(), "ci[bot] (App 15368)");
        assert_eq!(ReportAuthor::Account("").to_string(), "an unknown account");
    }

    fn own(author: &'static str, branch: &'static str) -> PullRequestOrigin<'static> {
        PullRequestOrigin { author, branch, fork: false }
    }

    #[test]
    fn author_branch_or_label_makes_a_pull_request_managed() {
        let managed = ManagedSelector::default();
        assert!(managed.matches(&own("CodeGenie[bot]", "x"), []));
        assert!(managed.matches(&own("jane", "codegenie/fix"), []));
        assert!(managed.matches(&own("jane", "x"), ["bug", "CodeGenie"]));
        assert!(!managed.matches(&own("codegenie", "x/codegenie/fix"), ["bug", "codegenie-like"]));
        assert!(!managed.matches(&own("jane", "Codegenie/fix"), []));
    }

    #[test]
    fn fork_is_managed_by_its_author_only() {
        let managed = ManagedSelector::default();
        let fork = |author| PullRequestOrigin { author, branch: "codegenie/fix", fork: true };
        assert!(!managed.matches(&fork("mallory"), ["codegenie"]));
        assert!(!managed.may_claim_vulnerability(&fork("mallory")));
        assert!(managed.matches(&fork("codegenie[bot]"), []));
        assert!(managed.may_claim_vulnerability(&fork("codegenie[bot]")));
        assert!(managed.may_claim_vulnerability(&own("jane", "x")));
    }
}
