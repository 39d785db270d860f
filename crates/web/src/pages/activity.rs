//! The transcript of a run: iterations with text, tool calls, checks, commits and messages.

use std::collections::HashMap;

use jiff::tz::TimeZone;
use maud::{Markup, html};
use ralph_events::event::{FileEdit, TodoItem, TodoStatus};
use ralph_report::check_view::CheckMark;
use ralph_report::run_card::RunCard;
use ralph_report::state_word::StateWord;
use ralph_report::transcript::{
    CheckItem, Item, ItemKind, Level, ToolItem, ToolStatus, Voice, Wait, todo_progress,
};

use super::signs::{capitalize, clock, money, plural, sign, ticking};
use super::stories::check_sign;
use crate::live::LivePart;

/// Facts about the run that the transcript shows beside its items.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Context<'a> {
    pub card: &'a RunCard,
    /// The story of an iteration: id and title.
    pub stories: &'a HashMap<u32, (String, String)>,
    pub zone: &'a TimeZone,
}

/// One iteration with its blocks.
struct IterationSection<'a> {
    iteration: u32,
    blocks: Vec<&'a [Item]>,
}

fn sections(items: &[Item]) -> Vec<IterationSection<'_>> {
    let mut sections: Vec<IterationSection<'_>> = Vec::new();
    for block in items.chunk_by(|a, b| is_call(a) && is_call(b) && a.iteration == b.iteration) {
        let Some(first) = block.first() else { continue };
        if sections.last().is_none_or(|section| section.iteration != first.iteration) {
            sections.push(IterationSection { iteration: first.iteration, blocks: Vec::new() });
        }
        if let Some(section) = sections.last_mut()
            && !matches!(first.kind, ItemKind::Iteration { .. })
        {
            section.blocks.push(block);
        }
    }
    sections
}

/// Calls and checks in a row share one box.
fn is_call(item: &Item) -> bool {
    matches!(item.kind, ItemKind::Tool(_) | ItemKind::Check(_))
}

/// The whole transcript.
pub(crate) fn log(items: &[Item], context: Context<'_>) -> Markup {
    html! {
        @for section in sections(items) {
            (iteration(section.iteration, context, &html! {
                @for (block, is_first_failure) in with_first_failure(&section.blocks) {
                    (render_block(block, is_first_failure, context))
                }
            }))
        }
    }
}

/// The same as parts that can be added and replaced one by one. Only the last `max_blocks` are rendered.
pub(crate) fn parts(items: &[Item], context: Context<'_>, max_blocks: usize) -> Vec<LivePart> {
    let sections = sections(items);
    let total: usize = sections.iter().map(|section| section.blocks.len()).sum();
    let mut skip = total.saturating_sub(max_blocks);
    let mut parts = Vec::new();
    for section in &sections {
        let number = section.iteration;
        let skipped = skip.min(section.blocks.len());
        skip -= skipped;
        if skipped > 0 && skipped == section.blocks.len() {
            continue;
        }
        let skeleton = iteration(number, context, &html! {});
        parts.push(LivePart::new(format!("i{number}"), skeleton).inside("log").only_new());
        parts.push(LivePart::new(format!("h{number}"), head(number, context)));
        for (block, is_first_failure) in with_first_failure(&section.blocks).skip(skipped) {
            let html = render_block(block, is_first_failure, context);
            parts.push(LivePart::new(block_id(block), html).inside(&format!("b{number}")));
        }
    }
    parts
}

fn iteration(number: u32, context: Context<'_>, blocks: &Markup) -> Markup {
    html! {
        section class="itr" id={ "i" (number) } aria-labelledby={ "t" (number) } {
            (head(number, context))
            div id={ "b" (number) } { (blocks) }
        }
    }
}

/// Says for each block whether it has the first failure of its iteration.
fn with_first_failure<'b>(
    blocks: &'b [&'b [Item]],
) -> impl Iterator<Item = (&'b [Item], bool)> + 'b {
    let failing = blocks.iter().position(|block| block.iter().any(has_failed));
    blocks.iter().enumerate().map(move |(at, block)| (*block, Some(at) == failing))
}

fn has_failed(item: &Item) -> bool {
    matches!(&item.kind, ItemKind::Tool(tool) if tool.status == ToolStatus::Failed)
}

fn block_id(block: &[Item]) -> String {
    block.first().map_or_else(String::new, |first| format!("e{}", first.id))
}

fn head(number: u32, context: Context<'_>) -> Markup {
    let bar = context.card.bars.iter().find(|bar| bar.iteration == number);
    html! {
        header id={ "h" (number) } {
            h3 id={ "t" (number) } { @if number == 0 { "Start" } @else { "Iteration " (number) } }
            @if let Some((id, title)) = context.stories.get(&number) { span class="sub" { (id) " " (title) } }
            @if let Some(bar) = bar {
                span class="sub r" {
                    (ralph_events::text::format_duration(bar.duration_ms))
                    @let cost = money(&bar.cost);
                    @if !cost.is_empty() { " · " (cost) }
                }
            }
        }
    }
}

fn render_block(block: &[Item], is_first_failure: bool, context: Context<'_>) -> Markup {
    let Some(first) = block.first() else { return html! {} };
    let id = block_id(block);
    if is_call(first) {
        let failing =
            is_first_failure.then(|| block.iter().find(|item| has_failed(item))).flatten();
        return tools(block, &id, failing.map(|item| item.id));
    }
    let time = html! { time { (clock(first.time_ms, context.zone)) } };
    match &first.kind {
        ItemKind::Text { voice, text, is_cut } => speech(&id, &time, *voice, text, *is_cut),
        ItemKind::Commit { id: hash, subject } => {
            html! { p id=(id) { (time) "Committed " code { (hash) } " " (subject) } }
        }
        ItemKind::Question { text, context, is_answered, .. } => html! {
            p class="asked" id=(id) {
                (time) (sign("?", "a")) b { "asks" } " " (text)
                @if !context.is_empty() { span class="ctx" { (context) } }
                @if *is_answered { span class="sub" { " answered" } }
            }
        },
        ItemKind::You { text, every, delivered_in, question, .. } => html! {
            p class="you" id=(id) {
                (time) b { @if question.is_some() { "You answered" } @else { "You" } } " " (text)
                span class="sub" { (delivery(*every, *delivered_in, is_over(context.card))) }
            }
        },
        ItemKind::Claim { stories, failed } => html! {
            p class="note" id=(id) {
                (time) (sign("~", "a")) "claimed " (stories.join(", "))
                @if failed.is_empty() { ", but the checks did not finish. Not counted." }
                @else { ", but " (failed.join(", ")) " failed. Not counted." }
            }
        },
        ItemKind::Wait { reason, until_ms, ended_ms } => html! {
            p class="note" id=(id) { (time) (sign("○", "m")) (wait(*reason, *until_ms, *ended_ms, context.zone)) }
        },
        ItemKind::Notice { level, text } => {
            let class = if *level == Level::Failure { "note bad" } else { "note" };
            html! {
                p class=(class) id=(id) {
                    (time)
                    @match level { Level::Failure => (sign("✗", "f")), Level::Warning => (sign("!", "a")), Level::Info => (sign("·", "m")) }
                    span { (text) }
                }
            }
        }
        _ => html! {},
    }
}

/// A killed run still delivers what waits once it is resumed.
fn is_over(card: &RunCard) -> bool {
    card.ended_ms.is_some() && card.state != StateWord::Interrupted
}

fn delivery(every: bool, delivered_in: Option<u32>, is_over: bool) -> String {
    match (every, delivered_in) {
        (_, None) if is_over => "not delivered: the run ended first".to_owned(),
        (true, Some(iteration)) => format!("in every prompt, last in iteration {iteration}"),
        (true, None) => "in every prompt from the next iteration on".to_owned(),
        (false, Some(iteration)) => format!("delivered with iteration {iteration}"),
        (false, None) => "waits for the next iteration".to_owned(),
    }
}

fn wait(reason: Wait, until_ms: i64, ended_ms: Option<i64>, zone: &TimeZone) -> String {
    let until = ended_ms.unwrap_or(until_ms);
    let what = match reason {
        Wait::RateLimit => "rate limit",
        Wait::Backoff => "back-off",
        Wait::Paused => "paused by you",
        Wait::Parked => "waits for an answer",
    };
    match until {
        i64::MAX => what.to_owned(),
        _ => format!("{what} until {}", clock(until, zone)),
    }
}

fn speech(id: &str, time: &Markup, voice: Voice, text: &str, is_cut: bool) -> Markup {
    let cut = html! { @if is_cut { span class="sub" { " (shortened)" } } };
    match voice {
        Voice::Agent => html! { div class="say" id=(id) { p { (time) (prose(text)) (cut) } } },
        Voice::Subagent => html! {
            div class="say quiet" id=(id) { p { (time) span class="sub" { "subagent " } (prose(text)) (cut) } }
        },
        Voice::Thinking => html! {
            div class="say quiet" id=(id) { p { (time) span class="sub" { "thinks " } (prose(text)) (cut) } }
        },
        Voice::Output | Voice::Stderr => {
            html! { div class="say" id=(id) { pre class="out" tabindex="0" { (text) } (cut) } }
        }
    }
}

/// Text with `code` and fenced blocks. Everything else stays as it is: no links, no markup.
fn prose(text: &str) -> Markup {
    html! {
        @for (at, part) in text.split("```").enumerate() {
            @if at % 2 == 1 {
                span class="fence" { (part.split_once('\n').map_or(part, |(_, code)| code).trim_end()) }
            } @else {
                @for (at, piece) in part.trim_matches('\n').split('`').enumerate() {
                    @if at % 2 == 1 { code { (piece) } } @else { (piece) }
                }
            }
        }
    }
}

fn tools(block: &[Item], id: &str, open: Option<u64>) -> Markup {
    let rows = block.chunk_by(|a, b| is_quiet_lookup(a) && is_quiet_lookup(b));
    html! {
        div class="tools" id=(id) {
            @for row in rows {
                @match row {
                    [only] => (call(only, open == Some(only.id))),
                    several => (lookups(several)),
                }
            }
        }
    }
}

fn is_quiet_lookup(item: &Item) -> bool {
    matches!(&item.kind, ItemKind::Tool(tool) if tool.is_lookup && tool.status == ToolStatus::Done)
}

fn tool_of(item: &Item) -> Option<&ToolItem> {
    if let ItemKind::Tool(tool) = &item.kind { Some(tool) } else { None }
}

/// Reads and searches in a row as one line.
fn lookups(items: &[Item]) -> Markup {
    let tools: Vec<&ToolItem> = items.iter().filter_map(tool_of).collect();
    let lines: u64 = tools.iter().map(|tool| tool.lines).sum();
    let id = items.first().map_or(0, |item| item.id);
    html! {
        details class="tl" id={ "d" (id) } {
            summary {
                (sign("✓", "d"))
                code { (lookup_text(&tools)) }
                span class="sub" { span class="vh" { "result: " } (lines) " lines" }
            }
            pre tabindex="0" { @for tool in &tools { (tool.text()) "    " (tool.note) "\n" } }
        }
    }
}

/// `Read 2 files, searched once`.
fn lookup_text(tools: &[&ToolItem]) -> String {
    let is_read = |tool: &&&ToolItem| tool.name.to_ascii_lowercase().contains("read");
    let reads = tools.iter().filter(is_read).count();
    let searches = match tools.len() - reads {
        0 => String::new(),
        1 => "searched once".to_owned(),
        2 => "searched twice".to_owned(),
        count => format!("searched {count} times"),
    };
    let reads = if reads == 0 { String::new() } else { format!("Read {}", plural(reads, "file")) };
    match (reads.is_empty(), searches.is_empty()) {
        (false, false) => format!("{reads}, {searches}"),
        (false, true) => reads,
        _ => capitalize(&searches),
    }
}

fn call(item: &Item, is_open: bool) -> Markup {
    match &item.kind {
        ItemKind::Tool(tool) => tool_call(item, tool, is_open),
        ItemKind::Check(check) => check_call(check, item.time_ms),
        _ => html! {},
    }
}

fn tool_call(item: &Item, tool: &ToolItem, is_open: bool) -> Markup {
    let is_bad = matches!(tool.status, ToolStatus::Failed | ToolStatus::Denied);
    let color = match tool.status {
        ToolStatus::Running => "w",
        ToolStatus::Done => "d",
        ToolStatus::Failed | ToolStatus::Denied => "f",
        ToolStatus::Abandoned => "a",
    };
    let line = html! {
        (sign(tool.status.sign(), color))
        code title=(tool.text()) { @if tool.is_subagent { "↳ " } (tool.text()) }
        span class="sub" {
            @if tool.status == ToolStatus::Running { span class="vh" { "running: " } (ticking("", Some(item.time_ms), false)) }
            @else { span class="vh" { "result: " } (tool.note) }
        }
    };
    let class = if is_bad { "tl bad" } else { "tl" };
    if tool.preview.is_empty() && tool.edit.is_none() {
        return html! { div class=(class) id={ "d" (item.id) } { (line) } };
    }
    let shown = tool.preview.lines().count();
    html! {
        details class=(class) id={ "d" (item.id) } open[is_open] {
            summary { (line) }
            @if let Some(edit) = &tool.edit { (edit_diff(edit)) }
            @else {
                pre tabindex="0" { (tool.preview) }
                @if tool.lines > shown as u64 { p class="sub cut" { "The first " (shown) " of " (tool.lines) " lines; the journal keeps no more." } }
            }
        }
    }
}

fn edit_diff(edit: &FileEdit) -> Markup {
    html! {
        pre class="df" tabindex="0" {
            @for line in edit.old.lines() { span class="del" { "-" (line) } }
            @for line in edit.new.lines() { span class="add" { "+" (line) } }
        }
    }
}

fn check_call(check: &CheckItem, since_ms: i64) -> Markup {
    let class = if check.mark == Some(CheckMark::Failed) { "tl bad" } else { "tl" };
    html! {
        div class=(class) {
            @match check.mark { Some(mark) => (check_sign(mark)), None => (sign("●", "w")) }
            code title=(check.command) { (check.command) }
            span class="sub" {
                @match check.mark {
                    Some(mark) => { span class="vh" { (mark.as_str()) ": " } (check.note) }
                    None => { span class="vh" { "running: " } (ticking("", Some(since_ms), false)) }
                }
            }
        }
    }
}

/// `Todo 2 of 4: page for expired links`.
pub(crate) fn todo(items: &[TodoItem]) -> Markup {
    let (done, total) = todo_progress(items);
    let current = items.iter().find(|item| item.status == TodoStatus::InProgress);
    html! {
        p class="sub todo" id="todo" {
            @if total > 0 {
                "Todo " (done) " of " (total) @if let Some(item) = current { ": " (item.text) }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn guidance_that_came_too_late_waits_for_nothing() {
        for every in [false, true] {
            assert_eq!(delivery(every, None, true), "not delivered: the run ended first");
            assert!(delivery(every, None, false).contains("the next iteration"));
            assert!(delivery(every, Some(2), true).contains("iteration 2"));
        }
    }
}
