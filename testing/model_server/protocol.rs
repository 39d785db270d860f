//! The four protocols: detection, offered tools, and failures.

use serde_json::{Value, json};

use super::answer::{Answer, Frame};
use super::script::FailureText;
use super::tools::Tool;
use super::{chat, gemini, messages, responses};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Protocol {
    Messages,
    Responses,
    Chat,
    Gemini,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wanted {
    Answer(Protocol),
    /// A token count.
    Count(Protocol),
}

impl Wanted {
    /// Matches the end of the path, because the base URL may be anything.
    pub(super) fn at(path: &str) -> Option<Wanted> {
        [
            ("/messages", Wanted::Answer(Protocol::Messages)),
            ("/messages/count_tokens", Wanted::Count(Protocol::Messages)),
            ("/responses", Wanted::Answer(Protocol::Responses)),
            ("/chat/completions", Wanted::Answer(Protocol::Chat)),
            (":generateContent", Wanted::Answer(Protocol::Gemini)),
            (":streamGenerateContent", Wanted::Answer(Protocol::Gemini)),
            (":countTokens", Wanted::Count(Protocol::Gemini)),
        ]
        .into_iter()
        .find_map(|(end, wanted)| path.ends_with(end).then_some(wanted))
    }
}

impl Protocol {
    pub(super) fn streams(self, path: &str, body: &Value) -> bool {
        match self {
            Protocol::Gemini => path.ends_with(":streamGenerateContent"),
            _ => body["stream"] == true,
        }
    }

    pub(super) fn model<'a>(self, path: &'a str, body: &'a Value) -> &'a str {
        let named = match self {
            Protocol::Gemini => path.rsplit('/').next().and_then(|last| last.split(':').next()),
            _ => body["model"].as_str(),
        };
        named.unwrap_or("some-model")
    }

    pub(super) fn complete_response(self, answer: &Answer<'_>) -> Value {
        match self {
            Protocol::Messages => messages::complete_response(answer),
            Protocol::Responses => responses::complete_response(answer),
            Protocol::Chat => chat::complete_response(answer),
            Protocol::Gemini => gemini::complete_response(answer),
        }
    }

    pub(super) fn frames(self, answer: &Answer<'_>) -> Vec<Frame> {
        match self {
            Protocol::Messages => messages::frames(answer),
            Protocol::Responses => responses::frames(answer),
            Protocol::Chat => chat::frames(answer),
            Protocol::Gemini => gemini::frames(answer),
        }
    }

    /// Whether the conversation has no answer of the model yet.
    pub(super) fn is_fresh(self, body: &Value) -> bool {
        let (list, role) = match self {
            Protocol::Messages | Protocol::Chat => (&body["messages"], "assistant"),
            Protocol::Responses => (&body["input"], "assistant"),
            Protocol::Gemini => (&body["contents"], "model"),
        };
        let is_answer = |entry: &Value| {
            (entry["role"] == role && !is_canned_answer(entry))
                || entry["type"].as_str().is_some_and(|kind| kind.ends_with("_call"))
        };
        !list.as_array().is_some_and(|list| list.iter().any(is_answer))
    }

    pub(super) fn offered(self, body: &Value) -> Vec<Tool> {
        let mut tools = Vec::new();
        for entry in list(&body["tools"]) {
            add_tool(entry, None, &mut tools);
        }
        if self == Protocol::Responses {
            // codex passes tools for some models in the conversation.
            let additional = list(&body["input"]).filter(|item| item["type"] == "additional_tools");
            for entry in additional.flat_map(|item| list(&item["tools"])) {
                add_tool(entry, None, &mut tools);
            }
        }
        tools
    }

    pub(super) fn answer_schema(self, body: &Value) -> Option<&Value> {
        if self != Protocol::Gemini {
            return None;
        }
        let config = &body["generationConfig"];
        config.get("responseJsonSchema").or_else(|| config.get("responseSchema"))
    }

    pub(super) fn count(self, bytes: usize) -> Value {
        let tokens = (bytes / 4).max(1);
        match self {
            Protocol::Gemini => json!({"totalTokens": tokens}),
            _ => json!({"input_tokens": tokens}),
        }
    }

    pub(super) fn failure(
        self,
        status: u16,
        failure_text: &FailureText,
        retry_after: Option<u64>,
    ) -> Value {
        let message =
            failure_text.message.clone().unwrap_or_else(|| default_message(status).to_owned());
        match self {
            Protocol::Messages => {
                let kind = failure_text.kind.as_deref().unwrap_or(default_kind(status));
                json!({"type": "error", "error": {"type": kind, "message": message},
                       "request_id": "req_00000000000000000000"})
            }
            Protocol::Gemini => {
                let details: Vec<Value> = retry_after
                    .map(|seconds| {
                        json!({"@type": "type.googleapis.com/google.rpc.RetryInfo",
                               "retryDelay": format!("{seconds}s")})
                    })
                    .into_iter()
                    .collect();
                let kind = failure_text.kind.as_deref().unwrap_or(match status {
                    400 => "INVALID_ARGUMENT",
                    401 => "UNAUTHENTICATED",
                    429 => "RESOURCE_EXHAUSTED",
                    500 => "INTERNAL",
                    503 => "UNAVAILABLE",
                    _ => "UNKNOWN",
                });
                json!({"error": {"code": status, "message": message, "status": kind,
                                 "details": details}})
            }
            Protocol::Responses | Protocol::Chat => {
                // Clients retry after a `server_error`, whatever its status.
                let (kind, code) = match status {
                    401 => ("invalid_request_error", json!("invalid_api_key")),
                    400..=428 => ("invalid_request_error", Value::Null),
                    429 => ("requests", json!("rate_limit_exceeded")),
                    _ => ("server_error", Value::Null),
                };
                json!({"error": {
                    "message": message,
                    "type": failure_text.kind.as_deref().unwrap_or(kind),
                    "param": null,
                    "code": failure_text.code.clone().unwrap_or(code),
                }})
            }
        }
    }

    pub(super) fn failure_frame(self, answer: &Answer<'_>, failure_text: &FailureText) -> Frame {
        let message = failure_text.message.as_deref().unwrap_or("Overloaded");
        let kind = failure_text.kind.as_deref().unwrap_or("overloaded_error");
        match self {
            Protocol::Messages => {
                Frame::typed(&json!({"type": "error", "error": {"type": kind, "message": message}}))
            }
            Protocol::Responses => {
                let code = failure_text.code.clone().unwrap_or_else(|| json!("server_error"));
                Frame::typed(
                    &json!({"type": "response.failed", "sequence_number": 99, "response": {
                        "id": answer.ids.of_answer("resp_"),
                        "object": "response",
                        "created_at": answer.created,
                        "status": "failed",
                        "error": {"code": code, "message": message},
                    }}),
                )
            }
            Protocol::Chat | Protocol::Gemini => {
                let code = failure_text.code.clone().unwrap_or_else(|| json!(529));
                Frame::nameless(&json!({"error": {"message": message, "type": kind, "code": code}}))
            }
        }
    }
}

/// qwen starts every conversation with a made-up answer of the model.
fn is_canned_answer(message: &Value) -> bool {
    let content = &message["content"];
    let text = content.as_str().or_else(|| content[0]["text"].as_str());
    text.is_some_and(|text| text.starts_with("Got it. Thanks for the context!"))
}

fn default_kind(status: u16) -> &'static str {
    match status {
        400 => "invalid_request_error",
        401 => "authentication_error",
        403 => "permission_error",
        404 => "not_found_error",
        413 => "request_too_large",
        429 => "rate_limit_error",
        529 => "overloaded_error",
        _ => "api_error",
    }
}

fn default_message(status: u16) -> &'static str {
    match status {
        400 => "bad request from the script",
        401 => "invalid x-api-key",
        429 => "This request would exceed your organization's rate limit (mock).",
        500 => "Internal server error",
        503 => "Service unavailable",
        529 => "Overloaded",
        _ => "failure from the script",
    }
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn add_tool(entry: &Value, namespace: Option<&str>, tools: &mut Vec<Tool>) {
    for key in ["functionDeclarations", "function_declarations"] {
        for declaration in list(&entry[key]) {
            add_tool(declaration, None, tools);
        }
    }
    if entry["type"] == "namespace" {
        for member in list(&entry["tools"]) {
            add_tool(member, entry["name"].as_str(), tools);
        }
        return;
    }
    let function = &entry["function"];
    // Tools of the service have no name, only a type.
    let name = [&entry["name"], &function["name"], &entry["type"]];
    let Some(name) = name.into_iter().find_map(Value::as_str) else { return };
    let schema = ["input_schema", "parameters", "parametersJsonSchema"]
        .into_iter()
        .find_map(|key| entry.get(key))
        .or_else(|| function.get("parameters"));
    tools.push(Tool {
        name: name.to_owned(),
        schema: schema.cloned().unwrap_or_default(),
        freeform: entry["type"] == "custom" && entry.get("input_schema").is_none(),
        namespace: namespace.map(str::to_owned),
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_service_may_be_anywhere() {
        for (path, wanted) in [
            ("/v1/messages", Some(Wanted::Answer(Protocol::Messages))),
            ("/any/where/v1/messages/count_tokens", Some(Wanted::Count(Protocol::Messages))),
            ("/responses", Some(Wanted::Answer(Protocol::Responses))),
            ("/v1/chat/completions", Some(Wanted::Answer(Protocol::Chat))),
            ("/v1beta/models/m:streamGenerateContent", Some(Wanted::Answer(Protocol::Gemini))),
            ("/v1beta/models/m:countTokens", Some(Wanted::Count(Protocol::Gemini))),
            ("/v1/messages/more", None),
        ] {
            assert_eq!(Wanted::at(path), wanted, "{path}");
        }
        assert_eq!(Protocol::Gemini.model("/v1beta/models/g-2:countTokens", &Value::Null), "g-2");
    }

    #[test]
    fn a_conversation_in_which_the_model_has_spoken_is_not_fresh() {
        for (protocol, body, fresh) in [
            (Protocol::Messages, json!({"messages": [{"role": "user"}]}), true),
            (
                Protocol::Messages,
                json!({"messages": [{"role": "user"}, {"role": "assistant"}]}),
                false,
            ),
            (Protocol::Chat, json!({"messages": [{"role": "system"}, {"role": "user"}]}), true),
            (
                Protocol::Chat,
                json!({"messages": [{"role": "user"},
                    {"role": "assistant", "content": "Got it. Thanks for the context!"}]}),
                true,
            ),
            (Protocol::Responses, json!({"input": "a text"}), true),
            (Protocol::Responses, json!({"input": [{"role": "user"}]}), true),
            (Protocol::Responses, json!({"input": [{"type": "function_call"}]}), false),
            (Protocol::Gemini, json!({"contents": [{"role": "user"}, {"role": "model"}]}), false),
            (Protocol::Gemini, json!({}), true),
        ] {
            assert_eq!(protocol.is_fresh(&body), fresh, "{body}");
        }
    }

    #[test]
    fn tools_are_found_in_every_form() {
        let names = |protocol: Protocol, body: Value| -> Vec<String> {
            protocol.offered(&body).into_iter().map(|tool| tool.name).collect()
        };
        let anthropic = json!({"tools": [{"name": "Bash", "input_schema": {"properties": {}}}]});
        assert_eq!(names(Protocol::Messages, anthropic), ["Bash"]);
        let chat = json!({"tools": [{"type": "function", "function": {"name": "bash"}}]});
        assert_eq!(names(Protocol::Chat, chat), ["bash"]);
        let gemini = json!({"tools": [{"functionDeclarations": [{"name": "a"}, {"name": "b"}]}]});
        assert_eq!(names(Protocol::Gemini, gemini), ["a", "b"]);
        let responses = json!({
            "tools": [{"type": "web_search"}, {"type": "custom", "name": "apply_patch"}],
            "input": [{"type": "additional_tools", "tools": [
                {"type": "namespace", "name": "shell", "tools": [{"type": "function", "name": "exec"}]},
            ]}],
        });
        let tools = Protocol::Responses.offered(&responses);
        assert!(tools[1].freeform);
        assert_eq!(tools[2].name, "exec");
        assert_eq!(tools[2].namespace.as_deref(), Some("shell"));
        assert_eq!(names(Protocol::Messages, json!({"tools": null})), [""; 0]);
    }

    #[test]
    fn failures_are_said_in_the_words_of_each_protocol() {
        let failure_text = FailureText::default();
        let body = |protocol: Protocol| protocol.failure(429, &failure_text, Some(7));
        assert_eq!(body(Protocol::Messages)["error"]["type"], "rate_limit_error");
        assert_eq!(body(Protocol::Responses)["error"]["code"], "rate_limit_exceeded");
        assert_eq!(body(Protocol::Gemini)["error"]["status"], "RESOURCE_EXHAUSTED");
        assert_eq!(body(Protocol::Gemini)["error"]["details"][0]["retryDelay"], "7s");
        let refused = Protocol::Chat.failure(401, &failure_text, None);
        assert_eq!(refused["error"]["type"], "invalid_request_error");
        let own = FailureText { message: Some("too long".to_owned()), ..FailureText::default() };
        assert_eq!(Protocol::Chat.failure(400, &own, None)["error"]["message"], "too long");
    }
}
