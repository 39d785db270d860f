//! Failures around ralph: it reports them, keeps the work, and leaves nothing running.

mod support;

mod ugly {
    mod commands;
    mod crash;
    mod disk;
    mod gone;
    mod input;
    mod output;
    mod processes;
}
