//! GitHub: what it knows (`model`, `commit`), what changes it (`changes`), what it tells (`webhooks`), how it answers (`rest`,
//! `graphql`), and who may ask how often (`access`).

pub(crate) mod access;
pub(crate) mod changes;
pub(crate) mod commit;
pub(crate) mod discussion;
pub(crate) mod graphql;
pub(crate) mod json;
pub(crate) mod merging;
pub(crate) mod model;
pub(crate) mod payload;
pub(crate) mod rest;
pub(crate) mod webhooks;
