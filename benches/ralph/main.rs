//! What must stay fast and small, each beside the least that any program would need for it, measured
//! in the same run on the same machine.
//!
//! `cargo bench --bench ralph` measures everything; `-- start hooks iteration sandbox stream memory silent
//! loops workers` chooses. `memory=5000` takes so many megabytes of output for the largest memory measurement, whose
//! journal needs about as much room on disk.
//!
//! `cargo bench --bench ralph -- soak` is a night in some minutes: 10,000 iterations and 20 GB of output in one
//! run, of which 600 MB stay on disk until it ends. It has to be asked for; `soak=500` is the same with 500 MB.

#[cfg(target_os = "linux")]
mod hooks;
#[cfg(target_os = "linux")]
mod null_world;
#[cfg(target_os = "linux")]
mod place;
#[cfg(target_os = "linux")]
mod sandbox;
#[cfg(target_os = "linux")]
mod sections;
#[cfg(target_os = "linux")]
mod soak;
#[cfg(target_os = "linux")]
mod table;
#[cfg(target_os = "linux")]
mod workers;
#[cfg(target_os = "linux")]
mod writer;

#[cfg(target_os = "linux")]
fn main() -> std::io::Result<()> {
    // Under this name it is not the bench but the agent that the bench runs.
    if place::called_as("claude") {
        return writer::main();
    }
    sections::main()
}

#[cfg(not(target_os = "linux"))]
fn main() {
    // What is measured is read from /proc.
}
