#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| idem_fuzz::body(bytes));
