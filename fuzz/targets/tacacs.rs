#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| lanyard_access::fuzz_tacacs(data));
