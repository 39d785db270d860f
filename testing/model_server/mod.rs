//! A scripted model server on loopback, for tests with real agents. `testing/README.md` describes
//! its scripts.

mod answer;
mod chat;
mod gemini;
mod http;
mod messages;
mod protocol;
mod responses;
mod script;
mod server;
mod tools;

pub(crate) use script::Script;
pub(crate) use server::Server;
