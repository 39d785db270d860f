//! Emoji, colours and symbols.

use anstyle::{AnsiColor, Effects};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Style {
    pub emoji: bool,
    pub color: bool,
    pub color_errors: bool,
    /// `[HH:MM:SS]` before each line, in local time.
    pub timestamps: bool,
    pub max_output_lines: usize,
    pub max_output_chars: usize,
    /// `[ralph] …` lines on standard error.
    pub verbose: bool,
    /// Only warnings, errors and the last line.
    pub quiet: bool,
    /// The agent's own output.
    pub show_stream: bool,
    /// A status line on standard error.
    pub status: bool,
}

impl Default for Style {
    /// Plain text, as for `--output plain`.
    fn default() -> Self {
        Style {
            emoji: false,
            color: false,
            color_errors: false,
            timestamps: false,
            max_output_lines: 10,
            max_output_chars: 2000,
            verbose: false,
            quiet: false,
            show_stream: true,
            status: false,
        }
    }
}

/// Capabilities of the terminal, from the environment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Capabilities {
    pub emoji: bool,
    pub color: bool,
    pub color_errors: bool,
    pub status: bool,
}

impl Capabilities {
    pub const NONE: Capabilities =
        Capabilities { emoji: false, color: false, color_errors: false, status: false };

    pub fn for_stdio() -> Capabilities {
        use std::io::IsTerminal;
        Capabilities::detect(
            |name| std::env::var(name).ok(),
            std::io::stdout().is_terminal(),
            std::io::stderr().is_terminal(),
        )
    }

    /// A style that uses them.
    pub fn style(self) -> Style {
        let Capabilities { emoji, color, color_errors, .. } = self;
        Style { emoji, color, color_errors, ..Style::default() }
    }

    pub fn detect(
        var: impl Fn(&str) -> Option<String>,
        stdout_is_terminal: bool,
        stderr_is_terminal: bool,
    ) -> Capabilities {
        let var = |name| var(name).filter(|value| !value.is_empty());
        let term = var("TERM");
        let dumb = term.as_deref() == Some("dumb");
        // A terminal without `TERM` may still announce colours.
        let capable = !dumb && (term.is_some() || var("COLORTERM").is_some());
        let color = |is_terminal: bool| {
            if var("NO_COLOR").is_some() {
                false
            } else if var("CLICOLOR_FORCE").is_some_and(|value| value != "0") {
                true
            } else {
                is_terminal && capable && var("CLICOLOR").as_deref() != Some("0")
            }
        };
        let utf8 = ["LC_ALL", "LC_CTYPE", "LANG"].into_iter().find_map(var).is_some_and(|locale| {
            let locale = locale.to_ascii_lowercase();
            locale.contains("utf-8") || locale.contains("utf8")
        });
        Capabilities {
            // The Linux console font has no emoji.
            emoji: stdout_is_terminal && capable && utf8 && term.as_deref() != Some("linux"),
            color: color(stdout_is_terminal),
            color_errors: color(stderr_is_terminal),
            status: stderr_is_terminal && capable,
        }
    }
}

/// The meaning of a word or symbol; decides its colour.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TextRole {
    Good,
    Bad,
    Caution,
    Tool,
    Code,
    Heading,
    Faint,
}

impl TextRole {
    pub(crate) fn style(self) -> anstyle::Style {
        let plain = anstyle::Style::new();
        match self {
            TextRole::Good => AnsiColor::Green.on_default(),
            TextRole::Bad => AnsiColor::Red.on_default(),
            TextRole::Caution => AnsiColor::Yellow.on_default(),
            TextRole::Tool | TextRole::Code => AnsiColor::Cyan.on_default(),
            TextRole::Heading => plain.effects(Effects::BOLD),
            TextRole::Faint => plain.effects(Effects::DIMMED),
        }
    }
}

macro_rules! marks {
    ($($name:ident: $emoji:literal, $ascii:literal;)+) => {
        #[derive(Debug)]
        pub(crate) struct Marks {
            $(pub(crate) $name: &'static str,)+
        }

        pub(crate) static EMOJI: Marks = Marks { $($name: $emoji,)+ };
        pub(crate) static ASCII: Marks = Marks { $($name: $ascii,)+ };
    };
}

marks! {
    rule: "━━━", "===";
    tool: "⏺", "[TOOL]";
    ok: "✅", "[OK]";
    error: "❌", "[ERR]";
    denied: "⛔", "[DENIED]";
    stopped: "🛑", "[STOP]";
    warning: "⚠️", "[WARN]";
    notice: "💬", "[NOTE]";
    thinking: "💭", "[THINK]";
    from: "←", "<-";
    preview: "⎿", "|";
    todo: "📋", "[TODO]";
    done: "✅", "[x]";
    active: "🔄", "[>]";
    pending: "⏸️", "[ ]";
    progress: "📊 ", "";
    guardrail: "🧪", "[CHECK]";
    scm: "📦", "[SCM]";
    retry: "🔁", "[RETRY]";
    more: "…", "...";
    separator: " · ", " | ";
}

impl Marks {
    pub(crate) fn for_emoji(emoji: bool) -> &'static Marks {
        if emoji { &EMOJI } else { &ASCII }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terminal_capabilities_follow_environment() {
        // Variables, stdout and stderr are terminals; emoji, colour of each, status line.
        type Row = (&'static [&'static str], [bool; 2], [bool; 4]);
        const ON: bool = true;
        const OFF: bool = false;
        let rows: &[Row] = &[
            (&["TERM=xterm", "LANG=en_US.UTF-8"], [ON, ON], [ON, ON, ON, ON]),
            (&["TERM=xterm", "LANG=en_US.UTF-8"], [OFF, ON], [OFF, OFF, ON, ON]),
            (&["TERM=xterm", "LANG=en_US.UTF-8"], [ON, OFF], [ON, ON, OFF, OFF]),
            (&["TERM=xterm", "LANG=C"], [ON, ON], [OFF, ON, ON, ON]),
            (&["TERM=xterm"], [ON, ON], [OFF, ON, ON, ON]),
            // The first that is set and not empty counts.
            (&["TERM=xterm", "LC_ALL=C", "LANG=de_DE.utf8"], [ON, ON], [OFF, ON, ON, ON]),
            (&["TERM=xterm", "LC_ALL=", "LC_CTYPE=UTF-8", "LANG=C"], [ON, ON], [ON, ON, ON, ON]),
            (&["TERM=xterm", "LANG=C.UTF-8", "NO_COLOR=1"], [ON, ON], [ON, OFF, OFF, ON]),
            (&["TERM=xterm", "NO_COLOR="], [ON, ON], [OFF, ON, ON, ON]),
            (&["NO_COLOR=1", "CLICOLOR_FORCE=1"], [ON, ON], [OFF, OFF, OFF, OFF]),
            (&["CLICOLOR_FORCE=1"], [OFF, OFF], [OFF, ON, ON, OFF]),
            (&["TERM=xterm", "CLICOLOR_FORCE=0"], [OFF, OFF], [OFF; 4]),
            (&["TERM=xterm", "CLICOLOR=0"], [ON, ON], [OFF, OFF, OFF, ON]),
            (&["TERM=dumb", "COLORTERM=truecolor", "LANG=C.UTF-8"], [ON, ON], [OFF; 4]),
            (&["LANG=C.UTF-8"], [ON, ON], [OFF; 4]),
            (&["COLORTERM=truecolor", "LANG=C.UTF-8"], [ON, ON], [ON; 4]),
            (&["TERM=linux", "LANG=C.UTF-8"], [ON, ON], [OFF, ON, ON, ON]),
        ];
        for (vars, [out, err], expected) in rows {
            let var = |name: &str| {
                vars.iter().find_map(|var| {
                    let (key, value) = var.split_once('=')?;
                    (key == name).then(|| value.to_owned())
                })
            };
            let found = Capabilities::detect(var, *out, *err);
            assert_eq!(
                [found.emoji, found.color, found.color_errors, found.status],
                *expected,
                "{vars:?} {out} {err}"
            );
        }
    }

    #[test]
    fn plain_marks_are_ascii_only() {
        let marks = format!("{ASCII:?}");
        assert!(marks.is_ascii(), "{marks}");
    }
}
