//! Results and targets.

use std::io::{self, Write};

#[derive(Clone, Copy)]
pub(super) enum Target {
    AtMost(f64),
    AtLeast(f64),
    /// Informational.
    None,
}

struct Row {
    what: String,
    floor: String,
    ralph: String,
    measured: String,
    target: String,
    ok: &'static str,
}

#[derive(Default)]
pub(super) struct Table(Vec<Row>);

impl Table {
    pub(super) fn ratio(
        &mut self,
        what: &str,
        (floor, ralph): (f64, f64),
        show: fn(f64) -> String,
        target: Target,
    ) {
        let ratio = ralph / floor;
        let ok = verdict(ratio, target);
        self.0.push(Row {
            what: what.to_owned(),
            floor: show(floor),
            ralph: show(ralph),
            measured: format!("{ratio:.2}x"),
            target: words(target, |limit| format!("{limit:.2}x")),
            ok,
        });
    }

    pub(super) fn value(
        &mut self,
        what: &str,
        value: f64,
        show: fn(f64) -> String,
        target: Target,
    ) {
        self.0.push(Row {
            what: what.to_owned(),
            floor: String::new(),
            ralph: show(value),
            measured: String::new(),
            target: words(target, show),
            ok: verdict(value, target),
        });
    }

    pub(super) fn print(&self, out: &mut impl Write) -> io::Result<()> {
        let header = ["what", "floor", "ralph", "ratio", "target", ""].map(str::to_owned);
        let rows = self.0.iter().map(|row| {
            let Row { what, floor, ralph, measured, target, ok } = row;
            [what, floor, ralph, measured, target, *ok].map(str::to_owned)
        });
        let rows: Vec<_> = std::iter::once(header).chain(rows).collect();
        let width = |column: usize| {
            rows.iter().map(|row| row[column].chars().count()).max().unwrap_or_default()
        };
        let widths: [usize; 5] = std::array::from_fn(width);
        writeln!(out)?;
        for [what, floor, ralph, measured, target, ok] in &rows {
            let [a, b, c, d, e] = widths;
            writeln!(
                out,
                "{what:a$}  {floor:>b$}  {ralph:>c$}  {measured:>d$}  {target:>e$}  {ok}"
            )?;
        }
        Ok(())
    }
}

fn verdict(value: f64, target: Target) -> &'static str {
    let ok = match target {
        Target::AtMost(limit) => value <= limit,
        Target::AtLeast(limit) => value >= limit,
        Target::None => return "",
    };
    if ok { "ok" } else { "MISS" }
}

fn words(target: Target, show: impl Fn(f64) -> String) -> String {
    match target {
        Target::AtMost(limit) => format!("<= {}", show(limit)),
        Target::AtLeast(limit) => format!(">= {}", show(limit)),
        Target::None => String::new(),
    }
}

pub(super) fn time(seconds: f64) -> String {
    if seconds < 1e-3 {
        format!("{:.0} µs", seconds * 1e6)
    } else if seconds < 1.0 {
        format!("{:.2} ms", seconds * 1e3)
    } else {
        format!("{seconds:.2} s")
    }
}

pub(super) fn speed(speed: f64) -> String {
    format!("{:.0} MB/s", speed / 1e6)
}

pub(super) fn size(bytes: f64) -> String {
    format!("{:.1} MB", bytes / 1e6)
}

pub(super) fn count(count: f64) -> String {
    format!("{count:.0}")
}
