//! `include/cudele.h` equals the header that the functions generate.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::unwrap_used,
    reason = "I/O edge: the test reads the sources and the header"
)]

use std::path::Path;

/// In the order in which the header has them.
const SOURCES: [&str; 5] = ["connection", "names", "attributes", "files", "subtrees"];

#[test]
fn the_header_is_up_to_date() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let config = cbindgen::Config::from_file(here.join("cbindgen.toml")).unwrap();
    let mut builder = cbindgen::Builder::new().with_config(config);
    for source in SOURCES {
        builder = builder.with_src(here.join("src/ffi").join(source).with_extension("rs"));
    }
    let mut generated = Vec::new();
    builder.generate().unwrap().write(&mut generated);
    let header = here.join("include/cudele.h");
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        std::fs::write(&header, &generated).unwrap();
    }
    let (generated, committed) =
        (String::from_utf8(generated).unwrap(), std::fs::read_to_string(&header));
    assert_eq!(
        committed.unwrap_or_default(),
        generated,
        "`UPDATE_EXPECT=1 cargo test -p capi` generates it anew"
    );
    // The header declares every exported function.
    let mut functions = 0;
    for source in SOURCES {
        let text = std::fs::read_to_string(here.join("src/ffi").join(source).with_extension("rs"));
        let text = text.unwrap();
        assert_eq!(
            text.matches("#[unsafe(no_mangle)]").count(),
            text.matches("extern \"C\" fn ").count()
        );
        for rest in text.split("extern \"C\" fn ").skip(1) {
            let name = rest.split('(').next().unwrap();
            assert!(generated.contains(&format!("{name}(")), "{name}");
            functions += 1;
        }
    }
    assert!(functions > 30, "{functions}");
}
