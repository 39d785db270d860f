#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| targets::journal_reader(data));
