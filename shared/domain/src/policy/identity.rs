//! Whose a pull request and a report are. A branch, a label or a status context is a name that anybody can choose; an
//! author's login and an App's id are not (R-HOOK-8, R-SIGNAL-15).

use super::sections::{ManagedSelector, contains};

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

#[cfg(test)]
mod tests {
    use super::*;

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
