//! Anthropic Messages.

use serde_json::{Value, json};

use super::answer::{Answer, Frame, input_pieces};

pub(super) fn complete_response(answer: &Answer<'_>) -> Value {
    let mut message = envelope(answer);
    message["content"] = blocks(answer).into();
    message["stop_reason"] = stop_reason(answer).into();
    message
}

pub(super) fn frames(answer: &Answer<'_>) -> Vec<Frame> {
    let mut frames = Vec::new();
    let mut start = envelope(answer);
    start["usage"]["output_tokens"] = json!(1);
    frames.push(Frame::typed(&json!({"type": "message_start", "message": start})));
    for (index, block) in blocks(answer).into_iter().enumerate() {
        let delta = |delta: Value| {
            Frame::typed(&json!({"type": "content_block_delta", "index": index, "delta": delta}))
        };
        let mut empty = block.clone();
        let deltas: Vec<Frame> = if let Some(text) = block["text"].as_str() {
            empty["text"] = json!("");
            let piece = |text| delta(json!({"type": "text_delta", "text": text})).piece();
            answer.pieces(text).into_iter().map(piece).collect()
        } else if let Some(thinking) = block["thinking"].as_str() {
            empty["thinking"] = json!("");
            empty["signature"] = json!("");
            let piece = |text| delta(json!({"type": "thinking_delta", "thinking": text})).piece();
            let signature =
                delta(json!({"type": "signature_delta", "signature": block["signature"]}));
            answer.pieces(thinking).into_iter().map(piece).chain([signature]).collect()
        } else {
            empty["input"] = json!({});
            let piece =
                |json| delta(json!({"type": "input_json_delta", "partial_json": json})).piece();
            input_pieces(&block["input"].to_string()).into_iter().map(piece).collect()
        };
        frames.push(Frame::typed(
            &json!({"type": "content_block_start", "index": index, "content_block": empty}),
        ));
        frames.extend(deltas);
        frames.push(Frame::typed(&json!({"type": "content_block_stop", "index": index})));
    }
    frames.push(Frame::typed(&json!({
        "type": "message_delta",
        "delta": {"stop_reason": stop_reason(answer), "stop_sequence": null},
        "usage": usage(answer),
    })));
    frames.push(Frame::typed(&json!({"type": "message_stop"})));
    frames
}

/// A message without content.
fn envelope(answer: &Answer<'_>) -> Value {
    json!({
        "id": answer.ids.of_answer("msg_"),
        "type": "message",
        "role": "assistant",
        "model": answer.model,
        "content": [],
        "stop_reason": null,
        "stop_sequence": null,
        "usage": usage(answer),
    })
}

fn usage(answer: &Answer<'_>) -> Value {
    json!({
        "input_tokens": answer.usage.input,
        "cache_creation_input_tokens": answer.usage.cache_write,
        "cache_read_input_tokens": answer.usage.cache_read,
        "output_tokens": answer.usage.output,
    })
}

fn stop_reason<'a>(answer: &Answer<'a>) -> &'a str {
    let usual = if answer.calls.is_empty() { "end_turn" } else { "tool_use" };
    answer.stop.unwrap_or(usual)
}

fn blocks(answer: &Answer<'_>) -> Vec<Value> {
    let thinking = answer
        .thinking
        .map(|text| json!({"type": "thinking", "thinking": text, "signature": "c2ln"}));
    let text = answer.text.map(|text| json!({"type": "text", "text": text}));
    let calls = answer.calls.iter().enumerate().map(|(nth, call)| {
        json!({
            "type": "tool_use",
            "id": answer.ids.of_part("toolu_", nth),
            "name": call.name,
            "input": call.input,
        })
    });
    thinking.into_iter().chain(text).chain(calls).collect()
}

#[cfg(test)]
mod tests {
    use super::super::answer::tests::{parsed, with_answer};
    use super::*;

    fn assemble(events: &[Value]) -> Value {
        let mut message = Value::Null;
        let mut json = String::new();
        for event in events {
            let index = event["index"].as_u64().unwrap_or_default() as usize;
            match event["type"].as_str().unwrap() {
                "message_start" => message = event["message"].clone(),
                "content_block_start" => {
                    let content = message["content"].as_array_mut().unwrap();
                    assert_eq!(content.len(), index);
                    content.push(event["content_block"].clone());
                    json.clear();
                }
                "content_block_delta" => {
                    let block = &mut message["content"][index];
                    for (key, value) in event["delta"].as_object().unwrap() {
                        let value = value.as_str().unwrap();
                        match key.as_str() {
                            "type" => {}
                            "partial_json" => json.push_str(value),
                            key => {
                                let before = block[key].as_str().unwrap().to_owned();
                                block[key] = json!(before + value);
                            }
                        }
                    }
                }
                "content_block_stop" if !json.is_empty() => {
                    message["content"][index]["input"] = serde_json::from_str(&json).unwrap();
                }
                "message_delta" => {
                    message["stop_reason"] = event["delta"]["stop_reason"].clone();
                    message["usage"] = event["usage"].clone();
                }
                "content_block_stop" | "message_stop" => {}
                other => panic!("{other}"),
            }
        }
        message
    }

    #[test]
    fn a_streamed_message_adds_up_to_the_whole_one() {
        let turn = json!({
            "thinking": "Let me see how that goes.", "text": "It goes → so.", "chunk": 5,
            "tools": [{"tool": "A", "input": {"long": "x".repeat(100)}}, {"tool": "B"}],
            "usage": {"in": 1, "out": 2, "cache_read": 3, "cache_write": 4},
        });
        with_answer(turn, &[], |answer| {
            let response = complete_response(answer);
            assert_eq!(assemble(&parsed(&frames(answer))), response);
            assert_eq!(response["stop_reason"], "tool_use");
            assert_eq!(response["content"][3]["name"], "B");
            assert_ne!(response["content"][2]["id"], response["content"][3]["id"]);
            assert_eq!(
                response["usage"],
                json!({"input_tokens": 1, "output_tokens": 2, "cache_read_input_tokens": 3,
                       "cache_creation_input_tokens": 4})
            );
        });
    }

    #[test]
    fn an_empty_answer_is_a_block_with_an_empty_text() {
        with_answer(json!({"text": "", "stop": "refusal"}), &[], |answer| {
            let response = complete_response(answer);
            assert_eq!(response["content"], json!([{"type": "text", "text": ""}]));
            assert_eq!(response["stop_reason"], "refusal");
            assert_eq!(assemble(&parsed(&frames(answer))), response);
        });
    }
}
