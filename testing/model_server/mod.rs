//! A scripted model server on loopback, for tests with real agents.
//!
//! It speaks four protocols, streaming and not:
//!
//! | request | protocol |
//! |---|---|
//! | `POST …/messages`, `…/messages/count_tokens` | Anthropic Messages |
//! | `POST …/responses` | OpenAI Responses |
//! | `POST …/chat/completions` | OpenAI Chat Completions |
//! | `POST …/models/M:generateContent`, `:streamGenerateContent`, `:countTokens` | Gemini |
//! | `GET …/models` | list of models, in all formats |
//!
//! # Scripts
//!
//! `{"turns": [T, …]}` or a plain list is one conversation. `{"sessions": [[T, …], …]}` has one list per
//! *new* conversation. The last turn and the last session repeat. A turn is a text or an object:
//!
//! - `text`, `thinking`: the answer and the reasoning
//! - `sh`: command for the agent's shell tool; `extra` is added to its input
//! - `write`: `{"path", "content"}` for the agent's file tool
//! - `todo`: `[["step", "pending" or "in_progress" or "completed"], …]` for the agent's plan tool
//! - `tool`, `input`: exactly this tool and input
//! - `tools`: list of several calls
//! - `usage`: `{"in", "out", "cache_read", "cache_write"}` (0), not overlapping
//! - `stop`: unusual stop reason (`"max_tokens"`, `"refusal"`)
//! - `chunk`, `chunk_ms`: characters per piece (8), and the delay after each
//! - `delay_s`: delay before the first byte
//! - `headers`: response headers
//! - `times`: requests that this turn answers (1); -1 is forever
//! - `fail`: failure instead of an answer
//!
//! `fail` is an HTTP status with optional `message`, `etype`, `code`, `retry_after` or `body`; `"cut0"`
//! (reset at once); `"hang"` (no answer); or, after `after` events (4), `"cut"` (reset), `"close"`,
//! `"hang_mid"`, `"garbage"` or `"sse_error"`.
//!
//! Only requests that offer tools advance the script. Others, such as for a title, get `side` and use no
//! tokens, unless `"side_is_main"` is true.
//!
//! # Control
//!
//! `GET /__state` returns the position, `POST /__reset` restarts the script and clears the log,
//! `POST /__script` replaces the script. All other requests are logged as JSON lines: `method`, `path`,
//! `kind` (`main`, `side`, `count`, `other`), `fresh` (new conversation), `session`, `turn`, `headers`
//! without secrets, `body`.

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
