//! `ralph hook` with flags or for help. Other calls take the fast path in `main`.

use clap::Args;

use crate::hooks;

#[derive(Debug, Args)]
pub struct HookArgs {
    /// pre-tool-use, post-tool-use, stop or session-start.
    pub name: String,
}

pub fn hook(args: HookArgs) -> u8 {
    hooks::main(&[args.name.into()]);
    0
}
