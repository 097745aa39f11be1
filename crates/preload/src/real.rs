//! The functions of libc, which this library stands in front of.

use std::ffi::{CStr, c_int, c_long, c_void};
use std::sync::atomic::{AtomicPtr, Ordering};

/// Where the address of a function is kept.
pub(crate) struct Symbol {
    name: &'static CStr,
    address: AtomicPtr<c_void>,
}

impl Symbol {
    /// A function by its name, with a zero byte at the end.
    pub(crate) const fn new(name: &'static str) -> Self {
        let Ok(name) = CStr::from_bytes_with_nul(name.as_bytes()) else {
            panic!("a name has one zero byte, at its end");
        };
        Self { name, address: AtomicPtr::new(std::ptr::null_mut()) }
    }

    /// The address; null if libc does not have it.
    #[inline]
    pub(crate) fn address(&self) -> *mut c_void {
        let known = self.address.load(Ordering::Relaxed);
        if known.is_null() { self.find() } else { known }
    }

    #[cold]
    fn find(&self) -> *mut c_void {
        // SAFETY: the name ends with a zero byte.
        let found = unsafe { libc::dlsym(libc::RTLD_NEXT, self.name.as_ptr()) };
        self.address.store(found, Ordering::Relaxed);
        found
    }
}

/// Calls the function of libc: `real!(open(path: *const c_char, flags: c_int) -> c_int)`. A missing
/// one fails with `ENOSYS`.
macro_rules! real {
    ($name:ident($($arg:ident: $type:ty),*) -> $result:ty, $failed:expr) => {{
        static SYMBOL: $crate::real::Symbol =
            $crate::real::Symbol::new(concat!(stringify!($name), "\0"));
        let address = SYMBOL.address();
        if address.is_null() {
            $crate::real::set_errno(libc::ENOSYS);
            $failed
        } else {
            // SAFETY: the function of libc with this name has this signature, and gets the
            // arguments of this library's caller.
            #[allow(unused_unsafe, reason = "some callers are unsafe themselves")]
            let result = unsafe {
                let function: unsafe extern "C" fn($($type),*) -> $result =
                    std::mem::transmute::<*mut std::ffi::c_void, _>(address);
                function($($arg),*)
            };
            result
        }
    }};
    ($name:ident($($arg:ident: $type:ty),*) -> $result:ty) => {
        real!($name($($arg: $type),*) -> $result, -1)
    };
}
pub(crate) use real;

pub(crate) fn set_errno(errno: c_int) {
    // SAFETY: the location of this thread.
    unsafe { *libc::__errno_location() = errno }
}

pub(crate) fn errno() -> c_int {
    // SAFETY: the location of this thread.
    unsafe { *libc::__errno_location() }
}

/// Fails.
#[cold]
pub(crate) fn fail(errno: c_int) -> c_int {
    set_errno(errno);
    -1
}

/// An argument of a system call.
pub(crate) trait Word {
    /// All 64 bits of it.
    fn word(self) -> c_long;
}

macro_rules! words {
    ($($type:ty),*) => {$(
        impl Word for $type {
            #[inline]
            fn word(self) -> c_long {
                self as c_long
            }
        }
    )*};
}

words!(c_int, u32, c_long, u64, usize);

impl<T> Word for *const T {
    #[inline]
    fn word(self) -> c_long {
        self as usize as c_long
    }
}

impl<T> Word for *mut T {
    #[inline]
    fn word(self) -> c_long {
        self as usize as c_long
    }
}

/// A system call past all functions of libc. Its arguments are whole words: of a smaller one, the
/// kernel would read the rest as well.
macro_rules! sys {
    ($number:expr $(, $argument:expr)* $(,)?) => {
        libc::syscall($number $(, $crate::real::Word::word($argument))*)
    };
}
pub(crate) use sys;
