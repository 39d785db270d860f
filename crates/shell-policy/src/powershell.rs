//! PowerShell's command line. Its commands are parsed as bash.

use super::data::DATA;
use super::value::{Argument, KnownOutput, TextOrigin};
use super::walk::ShellWalker;

impl ShellWalker<'_> {
    /// Judges `pwsh -Command …`. Flags ignore case and may be abbreviated.
    pub(super) fn check_powershell(
        &mut self,
        argv: &[Argument],
        stdin: Option<&KnownOutput>,
    ) -> KnownOutput {
        let mut rest = argv.get(1..).unwrap_or_default();
        while let [flag, tail @ ..] = rest {
            let text = flag.text.to_ascii_lowercase();
            let is = |name: &str| text.len() > 1 && name.starts_with(&text);
            if is("-command") {
                return match (tail, stdin) {
                    ([only], Some(input)) if only.text == "-" => {
                        self.run_separately(argv, &input.text, input.origin)
                    }
                    _ => self.run_joined_words(argv, tail),
                };
            }
            if is("-encodedcommand") || text == "-ec" {
                return self.run_text(argv, "", TextOrigin::Decoded);
            }
            if is("-file") {
                return KnownOutput::unknown();
            }
            if !text.starts_with('-') {
                // `powershell` takes it as a command, `pwsh` as a file.
                return match text.ends_with(".ps1") {
                    true => KnownOutput::unknown(),
                    false => self.run_joined_words(argv, rest),
                };
            }
            let valued = text != "-i" && DATA.powershell_option_values.iter().any(|name| is(name));
            rest = if valued { tail.get(1..).unwrap_or_default() } else { tail };
        }
        match stdin.filter(|input| **input != KnownOutput::file()) {
            Some(input) => self.run_separately(argv, &input.text, input.origin),
            None => KnownOutput::unknown(),
        }
    }
}
