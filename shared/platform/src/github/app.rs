//! The App's installations, its health check, and its failed webhook deliveries.

use std::collections::{BTreeMap, BTreeSet};

use domain::id::RepoName;
use jiff::Timestamp;
use octocrab::Page;
use octocrab::models::HookDeliveryId;
use serde::Deserialize;

use super::auth::Identity;
use super::client::{GitHub, next_page};
use super::pulls::RawUser;
use super::rate_limit::RateLimits;
use crate::transport::ApiError;

pub(super) const INSTALLATIONS: &str = "/app/installations?per_page=100";
/// Pages of 100 failed deliveries.
const MAX_DELIVERY_PAGES: usize = 50;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AppInstallation {
    pub id: u64,
    /// The user or organisation.
    pub owner: String,
}

/// The App's registration on GitHub.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct GitHubApp {
    /// The App's name in URLs; its login is `<slug>[bot]`.
    pub slug: String,
    /// `read` or `write`, by resource.
    #[serde(default)]
    pub permissions: BTreeMap<String, String>,
    /// The subscribed webhook events.
    #[serde(default)]
    pub events: Vec<String>,
}

/// The configuration of the App's webhook.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(default)]
pub struct AppWebhook {
    /// Empty if not set.
    #[serde(deserialize_with = "empty_if_null")]
    pub url: String,
    /// `json` or `form`.
    #[serde(deserialize_with = "empty_if_null")]
    pub content_type: String,
    /// Asterisks if a secret is set.
    pub secret: Option<String>,
}

pub(super) fn empty_if_null<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    Ok(Option::<String>::deserialize(deserializer)?.unwrap_or_default())
}

/// The result of a successful health check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CredentialCheck {
    /// `None` with a token.
    pub app: Option<GitHubApp>,
    pub rates: RateLimits,
}

/// What is lost with a webhook that is not redelivered, most important first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum DeliveryContent {
    /// A command or a review: it exists nowhere else.
    Command,
    PullRequest,
    /// A report that sweeps also read from GitHub.
    Report,
}

impl DeliveryContent {
    fn of(event: &str, action: Option<&str>) -> Self {
        match (event, action) {
            ("issue_comment" | "pull_request_review" | "pull_request_review_comment", _)
            | ("check_run", Some("requested_action")) => Self::Command,
            ("pull_request", _) => Self::PullRequest,
            _ => Self::Report,
        }
    }
}

/// A webhook delivery with a failed attempt. A later one may have succeeded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FailedDelivery {
    /// The id of the attempt, needed to redeliver it.
    pub id: u64,
    /// The id of the delivery, the same for every attempt.
    pub guid: String,
    pub event: String,
    /// The time of the last attempt.
    pub delivered_at: Timestamp,
    /// The response's status; 502 or 504 without a response.
    pub status_code: u16,
    pub content: DeliveryContent,
}

/// Failed deliveries, each with its newest failed attempt, oldest first.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FailedDeliveries {
    pub deliveries: Vec<FailedDelivery>,
    /// Whether these are all.
    pub is_complete: bool,
}

#[derive(Deserialize)]
pub(super) struct RawInstallation {
    id: u64,
    account: Option<RawUser>,
    suspended_at: Option<Timestamp>,
}

impl AppInstallation {
    /// `None` if suspended.
    pub(super) fn active(raw: RawInstallation) -> Option<Self> {
        let account = raw.account.filter(|_| raw.suspended_at.is_none())?;
        Some(Self { id: raw.id, owner: account.login })
    }
}

#[derive(Deserialize)]
struct RawDelivery {
    id: u64,
    guid: String,
    delivered_at: Timestamp,
    #[serde(default)]
    status_code: u16,
    event: String,
    action: Option<String>,
}

#[derive(Deserialize)]
struct RawRepository {
    full_name: String,
    #[serde(default)]
    archived: bool,
}

impl GitHub {
    /// The App's installations, except suspended ones.
    pub async fn installations(&self) -> Result<Vec<AppInstallation>, ApiError> {
        let all: Vec<RawInstallation> = self.read_all(Identity::Own, INSTALLATIONS).await?;
        Ok(all.into_iter().filter_map(AppInstallation::active).collect())
    }

    /// The owner's repositories visible to Suture, except archived ones.
    pub async fn repositories(&self, owner: &str) -> Result<Vec<RepoName>, ApiError> {
        let path = if self.is_app() { "/installation/repositories" } else { "/user/repos" };
        let path = format!("{path}?per_page=100");
        let all: Vec<RawRepository> = self.read_all(Identity::Installation(owner), &path).await?;
        let names = all.into_iter().filter(|repo| !repo.archived).filter_map(|repo| repo.full_name.parse().ok());
        Ok(names.filter(|name: &RepoName| name.owner().eq_ignore_ascii_case(owner)).collect())
    }

    /// Checks the credentials.
    pub async fn health(&self) -> Result<CredentialCheck, ApiError> {
        let app = if self.is_app() {
            Some(self.read(Identity::Own, "/app").await?)
        } else {
            // Does not count towards the rate limit, and rejects an invalid token.
            self.read::<serde_json::Value>(Identity::Own, "/rate_limit").await?;
            None
        };
        Ok(CredentialCheck { app, rates: self.rate_limits() })
    }

    pub async fn hook(&self) -> Result<AppWebhook, ApiError> {
        self.read(Identity::Own, "/app/hook/config").await
    }

    /// The deliveries with a failed attempt since then. If there are none, that takes one request, however many succeeded.
    pub async fn failed_deliveries(&self, since: Timestamp) -> Result<FailedDeliveries, ApiError> {
        let mut guids = BTreeSet::new();
        let mut deliveries: Vec<FailedDelivery> = Vec::new();
        let mut next = Some("/app/hook/deliveries?status=failure&per_page=100".to_owned());
        for _ in 0..MAX_DELIVERY_PAGES {
            let Some(path) = next.take() else { break };
            let page: Page<RawDelivery> = self.read(Identity::Own, &path).await?;
            let following = next_page(&page);
            let reached_since = page.items.iter().any(|delivery| delivery.delivered_at < since);
            let recent = page.items.into_iter().filter(|delivery| delivery.delivered_at >= since);
            deliveries.extend(recent.filter(|delivery| guids.insert(delivery.guid.clone())).map(FailedDelivery::from));
            next = following.filter(|_| !reached_since);
        }
        deliveries.reverse();
        Ok(FailedDeliveries { deliveries, is_complete: next.is_none() })
    }

    /// Requests the redelivery of an attempt.
    pub async fn redeliver(&self, id: u64) -> Result<(), ApiError> {
        let id = HookDeliveryId(id);
        self.call(Identity::Own, |github| async move { github.apps().webhook().redeliver(id).await }).await
    }
}

impl From<RawDelivery> for FailedDelivery {
    fn from(raw: RawDelivery) -> Self {
        Self {
            id: raw.id,
            guid: raw.guid,
            content: DeliveryContent::of(&raw.event, raw.action.as_deref()),
            event: raw.event,
            delivered_at: raw.delivered_at,
            status_code: raw.status_code,
        }
    }
}
