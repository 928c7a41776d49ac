//! Triggers, replays and stops builds. Every request is sent once; callers search for the build before they retry.

use http::header;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

use super::job::{BuildRef, JenkinsJob};
use super::{ApiError, Jenkins};

/// An accepted trigger.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TriggeredBuild {
    /// The queue item, if Jenkins returned one.
    pub item: Option<u64>,
}

impl Jenkins {
    pub async fn trigger_build(&self, job: &JenkinsJob) -> Result<TriggeredBuild, ApiError> {
        self.queue(&format!("{}/build?delay=0sec", job.path()), None).await
    }

    pub async fn trigger_build_with_parameters(
        &self,
        job: &JenkinsJob,
        parameters: &[(&str, &str)],
    ) -> Result<TriggeredBuild, ApiError> {
        let encoded = |text: &str| utf8_percent_encode(text, NON_ALPHANUMERIC).to_string();
        let form = parameters.iter().map(|(name, value)| format!("{}={}", encoded(name), encoded(value)));
        let form = form.collect::<Vec<_>>().join("&");
        self.queue(&format!("{}/buildWithParameters", job.path()), Some(form)).await
    }

    pub async fn replay_build(&self, build: &BuildRef) -> Result<TriggeredBuild, ApiError> {
        self.queue(&format!("{}/replay/rebuild", build.path()), None).await
    }

    /// Makes a multibranch project scan for branches and pull requests, in case Jenkins missed a webhook.
    pub async fn scan_multibranch(&self, project: &JenkinsJob) -> Result<(), ApiError> {
        self.queue(&format!("{}/build?delay=0sec", project.path()), None).await.map(drop)
    }

    /// Stops a build; no effect on a finished one.
    pub async fn stop_build(&self, build: &BuildRef) -> Result<(), ApiError> {
        self.write(&format!("{}/stop", build.path()), None).await.map(drop)
    }

    async fn queue(&self, path: &str, form: Option<String>) -> Result<TriggeredBuild, ApiError> {
        let response = self.write(path, form).await?;
        let location = response.headers().get(header::LOCATION).and_then(|location| location.to_str().ok());
        let item = location.and_then(|location| location.split_once("/queue/item/")?.1.split('/').next()?.parse().ok());
        Ok(TriggeredBuild { item })
    }
}
