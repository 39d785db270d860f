//! A model service on loopback that answers as a script tells it to, for tests with real agents.
//!
//! It speaks four protocols, streaming and not, and picks the one that is asked for:
//!
//! | request | protocol |
//! |---|---|
//! | `POST …/messages`, `…/messages/count_tokens` | Anthropic Messages |
//! | `POST …/responses` | OpenAI Responses |
//! | `POST …/chat/completions` | OpenAI Chat Completions |
//! | `POST …/models/M:generateContent`, `:streamGenerateContent`, `:countTokens` | Gemini |
//! | `GET …/models` | a list of models, in all their shapes |
//!
//! # Scripts
//!
//! `{"turns": [T, …]}` is one conversation, of which the last turn repeats.
//! `{"sessions": [[T, …], [T, …]]}` has a list of turns for each *new* conversation, in order, of
//! which the last repeats: one list for each iteration of a loop. A plain list is the same as `turns`.
//!
//! A turn is a text, or an object:
//!
//! | key | |
//! |---|---|
//! | `text`, `thinking` | what the model says, and what it thought before |
//! | `sh` | a command, sent to whichever shell tool the agent offers; `extra` is added to its input |
//! | `write` | `{"path", "content"}`, sent to the tool that writes files |
//! | `todo` | `[["step", "pending" or "in_progress" or "completed"], …]`, sent to the tool for plans |
//! | `tool`, `input` | exactly this tool, with exactly this input |
//! | `tools` | several of the above in one turn, as a list of objects |
//! | `usage` | `{"in", "out", "cache_read", "cache_write"}` (0), in tokens that do not overlap |
//! | `stop` | the reason to stop, where it is not the usual one (`"max_tokens"`, `"refusal"`) |
//! | `chunk`, `chunk_ms` | characters in a piece of text (8), and the wait after each |
//! | `delay_s` | the wait before the first byte |
//! | `headers` | headers of the answer, such as `anthropic-ratelimit-unified-status` |
//! | `times` | how many requests this turn answers (1); -1 is for ever |
//! | `fail` | instead of an answer: see below |
//!
//! `fail` is an HTTP status (429, 529, 500, 401, 400, …), with `message`, `etype`, `code`,
//! `retry_after` or a whole `body` to go with it; or one of `"cut0"` (the connection is reset before
//! anything was said), `"cut"` (it is reset), `"close"` (it ends in good order, but too early),
//! `"hang_mid"`, `"garbage"`, `"sse_error"` (these in the middle, when `after` events were sent, 4 unless
//! said otherwise) and `"hang"` (nothing is ever said).
//!
//! Only requests that offer tools advance the script. What agents ask on the side, such as a title for
//! the conversation, is answered with the script's `side` and used no tokens; `"side_is_main": true`
//! makes such requests count as well.
//!
//! # Control
//!
//! `GET /__state` tells how far the script is, `POST /__reset` starts it over and empties the log,
//! `POST /__script` takes another script. Every other request is logged as a line of JSON: `method`,
//! `path`, `kind` (`main`, `side`, `count` or `other`), `fresh` (nothing was said yet in that
//! conversation), `session` and `turn` that answered it, `headers` without secrets, and `body`.

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
