use crate::json::{RawJson, RawText, Walk};

#[derive(Default)]
pub(super) struct LineHeader<'a> {
    pub(super) kind: RawText<'a>,
    pub(super) subtype: RawText<'a>,
    pub(super) message: Option<StreamMessage<'a>>,
    pub(super) from_subagent: bool,
    pub(super) api_error: bool,
    pub(super) replay: bool,
    pub(super) tool_result_meta: RawJson<'a>,
    pub(super) timestamp: Option<RawText<'a>>,
}

impl<'a> LineHeader<'a> {
    pub(super) fn parse(line: &'a [u8]) -> Option<Self> {
        let mut head = LineHeader::default();
        let mut walk = Walk::new(line);
        walk.object(|key, walk| {
            match key {
                // In some lines this is a string.
                b"message" if walk.next() == Some(b'{') => {
                    head.message = Some(StreamMessage::parse(walk)?);
                }
                b"type" => head.kind = walk.value()?.as_text().unwrap_or_default(),
                b"subtype" => head.subtype = walk.value()?.as_text().unwrap_or_default(),
                b"parent_tool_use_id" => head.from_subagent = !walk.value()?.is_null(),
                b"is_api_error_message" => head.api_error = walk.value()?.is_true(),
                b"isReplay" => head.replay = walk.value()?.is_true(),
                b"tool_result_meta" => head.tool_result_meta = walk.value()?,
                b"timestamp" => head.timestamp = walk.value()?.as_text(),
                // The same output again, about half of the line.
                b"tool_use_result" => walk.skip_value_before(b",\"tool_result_meta\":")?,
                _ => {
                    walk.value()?;
                }
            }
            Some(())
        })?;
        walk.end()?;
        Some(head)
    }
}

#[derive(Default)]
pub(super) struct StreamMessage<'a> {
    pub(super) id: Option<RawText<'a>>,
    pub(super) model: Option<RawText<'a>>,
    pub(super) blocks: Vec<ContentBlock<'a>>,
    pub(super) usage: Option<RawJson<'a>>,
}

impl<'a> StreamMessage<'a> {
    fn parse(walk: &mut Walk<'a>) -> Option<Self> {
        let mut message = StreamMessage::default();
        walk.object(|key, walk| {
            match key {
                b"id" => message.id = walk.value()?.as_text(),
                b"model" => message.model = walk.value()?.as_text(),
                b"usage" => message.usage = Some(walk.value()?),
                b"content" if walk.next() == Some(b'[') => walk.array(|walk| {
                    message.blocks.push(ContentBlock::parse(walk)?);
                    Some(())
                })?,
                // A plain string as content.
                b"content" => {
                    if let Some(text) = walk.value()?.as_text() {
                        message.blocks.push(ContentBlock {
                            kind: RawText::from_keyword("text"),
                            text,
                            ..ContentBlock::default()
                        });
                    }
                }
                _ => {
                    walk.value()?;
                }
            }
            Some(())
        })?;
        Some(message)
    }
}

#[derive(Default)]
pub(super) struct ContentBlock<'a> {
    pub(super) kind: RawText<'a>,
    /// Text or thinking.
    pub(super) text: RawText<'a>,
    /// Id of the tool call, also in its result.
    pub(super) id: RawText<'a>,
    pub(super) name: Option<RawText<'a>>,
    pub(super) input: RawJson<'a>,
    pub(super) content: RawJson<'a>,
    pub(super) is_error: bool,
}

impl<'a> ContentBlock<'a> {
    fn parse(walk: &mut Walk<'a>) -> Option<Self> {
        let mut block = ContentBlock::default();
        walk.object(|key, walk| {
            let value = walk.value()?;
            match key {
                b"type" => block.kind = value.as_text().unwrap_or_default(),
                b"text" | b"thinking" => block.text = value.as_text().unwrap_or_default(),
                b"id" | b"tool_use_id" => block.id = value.as_text().unwrap_or_default(),
                b"name" => block.name = value.as_text(),
                b"input" => block.input = value,
                b"content" => block.content = value,
                b"is_error" => block.is_error = value.is_true(),
                _ => {}
            }
            Some(())
        })?;
        Some(block)
    }
}
