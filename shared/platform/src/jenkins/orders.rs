//! Triggers, replays and stops builds. Every request is sent once; callers search for the build before they retry.

use http::header;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

use super::names::{BuildRef, Job};
use super::{CallError, Jenkins};

/// An accepted trigger.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Queued {
    /// The queue item, if Jenkins returned one.
    pub item: Option<u64>,
}

impl Jenkins {
    pub async fn build(&self, job: &Job) -> Result<Queued, CallError> {
        self.queue(&format!("{}/build?delay=0sec", job.path()), None).await
    }

    pub async fn build_with_parameters(&self, job: &Job, parameters: &[(&str, &str)]) -> Result<Queued, CallError> {
        let encoded = |text: &str| utf8_percent_encode(text, NON_ALPHANUMERIC).to_string();
        let form = parameters.iter().map(|(name, value)| format!("{}={}", encoded(name), encoded(value)));
        let form = form.collect::<Vec<_>>().join("&");
        self.queue(&format!("{}/buildWithParameters", job.path()), Some(form)).await
    }

    pub async fn replay(&self, build: &BuildRef) -> Result<Queued, CallError> {
        self.queue(&format!("{}/replay/rebuild", build.path()), None).await
    }

    /// Makes a multibranch project scan for branches and pull requests, in case Jenkins missed a webhook.
    pub async fn rescan(&self, project: &Job) -> Result<(), CallError> {
        self.queue(&format!("{}/build?delay=0sec", project.path()), None).await.map(drop)
    }

    /// Stops a build; no effect on a finished one.
    pub async fn stop(&self, build: &BuildRef) -> Result<(), CallError> {
        self.write(&format!("{}/stop", build.path()), None).await.map(drop)
    }

    async fn queue(&self, path: &str, form: Option<String>) -> Result<Queued, CallError> {
        let answer = self.write(path, form).await?;
        let location = answer.headers().get(header::LOCATION).and_then(|location| location.to_str().ok());
        let item = location.and_then(|location| location.split_once("/queue/item/")?.1.split('/').next()?.parse().ok());
        Ok(Queued { item })
    }
}
