//! What goes wrong around ralph, and what ralph does then: says what happened, keeps what was done,
//! leaves nothing running.

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
