//! Benchmarks, each compared with the minimum that any program needs, measured in the same run.
//!
//! `cargo bench --bench ralph` runs all; `-- start hooks iteration sandbox stream memory silent
//! loops workers monitor ui serve` selects. `memory=5000` uses 5,000 MB of output, and as much disk.
//!
//! `-- soak` runs only on request: 10,000 iterations and 20 GB of output, 600 MB of them on disk,
//! in some minutes. `soak=500` uses 500 MB.

#[cfg(target_os = "linux")]
mod bench_dir;
#[cfg(target_os = "linux")]
mod hooks;
#[cfg(target_os = "linux")]
mod monitor;
#[cfg(target_os = "linux")]
mod null_world;
#[cfg(target_os = "linux")]
mod sandbox;
#[cfg(target_os = "linux")]
mod sections;
#[cfg(target_os = "linux")]
mod serve;
#[cfg(target_os = "linux")]
mod soak;
#[cfg(target_os = "linux")]
mod table;
#[cfg(target_os = "linux")]
mod ui;
#[cfg(target_os = "linux")]
mod workers;
#[cfg(target_os = "linux")]
mod writer;

#[cfg(target_os = "linux")]
fn main() -> std::io::Result<()> {
    // Under this name it is the agent of the benchmarks.
    if bench_dir::called_as("claude") {
        return writer::main();
    }
    sections::main()
}

#[cfg(not(target_os = "linux"))]
fn main() {
    // Measurements need /proc.
}
