//! The row that says when Suture last read pull requests from GitHub.

use domain::github_contact::GithubContact;
use jiff::Timestamp;
use serde_dynamo::Item;

use super::{Condition, Key, RowWrite, Store, StoreError, schema, versioned};

pub fn key() -> Key {
    Key::state("GITHUB")
}

/// Reads the contact from rows that were loaded together with others.
pub fn read(rows: &[(Key, Item)]) -> Result<GithubContact, StoreError> {
    let row = rows.iter().find(|(row, _)| *row == key());
    row.map_or_else(|| Ok(GithubContact::default()), |(key, item)| schema::read(key, item))
}

pub async fn load<S: Store>(store: &S, now: Timestamp) -> Result<GithubContact, StoreError> {
    let row = store.get(&key(), now).await?;
    row.map_or_else(|| Ok(GithubContact::default()), |item| schema::read(&key(), &item))
}

pub fn write(contact: &GithubContact) -> Result<RowWrite, StoreError> {
    versioned::write(&key(), contact, 1, Condition::Always, None)
}
