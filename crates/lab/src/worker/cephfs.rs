//! CephFS through its own client library, as a peer that does the same work on the same machine.
//!
//! The library is loaded on demand, so that the program does not depend on it. A create is
//! `ceph_mknod`: a file and nothing else, one request, as the create of the comparison.
#![allow(unsafe_code, reason = "calls into libcephfs, a C library")]

use std::ffi::{CStr, CString, c_char, c_int, c_uint};
use std::path::Path;
use std::ptr::null_mut;

use cudele::{Errno, Error, Result};
use libloading::Library;

use super::dialogue::{Stopwatch, await_start};
use super::looked::Place;
use crate::harness::job::JobOutcome;
use crate::harness::numbered::Numbered;

const LIBRARY: &str = "libcephfs.so.2";
const FILE_MODE: u32 = 0o100_644;
const DIR_MODE: u32 = 0o755;

type Handle = *mut std::ffi::c_void;

/// Room for a `struct dirent` of the C library, which takes 280 bytes.
#[repr(C, align(8))]
struct DirEntry([u8; 512]);

/// Room for a `struct ceph_statx`, which takes some 150 bytes.
#[repr(C, align(8))]
struct Statx([u8; 512]);

/// The question about a name: whether it exists.
const STATX_MODE: c_uint = 1;
const ENOENT: c_int = 2;
const EEXIST: c_int = 17;

/// The used functions of the library.
struct Api {
    create: unsafe extern "C" fn(*mut Handle, *const c_char) -> c_int,
    read_conf: unsafe extern "C" fn(Handle, *const c_char) -> c_int,
    mount: unsafe extern "C" fn(Handle, *const c_char) -> c_int,
    mkdirs: unsafe extern "C" fn(Handle, *const c_char, u32) -> c_int,
    chdir: unsafe extern "C" fn(Handle, *const c_char) -> c_int,
    statx: unsafe extern "C" fn(Handle, *const c_char, *mut Statx, c_uint, c_uint) -> c_int,
    mknod: unsafe extern "C" fn(Handle, *const c_char, u32, u64) -> c_int,
    opendir: unsafe extern "C" fn(Handle, *const c_char, *mut Handle) -> c_int,
    readdir: unsafe extern "C" fn(Handle, Handle, *mut DirEntry) -> c_int,
    closedir: unsafe extern "C" fn(Handle, Handle) -> c_int,
    sync_fs: unsafe extern "C" fn(Handle) -> c_int,
    unmount: unsafe extern "C" fn(Handle) -> c_int,
    release: unsafe extern "C" fn(Handle) -> c_int,
    /// Kept loaded as long as the functions may be called.
    _library: Library,
}

fn missing(error: &libloading::Error) -> Error {
    Error::new(Errno::NotFound, LIBRARY, error.to_string())
        .remedy("install the package libcephfs2, or leave out --cephfs")
}

/// A function of the library.
fn symbol<T: Copy>(library: &Library, name: &CStr) -> Result<T> {
    // SAFETY: every caller names the type that the library's header declares.
    let found = unsafe { library.get::<T>(name.to_bytes_with_nul()) };
    found.map(|found| *found).map_err(|error| missing(&error))
}

impl Api {
    fn load() -> Result<Self> {
        // SAFETY: loading it runs its initialisers, which expect nothing.
        let library = unsafe { Library::new(LIBRARY) }.map_err(|error| missing(&error))?;
        Ok(Self {
            create: symbol(&library, c"ceph_create")?,
            read_conf: symbol(&library, c"ceph_conf_read_file")?,
            mount: symbol(&library, c"ceph_mount")?,
            mkdirs: symbol(&library, c"ceph_mkdirs")?,
            chdir: symbol(&library, c"ceph_chdir")?,
            statx: symbol(&library, c"ceph_statx")?,
            mknod: symbol(&library, c"ceph_mknod")?,
            opendir: symbol(&library, c"ceph_opendir")?,
            readdir: symbol(&library, c"ceph_readdir_r")?,
            closedir: symbol(&library, c"ceph_closedir")?,
            sync_fs: symbol(&library, c"ceph_sync_fs")?,
            unmount: symbol(&library, c"ceph_unmount")?,
            release: symbol(&library, c"ceph_release")?,
            _library: library,
        })
    }
}

/// A file system that is mounted by this process.
struct Mounted {
    api: Api,
    handle: Handle,
}

impl Drop for Mounted {
    fn drop(&mut self) {
        // SAFETY: the handle is released once, after everything else. The error of a failed mount
        // is not needed.
        unsafe {
            (self.api.unmount)(self.handle);
            (self.api.release)(self.handle);
        }
    }
}

fn check(what: &str, code: c_int) -> Result<()> {
    if code >= 0 {
        return Ok(());
    }
    let cause = std::io::Error::from_raw_os_error(-code);
    Err(Error::new(Errno::Io, what, cause.to_string())
        .remedy("check with `ceph -s` that the file system of --cephfs is there and active"))
}

fn text(text: &str) -> Result<CString> {
    CString::new(text).map_err(|_| Error::new(Errno::Invalid, text, "a zero byte in a path"))
}

impl Mounted {
    fn new(conf: &Path) -> Result<Self> {
        let api = Api::load()?;
        let mut handle = null_mut();
        // SAFETY: a place for the handle, and no name, as documented.
        check("ceph_create", unsafe { (api.create)(&raw mut handle, std::ptr::null()) })?;
        let mounted = Self { api, handle };
        let path = conf.to_string_lossy();
        let file = text(&path)?;
        // SAFETY: a handle that was made, and a string that outlives the call.
        check(&path, unsafe { (mounted.api.read_conf)(handle, file.as_ptr()) })?;
        // SAFETY: the same.
        check("ceph_mount", unsafe { (mounted.api.mount)(handle, c"/".as_ptr()) })?;
        Ok(mounted)
    }

    /// Makes a directory, unless another client has, and works in it from now on.
    fn enter(&self, dir: &str) -> Result<()> {
        let path = text(dir)?;
        // SAFETY: mounted, and a string that outlives the calls.
        let made = unsafe { (self.api.mkdirs)(self.handle, path.as_ptr(), DIR_MODE) };
        if made != -EEXIST {
            check(dir, made)?;
        }
        // SAFETY: the same.
        check(dir, unsafe { (self.api.chdir)(self.handle, path.as_ptr()) })
    }
}

/// A directory in which names are looked up and made, the way the library does both.
pub(super) fn place(conf: &Path, dir: &str) -> Result<impl Place> {
    let mounted = Mounted::new(conf)?;
    mounted.enter(dir)?;
    Ok(mounted)
}

impl Place for Mounted {
    fn has(&self, name: &[u8]) -> Result<bool> {
        let (name, mut found) = (ended(name), Statx([0; 512]));
        // SAFETY: mounted, a name that ends with zero, and room for the attributes.
        let code = unsafe {
            (self.api.statx)(self.handle, name.as_ptr().cast(), &raw mut found, STATX_MODE, 0)
        };
        if code == -ENOENT {
            return Ok(false);
        }
        check("ceph_statx", code).map(|()| true)
    }

    fn create(&self, name: &[u8]) -> Result<()> {
        let name = ended(name);
        // SAFETY: mounted, and a name that ends with zero.
        let code = unsafe { (self.api.mknod)(self.handle, name.as_ptr().cast(), FILE_MODE, 0) };
        check("ceph_mknod", code)
    }

    /// The metadata server counts them.
    fn requests(&self) -> u64 {
        0
    }
}

/// With the zero that ends it in C.
fn ended(name: &[u8]) -> Vec<u8> {
    let mut ended = Vec::with_capacity(name.len() + 1);
    ended.extend_from_slice(name);
    ended.push(0);
    ended
}

/// Creates files in a directory, and waits until all are durable if that is asked.
pub(super) fn create(conf: &Path, dir: &str, files: u64, sync: bool) -> Result<JobOutcome> {
    let mut names = Numbered::new(0, files);
    let mounted = Mounted::new(conf)?;
    mounted.enter(dir)?;
    await_start()?;
    let mut outcome = JobOutcome { events: files, ..JobOutcome::default() };
    let watch = Stopwatch::start();
    let mut name = Vec::new();
    for _ in 0..files {
        name.clear();
        name.extend_from_slice(names.name());
        name.push(0);
        // SAFETY: mounted, and a name that ends with zero.
        let code =
            unsafe { (mounted.api.mknod)(mounted.handle, name.as_ptr().cast(), FILE_MODE, 0) };
        check(dir, code)?;
        names.advance();
    }
    if sync {
        // SAFETY: mounted.
        check(dir, unsafe { (mounted.api.sync_fs)(mounted.handle) })?;
    }
    watch.stop(&mut outcome);
    Ok(outcome)
}

/// Lists a directory: names and types, the cheapest listing of the library.
pub(super) fn list(conf: &Path, dir: &str) -> Result<JobOutcome> {
    let mounted = Mounted::new(conf)?;
    let path = text(dir)?;
    await_start()?;
    let mut outcome = JobOutcome::default();
    let watch = Stopwatch::start();
    let (mut opened, mut entry) = (null_mut(), DirEntry([0; 512]));
    // SAFETY: mounted, a string that outlives the call, and a place for the handle.
    check(dir, unsafe { (mounted.api.opendir)(mounted.handle, path.as_ptr(), &raw mut opened) })?;
    loop {
        // SAFETY: a directory that is open, and room for an entry.
        let code = unsafe { (mounted.api.readdir)(mounted.handle, opened, &raw mut entry) };
        check(dir, code)?;
        if code == 0 {
            break;
        }
        outcome.events += 1;
    }
    // SAFETY: it is open, and not used any more.
    check(dir, unsafe { (mounted.api.closedir)(mounted.handle, opened) })?;
    watch.stop(&mut outcome);
    // Peers do not count the directory itself and its parent.
    outcome.events = outcome.events.saturating_sub(2);
    Ok(outcome)
}
