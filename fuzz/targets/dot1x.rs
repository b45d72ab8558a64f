#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| lanyard_dot1x::fuzz(data));
