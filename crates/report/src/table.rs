//! Aligned columns that fit a terminal.

use crate::width::{display_width, prefix_within};

#[derive(Debug, Clone, Copy)]
pub struct Column {
    pub title: &'static str,
    pub right_aligned: bool,
    /// Columns with a higher rank are left out first; rank 0 always stays.
    pub rank: u8,
    /// The width to which cells may be cut before a column is left out.
    pub min_width: Option<usize>,
}

impl Column {
    pub const fn left(title: &'static str, rank: u8) -> Column {
        Column { title, right_aligned: false, rank, min_width: None }
    }

    pub const fn right(title: &'static str, rank: u8) -> Column {
        Column { right_aligned: true, ..Column::left(title, rank) }
    }

    #[must_use]
    pub const fn shrinking_to(self, width: usize) -> Column {
        Column { min_width: Some(width), ..self }
    }
}

/// Formats rows below their titles, at most `room` columns wide. Cells end in `…` where they are cut.
pub fn format<const N: usize>(
    columns: [Column; N],
    rows: &[[String; N]],
    room: Option<usize>,
) -> String {
    let widths: [usize; N] = std::array::from_fn(|at| {
        let cells = rows.iter().map(|row| display_width(&row[at]));
        cells.chain([columns[at].title.len()]).max().unwrap_or(0)
    });
    let shown = shown_widths(columns, widths, room);
    let mut out = String::new();
    let titles = columns.map(|column| column.title.to_owned());
    for row in std::iter::once(&titles).chain(rows) {
        let cells = row.iter().zip(columns).zip(shown);
        let cells = cells.filter_map(|((cell, column), width)| {
            let width = width?;
            Some((ellipsize(cell, width), width, column.right_aligned))
        });
        push_row(cells, room, &mut out);
    }
    out
}

/// Formats rows without titles. Lines are cut at `room` columns.
pub fn format_plain<const N: usize>(rows: &[[String; N]], room: Option<usize>) -> String {
    let width = |at: usize| rows.iter().map(|row| display_width(&row[at])).max();
    let widths: [usize; N] = std::array::from_fn(|at| width(at).unwrap_or(0));
    let mut out = String::new();
    for row in rows {
        let cells = row.iter().zip(widths).map(|(cell, width)| (cell.clone(), width, false));
        push_row(cells, room, &mut out);
    }
    out
}

/// Each cell has its width, and whether it is aligned to the right.
fn push_row(
    cells: impl Iterator<Item = (String, usize, bool)>,
    room: Option<usize>,
    out: &mut String,
) {
    let pad = |(cell, width, right): (String, usize, bool)| {
        let space = " ".repeat(width - display_width(&cell));
        if right { space + &cell } else { cell + &space }
    };
    let line = cells.map(pad).collect::<Vec<_>>().join("  ");
    let fitting = room.map_or(line.as_str(), |room| prefix_within(&line, room));
    out.push_str(fitting.trim_end());
    out.push('\n');
}

/// The width of each column, `None` for those left out. The last ones shrink first.
fn shown_widths<const N: usize>(
    columns: [Column; N],
    widths: [usize; N],
    room: Option<usize>,
) -> [Option<usize>; N] {
    let Some(room) = room else { return widths.map(Some) };
    let least: [usize; N] =
        std::array::from_fn(|at| columns[at].min_width.unwrap_or(usize::MAX).min(widths[at]));
    let total = |rank: u8, widths: [usize; N]| {
        let shown = columns.iter().zip(widths).filter(|(column, _)| column.rank <= rank);
        shown.map(|(_, width)| width + 2).sum::<usize>().saturating_sub(2)
    };
    let highest = columns.iter().map(|column| column.rank).max().unwrap_or(0);
    let rank = (0..=highest).rev().find(|rank| total(*rank, least) <= room).unwrap_or(0);
    let mut excess = total(rank, widths).saturating_sub(room);
    let mut shown = widths.map(Some);
    for at in (0..N).rev() {
        if columns[at].rank > rank {
            shown[at] = None;
            continue;
        }
        let cut = excess.min(widths[at] - least[at]);
        shown[at] = Some(widths[at] - cut);
        excess -= cut;
    }
    shown
}

fn ellipsize(text: &str, width: usize) -> String {
    if display_width(text) <= width {
        return text.to_owned();
    }
    format!("{}…", prefix_within(text, width.saturating_sub(1)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const COLUMNS: [Column; 4] = [
        Column::left("NAME", 0).shrinking_to(6),
        Column::right("COST", 1),
        Column::left("LAST", 2).shrinking_to(5),
        Column::left("DIRECTORY", 3),
    ];

    fn rows() -> [[String; 4]; 2] {
        [
            ["password-reset", "$1.50", "starting iteration 2", "/src/app"],
            ["漢字漢字", "-", "done", "/"],
        ]
        .map(|row| row.map(str::to_owned))
    }

    #[test]
    fn table_without_terminal_is_complete() {
        let expected = "\
NAME             COST  LAST                  DIRECTORY
password-reset  $1.50  starting iteration 2  /src/app
漢字漢字            -  done                  /
";
        assert_eq!(format(COLUMNS, &rows(), None), expected);
        assert_eq!(format(COLUMNS, &rows(), Some(54)), expected);
    }

    #[test]
    fn narrow_table_shrinks_last_columns_then_leaves_some_out() {
        let lines = |room| -> Vec<String> {
            format(COLUMNS, &rows(), Some(room)).lines().map(str::to_owned).collect()
        };
        assert_eq!(lines(42)[1], "password-reset  $1.50  startin…  /src/app");
        assert_eq!(lines(36)[1], "password-r…  $1.50  star…  /src/app");
        assert_eq!(lines(30)[0], "NAME             COST  LAST");
        assert_eq!(lines(30)[1], "password-reset  $1.50  starti…");
        assert_eq!(lines(15)[1], "passwor…  $1.50");
        assert_eq!(lines(6)[2], "漢字…");
    }

    #[test]
    fn no_line_is_wider_than_the_terminal() {
        for room in 0..60 {
            for line in format(COLUMNS, &rows(), Some(room)).lines() {
                assert!(display_width(line) <= room, "{room}: {line}");
            }
        }
    }
}
