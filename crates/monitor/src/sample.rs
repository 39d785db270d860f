//! An invented evening of runs.
