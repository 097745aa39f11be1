//! Gives the shared library the name under which it is installed and looked for by programs. It ends
//! with the version of the interface, `CUDELE_ABI` in the header.

fn main() {
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libcudele.so.0");
    println!("cargo::rerun-if-changed=build.rs");
}
