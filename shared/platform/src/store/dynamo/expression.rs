//! Condition and update expressions. Every attribute name is a placeholder, because many are reserved words.

use std::collections::HashMap;

use aws_sdk_dynamodb::types::AttributeValue as Wire;
use jiff::Timestamp;

use super::tables;
use crate::store::{Condition, HOLDER, RowUpdate, RowWrite, TTL, Table, VERSION};

/// The expressions of one write.
#[derive(Default)]
pub(super) struct WriteExpression {
    pub(super) condition: Option<String>,
    pub(super) update: Option<String>,
    pub(super) names: Option<HashMap<String, String>>,
    pub(super) values: Option<HashMap<String, Wire>>,
}

impl WriteExpression {
    pub(super) fn of(write: &RowWrite, now: Timestamp) -> Self {
        let mut expression = match write {
            RowWrite::Put { .. } | RowWrite::Delete { .. } => Self::default(),
            RowWrite::Update { change, .. } => Self::change(change),
        };
        expression.condition = expression.only_if(write.key().table, write.only_if(), now);
        expression
    }

    fn only_if(&mut self, table: Table, only_if: &Condition, now: Timestamp) -> Option<String> {
        let there = match table {
            Table::State => tables::STATE_KEY,
            Table::Events => tables::EVENTS_KEY.0,
        };
        let number = |value: String| Wire::N(value);
        match only_if {
            Condition::Always => None,
            Condition::Present => {
                let (there, ttl) = (self.name(there), self.name(TTL));
                let now = self.value(number(now.as_second().to_string()));
                Some(format!("attribute_exists({there}) AND (attribute_not_exists({ttl}) OR {ttl} > {now})"))
            }
            Condition::NeverSeen => Some(format!("attribute_not_exists({})", self.name(there))),
            Condition::Absent => {
                let (there, ttl) = (self.name(there), self.name(TTL));
                let now = self.value(number(now.as_second().to_string()));
                Some(format!("attribute_not_exists({there}) OR {ttl} <= {now}"))
            }
            Condition::Version(version) => {
                let known = self.name(VERSION);
                let version = self.value(number(version.to_string()));
                Some(format!("{known} = {version}"))
            }
            Condition::FreeFor(holder) => {
                let (there, ttl, known) = (self.name(there), self.name(TTL), self.name(HOLDER));
                let now = self.value(number(now.as_second().to_string()));
                let holder = self.value(Wire::S(holder.clone()));
                Some(format!("attribute_not_exists({there}) OR {ttl} <= {now} OR {known} = {holder}"))
            }
            Condition::HeldBy(holder) => {
                let known = self.name(HOLDER);
                let holder = self.value(Wire::S(holder.clone()));
                Some(format!("{known} = {holder}"))
            }
        }
    }

    fn change(change: &RowUpdate) -> Self {
        let mut this = Self::default();
        let mut clauses: Vec<String> = Vec::new();
        let mut clause = |word: &str, parts: Vec<String>| {
            if !parts.is_empty() {
                clauses.push(format!("{word} {}", parts.join(", ")));
            }
        };
        let set = change.set.iter().map(|(name, value)| {
            let name = this.name(name);
            format!("{name} = {}", this.value(value.clone().into()))
        });
        clause("SET", set.collect());
        let added = change.add.iter().map(|(name, by)| (name, Wire::N(by.to_string())));
        let inserted = change.insert.iter().map(|(name, members)| (name, Wire::Ss(members.iter().cloned().collect())));
        let add = added.chain(inserted).map(|(name, value)| {
            let name = this.name(name);
            format!("{name} {}", this.value(value))
        });
        clause("ADD", add.collect());
        let take = change.remove_members.iter().map(|(name, members)| {
            let name = this.name(name);
            format!("{name} {}", this.value(Wire::Ss(members.iter().cloned().collect())))
        });
        clause("DELETE", take.collect());
        clause("REMOVE", change.remove.iter().map(|name| this.name(name)).collect());
        this.update = (!clauses.is_empty()).then(|| clauses.join(" "));
        this
    }

    fn name(&mut self, name: &str) -> String {
        let names = self.names.get_or_insert_default();
        let placeholder = format!("#n{}", names.len());
        names.insert(placeholder.clone(), name.to_owned());
        placeholder
    }

    fn value(&mut self, value: Wire) -> String {
        let values = self.values.get_or_insert_default();
        let placeholder = format!(":v{}", values.len());
        values.insert(placeholder.clone(), value);
        placeholder
    }
}
