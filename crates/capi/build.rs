//! Gives the shared library the name under which it is installed and under which programs load it.
//! The name ends with the version of the interface, `CUDELE_ABI` in the header.

fn main() {
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libcudele.so.0");
    println!("cargo::rerun-if-changed=build.rs");
}
