//! Random bytes read as a manifest or a run: any answer will do, but no panic and no runaway memory.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let _ = metastore::fuzz::decode(data);
});
