//! OpenAI Responses.

use serde_json::{Value, json};

use super::answer::{Answer, Frame, input_pieces};

pub(super) fn complete_response(answer: &Answer<'_>) -> Value {
    let usage = &answer.usage;
    let input = usage.input_with_cached();
    // Included in the output: adding it again gives a wrong sum.
    let reasoning = if answer.thinking.is_some() { usage.output.min(3) } else { 0 };
    let mut response = envelope(answer);
    response["status"] = json!("completed");
    response["output"] = items(answer).into();
    response["usage"] = json!({
        "input_tokens": input,
        "input_tokens_details": {"cached_tokens": usage.cache_read},
        "output_tokens": usage.output,
        "output_tokens_details": {"reasoning_tokens": reasoning},
        "total_tokens": input + usage.output,
    });
    response
}

pub(super) fn frames(answer: &Answer<'_>) -> Vec<Frame> {
    let mut events = Vec::new();
    for kind in ["response.created", "response.in_progress"] {
        events.push((json!({"type": kind, "response": envelope(answer)}), false));
    }
    for (index, item) in items(answer).into_iter().enumerate() {
        let id = &item["id"];
        let mut added = item.clone();
        let parts = match item["type"].as_str() {
            Some("message") => {
                added["content"] = json!([]);
                added["status"] = json!("in_progress");
                message_parts(answer, index, &item)
            }
            Some("function_call") => {
                added["arguments"] = json!("");
                added["status"] = json!("in_progress");
                let arguments = item["arguments"].as_str().unwrap_or_default();
                let part = |kind: &str, key: &str, text: &str| {
                    let kind = format!("response.function_call_arguments.{kind}");
                    json!({"type": kind, "item_id": id, "output_index": index, key: text})
                };
                let mut parts: Vec<_> = input_pieces(arguments)
                    .into_iter()
                    .map(|piece| (part("delta", "delta", piece), true))
                    .collect();
                parts.push((part("done", "arguments", arguments), false));
                parts
            }
            _ => Vec::new(),
        };
        let item_event = |kind: &str, item: &Value| {
            let kind = format!("response.output_item.{kind}");
            (json!({"type": kind, "output_index": index, "item": item}), false)
        };
        events.push(item_event("added", &added));
        events.extend(parts);
        events.push(item_event("done", &item));
    }
    events.push((
        json!({"type": "response.completed", "response": complete_response(answer)}),
        false,
    ));
    let numbered = events.into_iter().enumerate().map(|(number, (mut event, piece))| {
        event["sequence_number"] = json!(number);
        Frame { piece, ..Frame::typed(&event) }
    });
    numbered.collect()
}

/// The events of a message's only part, each with whether it is a piece of text.
fn message_parts(answer: &Answer<'_>, index: usize, item: &Value) -> Vec<(Value, bool)> {
    let part = &item["content"][0];
    let text = part["text"].as_str().unwrap_or_default();
    let event = |kind: &str, key: &str, value: Value| {
        json!({"type": format!("response.{kind}"), "item_id": item["id"], "output_index": index,
               "content_index": 0, key: value})
    };
    let empty = json!({"type": "output_text", "text": "", "annotations": []});
    let mut events = vec![(event("content_part.added", "part", empty), false)];
    for piece in answer.pieces(text) {
        events.push((event("output_text.delta", "delta", json!(piece)), true));
    }
    events.push((event("output_text.done", "text", json!(text)), false));
    events.push((event("content_part.done", "part", part.clone()), false));
    events
}

fn envelope(answer: &Answer<'_>) -> Value {
    json!({
        "id": answer.ids.of_answer("resp_"),
        "object": "response",
        "created_at": answer.created,
        "model": answer.model,
        "status": "in_progress",
        "output": [],
        "error": null,
        "incomplete_details": null,
        "usage": null,
        "parallel_tool_calls": true,
        "tools": [],
        "tool_choice": "auto",
        "metadata": {},
    })
}

fn items(answer: &Answer<'_>) -> Vec<Value> {
    let reasoning = answer.thinking.map(|text| {
        json!({
            "type": "reasoning",
            "id": answer.ids.of_answer("rs_"),
            "summary": [{"type": "summary_text", "text": text}],
            "encrypted_content": null,
        })
    });
    let message = answer.text.map(|text| {
        json!({
            "type": "message",
            "id": answer.ids.of_answer("msg_"),
            "role": "assistant",
            "status": "completed",
            "content": [{"type": "output_text", "text": text, "annotations": []}],
        })
    });
    let calls = answer.calls.iter().enumerate().map(|(nth, call)| {
        let call_id = answer.ids.of_part("call_", nth);
        let mut item = if call.freeform {
            let input = call.input.as_str().map_or_else(|| call.input.to_string(), str::to_owned);
            json!({"type": "custom_tool_call", "id": answer.ids.of_part("ctc_", nth),
                   "call_id": call_id, "name": call.name, "input": input, "status": "completed"})
        } else if call.name == "local_shell" {
            let command = &call.input["command"];
            json!({"type": "local_shell_call", "id": answer.ids.of_part("lsh_", nth),
                   "call_id": call_id, "status": "completed",
                   "action": {"type": "exec", "command": command, "env": {}}})
        } else {
            json!({"type": "function_call", "id": answer.ids.of_part("fc_", nth),
                   "call_id": call_id, "name": call.name, "arguments": call.input.to_string(),
                   "status": "completed"})
        };
        if let Some(namespace) = &call.namespace {
            item["namespace"] = json!(namespace);
        }
        item
    });
    reasoning.into_iter().chain(message).chain(calls).collect()
}

#[cfg(test)]
mod tests {
    use super::super::answer::tests::{parsed, with_answer};
    use super::super::tools::Tool;
    use super::*;

    #[test]
    fn a_streamed_response_adds_up_to_the_whole_one() {
        let patch = Tool {
            name: "apply_patch".to_owned(),
            schema: Value::Null,
            freeform: true,
            namespace: Some("files".to_owned()),
        };
        let turn = json!({
            "thinking": "Hm.", "text": "It goes → so.", "chunk": 3,
            "tools": [
                {"tool": "A", "input": {"long": "x".repeat(100)}},
                {"tool": "apply_patch", "input": "*** Begin Patch\n*** End Patch\n"},
            ],
            "usage": {"in": 1, "out": 2, "cache_read": 3, "cache_write": 4},
        });
        with_answer(turn, &[patch], |answer| {
            let response = complete_response(answer);
            let events = parsed(&frames(answer));
            assert_eq!(events.last().unwrap()["response"], response);
            let joined = |kind: &str| -> String {
                let deltas = events.iter().filter(|event| event["type"] == kind);
                deltas.map(|event| event["delta"].as_str().unwrap()).collect()
            };
            assert_eq!(joined("response.output_text.delta"), "It goes → so.");
            let output = response["output"].as_array().unwrap();
            assert_eq!(joined("response.function_call_arguments.delta"), output[2]["arguments"]);
            let done: Vec<&Value> = events
                .iter()
                .filter(|event| event["type"] == "response.output_item.done")
                .map(|event| &event["item"])
                .collect();
            assert_eq!(done, output.iter().collect::<Vec<_>>());
            assert_eq!(output[3]["type"], "custom_tool_call");
            assert_eq!(output[3]["input"], "*** Begin Patch\n*** End Patch\n");
            assert_eq!(output[3]["namespace"], "files");
            assert_eq!(response["usage"]["input_tokens"], 4);
            assert_eq!(response["usage"]["input_tokens_details"]["cached_tokens"], 3);
            assert_eq!(response["usage"]["output_tokens"], 2);
            for (number, event) in events.iter().enumerate() {
                assert_eq!(event["sequence_number"], number);
            }
        });
    }
}
