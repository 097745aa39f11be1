//! Random bytes read as a journal, whole or torn: any answer will do, but no panic and no runaway memory.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let _ = journal::fuzz::decode(data);
});
