//! The target of `decoders` that `CUDELE_FUZZ_TARGET` names.
#![no_main]

use std::sync::LazyLock;

static TARGET: LazyLock<&decoders::Target> = LazyLock::new(|| {
    let name = std::env::var("CUDELE_FUZZ_TARGET").expect("CUDELE_FUZZ_TARGET names a target");
    decoders::target(&name).expect("`cargo xtask fuzz` lists the targets")
});

libfuzzer_sys::fuzz_target!(|data: &[u8]| (TARGET.run)(data));
