//! What we ask Jenkins to do. Each is sent once; whether it happened is found out with `find` before it is asked again.

use http::header;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

use super::names::{BuildRef, Job};
use super::{CallError, Jenkins};

/// Jenkins has taken the order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Queued {
    /// The queue item to follow, if Jenkins said which.
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

    /// Has a multibranch project look for branches and pull requests again: recovers a webhook that Jenkins missed.
    pub async fn rescan(&self, project: &Job) -> Result<(), CallError> {
        self.queue(&format!("{}/build?delay=0sec", project.path()), None).await.map(drop)
    }

    /// Stops a build. One that is over stays as it is.
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
