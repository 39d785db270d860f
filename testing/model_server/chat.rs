//! OpenAI Chat Completions.

use serde_json::{Value, json};

use super::answer::{Answer, Frame, input_pieces};

pub(super) fn complete_response(answer: &Answer<'_>) -> Value {
    let mut message = json!({"role": "assistant", "content": answer.text});
    if let Some(thinking) = answer.thinking {
        message["reasoning_content"] = json!(thinking);
    }
    if !answer.calls.is_empty() {
        message["tool_calls"] = calls(answer).into();
    }
    let mut completion = envelope(answer, "chat.completion");
    completion["choices"] =
        json!([{"index": 0, "message": message, "finish_reason": finish_reason(answer)}]);
    completion["usage"] = usage(answer);
    completion
}

pub(super) fn frames(answer: &Answer<'_>) -> Vec<Frame> {
    let chunk = |choices: Value| {
        let mut chunk = envelope(answer, "chat.completion.chunk");
        chunk["choices"] = choices;
        chunk
    };
    let delta = |delta: Value, finish: Option<&str>| {
        Frame::nameless(&chunk(json!([{"index": 0, "delta": delta, "finish_reason": finish}])))
    };
    let mut frames = vec![delta(json!({"role": "assistant", "content": ""}), None)];
    for (key, text) in [("reasoning_content", answer.thinking), ("content", answer.text)] {
        let pieces = text.map_or_else(Vec::new, |text| answer.pieces(text));
        frames.extend(pieces.into_iter().map(|piece| delta(json!({key: piece}), None).piece()));
    }
    for (index, call) in calls(answer).into_iter().enumerate() {
        let mut head = call.clone();
        head["index"] = json!(index);
        head["function"]["arguments"] = json!("");
        frames.push(delta(json!({"tool_calls": [head]}), None));
        let arguments = call["function"]["arguments"].as_str().unwrap_or_default();
        frames.extend(input_pieces(arguments).into_iter().map(|piece| {
            let part = json!({"index": index, "function": {"arguments": piece}});
            delta(json!({"tool_calls": [part]}), None).piece()
        }));
    }
    frames.push(delta(json!({}), Some(finish_reason(answer))));
    let mut last = chunk(json!([]));
    last["usage"] = usage(answer);
    frames.push(Frame::nameless(&last));
    frames.push(Frame { name: None, data: "[DONE]".to_owned(), piece: false });
    frames
}

fn envelope(answer: &Answer<'_>, object: &str) -> Value {
    json!({
        "id": answer.ids.of_answer("chatcmpl-"),
        "object": object,
        "created": answer.created,
        "model": answer.model,
    })
}

fn usage(answer: &Answer<'_>) -> Value {
    let input = answer.usage.input_with_cached();
    json!({
        "prompt_tokens": input,
        "completion_tokens": answer.usage.output,
        "total_tokens": input + answer.usage.output,
        "prompt_tokens_details": {"cached_tokens": answer.usage.cache_read},
    })
}

fn finish_reason<'a>(answer: &Answer<'a>) -> &'a str {
    let usual = if answer.calls.is_empty() { "stop" } else { "tool_calls" };
    answer.stop.unwrap_or(usual)
}

fn calls(answer: &Answer<'_>) -> Vec<Value> {
    let call = |(nth, call): (usize, &super::tools::ToolCall)| {
        json!({
            "id": answer.ids.of_part("call_", nth),
            "type": "function",
            "function": {"name": call.name, "arguments": call.input.to_string()},
        })
    };
    answer.calls.iter().enumerate().map(call).collect()
}

#[cfg(test)]
mod tests {
    use super::super::answer::tests::{parsed, with_answer};
    use super::*;

    #[test]
    fn a_streamed_completion_adds_up_to_the_whole_one() {
        let turn = json!({
            "thinking": "Hm, well.", "text": "It goes → so.", "chunk": 4,
            "tools": [{"tool": "A", "input": {"long": "x".repeat(100)}}, {"tool": "B"}],
            "usage": {"in": 1, "out": 2, "cache_read": 3},
        });
        with_answer(turn, &[], |answer| {
            let response = complete_response(answer);
            let message = &response["choices"][0]["message"];
            let frames = frames(answer);
            assert_eq!(frames.last().unwrap().text(), "data: [DONE]\n\n");
            let chunks = parsed(&frames);
            let joined = |key: &str| -> String {
                let deltas = chunks.iter().map(|chunk| &chunk["choices"][0]["delta"][key]);
                deltas.filter_map(Value::as_str).collect()
            };
            assert_eq!(joined("content"), message["content"]);
            assert_eq!(joined("reasoning_content"), message["reasoning_content"]);
            let mut calls: Vec<Value> = Vec::new();
            for chunk in &chunks {
                let Some(part) = chunk["choices"][0]["delta"].get("tool_calls") else { continue };
                let mut part = part[0].clone();
                let index = part.as_object_mut().unwrap().shift_remove("index").unwrap();
                let index = index.as_u64().unwrap() as usize;
                if index == calls.len() {
                    calls.push(part);
                } else {
                    let arguments = &mut calls[index]["function"]["arguments"];
                    let more = part["function"]["arguments"].as_str().unwrap();
                    *arguments = json!(arguments.as_str().unwrap().to_owned() + more);
                }
            }
            assert_eq!(Value::from(calls), message["tool_calls"]);
            assert_eq!(chunks.last().unwrap()["usage"], response["usage"]);
            assert_eq!(response["usage"]["prompt_tokens"], 4);
            let finishes =
                chunks.iter().filter_map(|chunk| chunk["choices"][0]["finish_reason"].as_str());
            assert_eq!(finishes.collect::<Vec<_>>(), ["tool_calls"]);
        });
    }
}
