//! Carries out what the engine decides: one driver for every command that loops.
//!
//! [`driver`] turns actions into effects on a [`world`] and what happens there into inputs. It decides nothing about the loop, and
//! knows no command line and no settings files: a [`run_spec`] describes the run.

#![forbid(unsafe_code)]

pub mod agent_process;
pub mod driver;
mod guardrail;
pub mod hook_injection;
pub mod journal_quota;
pub mod notify_command;
mod pty_agent;
pub mod recorder;
pub mod response_filter;
pub mod resume;
pub mod run_spec;
pub mod screen_text;
pub mod session;
pub mod task_gate;
pub mod world;
