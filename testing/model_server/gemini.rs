//! Gemini.

use serde_json::{Map, Value, json};

use super::answer::{Answer, Frame};

pub(super) fn complete_response(answer: &Answer<'_>) -> Value {
    let text = answer.text.map(|text| json!({"text": text}));
    let parts: Vec<Value> = thought(answer).into_iter().chain(text).chain(calls(answer)).collect();
    candidate(answer, &parts, Some(finish_reason(answer)))
}

pub(super) fn frames(answer: &Answer<'_>) -> Vec<Frame> {
    let mut frames = Vec::new();
    if let Some(thought) = thought(answer) {
        frames.push(Frame::nameless(&candidate(answer, &[thought], None)));
    }
    for piece in answer.text.map_or_else(Vec::new, |text| answer.pieces(text)) {
        frames.push(Frame::nameless(&candidate(answer, &[json!({"text": piece})], None)).piece());
    }
    let mut last: Vec<Value> = calls(answer).collect();
    if last.is_empty() {
        last.push(json!({"text": ""}));
    }
    frames.push(Frame::nameless(&candidate(answer, &last, Some(finish_reason(answer)))));
    frames
}

/// A value that matches a schema, for requests that want JSON.
pub(super) fn example(schema: &Value) -> Value {
    if let Some(first) = schema["enum"].get(0) {
        return first.clone();
    }
    match schema["type"].as_str().unwrap_or("object").to_ascii_lowercase().as_str() {
        "object" => {
            let properties = schema["properties"].as_object().into_iter().flatten();
            properties
                .map(|(key, schema)| (key.clone(), example(schema)))
                .collect::<Map<_, _>>()
                .into()
        }
        "array" => json!([]),
        "boolean" => json!(false),
        "integer" | "number" => json!(1),
        _ => json!("some text"),
    }
}

fn candidate(answer: &Answer<'_>, parts: &[Value], finish: Option<&str>) -> Value {
    let input = answer.usage.input_with_cached();
    let mut candidate = json!({"content": {"role": "model", "parts": parts}, "index": 0});
    if let Some(finish) = finish {
        candidate["finishReason"] = json!(finish);
    }
    json!({
        "candidates": [candidate],
        "usageMetadata": {
            "promptTokenCount": input,
            "candidatesTokenCount": answer.usage.output,
            "totalTokenCount": input + answer.usage.output,
            "cachedContentTokenCount": answer.usage.cache_read,
        },
        "modelVersion": answer.model,
        "responseId": answer.ids.of_answer("r"),
    })
}

fn finish_reason<'a>(answer: &Answer<'a>) -> &'a str {
    answer.stop.unwrap_or("STOP")
}

fn thought(answer: &Answer<'_>) -> Option<Value> {
    answer.thinking.map(|text| json!({"text": text, "thought": true}))
}

fn calls(answer: &Answer<'_>) -> impl Iterator<Item = Value> {
    answer.calls.iter().map(|call| json!({"functionCall": {"name": call.name, "args": call.input}}))
}

#[cfg(test)]
mod tests {
    use super::super::answer::tests::{parsed, with_answer};
    use super::*;

    #[test]
    fn a_streamed_answer_adds_up_to_the_whole_one() {
        let turn = json!({
            "thinking": "Hm.", "text": "It goes → so.", "chunk": 4,
            "tools": [{"tool": "A", "input": {"a": 1}}, {"tool": "B"}],
            "usage": {"in": 1, "out": 2, "cache_read": 3},
        });
        with_answer(turn, &[], |answer| {
            let response = complete_response(answer);
            let parts = response["candidates"][0]["content"]["parts"].as_array().unwrap();
            let chunks = parsed(&frames(answer));
            let streamed: Vec<&Value> = chunks
                .iter()
                .flat_map(|chunk| chunk["candidates"][0]["content"]["parts"].as_array().unwrap())
                .collect();
            let text: String = streamed
                .iter()
                .filter(|part| part.get("thought").is_none())
                .filter_map(|part| part["text"].as_str())
                .collect();
            assert_eq!(text, parts[1]["text"]);
            assert_eq!(streamed[0], &parts[0]);
            assert_eq!(streamed[streamed.len() - 2..], [&parts[2], &parts[3]]);
            assert_eq!(chunks.last().unwrap()["usageMetadata"], response["usageMetadata"]);
            assert_eq!(response["usageMetadata"]["promptTokenCount"], 4);
            let finished =
                chunks.iter().filter(|chunk| chunk["candidates"][0].get("finishReason").is_some());
            assert_eq!(finished.count(), 1);
        });
    }

    #[test]
    fn a_schema_has_an_example() {
        let schema = json!({"type": "OBJECT", "properties": {
            "a": {"type": "STRING"}, "b": {"type": "array"}, "c": {"enum": ["x", "y"]},
            "d": {"type": "boolean"}, "e": {"type": "object", "properties": {"f": {"type": "integer"}}},
        }});
        assert_eq!(
            example(&schema),
            json!({"a": "some text", "b": [], "c": "x", "d": false, "e": {"f": 1}})
        );
    }
}
