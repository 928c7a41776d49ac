//! Embedded DynamoDB: dynoxide on a file in the data directory, behind a local HTTP endpoint, so that the AWS SDK's
//! client works unchanged. Also deletes expired rows.

use std::path::Path;

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::config::{BehaviorVersion, Credentials, Region};
use aws_sdk_dynamodb::error::DisplayErrorContext;
use aws_sdk_dynamodb::types::{AttributeValue, DeleteRequest, WriteRequest};
use dynoxide::Database;
use jiff::Timestamp;
use platform::store::TTL;
use platform::store::dynamo::DynamoStore;
use platform::store::dynamo::tables::{self, EVENTS_KEY, STATE_KEY, TableNames};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use super::StartError;

/// DynamoDB's limit for `BatchWriteItem`.
const BATCH: usize = 25;

pub(super) struct LocalTables {
    pub(super) client: Client,
    pub(super) names: TableNames,
    server: JoinHandle<()>,
}

impl Drop for LocalTables {
    fn drop(&mut self) {
        self.server.abort();
    }
}

impl LocalTables {
    /// Opens the database file, serves it, and creates missing tables.
    pub(super) async fn open(file: &Path) -> Result<Self, StartError> {
        let unusable = |why: String| {
            StartError(format!(
                "The database {} cannot be opened: {why}. Choose another directory with --data DIR.",
                file.display()
            ))
        };
        let path = file.to_str().ok_or_else(|| unusable("its path is not UTF-8".to_owned()))?;
        let database = Database::new(path).map_err(|error| unusable(error.to_string()))?;
        let listener = TcpListener::bind("127.0.0.1:0").await.map_err(|error| unusable(error.to_string()))?;
        let endpoint = listener.local_addr().map_err(|error| unusable(error.to_string()))?;
        let server = tokio::spawn(dynoxide::server::serve_on(listener, database));
        let config = aws_sdk_dynamodb::Config::builder()
            .behavior_version(BehaviorVersion::latest())
            .region(Region::from_static("local"))
            // dynoxide requires credentials, but accepts any.
            .credentials_provider(Credentials::new("local", "local", None, None, "local"))
            .endpoint_url(format!("http://{endpoint}"));
        let client = Client::from_conf(config.build());
        let names = TableNames { state: "suture-state".to_owned(), events: "suture-events".to_owned() };
        tables::create(&client, &names).await.map_err(|error| unusable(error.to_string()))?;
        Ok(Self { client, names, server })
    }

    pub(super) fn store(&self) -> DynamoStore {
        DynamoStore::new(self.client.clone(), self.names.clone())
    }

    /// Replaces dynoxide's own TTL, which uses the machine's clock: the demo's clock is ahead of it.
    pub(super) async fn delete_expired(&self, now: Timestamp) -> Result<(), String> {
        let (partition, sort) = EVENTS_KEY;
        self.delete_expired_of(&self.names.state, STATE_KEY, now).await?;
        self.delete_expired_of(&self.names.events, &format!("{partition}, {sort}"), now).await
    }

    async fn delete_expired_of(&self, table: &str, keys: &str, now: Timestamp) -> Result<(), String> {
        let expired = self
            .client
            .scan()
            .table_name(table)
            .filter_expression("#ttl < :now")
            .projection_expression(keys)
            .expression_attribute_names("#ttl", TTL)
            .expression_attribute_values(":now", AttributeValue::N(now.as_second().to_string()));
        let mut pages = expired.limit(500).into_paginator().send();
        while let Some(page) = pages.next().await {
            let page = page.map_err(|error| DisplayErrorContext(error).to_string())?;
            let deletes: Vec<WriteRequest> = page
                .items()
                .iter()
                .filter_map(|key| DeleteRequest::builder().set_key(Some(key.clone())).build().ok())
                .map(|delete| WriteRequest::builder().delete_request(delete).build())
                .collect();
            for batch in deletes.chunks(BATCH) {
                let sent = self.client.batch_write_item().request_items(table, batch.to_vec()).send().await;
                sent.map_err(|error| DisplayErrorContext(error).to_string())?;
            }
        }
        Ok(())
    }
}
