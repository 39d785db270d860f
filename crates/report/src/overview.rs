//! Every run on the machine: groups, counts and money.

use jiff::civil::Date;
use jiff::tz::TimeZone;
use serde::Serialize;

use crate::run_card::{AttentionKind, RunCard};
use crate::state_word::Group;
use crate::time_text::{format_local, local_time};
use crate::width;
use ralph_events::text;

/// Days with a cost of their own.
pub const DAYS: usize = 14;

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Overview {
    /// In order; those without runs are left out.
    pub sections: Vec<CardGroup>,
    /// Finished runs from before yesterday or not read yet.
    pub older: usize,
    pub needs_you: usize,
    pub working: usize,
    pub waiting: usize,
    pub today_usd: f64,
    /// Oldest first; the last one is today.
    pub cost_per_day: Vec<DayCost>,
    /// When the first rate limit ends that a run waits for.
    pub next_reset_ms: Option<i64>,
    /// Projects whose runs cannot be read.
    pub unreadable: Vec<UnreadableProject>,
    pub now_ms: i64,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CardGroup {
    pub kind: SectionKind,
    pub cards: Vec<RunCard>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum SectionKind {
    NeedsYou,
    Working,
    Waiting,
    DoneToday,
    Yesterday,
    Older,
}

impl SectionKind {
    pub fn title(self) -> &'static str {
        match self {
            SectionKind::NeedsYou => Group::NeedsYou.as_str(),
            SectionKind::Working => Group::Working.as_str(),
            SectionKind::Waiting => Group::Waiting.as_str(),
            SectionKind::DoneToday => "done today",
            SectionKind::Yesterday => "yesterday",
            SectionKind::Older => "older",
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct DayCost {
    pub year: i16,
    pub month: i8,
    pub day: i8,
    pub usd: f64,
}

impl DayCost {
    /// `November 18`.
    pub fn name(&self) -> String {
        format!("{} {}", self.month_name(), self.day)
    }

    pub fn month_name(&self) -> String {
        let date = Date::new(self.year, self.month, self.day);
        date.map_or_else(|_| String::new(), |date| date.strftime("%B").to_string())
    }
}

/// A project whose runs cannot be listed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct UnreadableProject {
    pub path: String,
    pub reason: String,
}

/// A part of the first line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FirstLinePart {
    pub text: String,
    /// A person has to act.
    pub attention: bool,
}

impl Overview {
    /// `older` is the number of finished runs without a card.
    pub fn of(cards: Vec<RunCard>, older: usize, now_ms: i64, zone: &TimeZone) -> Overview {
        let today = local_date(now_ms, zone).unwrap_or_default();
        let cost_per_day = cost_per_day(&cards, today, zone);
        let today_usd = cost_per_day.last().map_or(0.0, |day| day.usd);
        let limits = cards.iter().filter(|card| card.is_rate_limited);
        let next_reset_ms = limits.filter_map(|card| card.wait_until_ms).min();
        let mut sections: Vec<CardGroup> = Vec::new();
        for card in cards {
            let kind = section_of(&card, today, zone);
            match sections.iter_mut().find(|section| section.kind == kind) {
                Some(section) => section.cards.push(card),
                None => sections.push(CardGroup { kind, cards: vec![card] }),
            }
        }
        sections.sort_by_key(|section| section.kind);
        for section in &mut sections {
            section.cards.sort_by_cached_key(|card| sort_key(section.kind, card));
        }
        let count = |kind| {
            let own = sections.iter().find(|section| section.kind == kind);
            own.map_or(0, |section| section.cards.len())
        };
        Overview {
            needs_you: count(SectionKind::NeedsYou),
            working: count(SectionKind::Working),
            waiting: count(SectionKind::Waiting),
            older: older + count(SectionKind::Older),
            sections,
            today_usd,
            cost_per_day,
            next_reset_ms,
            unreadable: Vec::new(),
            now_ms,
        }
    }

    pub fn section(&self, kind: SectionKind) -> &[RunCard] {
        let own = self.sections.iter().find(|section| section.kind == kind);
        own.map_or(&[], |section| &section.cards)
    }

    pub fn cards(&self) -> impl Iterator<Item = &RunCard> {
        self.sections.iter().flat_map(|section| &section.cards)
    }

    /// The money of today, if an agent has reported any.
    pub fn today_money(&self) -> Option<String> {
        (self.today_usd > 0.0).then(|| text::format_dollars(self.today_usd))
    }

    /// `needs you 2 · working 3 · waiting 2 · $19.80 today · next reset 23:40`. Words get shorter if room is short;
    /// what is unknown is left out.
    pub fn first_line(&self, room: usize, separator: &str, zone: &TimeZone) -> Vec<FirstLinePart> {
        let parts = |is_short: bool| {
            let plain = |text: String| FirstLinePart { text, attention: false };
            let needs_you = format!("{} {}", Group::NeedsYou.as_str(), self.needs_you);
            let reset = self.next_reset_ms.map(|ms| format_local(ms, zone, "%H:%M"));
            let reset = reset.map(|time| match is_short {
                true => format!("↻ {time}"),
                false => format!("next reset {time}"),
            });
            let mut parts = vec![FirstLinePart { text: needs_you, attention: self.needs_you > 0 }];
            parts.push(plain(format!("{} {}", Group::Working.as_str(), self.working)));
            parts.push(plain(format!("{} {}", Group::Waiting.as_str(), self.waiting)));
            parts.extend(self.today_money().map(|money| plain(format!("{money} today"))));
            parts.extend(reset.map(plain));
            parts
        };
        let mut line = parts(false);
        let widths = line.iter().map(|part| width::display_width(&part.text)).sum::<usize>();
        if widths + width::display_width(separator) * line.len().saturating_sub(1) > room {
            line = parts(true);
        }
        line
    }
}

fn section_of(card: &RunCard, today: Date, zone: &TimeZone) -> SectionKind {
    match card.group {
        Group::NeedsYou => SectionKind::NeedsYou,
        Group::Working => SectionKind::Working,
        Group::Waiting => SectionKind::Waiting,
        Group::Done => {
            let date = card.ended_ms.and_then(|ms| local_date(ms, zone)).unwrap_or(today);
            match today.yesterday() {
                _ if date >= today => SectionKind::DoneToday,
                Ok(yesterday) if date == yesterday => SectionKind::Yesterday,
                _ => SectionKind::Older,
            }
        }
    }
}

/// Questions by age, then problems by age; working runs by start, waiting ones by the end of the wait, finished ones
/// newest first.
fn sort_key(kind: SectionKind, card: &RunCard) -> (bool, i64, String) {
    let time = match kind {
        SectionKind::NeedsYou => card.attention.as_ref().map(|it| it.since_ms),
        SectionKind::Working => card.started_ms,
        SectionKind::Waiting => card.wait_until_ms.or(Some(i64::MAX)),
        _ => card.ended_ms.map(|ms| -ms),
    };
    let is_problem = card.attention.as_ref().is_some_and(|it| it.kind == AttentionKind::Problem);
    (is_problem, time.unwrap_or(0), card.id.clone())
}

fn local_date(ms: i64, zone: &TimeZone) -> Option<Date> {
    Some(local_time(ms, zone)?.date())
}

/// The cost of iterations by the day on which they ended.
fn cost_per_day(cards: &[RunCard], today: Date, zone: &TimeZone) -> Vec<DayCost> {
    let mut days: Vec<(Date, f64)> = Vec::with_capacity(DAYS);
    let mut date = today;
    for _ in 0..DAYS {
        days.push((date, 0.0));
        match date.yesterday() {
            Ok(before) => date = before,
            Err(_) => break,
        }
    }
    days.reverse();
    for bar in cards.iter().flat_map(|card| &card.bars) {
        let Some(usd) = bar.cost.usd() else { continue };
        let Some(date) = local_date(bar.ended_ms, zone) else { continue };
        if let Some((_, sum)) = days.iter_mut().find(|(day, _)| *day == date) {
            *sum += usd;
        }
    }
    let day = |(date, usd): (Date, f64)| DayCost {
        year: date.year(),
        month: date.month(),
        day: date.day(),
        usd,
    };
    days.into_iter().map(day).collect()
}
