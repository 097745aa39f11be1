//! Random bytes read as a policy file: any answer will do, but no panic and no runaway memory.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let _ = policy::Policy::parse_bytes(data);
});
