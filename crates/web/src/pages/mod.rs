//! The pages. They work without JavaScript; the script only keeps them current.

pub(crate) mod activity;
pub(crate) mod charts;
pub(crate) mod checks;
pub(crate) mod costs;
pub(crate) mod diff;
pub(crate) mod frames;
pub(crate) mod handlers;
pub(crate) mod layout;
pub(crate) mod new_run;
pub(crate) mod overview;
pub(crate) mod report;
pub(crate) mod run;
pub(crate) mod run_data;
pub(crate) mod signs;
pub(crate) mod stories;
pub(crate) mod tab_body;
pub(crate) mod transcript;
