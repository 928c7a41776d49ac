//! Where we are installed, whether GitHub still knows us, and the webhook deliveries that failed.

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

/// Where the App is installed.
pub(super) const INSTALLATIONS: &str = "/app/installations?per_page=100";
/// Deliveries are read this far, 100 to a page: a busy App has thousands an hour.
const MOST_DELIVERY_PAGES: usize = 200;

/// Where the App is installed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AppInstallation {
    pub id: u64,
    /// The user or organisation.
    pub owner: String,
}

/// The App, as GitHub knows it.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct GitHubApp {
    /// Its name in addresses; its login is this with `[bot]`.
    pub slug: String,
    /// What it may do, by area: `read` or `write`.
    #[serde(default)]
    pub permissions: BTreeMap<String, String>,
    /// The webhook events it gets.
    #[serde(default)]
    pub events: Vec<String>,
}

/// Where GitHub sends the App's webhooks.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(default)]
pub struct AppWebhook {
    /// The address; empty if there is none.
    #[serde(deserialize_with = "empty_if_null")]
    pub url: String,
    /// `json` or `form`.
    #[serde(deserialize_with = "empty_if_null")]
    pub content_type: String,
    /// Asterisks if there is a secret, which GitHub does not show.
    pub secret: Option<String>,
}

pub(super) fn empty_if_null<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    Ok(Option::<String>::deserialize(deserializer)?.unwrap_or_default())
}

/// Whether GitHub accepts our credentials, and as whom.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CredentialCheck {
    /// The App, if we are one.
    pub app: Option<GitHubApp>,
    /// What is left of the limits.
    pub rates: RateLimits,
}

/// A webhook that we did not take.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FailedDelivery {
    /// The attempt's id: what is redelivered.
    pub id: u64,
    /// The delivery's id, the same in every attempt.
    pub guid: String,
    pub event: String,
    /// When the last attempt was made.
    pub delivered_at: Timestamp,
    /// What we answered; 0 if we did not.
    pub status_code: u16,
}

#[derive(Deserialize)]
pub(super) struct RawInstallation {
    id: u64,
    account: Option<RawUser>,
    suspended_at: Option<Timestamp>,
}

impl AppInstallation {
    /// Nothing while it is suspended.
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
}

#[derive(Deserialize)]
struct RawRepository {
    full_name: String,
    #[serde(default)]
    archived: bool,
}

impl GitHub {
    /// Where the App is installed, without those it is suspended for.
    pub async fn installations(&self) -> Result<Vec<AppInstallation>, ApiError> {
        let all: Vec<RawInstallation> = self.read_all(Identity::Own, INSTALLATIONS).await?;
        Ok(all.into_iter().filter_map(AppInstallation::active).collect())
    }

    /// An owner's repositories that we can see, without archived ones.
    pub async fn repositories(&self, owner: &str) -> Result<Vec<RepoName>, ApiError> {
        let path = if self.is_app() { "/installation/repositories" } else { "/user/repos" };
        let path = format!("{path}?per_page=100");
        let all: Vec<RawRepository> = self.read_all(Identity::Installation(owner), &path).await?;
        let names = all.into_iter().filter(|repo| !repo.archived).filter_map(|repo| repo.full_name.parse().ok());
        Ok(names.filter(|name: &RepoName| name.owner().eq_ignore_ascii_case(owner)).collect())
    }

    /// Whether GitHub accepts our credentials.
    pub async fn health(&self) -> Result<CredentialCheck, ApiError> {
        let app = if self.is_app() {
            Some(self.read(Identity::Own, "/app").await?)
        } else {
            // Costs nothing, and still refuses a bad token.
            self.read::<serde_json::Value>(Identity::Own, "/rate_limit").await?;
            None
        };
        Ok(CredentialCheck { app, rates: self.rate_limits() })
    }

    /// Where GitHub sends the App's webhooks.
    pub async fn hook(&self) -> Result<AppWebhook, ApiError> {
        self.read(Identity::Own, "/app/hook/config").await
    }

    /// The webhook deliveries since then whose every attempt failed, oldest first, each with its newest attempt.
    pub async fn failed_deliveries(&self, since: Timestamp) -> Result<Vec<FailedDelivery>, ApiError> {
        let mut taken = BTreeSet::new();
        let mut failed: Vec<FailedDelivery> = Vec::new();
        let mut next = Some("/app/hook/deliveries?per_page=100".to_owned());
        for _ in 0..MOST_DELIVERY_PAGES {
            let Some(path) = next.take() else { break };
            let page: Page<RawDelivery> = self.read(Identity::Own, &path).await?;
            let following = next_page(&page);
            let reached = page.items.iter().any(|delivery| delivery.delivered_at < since);
            for delivery in page.items.into_iter().filter(|delivery| delivery.delivered_at >= since) {
                if (200..300).contains(&delivery.status_code) {
                    taken.insert(delivery.guid);
                } else if !failed.iter().any(|known| known.guid == delivery.guid) {
                    failed.push(delivery.into());
                }
            }
            next = following.filter(|_| !reached);
        }
        failed.retain(|delivery| !taken.contains(&delivery.guid));
        failed.reverse();
        Ok(failed)
    }

    /// Asks for a delivery to be made again.
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
            event: raw.event,
            delivered_at: raw.delivered_at,
            status_code: raw.status_code,
        }
    }
}
