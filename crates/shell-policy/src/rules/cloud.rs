//! Cloud and infrastructure.

use super::{CommandInvocation, Hits};
use crate::Family::Cloud;

const PLAN: &str = "show the plan and leave carrying it out to a person";

pub(super) fn check(command: &CommandInvocation<'_>, hits: &mut Hits) {
    let sub = |word: &str| command.subcommand() == word;
    let value = |flags: &[&str], word: &str| {
        command.values(flags).iter().any(|value| value.text.eq_ignore_ascii_case(word))
    };
    if command.is(&["gh", "glab"]) && sub("api") && value(&["-X", "--method"], "delete") {
        hits.deny(Cloud, "it deletes what others may rely on", PLAN);
    }
    if command.is(&["kubectl", "oc", "k"]) && sub("scale") && value(&["--replicas"], "0") {
        hits.deny(Cloud, "it stops what runs in a cluster", PLAN);
    }
}
