//! `libcudele-preload.so`: answers the calls of libc for files of a job from shared memory.
//!
//! `cudele run --preload` starts a job's programs with this library. It has functions with the
//! names of libc's (modules of `calls`). A call about a path below the job's directory, or about a
//! descriptor of such a file, is answered from the region that all processes of the job share
//! (crate `jobtree`); every other call is passed to libc. A function of libc that is not here
//! reaches the files through the mount. The mount then closes the region, and from that moment on
//! the calls here go to the mount as well: slower, and the same files.
//!
//! | part | module |
//! |---|---|
//! | the region of this process's job | `job` |
//! | which paths are in it | `path` |
//! | descriptors of its files | `descriptors` |
//! | requests to the process that keeps the region | `keeper` |
//! | the functions | `calls` |
//!
//! No thread is started in the program, nothing is allocated in the calls that a signal handler may
//! make, and a fork needs no preparation: the state that processes share is in the region.
//!
//! Invariant: a call that cannot be answered exactly as the mount would is not answered here.
#![allow(unsafe_code, reason = "called in place of libc, with the pointers of its callers")]
#![allow(
    clippy::missing_safety_doc,
    clippy::not_unsafe_ptr_arg_deref,
    reason = "every function has the contract of the function of libc with its name"
)]
#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_possible_wrap,
    reason = "the types of libc differ from those of the region in width and sign only"
)]
#![allow(missing_docs, reason = "the functions are libc's; its manual describes them")]
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "I/O edge: carries out system calls"
)]

mod calls;
mod descriptors;
mod job;
mod keeper;
mod path;
mod real;

/// Runs before the program.
#[used]
#[unsafe(link_section = ".init_array")]
static START: extern "C" fn() = start;

/// Runs at a normal end of the program.
#[used]
#[unsafe(link_section = ".fini_array")]
static END: extern "C" fn() = end;

extern "C" fn start() {
    job::job();
}

extern "C" fn end() {
    descriptors::close_at_exit();
}
