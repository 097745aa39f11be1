//! Other programs, child processes, and the identity of this one.

use std::ffi::{CStr, c_char, c_int, c_void};

use libc::{gid_t, mode_t, pid_t, size_t, uid_t};

use crate::descriptors;
use crate::job::{self, before_exec, forget_cred, job};
use crate::real::{errno, fail, real};

const ARGUMENTS_MAX: usize = 1024;

type Arguments = *const *const c_char;

/// The kernel reads the program, and the files that it names, through the mount.
#[unsafe(no_mangle)]
pub extern "C" fn execve(path: *const c_char, arguments: Arguments, variables: Arguments) -> c_int {
    before_exec();
    real!(execve(path: *const c_char, arguments: Arguments, variables: Arguments) -> c_int)
}

/// The variables of this process.
fn variables() -> Arguments {
    unsafe extern "C" {
        static environ: Arguments;
    }
    // SAFETY: a variable of libc.
    unsafe { environ }
}

#[unsafe(no_mangle)]
pub extern "C" fn execv(path: *const c_char, arguments: Arguments) -> c_int {
    execve(path, arguments, variables())
}

#[unsafe(no_mangle)]
pub extern "C" fn execvpe(
    name: *const c_char,
    arguments: Arguments,
    variables: Arguments,
) -> c_int {
    if job().is_none() {
        return real!(execvpe(name: *const c_char, arguments: Arguments, variables: Arguments)
            -> c_int);
    }
    let mut failed = libc::ENOENT;
    let done = search(name, |path| {
        execve(path, arguments, variables);
        match errno() {
            libc::ENOEXEC => {
                run_by_shell(path, arguments, variables);
                Some(errno())
            }
            libc::EACCES => {
                failed = libc::EACCES;
                None
            }
            libc::ENOENT | libc::ENOTDIR | libc::ESTALE | libc::ENODEV | libc::ETIMEDOUT => None,
            errno => Some(errno),
        }
    });
    fail(done.unwrap_or(failed))
}

/// A file that is no program the kernel knows is a script of the shell.
fn run_by_shell(path: *const c_char, arguments: Arguments, variables: Arguments) {
    let mut list = [std::ptr::null::<c_char>(); ARGUMENTS_MAX];
    list[0] = c"/bin/sh".as_ptr();
    list[1] = path;
    // SAFETY: the caller's arguments end with a null pointer.
    unsafe {
        let mut at = 1;
        while !(*arguments).is_null() && !(*arguments.add(at)).is_null() && at + 2 < ARGUMENTS_MAX {
            list[at + 1] = *arguments.add(at);
            at += 1;
        }
    }
    execve(c"/bin/sh".as_ptr(), list.as_ptr(), variables);
}

/// Tries the places of a program, until one gives a result.
fn search<T>(name: *const c_char, mut one: impl FnMut(*const c_char) -> Option<T>) -> Option<T> {
    // SAFETY: the caller's name and the variable end with zero bytes.
    let (bytes, places) = unsafe {
        let places = libc::getenv(c"PATH".as_ptr());
        let places = if places.is_null() { c"/bin:/usr/bin" } else { CStr::from_ptr(places) };
        (CStr::from_ptr(name).to_bytes(), places.to_bytes())
    };
    if bytes.is_empty() {
        return None;
    }
    if bytes.contains(&b'/') {
        return one(name);
    }
    for place in places.split(|byte| *byte == b':') {
        let mut path = job::Text::<4096>::new();
        if !place.is_empty() {
            path.push(place).push(b"/");
        }
        path.push(bytes);
        if path.is_full() {
            continue;
        }
        if let Some(done) = one(path.as_ptr()) {
            return Some(done);
        }
    }
    None
}

#[unsafe(no_mangle)]
pub extern "C" fn execvp(name: *const c_char, arguments: Arguments) -> c_int {
    execvpe(name, arguments, variables())
}

#[unsafe(no_mangle)]
pub extern "C" fn fexecve(fd: c_int, arguments: Arguments, variables: Arguments) -> c_int {
    if descriptors::virtual_at(fd).is_some()
        && let Err(errno) = descriptors::make_real(fd)
    {
        return fail(errno);
    }
    before_exec();
    real!(fexecve(fd: c_int, arguments: Arguments, variables: Arguments) -> c_int)
}

// `execl` and its kin take their arguments one by one, which a function of Rust cannot. Arguments
// in the registers and on the stack have the same places as those of a function with that many.

/// Arguments behind the sixth: on the stack, one after the other.
#[cfg(target_arch = "x86_64")]
#[repr(C)]
pub struct OnStack([*const c_char; 59]);

#[cfg(target_arch = "x86_64")]
macro_rules! one_by_one {
    ($name:ident, $last:expr) => {
        #[unsafe(no_mangle)]
        #[allow(clippy::too_many_arguments, reason = "stands for a list of any length")]
        pub unsafe extern "C" fn $name(
            path: *const c_char,
            a0: *const c_char,
            a1: *const c_char,
            a2: *const c_char,
            a3: *const c_char,
            a4: *const c_char,
            rest: OnStack,
        ) -> c_int {
            let mut list = [std::ptr::null::<c_char>(); 64];
            list[..5].copy_from_slice(&[a0, a1, a2, a3, a4]);
            list[5..].copy_from_slice(&rest.0);
            let end = list.iter().position(|argument| argument.is_null());
            let Some(end) = end else { return fail(libc::E2BIG) };
            #[allow(clippy::redundant_closure_call, reason = "a function of each use")]
            ($last)(path, &list, end)
        }
    };
}

#[cfg(target_arch = "x86_64")]
one_by_one!(execl, |path, list: &[*const c_char; 64], _| execve(path, list.as_ptr(), variables()));
#[cfg(target_arch = "x86_64")]
one_by_one!(execlp, |path, list: &[*const c_char; 64], _| execvpe(
    path,
    list.as_ptr(),
    variables()
));
#[cfg(target_arch = "x86_64")]
one_by_one!(execle, |path, list: &[*const c_char; 64], end: usize| execve(
    path,
    list.as_ptr(),
    list.get(end + 1).map_or(std::ptr::null(), |at| (*at).cast())
));

/// Before a child begins with another program: it inherits real descriptors only.
fn before_spawn() {
    if let Some(job) = job() {
        descriptors::pass_on(job);
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn posix_spawn(
    pid: *mut pid_t,
    path: *const c_char,
    actions: *const c_void,
    settings: *const c_void,
    arguments: Arguments,
    variables: Arguments,
) -> c_int {
    before_spawn();
    real!(posix_spawn(pid: *mut pid_t, path: *const c_char, actions: *const c_void,
        settings: *const c_void, arguments: Arguments, variables: Arguments) -> c_int,
        libc::ENOSYS)
}

#[unsafe(no_mangle)]
pub extern "C" fn posix_spawnp(
    pid: *mut pid_t,
    name: *const c_char,
    actions: *const c_void,
    settings: *const c_void,
    arguments: Arguments,
    variables: Arguments,
) -> c_int {
    if job().is_none() {
        return real!(posix_spawnp(pid: *mut pid_t, name: *const c_char, actions: *const c_void,
            settings: *const c_void, arguments: Arguments, variables: Arguments) -> c_int,
            libc::ENOSYS);
    }
    let mut failed = libc::ENOENT;
    let done = search(name, |path| {
        match posix_spawn(pid, path, actions, settings, arguments, variables) {
            libc::EACCES => {
                failed = libc::EACCES;
                None
            }
            libc::ENOENT | libc::ENOTDIR => None,
            done => Some(done),
        }
    });
    done.unwrap_or(failed)
}

#[unsafe(no_mangle)]
pub extern "C" fn system(command: *const c_char) -> c_int {
    before_spawn();
    real!(system(command: *const c_char) -> c_int)
}

#[unsafe(no_mangle)]
pub extern "C" fn popen(command: *const c_char, mode: *const c_char) -> *mut libc::FILE {
    before_spawn();
    real!(popen(command: *const c_char, mode: *const c_char) -> *mut libc::FILE,
        std::ptr::null_mut())
}

/// A child of `vfork` shares the memory of its parent, and with it this library's table: it gets a
/// copy instead.
#[unsafe(no_mangle)]
pub extern "C" fn vfork() -> pid_t {
    real!(fork() -> pid_t)
}

/// A fork that runs no functions for it.
#[unsafe(no_mangle)]
pub extern "C" fn _Fork() -> pid_t {
    descriptors::share_all();
    real!(_Fork() -> pid_t)
}

#[unsafe(no_mangle)]
pub extern "C" fn umask(mask: mode_t) -> mode_t {
    job::set_umask(mask);
    real!(umask(mask: mode_t) -> mode_t, 0)
}

macro_rules! identity {
    ($($name:ident($($arg:ident: $type:ty),*);)*) => {$(
        #[unsafe(no_mangle)]
        pub extern "C" fn $name($($arg: $type),*) -> c_int {
            let done = real!($name($($arg: $type),*) -> c_int);
            forget_cred();
            done
        }
    )*};
}

identity! {
    setuid(uid: uid_t);
    seteuid(uid: uid_t);
    setreuid(uid: uid_t, euid: uid_t);
    setresuid(uid: uid_t, euid: uid_t, suid: uid_t);
    setgid(gid: gid_t);
    setegid(gid: gid_t);
    setregid(gid: gid_t, egid: gid_t);
    setresgid(gid: gid_t, egid: gid_t, sgid: gid_t);
    setgroups(count: size_t, list: *const gid_t);
    initgroups(user: *const c_char, gid: gid_t);
    setfsuid(uid: uid_t);
    setfsgid(gid: gid_t);
}
