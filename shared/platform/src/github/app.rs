//! Where we are installed, whether GitHub still knows us, and the webhook deliveries that failed.

use std::collections::{BTreeMap, BTreeSet};

use domain::id::RepoName;
use http::Method;
use jiff::Timestamp;
use serde::Deserialize;

use super::client::{As, GitHub};
use super::limits::Rates;
use super::pulls::User;
use crate::http::CallError;

/// Installations and repositories are read this far, 100 to a page.
const MOST_PAGES: usize = 50;
/// Deliveries are read this far, 100 to a page: a busy App has thousands an hour.
const MOST_DELIVERY_PAGES: usize = 200;

/// Where the App is installed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Installation {
    /// Its id.
    pub id: u64,
    /// The user or organisation.
    pub owner: String,
}

/// The App, as GitHub knows it.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct App {
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
pub struct Hook {
    /// The address; empty if there is none.
    #[serde(deserialize_with = "empty_if_null")]
    pub url: String,
    /// `json` or `form`.
    #[serde(deserialize_with = "empty_if_null")]
    pub content_type: String,
    /// Asterisks if there is a secret, which GitHub does not show.
    pub secret: Option<String>,
}

fn empty_if_null<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    Ok(Option::<String>::deserialize(deserializer)?.unwrap_or_default())
}

/// Whether GitHub accepts our credentials, and as whom.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Health {
    /// The App, if we are one.
    pub app: Option<App>,
    /// What is left of the limits.
    pub rates: Rates,
}

/// A webhook that we did not take.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FailedDelivery {
    /// The attempt's id: what is redelivered.
    pub id: u64,
    /// The delivery's id, the same in every attempt.
    pub guid: String,
    /// Which event.
    pub event: String,
    /// Which action of it.
    pub action: Option<String>,
    /// When the last attempt was made.
    pub delivered_at: Timestamp,
    /// What we answered; 0 if we did not.
    pub status_code: u16,
}

#[derive(Deserialize)]
struct RawInstallation {
    id: u64,
    account: Option<User>,
    suspended_at: Option<Timestamp>,
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
    /// Where the App is installed, without those it is suspended for.
    ///
    /// # Errors
    /// See [`CallError`]; a person's token is `Refused` or `Unauthorized`.
    pub async fn installations(&self) -> Result<Vec<Installation>, CallError> {
        let path = "/app/installations?per_page=100".to_owned();
        self.read_all(As::Ourselves, path, MOST_PAGES, |page: Vec<RawInstallation>| {
            let active = page.into_iter().filter(|one| one.suspended_at.is_none());
            active.filter_map(|one| Some(Installation { id: one.id, owner: one.account?.login })).collect()
        })
        .await
    }

    /// An owner's repositories that we can see, without archived ones.
    ///
    /// # Errors
    /// See [`CallError`].
    pub async fn repositories(&self, owner: &str) -> Result<Vec<RepoName>, CallError> {
        #[derive(Deserialize)]
        struct Page {
            repositories: Vec<RawRepository>,
        }
        let who = As::Owner(owner);
        let all = if self.is_app() {
            let path = "/installation/repositories?per_page=100".to_owned();
            self.read_all(who, path, MOST_PAGES, |page: Page| page.repositories).await?
        } else {
            let path = "/user/repos?per_page=100".to_owned();
            self.read_all(who, path, MOST_PAGES, |page: Vec<RawRepository>| page).await?
        };
        let names = all.into_iter().filter(|repo| !repo.archived).filter_map(|repo| repo.full_name.parse().ok());
        Ok(names.filter(|name: &RepoName| name.owner().eq_ignore_ascii_case(owner)).collect())
    }

    /// Whether GitHub accepts our credentials.
    ///
    /// # Errors
    /// See [`CallError`]; `Unauthorized` if it does not.
    pub async fn health(&self) -> Result<Health, CallError> {
        let app = if self.is_app() {
            Some(self.read(As::Ourselves, "/app".to_owned()).await?.json()?)
        } else {
            // Costs nothing, and still refuses a bad token.
            self.read(As::Ourselves, "/rate_limit".to_owned()).await?;
            None
        };
        Ok(Health { app, rates: self.rates() })
    }

    /// Where GitHub sends the App's webhooks.
    ///
    /// # Errors
    /// See [`CallError`]; only an App can ask.
    pub async fn hook(&self) -> Result<Hook, CallError> {
        self.read(As::Ourselves, "/app/hook/config".to_owned()).await?.json()
    }

    /// The webhook deliveries since then whose every attempt failed, oldest first, each with its newest attempt.
    ///
    /// # Errors
    /// See [`CallError`]; only an App can ask.
    pub async fn failed_deliveries(&self, since: Timestamp) -> Result<Vec<FailedDelivery>, CallError> {
        let mut taken = BTreeSet::new();
        let mut failed: Vec<FailedDelivery> = Vec::new();
        let mut next = Some("/app/hook/deliveries?per_page=100".to_owned());
        for _ in 0..MOST_DELIVERY_PAGES {
            let Some(path) = next.take() else { break };
            let answer = self.read(As::Ourselves, path).await?;
            let page: Vec<RawDelivery> = answer.json()?;
            let reached = page.iter().any(|delivery| delivery.delivered_at < since);
            for delivery in page.into_iter().filter(|delivery| delivery.delivered_at >= since) {
                if (200..300).contains(&delivery.status_code) {
                    taken.insert(delivery.guid);
                } else if !failed.iter().any(|known| known.guid == delivery.guid) {
                    failed.push(delivery.into());
                }
            }
            next = if reached { None } else { answer.next_page() };
        }
        failed.retain(|delivery| !taken.contains(&delivery.guid));
        failed.reverse();
        Ok(failed)
    }

    /// Asks for a delivery to be made again.
    ///
    /// # Errors
    /// See [`CallError`]; `Refused` once it is too old.
    pub async fn redeliver(&self, id: u64) -> Result<(), CallError> {
        let path = format!("/app/hook/deliveries/{id}/attempts");
        self.write(As::Ourselves, Method::POST, path, None::<&()>).await.map(drop)
    }
}

impl From<RawDelivery> for FailedDelivery {
    fn from(raw: RawDelivery) -> Self {
        Self {
            id: raw.id,
            guid: raw.guid,
            event: raw.event,
            action: raw.action,
            delivered_at: raw.delivered_at,
            status_code: raw.status_code,
        }
    }
}
