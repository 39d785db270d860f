//! Every git call: SCM tasks after an iteration, and the state of the repository.
//!
//! There is no shell: a commit message with `$(…)` is committed as it is. Agents have worked in
//! these repositories, so git executes nothing that they can name ([`hardening`], [`config_trust`],
//! [`link_guard`]). The crate knows nothing of agents, sandboxes or the loop.

#![forbid(unsafe_code)]

mod agent_git;
pub mod branch;
mod commit;
pub mod commit_guard;
pub mod config_trust;
pub mod environment;
pub mod file_history;
mod git_call;
pub mod hardening;
pub mod head_log;
pub mod link_guard;
pub mod lock_files;
mod repository;
mod scm_tasks;
pub mod status;
mod uncommitted;
pub mod work_tree;
pub mod worktree_entry;

pub use agent_git::{commit_identity_env, git_directories};
pub use commit::{CommitResult, commit_paths};
pub use git_call::{run_git, run_git_slow};
pub use repository::{
    add_init_hint, head_commit, is_in_repository, repository_dirs, require_repository,
};
pub use scm_tasks::{ScmProcess, ScmSpec};
pub use uncommitted::{
    format_file_list, is_tracked_candidate, list_uncommitted, list_uncommitted_recursive,
    parse_submodules, status_files, submodules,
};
