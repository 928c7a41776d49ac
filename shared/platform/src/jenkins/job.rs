//! Names and paths of jobs and builds, such as `/job/acme/job/shop/job/PR-12/7/`.

use std::fmt;

use http::Uri;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

/// Characters that are not encoded in a path.
const SAFE: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

/// A job, by its folders' names and its own.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct JenkinsJob(Vec<String>);

impl JenkinsJob {
    /// From `acme/shop/PR-12`. A slash within a name (branches) is written as Jenkins does: `fix%2Fx`.
    pub fn new(path: &str) -> Self {
        Self(path.split('/').filter(|name| !name.is_empty()).map(str::to_owned).collect())
    }

    /// The parent folder; for a pull request's job, the multibranch project.
    pub fn parent(&self) -> Option<Self> {
        let (_, folders) = self.0.split_last()?;
        (!folders.is_empty()).then(|| Self(folders.to_vec()))
    }

    pub(super) fn path(&self) -> String {
        self.0.iter().map(|name| format!("/job/{}", utf8_percent_encode(name, SAFE))).collect()
    }

    /// The job in a URL of this Jenkins, and the path segments after it.
    pub(super) fn of_url(base: &Uri, url: &str) -> Option<(Self, Vec<String>)> {
        let url: Uri = url.parse().ok()?;
        if url.authority().is_some() && url.authority() != base.authority() {
            return None;
        }
        let below = url.path().strip_prefix(base.path().trim_end_matches('/'))?;
        let mut parts = below.split('/').filter(|part| !part.is_empty());
        let mut names = Vec::new();
        let mut rest = Vec::new();
        while let Some(part) = parts.next() {
            if part == "job" && rest.is_empty() {
                names.push(percent_decode_str(parts.next()?).decode_utf8().ok()?.into_owned());
            } else {
                rest.push(part.to_owned());
            }
        }
        (!names.is_empty()).then_some((Self(names), rest))
    }
}

impl fmt::Display for JenkinsJob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join("/"))
    }
}

/// One build of a job.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct BuildRef {
    pub job: JenkinsJob,
    pub number: u64,
}

impl BuildRef {
    /// The build that a status or a check run links to, if the link goes to this Jenkins.
    pub fn from_url(base: &Uri, url: &str) -> Option<Self> {
        let (job, rest) = JenkinsJob::of_url(base, url)?;
        Some(Self { job, number: rest.first()?.parse().ok()? })
    }

    pub(super) fn path(&self) -> String {
        format!("{}/{}", self.job.path(), self.number)
    }
}

impl fmt::Display for BuildRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}#{}", self.job, self.number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn build_is_parsed_from_jenkins_links() {
        let base = Uri::from_static("https://ci.example/jenkins/");
        let build = |url: &str| BuildRef::from_url(&base, url).map(|build| build.to_string());
        let link = "https://ci.example/jenkins/job/acme/job/shop/job/PR-12/7/display/redirect";
        assert_eq!(build(link).as_deref(), Some("acme/shop/PR-12#7"));
        assert_eq!(build("/jenkins/job/acme/job/shop/job/PR-12/7/").as_deref(), Some("acme/shop/PR-12#7"));
        assert_eq!(build("https://ci.example/jenkins/job/a/job/fix%252Fx/3/").as_deref(), Some("a/fix%2Fx#3"));
        for other in [
            "https://elsewhere.example/jenkins/job/acme/job/PR-12/7/",
            "https://ci.example/job/acme/job/PR-12/7/",
            "https://ci.example/jenkins/job/acme/job/PR-12/",
            "https://ci.example/jenkins/blue/7/",
            "not a URL",
            "",
        ] {
            assert_eq!(build(other), None, "{other}");
        }
    }

    #[test]
    fn job_names_are_encoded_as_one_path_segment() {
        let job = JenkinsJob::new("acme/shop/fix%2Fa b");
        assert_eq!(job.path(), "/job/acme/job/shop/job/fix%252Fa%20b");
        assert_eq!(job.parent(), Some(JenkinsJob::new("acme/shop")));
        assert_eq!(JenkinsJob::new("acme").parent(), None);
        let base = Uri::from_static("http://localhost");
        assert_eq!(JenkinsJob::of_url(&base, &job.path()).unwrap().0, job);
    }
}
