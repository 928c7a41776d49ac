//! The store on DynamoDB. Each operation is one request, except for batches that DynamoDB returns in parts. A failed condition returns the
//! existing row, so that a conflict costs no extra read.

mod error;
mod expression;
pub mod tables;

use std::collections::HashMap;
use std::time::Duration;

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::types::{
    AttributeValue as Wire, ConsumedCapacity, Delete, KeysAndAttributes, Put, ReturnConsumedCapacity, ReturnValue,
    ReturnValuesOnConditionCheckFailure, TransactWriteItem, Update,
};
use jiff::Timestamp;
use serde_dynamo::Item;

use self::error::{RequestFailure, failed, malformed};
use self::expression::WriteExpression;
use self::tables::TableNames;
use super::{
    COUNT, Cursor, Index, Key, Page, Query, QuerySource, RowWrite, Store, StoreError, TTL, Table, UsageMeter,
    is_expired, number_of, validate,
};

/// DynamoDB's limit for one BatchGetItem.
const MAX_READS: usize = 100;
/// Attempts to read the unprocessed keys of a batch.
const BATCH_ATTEMPTS: u32 = 5;
/// The first pause between attempts; it doubles.
const BATCH_PAUSE: Duration = Duration::from_millis(50);

/// The store on two DynamoDB tables.
#[derive(Debug)]
pub struct DynamoStore {
    client: Client,
    names: TableNames,
    spent: UsageMeter,
}

impl DynamoStore {
    pub fn new(client: Client, names: TableNames) -> Self {
        Self { client, names, spent: UsageMeter::default() }
    }

    fn table(&self, table: Table) -> &str {
        match table {
            Table::State => &self.names.state,
            Table::Events => &self.names.events,
        }
    }

    /// Counts the consumed capacity of a request.
    fn consumed<'a>(&self, capacity: impl IntoIterator<Item = &'a ConsumedCapacity>) {
        self.spent.consumed(capacity.into_iter().filter_map(ConsumedCapacity::capacity_units).sum());
    }

    /// Writes one row without a transaction, which would cost twice as much.
    async fn write_one(&self, write: RowWrite, now: Timestamp) -> Result<(), StoreError> {
        let all_old = ReturnValuesOnConditionCheckFailure::AllOld;
        let table = self.table(write.key().table);
        let WriteExpression { condition, update, names, values } = WriteExpression::of(&write, now);
        let capacity = match write {
            RowWrite::Put { key, item, .. } => {
                let request = self.client.put_item().table_name(table).set_item(Some(wire_item(&key, item)));
                let request = request.set_condition_expression(condition);
                let request = request.set_expression_attribute_names(names).set_expression_attribute_values(values);
                let request = request.return_values_on_condition_check_failure(all_old);
                let sent = request.return_consumed_capacity(ReturnConsumedCapacity::Total).send().await;
                sent.map_err(|error| failed(RequestFailure::Put(error)))?.consumed_capacity
            }
            RowWrite::Delete { key, .. } => {
                let request = self.client.delete_item().table_name(table).set_key(Some(wire_key(&key)));
                let request = request.set_condition_expression(condition);
                let request = request.set_expression_attribute_names(names).set_expression_attribute_values(values);
                let request = request.return_values_on_condition_check_failure(all_old);
                let sent = request.return_consumed_capacity(ReturnConsumedCapacity::Total).send().await;
                sent.map_err(|error| failed(RequestFailure::Delete(error)))?.consumed_capacity
            }
            RowWrite::Update { key, .. } => {
                let request = self.client.update_item().table_name(table).set_key(Some(wire_key(&key)));
                let request = request.set_update_expression(update).set_condition_expression(condition);
                let request = request.set_expression_attribute_names(names).set_expression_attribute_values(values);
                let request = request.return_values_on_condition_check_failure(all_old);
                let sent = request.return_consumed_capacity(ReturnConsumedCapacity::Total).send().await;
                sent.map_err(|error| failed(RequestFailure::Update(error)))?.consumed_capacity
            }
        };
        self.consumed(&capacity);
        Ok(())
    }

    fn part(&self, write: RowWrite, now: Timestamp) -> Result<TransactWriteItem, StoreError> {
        let all_old = ReturnValuesOnConditionCheckFailure::AllOld;
        let table = self.table(write.key().table);
        let WriteExpression { condition, update, names, values } = WriteExpression::of(&write, now);
        let part = TransactWriteItem::builder();
        let part = match write {
            RowWrite::Put { key, item, .. } => {
                let put = Put::builder().table_name(table).set_item(Some(wire_item(&key, item)));
                let put = put.set_condition_expression(condition).return_values_on_condition_check_failure(all_old);
                let put = put.set_expression_attribute_names(names).set_expression_attribute_values(values);
                part.put(put.build().map_err(malformed)?)
            }
            RowWrite::Delete { key, .. } => {
                let delete = Delete::builder().table_name(table).set_key(Some(wire_key(&key)));
                let delete =
                    delete.set_condition_expression(condition).return_values_on_condition_check_failure(all_old);
                let delete = delete.set_expression_attribute_names(names).set_expression_attribute_values(values);
                part.delete(delete.build().map_err(malformed)?)
            }
            RowWrite::Update { key, .. } => {
                // An update in a transaction needs an expression; removing a missing attribute does nothing.
                let update = update.unwrap_or_else(|| "REMOVE nothing".to_owned());
                let change = Update::builder().table_name(table).set_key(Some(wire_key(&key)));
                let change = change.update_expression(update).set_condition_expression(condition);
                let change = change.return_values_on_condition_check_failure(all_old);
                let change = change.set_expression_attribute_names(names).set_expression_attribute_values(values);
                part.update(change.build().map_err(malformed)?)
            }
        };
        Ok(part.build())
    }

    async fn batch(&self, keys: &[Key], now: Timestamp) -> Result<Vec<(Key, Item)>, StoreError> {
        let mut wanted: HashMap<String, KeysAndAttributes> = HashMap::new();
        for table in [Table::State, Table::Events] {
            let keys: Vec<_> = keys.iter().filter(|key| key.table == table).map(wire_key).collect();
            if !keys.is_empty() {
                let keys = KeysAndAttributes::builder().set_keys(Some(keys)).consistent_read(true);
                wanted.insert(self.table(table).to_owned(), keys.build().map_err(malformed)?);
            }
        }
        let mut found = Vec::new();
        for attempt in 0..BATCH_ATTEMPTS {
            let request = self.client.batch_get_item().set_request_items(Some(wanted));
            let request = request.return_consumed_capacity(ReturnConsumedCapacity::Total);
            self.spent.request(0, 0);
            let answer = request.send().await.map_err(|error| failed(RequestFailure::Batch(error)))?;
            self.consumed(answer.consumed_capacity());
            for (name, items) in answer.responses.unwrap_or_default() {
                let table = if name == self.names.state { Table::State } else { Table::Events };
                found.extend(items.into_iter().filter_map(|item| row(table, item)));
            }
            wanted = answer.unprocessed_keys.unwrap_or_default();
            if wanted.is_empty() {
                found.retain(|(_, item)| !is_expired(item, now));
                self.spent.read(found.len());
                return Ok(found);
            }
            tokio::time::sleep(BATCH_PAUSE * 2_u32.pow(attempt)).await;
        }
        Err(StoreError::Throttled)
    }
}

impl Store for DynamoStore {
    async fn get(&self, key: &Key, now: Timestamp) -> Result<Option<Item>, StoreError> {
        self.spent.request(1, 0);
        let request = self.client.get_item().table_name(self.table(key.table)).set_key(Some(wire_key(key)));
        let request = request.consistent_read(true).return_consumed_capacity(ReturnConsumedCapacity::Total);
        let answer = request.send().await.map_err(|error| failed(RequestFailure::Get(error)))?;
        self.consumed(&answer.consumed_capacity);
        let item = answer.item.and_then(|item| row(key.table, item)).map(|(_, item)| item);
        Ok(item.filter(|item| !is_expired(item, now)))
    }

    async fn get_many(&self, keys: &[Key], now: Timestamp) -> Result<Vec<(Key, Item)>, StoreError> {
        let mut distinct: Vec<Key> = keys.to_vec();
        distinct.sort_unstable();
        distinct.dedup();
        let mut found = Vec::with_capacity(distinct.len());
        for keys in distinct.chunks(MAX_READS) {
            found.extend(self.batch(keys, now).await?);
        }
        Ok(found)
    }

    async fn write(&self, mut writes: Vec<RowWrite>, now: Timestamp) -> Result<(), StoreError> {
        validate(&writes)?;
        self.spent.request(0, writes.len());
        if writes.len() == 1
            && let Some(write) = writes.pop()
        {
            return self.write_one(write, now).await;
        }
        let parts = writes.into_iter().map(|write| self.part(write, now)).collect::<Result<Vec<_>, _>>()?;
        let request = self.client.transact_write_items().set_transact_items(Some(parts));
        let request = request.return_consumed_capacity(ReturnConsumedCapacity::Total);
        let answer = request.send().await.map_err(|error| failed(RequestFailure::Transaction(error)))?;
        self.consumed(answer.consumed_capacity());
        Ok(())
    }

    async fn count(&self, key: &Key, by: i64, ttl: Timestamp, now: Timestamp) -> Result<i64, StoreError> {
        // An expired counter that DynamoDB has not deleted yet is restarted. That is rare, because counters per minute have the
        // minute in their key.
        let increment =
            ("ADD #count :by SET #ttl = if_not_exists(#ttl, :ttl)", "attribute_not_exists(#ttl) OR #ttl > :now");
        let restart = ("SET #count = :by, #ttl = :ttl", "#ttl <= :now");
        for (update, condition) in [increment, restart, increment] {
            self.spent.request(0, 1);
            let request = self.client.update_item().table_name(self.table(key.table)).set_key(Some(wire_key(key)));
            let request = request.update_expression(update).condition_expression(condition);
            let request = request.expression_attribute_names("#count", COUNT).expression_attribute_names("#ttl", TTL);
            let request = request.expression_attribute_values(":by", Wire::N(by.to_string()));
            let request = request.expression_attribute_values(":ttl", Wire::N(ttl.as_second().to_string()));
            let request = request.expression_attribute_values(":now", Wire::N(now.as_second().to_string()));
            let request = request.return_values(ReturnValue::UpdatedNew);
            let sent = request.return_consumed_capacity(ReturnConsumedCapacity::Total).send().await;
            match sent.map_err(|error| failed(RequestFailure::Update(error))) {
                Ok(answer) => {
                    self.consumed(&answer.consumed_capacity);
                    let counted: Item = answer.attributes.unwrap_or_default().into();
                    return number_of(&counted, COUNT).ok_or_else(|| {
                        StoreError::Corrupt(key.clone(), format!("`{COUNT}` is not a number after the increment"))
                    });
                }
                Err(StoreError::ConditionFailed(_)) => {}
                Err(error) => return Err(error),
            }
        }
        Err(StoreError::TransactionConflict)
    }

    async fn query(&self, query: &Query, now: Timestamp) -> Result<Page, StoreError> {
        let (table, index, partition, sort) = match query.from {
            QuerySource::Index(index) => {
                let (name, partition, sort) = index.shape();
                (index.table(), Some(name), partition, sort)
            }
            QuerySource::Log => (Table::Events, None, tables::EVENTS_KEY.0, tables::EVENTS_KEY.1),
        };
        let request = self.client.query().table_name(self.table(table)).set_index_name(index.map(str::to_owned));
        let request = request.expression_attribute_names("#partition", partition);
        let mut request = request.expression_attribute_values(":partition", Wire::S(query.partition.clone()));
        let mut condition = "#partition = :partition".to_owned();
        // DynamoDB allows one condition on the sort key.
        match (&query.prefix, &query.up_to) {
            (Some(prefix), None) => {
                condition.push_str(" AND begins_with(#sort, :prefix)");
                request = request.expression_attribute_values(":prefix", Wire::S(prefix.clone()));
            }
            (None, Some(last)) => {
                condition.push_str(" AND #sort <= :last");
                request = request.expression_attribute_values(":last", Wire::S(last.clone()));
            }
            (Some(prefix), Some(last)) => {
                condition.push_str(" AND #sort BETWEEN :prefix AND :last");
                request = request.expression_attribute_values(":prefix", Wire::S(prefix.clone()));
                request = request.expression_attribute_values(":last", Wire::S(last.clone()));
            }
            (None, None) => {}
        }
        if query.prefix.is_some() || query.up_to.is_some() {
            request = request.expression_attribute_names("#sort", sort);
        }
        let limit = i32::try_from(query.limit.max(1)).unwrap_or(i32::MAX);
        let request = request.key_condition_expression(condition).scan_index_forward(!query.backwards).limit(limit);
        let request = request.set_exclusive_start_key(query.after.as_ref().map(|after| start_key(query, after)));
        let sent = request.return_consumed_capacity(ReturnConsumedCapacity::Total).send().await;
        let answer = sent.map_err(|error| failed(RequestFailure::Query(error)))?;
        self.consumed(&answer.consumed_capacity);
        let items = answer.items.unwrap_or_default();
        self.spent.request(items.len(), 0);
        let next = answer.last_evaluated_key.and_then(|last| cursor(query.from, last));
        let starts = |sort: &str| query.prefix.as_ref().is_none_or(|prefix| sort.starts_with(prefix));
        let wanted = |key: &Key, item: &Item| match query.from {
            QuerySource::Index(index) => index.sort_of(key, item).is_some_and(starts),
            QuerySource::Log => starts(&key.sort),
        };
        let rows = items.into_iter().filter_map(|item| row(table, item));
        let rows = rows.filter(|(key, item)| !is_expired(item, now) && wanted(key, item)).collect();
        Ok(Page { rows, next })
    }

    fn usage(&self) -> &UsageMeter {
        &self.spent
    }
}

/// A row's key in DynamoDB's format.
fn wire_key(key: &Key) -> HashMap<String, Wire> {
    match key.table {
        Table::State => HashMap::from([(tables::STATE_KEY.to_owned(), Wire::S(key.partition.clone()))]),
        Table::Events => HashMap::from([
            (tables::EVENTS_KEY.0.to_owned(), Wire::S(key.partition.clone())),
            (tables::EVENTS_KEY.1.to_owned(), Wire::S(key.sort.clone())),
        ]),
    }
}

fn wire_item(key: &Key, item: Item) -> HashMap<String, Wire> {
    let mut wire: HashMap<String, Wire> = item.into();
    wire.extend(wire_key(key));
    wire
}

/// Splits an item into its key and its other attributes.
fn row(table: Table, wire: HashMap<String, Wire>) -> Option<(Key, Item)> {
    let mut item: Item = wire.into();
    let mut take = |name: &str| match item.inner_mut().remove(name) {
        Some(serde_dynamo::AttributeValue::S(text)) => Some(text),
        Some(_) | None => None,
    };
    let key = match table {
        Table::State => Key::state(take(tables::STATE_KEY)?),
        Table::Events => Key::event(take(tables::EVENTS_KEY.0)?, take(tables::EVENTS_KEY.1)?),
    };
    Some((key, item))
}

fn start_key(query: &Query, after: &Cursor) -> HashMap<String, Wire> {
    let mut start = wire_key(&after.key);
    if let QuerySource::Index(index) = query.from {
        let (_, partition, sort) = index.shape();
        start.insert(partition.to_owned(), Wire::S(query.partition.clone()));
        start.insert(sort.to_owned(), Wire::S(after.sort.clone()));
    }
    start
}

fn cursor(from: QuerySource, last: HashMap<String, Wire>) -> Option<Cursor> {
    let sort_of = |index: Index| last.get(index.shape().2).and_then(|sort| sort.as_s().ok()).cloned();
    match from {
        QuerySource::Index(index) => {
            let sort = sort_of(index)?;
            let (key, _) = row(index.table(), last)?;
            Some(Cursor { key, sort })
        }
        QuerySource::Log => {
            let (key, _) = row(Table::Events, last)?;
            let sort = key.sort.clone();
            Some(Cursor { key, sort })
        }
    }
}
