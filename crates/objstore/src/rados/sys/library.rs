//! librados, loaded when a store needs it and not before: the program neither links with Ceph nor
//! needs it without a store in Ceph.
//!
//! Not here: the purpose of the functions ([`super`]).
//!
//! Invariant: the library is loaded once and never unloaded, because it has threads of its own; so
//! its functions may be called as long as the process lives.

use std::ffi::{c_char, c_int, c_void};
use std::sync::OnceLock;

use libloading::Library;
use types::{Errno, Error, Result};

/// Ceph has kept this number since 2012.
const FILE: &str = "librados.so.2";

/// A cluster handle, an I/O context, a completion, an operation: pointers that only librados reads.
pub(super) type Handle = *mut c_void;
/// Answers a notification: the argument of `rados_watch3`, the notification, the watch, the sender,
/// and the bytes sent along.
pub(super) type OnNotify = extern "C" fn(Handle, u64, u64, u64, Handle, usize);
/// Hears that a watch is lost.
pub(super) type OnLost = extern "C" fn(Handle, u64, c_int);

macro_rules! functions {
    ($($(#[$doc:meta])* fn $name:ident($($argument:ident: $kind:ty),* $(,)?) $(-> $result:ty)?;)*) => {
        /// The functions that are used, as `rados/librados.h` of Ceph 16 declares them.
        #[derive(Debug)]
        pub(super) struct Api {
            $($(#[$doc])* pub(super) $name: unsafe extern "C" fn($($kind),*) $(-> $result)?,)*
        }

        impl Api {
            fn find(library: &Library) -> std::result::Result<Self, libloading::Error> {
                Ok(Self { $($name: function(library, stringify!($name))?,)* })
            }
        }
    };
}

functions! {
    fn rados_create2(cluster: *mut Handle, name: *const c_char, user: *const c_char, flags: u64) -> c_int;
    fn rados_conf_read_file(cluster: Handle, path: *const c_char) -> c_int;
    fn rados_conf_set(cluster: Handle, option: *const c_char, value: *const c_char) -> c_int;
    fn rados_connect(cluster: Handle) -> c_int;
    fn rados_shutdown(cluster: Handle);
    fn rados_get_instance_id(cluster: Handle) -> u64;
    fn rados_mon_command(
        cluster: Handle,
        command: *mut *const c_char,
        commands: usize,
        input: *const c_char,
        input_bytes: usize,
        output: *mut *mut c_char,
        output_bytes: *mut usize,
        status: *mut *mut c_char,
        status_bytes: *mut usize,
    ) -> c_int;
    fn rados_buffer_free(buffer: *mut c_char);
    fn rados_blocklist_add(cluster: Handle, address: *mut c_char, seconds: u32) -> c_int;
    fn rados_ioctx_create(cluster: Handle, pool: *const c_char, io: *mut Handle) -> c_int;
    fn rados_ioctx_destroy(io: Handle);
    fn rados_ioctx_set_namespace(io: Handle, namespace: *const c_char);
    fn rados_set_osdmap_full_try(io: Handle);
    fn rados_aio_create_completion2(argument: Handle, callback: Handle, completion: *mut Handle) -> c_int;
    fn rados_aio_wait_for_complete(completion: Handle) -> c_int;
    fn rados_aio_get_return_value(completion: Handle) -> c_int;
    fn rados_aio_get_version(completion: Handle) -> u64;
    fn rados_aio_release(completion: Handle);
    fn rados_create_write_op() -> Handle;
    fn rados_release_write_op(op: Handle);
    fn rados_write_op_assert_version(op: Handle, version: u64);
    fn rados_write_op_cmpxattr(op: Handle, name: *const c_char, comparison: u8, value: *const c_char, bytes: usize);
    fn rados_write_op_setxattr(op: Handle, name: *const c_char, value: *const c_char, bytes: usize);
    fn rados_write_op_rmxattr(op: Handle, name: *const c_char);
    fn rados_write_op_create(op: Handle, exclusive: c_int, category: *const c_char);
    fn rados_write_op_write(op: Handle, data: *const c_char, bytes: usize, offset: u64);
    fn rados_write_op_write_full(op: Handle, data: *const c_char, bytes: usize);
    fn rados_write_op_remove(op: Handle);
    fn rados_aio_write_op_operate(
        op: Handle,
        io: Handle,
        completion: Handle,
        object: *const c_char,
        time: *mut i64,
        flags: c_int,
    ) -> c_int;
    fn rados_create_read_op() -> Handle;
    fn rados_release_read_op(op: Handle);
    fn rados_read_op_assert_version(op: Handle, version: u64);
    fn rados_read_op_stat(op: Handle, size: *mut u64, time: *mut i64, result: *mut c_int);
    fn rados_read_op_read(
        op: Handle,
        offset: u64,
        bytes: usize,
        buffer: *mut c_char,
        read: *mut usize,
        result: *mut c_int,
    );
    fn rados_read_op_getxattrs(op: Handle, iterator: *mut Handle, result: *mut c_int);
    fn rados_getxattrs_next(
        iterator: Handle,
        name: *mut *const c_char,
        value: *mut *const c_char,
        bytes: *mut usize,
    ) -> c_int;
    fn rados_getxattrs_end(iterator: Handle);
    fn rados_aio_read_op_operate(
        op: Handle,
        io: Handle,
        completion: Handle,
        object: *const c_char,
        flags: c_int,
    ) -> c_int;
    fn rados_nobjects_list_open(io: Handle, list: *mut Handle) -> c_int;
    fn rados_nobjects_list_next(
        list: Handle,
        name: *mut *const c_char,
        key: *mut *const c_char,
        namespace: *mut *const c_char,
    ) -> c_int;
    fn rados_nobjects_list_close(list: Handle);
    fn rados_lock_exclusive(
        io: Handle,
        object: *const c_char,
        name: *const c_char,
        cookie: *const c_char,
        description: *const c_char,
        duration: Handle,
        flags: u8,
    ) -> c_int;
    fn rados_lock_shared(
        io: Handle,
        object: *const c_char,
        name: *const c_char,
        cookie: *const c_char,
        tag: *const c_char,
        description: *const c_char,
        duration: Handle,
        flags: u8,
    ) -> c_int;
    fn rados_unlock(io: Handle, object: *const c_char, name: *const c_char, cookie: *const c_char) -> c_int;
    fn rados_break_lock(
        io: Handle,
        object: *const c_char,
        name: *const c_char,
        client: *const c_char,
        cookie: *const c_char,
    ) -> c_int;
    fn rados_list_lockers(
        io: Handle,
        object: *const c_char,
        name: *const c_char,
        exclusive: *mut c_int,
        tag: *mut c_char,
        tag_bytes: *mut usize,
        clients: *mut c_char,
        clients_bytes: *mut usize,
        cookies: *mut c_char,
        cookies_bytes: *mut usize,
        addresses: *mut c_char,
        addresses_bytes: *mut usize,
    ) -> isize;
    fn rados_watch3(
        io: Handle,
        object: *const c_char,
        watch: *mut u64,
        on_notify: OnNotify,
        on_lost: OnLost,
        timeout_s: u32,
        argument: Handle,
    ) -> c_int;
    fn rados_unwatch2(io: Handle, watch: u64) -> c_int;
    fn rados_watch_flush(cluster: Handle) -> c_int;
    fn rados_notify2(
        io: Handle,
        object: *const c_char,
        data: *const c_char,
        bytes: c_int,
        timeout_ms: u64,
        reply: *mut *mut c_char,
        reply_bytes: *mut usize,
    ) -> c_int;
    fn rados_notify_ack(
        io: Handle,
        object: *const c_char,
        notification: u64,
        watch: u64,
        data: *const c_char,
        bytes: c_int,
    ) -> c_int;
}

fn function<F: Copy>(library: &Library, name: &str) -> std::result::Result<F, libloading::Error> {
    // SAFETY: `F` is inferred from the field of `Api` with the name of the symbol, and is the type
    // that Ceph's header declares; the symbol stays valid because the library is never unloaded.
    Ok(*unsafe { library.get::<F>(name.as_bytes()) }?)
}

/// The library.
///
/// # Errors
/// `EOPNOTSUPP` if it is not installed, or too old.
pub(super) fn api() -> Result<&'static Api> {
    static API: OnceLock<std::result::Result<Api, String>> = OnceLock::new();
    let found = API.get_or_init(|| {
        // SAFETY: librados is made to be loaded by any program; its constructors set up tables of
        // its own.
        let library = unsafe { Library::new(FILE) }
            .map_err(|error| format!("the Ceph client library cannot be loaded: {error}"))?;
        let api = Api::find(&library)
            .map_err(|error| format!("the Ceph client library is older than Ceph 16: {error}"))?;
        std::mem::forget(library);
        end_at_once();
        Ok(api)
    });
    found.as_ref().map_err(|cause| {
        Error::new(Errno::NotSupported, "rados:", cause.clone()).remedy(
            "install it (Debian, Ubuntu: apt-get install librados2; Fedora: dnf install librados2)",
        )
    })
}

/// When the process ends, librados takes its tables down, even while the process's threads use them
/// at that moment; those then end in an exception that aborts the process. So the process ends
/// before that: nothing here relies on this cleanup of librados, as it could not if the process was
/// killed.
fn end_at_once() {
    #[cfg(target_env = "gnu")]
    {
        unsafe extern "C" {
            fn on_exit(act: extern "C" fn(c_int, Handle), argument: Handle) -> c_int;
            fn _exit(status: c_int) -> !;
        }
        extern "C" fn end(status: c_int, _argument: Handle) {
            // SAFETY: it takes a number and does not return.
            unsafe { _exit(status) }
        }
        // SAFETY: a function that may be called at any time. The function registered last is called
        // first, so before those that librados registered when it was loaded. If there is no room
        // for it, the process ends as it would without.
        unsafe { on_exit(end, std::ptr::null_mut()) };
    }
}
