//! Random bytes read as a frame and the message in it: any answer will do, but no panic and no runaway memory.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let _ = wire::fuzz::decode(data);
});
