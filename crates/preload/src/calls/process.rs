//! Other programs, child processes, and the identity of this one.

use std::ffi::{CStr, c_char, c_int, c_void};

use jobtree::{Kind, PathBuffer};
use libc::{gid_t, mode_t, pid_t, size_t, uid_t};

use super::check;
use crate::descriptors;
use crate::job::{self, before_exec, forget_cred, job};
use crate::keeper;
use crate::path::{Resolved, resolve};
use crate::real::{errno, fail, real, sys};

/// Bytes of a script in which the kernel looks for its interpreter.
const HEAD: usize = 256;
const ARGUMENTS_MAX: usize = 1024;

type Arguments = *const *const c_char;

/// How a program is started.
#[allow(clippy::large_enum_variant, reason = "a child of a fork must not allocate")]
enum Program {
    /// By the path that the caller gave.
    AsIs,
    /// By another path outside of the region, which is in the buffer.
    Elsewhere,
    /// A script in the region: by its interpreter, which is in the text, with an argument behind a
    /// zero byte.
    Script([u8; HEAD]),
}

/// Finds out how to start the program at a path. A program in the region that is no script is
/// started through the mount.
fn program(path: *const c_char, buffer: &mut PathBuffer) -> Result<Program, c_int> {
    let Some(job) = job() else { return Ok(Program::AsIs) };
    // SAFETY: the caller's path ends with a zero byte.
    let bytes = unsafe { CStr::from_ptr(path) }.to_bytes();
    loop {
        match resolve(job, libc::AT_FDCWD, bytes, true, buffer) {
            Ok(Resolved::Real) => return Ok(Program::AsIs),
            Ok(Resolved::RealPath) => return Ok(Program::Elsewhere),
            Ok(Resolved::Inside(inside, place)) => {
                let region = inside.region();
                let inode = place.inode.ok_or(libc::ENOENT)?;
                let allowed = region.kind(inode) == Kind::File
                    && check(region, inode, 1, &job::cred()).is_ok();
                if !allowed {
                    return Err(libc::EACCES);
                }
                let mut head = [0; HEAD];
                let len = match region.stand_in(inode) {
                    Some(number) => {
                        drop(inside);
                        read_stand_in(job, number, &mut head)
                    }
                    None => {
                        let len = region.read(inode, 0, &mut head);
                        // Before a request: the keeper waits until this thread is outside.
                        drop(inside);
                        len
                    }
                };
                if let Some(script) = interpreter(&head[..len]) {
                    return Ok(Program::Script(script));
                }
                keeper::close(job);
                return Ok(Program::AsIs);
            }
            Err(denied) => {
                if !keeper::again(job, denied) {
                    return Err(errno());
                }
            }
        }
    }
}

/// Reads the beginning of a file with a stand-in.
fn read_stand_in(job: &job::Job, number: u32, head: &mut [u8; HEAD]) -> usize {
    let path = job.stand_in_path(number);
    // SAFETY: system calls with a path that ends with a zero byte, and memory of the caller.
    let len = unsafe {
        let flags = libc::O_RDONLY | libc::O_CLOEXEC;
        let file = sys!(libc::SYS_openat, libc::AT_FDCWD, path.as_ptr(), flags, 0);
        let len = sys!(libc::SYS_read, file, head.as_mut_ptr(), HEAD);
        sys!(libc::SYS_close, file);
        len
    };
    usize::try_from(len).unwrap_or(0).min(HEAD)
}

/// The interpreter of a script and, behind a zero byte, its argument.
fn interpreter(head: &[u8]) -> Option<[u8; HEAD]> {
    let line = head.strip_prefix(b"#!")?;
    let line = &line[..line.iter().position(|byte| *byte == b'\n')?];
    let line = line.trim_ascii();
    let end = line.iter().position(|byte| matches!(byte, b' ' | b'\t')).unwrap_or(line.len());
    let (name, argument) = (&line[..end], line[end..].trim_ascii());
    // Relative to the working directory, as in the kernel: the mount's work.
    if name.first() != Some(&b'/') {
        return None;
    }
    let mut text = [0; HEAD];
    text[..name.len()].copy_from_slice(name);
    text[name.len() + 1..name.len() + 1 + argument.len()].copy_from_slice(argument);
    Some(text)
}

/// Calls `start` with the path and the arguments by which a program is started.
fn started(
    path: *const c_char,
    arguments: Arguments,
    start: impl Fn(*const c_char, Arguments) -> c_int,
) -> c_int {
    if job().is_none() || path.is_null() {
        return start(path, arguments);
    }
    let mut buffer = PathBuffer::new();
    let text = match program(path, &mut buffer) {
        Ok(Program::AsIs) => return start(path, arguments),
        Ok(Program::Elsewhere) => return start(buffer.as_ptr().cast(), arguments),
        Ok(Program::Script(text)) => text,
        Err(errno) => return fail(errno),
    };
    let name = text.as_ptr().cast::<c_char>();
    // SAFETY: the text has two parts that end with zero bytes; the caller's arguments end with a
    // null pointer.
    unsafe {
        let argument = name.add(libc::strlen(name) + 1);
        let mut list = [std::ptr::null::<c_char>(); ARGUMENTS_MAX];
        list[0] = name;
        let mut len = 1;
        if *argument != 0 {
            list[len] = argument;
            len += 1;
        }
        list[len] = path;
        len += 1;
        let mut at = usize::from(!arguments.is_null() && !(*arguments).is_null());
        while !arguments.is_null() && !(*arguments.add(at)).is_null() {
            if len + 1 >= ARGUMENTS_MAX {
                // Too many for this list: through the mount.
                if let Some(job) = job() {
                    keeper::close(job);
                }
                return start(path, arguments);
            }
            list[len] = *arguments.add(at);
            len += 1;
            at += 1;
        }
        // The interpreter may be in the region, too.
        started_interpreter(name, list.as_ptr(), start)
    }
}

fn started_interpreter(
    name: *const c_char,
    arguments: Arguments,
    start: impl Fn(*const c_char, Arguments) -> c_int,
) -> c_int {
    let mut buffer = PathBuffer::new();
    match program(name, &mut buffer) {
        Ok(Program::AsIs) => start(name, arguments),
        Ok(Program::Elsewhere) => start(buffer.as_ptr().cast(), arguments),
        Ok(Program::Script(_)) => {
            if let Some(job) = job() {
                keeper::close(job);
            }
            start(name, arguments)
        }
        Err(errno) => fail(errno),
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn execve(path: *const c_char, arguments: Arguments, variables: Arguments) -> c_int {
    started(path, arguments, |path, arguments| {
        before_exec();
        real!(execve(path: *const c_char, arguments: Arguments, variables: Arguments) -> c_int)
    })
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
    if let (Some(job), Some(_)) = (job(), descriptors::virtual_at(fd)) {
        keeper::close(job);
        if let Err(errno) = descriptors::make_real(fd) {
            return fail(errno);
        }
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
    let failed = started(path, arguments, |path, arguments| {
        before_spawn();
        let failed = real!(posix_spawn(pid: *mut pid_t, path: *const c_char,
            actions: *const c_void, settings: *const c_void, arguments: Arguments,
            variables: Arguments) -> c_int, libc::ENOSYS);
        if failed == 0 { 0 } else { fail(failed) }
    });
    if failed == 0 { 0 } else { errno() }
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
