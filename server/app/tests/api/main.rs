//! The wire API, against servers that really listen.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test may fail in any way; the lints exempt only functions that are marked as tests"
)]

mod admin;
mod asks;
mod batches;
mod budget;
mod callers;
mod input;
mod limits;
mod metrics;
mod plan;
mod reload;
mod shutdown;
mod states;
mod support;
mod syncs;
mod traces;
mod watch;
