//! Who is shown a run, and how.

use crate::cli::{LoopArgs, OutputForm};
use crate::config::Settings;
use crate::report::human::Human;
use crate::report::json::Json;
use crate::report::style::{Capabilities, Style};
use crate::report::{Pace, Reporter};

pub(in crate::cli) fn style(args: &LoopArgs, settings: &Settings) -> Style {
    let display = &settings.display;
    let base = match args.output {
        OutputForm::Human => Capabilities::of_this_process(),
        OutputForm::Plain | OutputForm::Json => Capabilities::NONE,
    };
    let human = args.output == OutputForm::Human;
    Style {
        emoji: if human { display.emoji.unwrap_or(base.emoji) } else { false },
        color: if human { display.color.unwrap_or(base.color) } else { false },
        color_errors: if human { display.color.unwrap_or(base.color_errors) } else { false },
        timestamps: display.timestamps,
        max_output_lines: display.max_output_lines as usize,
        max_output_chars: display.max_output_chars as usize,
        verbose: args.verbose,
        quiet: args.quiet,
        show_stream: settings.stream_agent_output,
        status: base.status,
    }
}

pub(in crate::cli) fn reporter(form: OutputForm, style: Style, pace: Pace) -> Box<dyn Reporter> {
    match form {
        OutputForm::Json => Box::new(Json::stdio(pace)),
        OutputForm::Human | OutputForm::Plain => Box::new(Human::stdio(style, pace)),
    }
}
