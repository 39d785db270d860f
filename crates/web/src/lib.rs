//! Every run of this machine in a browser.
//!
//! One thread follows the runs (`hub`), another serves pages, JSON and server-sent events. The server only reads journals
//! and writes requests; starting and resuming is done by the [`Launcher`](ralph_monitor::Launcher) that it is given.

#![forbid(unsafe_code)]

mod access;
mod actions;
mod address;
mod api;
mod app;
mod assets;
mod hub;
mod live;
mod metrics;
mod new_run;
mod pages;
mod routes;
mod server;
mod tokens;
mod welcome;

pub use address::PublicUrl;
pub use server::{ServeOptions, Server, check_bind};
