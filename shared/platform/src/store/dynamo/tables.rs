//! The schema of the two tables. Deployments create them from template.yaml; `infra/local` and the tests create them here.

use std::collections::BTreeSet;

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::error::{BuildError, DisplayErrorContext, ProvideErrorMetadata, SdkError};
use aws_sdk_dynamodb::types::{
    AttributeDefinition, BillingMode, GlobalSecondaryIndex, KeySchemaElement, KeyType, Projection, ProjectionType,
    ScalarAttributeType, TimeToLiveSpecification,
};

use super::error::malformed;
use crate::store::{EVENTS_SORT, Index, StoreError, TTL, Table};

pub const STATE_KEY: &str = "pk";
/// The partition and sort key of the events table.
pub const EVENTS_KEY: (&str, &str) = ("pr", EVENTS_SORT);

/// The names of the tables.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableNames {
    pub state: String,
    pub events: String,
}

/// Creates the tables that do not exist yet.
pub async fn create(client: &Client, names: &TableNames) -> Result<(), StoreError> {
    let (attributes, indexes) = shape(Table::State, &[STATE_KEY]).map_err(malformed)?;
    let state = client.create_table().table_name(&names.state).billing_mode(BillingMode::PayPerRequest);
    let state = state.set_attribute_definitions(Some(attributes)).set_global_secondary_indexes(Some(indexes));
    let state = state.key_schema(key(STATE_KEY, KeyType::Hash).map_err(malformed)?);
    made(state.send().await)?;
    let (partition, sort) = EVENTS_KEY;
    let (attributes, indexes) = shape(Table::Events, &[partition, sort]).map_err(malformed)?;
    let events = client.create_table().table_name(&names.events).billing_mode(BillingMode::PayPerRequest);
    let events = events.set_attribute_definitions(Some(attributes)).set_global_secondary_indexes(Some(indexes));
    let events = events.key_schema(key(partition, KeyType::Hash).map_err(malformed)?);
    let events = events.key_schema(key(sort, KeyType::Range).map_err(malformed)?);
    made(events.send().await)?;
    for name in [&names.state, &names.events] {
        let ttl = TimeToLiveSpecification::builder().enabled(true).attribute_name(TTL).build().map_err(malformed)?;
        let sent = client.update_time_to_live().table_name(name).time_to_live_specification(ttl).send().await;
        match sent {
            // Returned, with varying messages, if TTL is already enabled.
            Err(error) if error.code() != Some("ValidationException") => return Err(unavailable(&error)),
            Ok(_) | Err(_) => {}
        }
    }
    Ok(())
}

/// The indexes of a table, and the key attributes of the table and its indexes, without duplicates.
fn shape(table: Table, keys: &[&str]) -> Result<(Vec<AttributeDefinition>, Vec<GlobalSecondaryIndex>), BuildError> {
    let of_table = || Index::ALL.into_iter().filter(|index| index.table() == table);
    let shapes = of_table().map(Index::shape).flat_map(|(_, partition, sort)| [partition, sort]);
    let names: BTreeSet<&str> = keys.iter().copied().chain(shapes).collect();
    let attributes = names.into_iter().map(text).collect::<Result<Vec<_>, _>>()?;
    Ok((attributes, of_table().map(index).collect::<Result<Vec<_>, _>>()?))
}

/// An existing table is no error.
fn made<T, E: ProvideErrorMetadata + std::error::Error + Send + Sync + 'static>(
    sent: Result<T, SdkError<E>>,
) -> Result<(), StoreError> {
    match sent {
        Err(error) if error.code() != Some("ResourceInUseException") => Err(unavailable(&error)),
        Ok(_) | Err(_) => Ok(()),
    }
}

fn unavailable<E: std::error::Error + Send + Sync + 'static>(error: &SdkError<E>) -> StoreError {
    StoreError::Unavailable(DisplayErrorContext(error).to_string())
}

fn text(name: &str) -> Result<AttributeDefinition, BuildError> {
    AttributeDefinition::builder().attribute_name(name).attribute_type(ScalarAttributeType::S).build()
}

fn key(name: &str, kind: KeyType) -> Result<KeySchemaElement, BuildError> {
    KeySchemaElement::builder().attribute_name(name).key_type(kind).build()
}

fn index(index: Index) -> Result<GlobalSecondaryIndex, BuildError> {
    let (name, partition, sort) = index.shape();
    let projection = match index.projected_attributes() {
        None => Projection::builder().projection_type(ProjectionType::All).build(),
        Some(carries) => {
            let carries = carries.iter().map(|&attribute| attribute.to_owned()).collect();
            let projection = Projection::builder().projection_type(ProjectionType::Include);
            projection.set_non_key_attributes(Some(carries)).build()
        }
    };
    GlobalSecondaryIndex::builder()
        .index_name(name)
        .key_schema(key(partition, KeyType::Hash)?)
        .key_schema(key(sort, KeyType::Range)?)
        .projection(projection)
        .build()
}
