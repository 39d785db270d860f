//! Colours, signs and borders for the terminal at hand.
//!
//! The page background is never painted. RGB colours are used only when the terminal has them and has
//! told its background, and only if every text colour can be read on it.

use ratatui_core::style::{Color, Modifier, Style};

/// The meaning of a text or mark. The theme decides how it looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    Ink,
    /// Names, headings, keys.
    Strong,
    Muted,
    Attention,
    Working,
    Done,
    Failed,
    /// Hairlines.
    Line,
    /// Borders of dialogs and fields.
    Edge,
    BarPassed,
    BarFailed,
    BarNow,
}

type Rgb = [u8; 3];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Palette {
    ink: Rgb,
    muted: Rgb,
    attention: Rgb,
    working: Rgb,
    done: Rgb,
    failed: Rgb,
    line: Rgb,
    edge: Rgb,
    selected: Rgb,
    added: Rgb,
    removed: Rgb,
    /// Passed, failed, now.
    bars: [Rgb; 3],
}

const DARK: Palette = Palette {
    ink: rgb(0xe7edea),
    muted: rgb(0x9fada8),
    attention: rgb(0xf2b25c),
    working: rgb(0x7db8ff),
    done: rgb(0x74d19c),
    failed: rgb(0xff9387),
    line: rgb(0x2b3431),
    edge: rgb(0x6c7a75),
    selected: rgb(0x20302c),
    added: rgb(0x12291d),
    removed: rgb(0x2f1a19),
    bars: [rgb(0x61706a), rgb(0xd2695f), rgb(0x7db8ff)],
};

const LIGHT: Palette = Palette {
    ink: rgb(0x16201d),
    muted: rgb(0x56635e),
    attention: rgb(0x8a4b00),
    working: rgb(0x1759a8),
    done: rgb(0x1a6b41),
    failed: rgb(0xb3241c),
    line: rgb(0xd9e0dd),
    edge: rgb(0x7b8884),
    selected: rgb(0xe3ece8),
    added: rgb(0xe2f4e8),
    removed: rgb(0xfce6e4),
    bars: [rgb(0x83908b), rgb(0xcf6259), rgb(0x3f82d6)],
};

/// A terminal above this relative luminance is light.
const LIGHT_FROM: f64 = 0.18;
const MIN_CONTRAST: f64 = 4.5;

const fn rgb(hex: u32) -> Rgb {
    let [_, r, g, b] = hex.to_be_bytes();
    [r, g, b]
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Colors {
    Rgb(Palette),
    /// Red and green of the terminal, and attributes.
    Sixteen,
    /// `NO_COLOR`: attributes only.
    None,
}

/// Facts about the terminal from the environment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Capabilities {
    pub color: bool,
    pub true_color: bool,
    pub unicode: bool,
}

impl Capabilities {
    pub fn detect(var: impl Fn(&str) -> Option<String>) -> Capabilities {
        let detected = ralph_report::style::Capabilities::detect(&var, true, true);
        let color_term = var("COLORTERM").unwrap_or_default();
        let true_color = ["truecolor", "24bit"].contains(&color_term.as_str())
            || var("TERM").is_some_and(|term| term.ends_with("-direct"));
        Capabilities { color: detected.color, true_color, unicode: detected.emoji }
    }

    /// Whether it is worth asking for the background.
    pub fn uses_background(self) -> bool {
        self.color && self.true_color
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Theme {
    colors: Colors,
    pub ascii: bool,
}

impl Theme {
    pub fn new(capabilities: Capabilities, background: Option<Rgb>) -> Theme {
        let palette = background.filter(|_| capabilities.uses_background()).and_then(palette_for);
        let colors = match palette {
            Some(palette) => Colors::Rgb(palette),
            None if capabilities.color => Colors::Sixteen,
            None => Colors::None,
        };
        Theme { colors, ascii: !capabilities.unicode }
    }

    pub fn style(&self, role: Role) -> Style {
        let plain = Style::new();
        let bold = |style: Style| match role {
            Role::Strong | Role::Attention => style.add_modifier(Modifier::BOLD),
            _ => style,
        };
        match &self.colors {
            Colors::Rgb(palette) => bold(plain.fg(color(palette.of(role)))),
            Colors::Sixteen | Colors::None => match role {
                Role::Attention => plain.add_modifier(Modifier::BOLD | Modifier::REVERSED),
                Role::Muted | Role::Line | Role::Edge | Role::BarPassed => {
                    plain.add_modifier(Modifier::DIM)
                }
                Role::Failed | Role::BarFailed if self.has_colors() => plain.fg(Color::Red),
                Role::Failed => plain.add_modifier(Modifier::BOLD),
                Role::Done if self.has_colors() => plain.fg(Color::Green),
                Role::Ink | Role::Working | Role::Done | Role::BarNow | Role::BarFailed => plain,
                Role::Strong => bold(plain),
            },
        }
    }

    fn has_colors(&self) -> bool {
        self.colors != Colors::None
    }

    /// Behind the selected row, if there is a background for it. Otherwise the whole row is reversed
    /// in one style.
    pub fn selected_background(&self) -> Option<Style> {
        self.background(|palette| palette.selected)
    }

    /// Behind added and removed lines.
    pub fn diff_background(&self, is_added: bool) -> Option<Style> {
        self.background(|palette| if is_added { palette.added } else { palette.removed })
    }

    fn background(&self, of: impl Fn(&Palette) -> Rgb) -> Option<Style> {
        match &self.colors {
            Colors::Rgb(palette) => Some(Style::new().bg(color(of(palette)))),
            Colors::Sixteen | Colors::None => None,
        }
    }

    /// Replaces what a terminal without Unicode cannot show. Each sign keeps its width.
    pub fn text<'a>(&self, text: &'a str) -> std::borrow::Cow<'a, str> {
        if !self.ascii || text.is_ascii() {
            return text.into();
        }
        text.chars().map(ascii_char).collect::<String>().into()
    }

    pub fn ellipsis(&self) -> &'static str {
        if self.ascii { ".." } else { "…" }
    }
}

fn ascii_char(c: char) -> char {
    match c {
        c if c.is_ascii() => c,
        '·' | '│' => '|',
        '─' | '━' => '-',
        '┌' | '┐' | '└' | '┘' | '┬' | '┴' | '├' | '┤' => '+',
        '▌' => '>',
        '●' => '*',
        '○' => 'o',
        '◌' => '.',
        '✓' => '+',
        '✗' => 'x',
        '■' => '#',
        '•' => '*',
        '▏' => '_',
        '↑' => '^',
        '↓' => 'v',
        '↔' => ' ',
        '×' => 'x',
        '−' => '-',
        '…' => '.',
        '▁'..='█' => '#',
        _ => '?',
    }
}

impl Palette {
    fn of(&self, role: Role) -> Rgb {
        match role {
            Role::Ink | Role::Strong => self.ink,
            Role::Muted => self.muted,
            Role::Attention => self.attention,
            Role::Working => self.working,
            Role::Done => self.done,
            Role::Failed => self.failed,
            Role::Line => self.line,
            Role::Edge => self.edge,
            Role::BarPassed => self.bars[0],
            Role::BarFailed => self.bars[1],
            Role::BarNow => self.bars[2],
        }
    }

    fn text_colors(&self) -> [Rgb; 6] {
        [self.ink, self.muted, self.attention, self.working, self.done, self.failed]
    }
}

/// The palette whose every text colour can be read on this background.
fn palette_for(background: Rgb) -> Option<Palette> {
    let palette = if luminance(background) > LIGHT_FROM { LIGHT } else { DARK };
    let is_readable =
        palette.text_colors().iter().all(|text| contrast(*text, background) >= MIN_CONTRAST);
    is_readable.then_some(palette)
}

/// Relative luminance as WCAG defines it.
fn luminance(color: Rgb) -> f64 {
    let [r, g, b] = color.map(|channel| {
        let value = f64::from(channel) / 255.0;
        if value <= 0.040_45 { value / 12.92 } else { ((value + 0.055) / 1.055).powf(2.4) }
    });
    0.2126 * r + 0.7152 * g + 0.0722 * b
}

fn contrast(one: Rgb, other: Rgb) -> f64 {
    let (one, other) = (luminance(one) + 0.05, luminance(other) + 0.05);
    one.max(other) / one.min(other)
}

fn color([r, g, b]: Rgb) -> Color {
    Color::Rgb(r, g, b)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FULL: Capabilities = Capabilities { color: true, true_color: true, unicode: true };

    #[test]
    fn palette_follows_background_and_must_be_readable() {
        let palette = |background| Theme::new(FULL, background).colors;
        assert_eq!(palette(Some([0x0f, 0x14, 0x13])), Colors::Rgb(DARK));
        assert_eq!(palette(Some([0, 0, 0])), Colors::Rgb(DARK));
        assert_eq!(palette(Some([0xff, 0xff, 0xff])), Colors::Rgb(LIGHT));
        assert_eq!(palette(Some([0xfd, 0xf6, 0xe3])), Colors::Rgb(LIGHT), "Solarized light");
        assert_eq!(palette(Some([0x00, 0x2b, 0x36])), Colors::Rgb(DARK), "Solarized dark");
        assert_eq!(palette(Some([0x80, 0x80, 0x80])), Colors::Sixteen, "grey");
        assert_eq!(palette(None), Colors::Sixteen);
        let few = Capabilities { true_color: false, ..FULL };
        assert_eq!(Theme::new(few, Some([0, 0, 0])).colors, Colors::Sixteen);
        let none = Capabilities { color: false, ..FULL };
        assert_eq!(Theme::new(none, Some([0, 0, 0])).colors, Colors::None);
    }

    #[test]
    fn tokens_reach_their_contrast_on_row_backgrounds() {
        for palette in [DARK, LIGHT] {
            for text in palette.text_colors() {
                let ratio = contrast(text, palette.selected);
                assert!(ratio >= MIN_CONTRAST, "{text:?} on selected: {ratio}");
            }
            assert!(contrast(palette.done, palette.added) >= MIN_CONTRAST);
            assert!(contrast(palette.failed, palette.removed) >= MIN_CONTRAST);
        }
        assert!((contrast(DARK.ink, [0x0f, 0x14, 0x13]) - 15.7).abs() < 0.1);
    }

    #[test]
    fn no_color_means_attributes_only() {
        let theme = Theme::new(Capabilities { color: false, ..FULL }, Some([0, 0, 0]));
        let roles = [Role::Attention, Role::Failed, Role::Done, Role::Working, Role::Muted];
        for role in roles {
            let style = theme.style(role);
            assert_eq!((style.fg, style.bg), (None, None), "{role:?}");
        }
        assert_eq!(theme.selected_background(), None);
    }

    #[test]
    fn environment_decides_colours_and_signs() {
        let detect = |vars: &[(&str, &str)]| {
            Capabilities::detect(|name| {
                vars.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned())
            })
        };
        let utf8 = ("LANG", "C.UTF-8");
        assert_eq!(detect(&[("TERM", "xterm"), utf8, ("COLORTERM", "truecolor")]), FULL);
        assert!(!detect(&[("TERM", "xterm"), utf8, ("NO_COLOR", "1")]).color);
        assert!(!detect(&[("TERM", "linux"), utf8]).unicode);
        assert!(!detect(&[("TERM", "xterm"), ("LANG", "C")]).unicode);
        assert!(!detect(&[("TERM", "xterm-256color"), utf8]).true_color);
    }

    #[test]
    fn ascii_signs_keep_their_width() {
        let theme = Theme::new(Capabilities { unicode: false, ..FULL }, None);
        assert_eq!(theme.text("▌? a · ✓ ● ✗ ─ −3"), ">? a | + * x - -3");
        assert_eq!(theme.text("日"), "?");
    }
}
