//! The fake GitHub: its data (`model`, `commit`), changes (`changes`), webhooks (`webhooks`, `payload`), APIs (`rest`,
//! `graphql`), and authentication and rate limits (`access`).

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
