//! Files that ralph keeps, and the one place that writes them.

pub mod save;
