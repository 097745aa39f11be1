//! The region of this process's job, and the identity of the process.

use std::cell::Cell;
use std::ffi::{CStr, c_char, c_int};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicPtr, AtomicU32, AtomicU64, Ordering};

use jobtree::{Denied, Guard, Host, Identity, Inode, JobRegion, Note, Visit};

use crate::real::sys;
use crate::{descriptors, path, real};

/// The variable that names the region, for programs that the job starts.
pub(crate) const VARIABLE: &CStr = c"CUDELE_PRELOAD";

const PREFIXES_MAX: usize = 4;
const GROUPS_MAX: usize = 256;

/// The knowledge of this library about the job.
pub(crate) struct Job {
    region: JobRegion,
    socket: &'static [u8],
    prefixes: [&'static [u8]; PREFIXES_MAX],
    /// Stays 1; the kernel makes it 0 in the child of a fork.
    alive: &'static AtomicU64,
}

/// 0 before the first look, 1 without a job, 2 while a thread looks, else with a job.
static STATE: AtomicU32 = AtomicU32::new(UNKNOWN);
const UNKNOWN: u32 = 0;
const NONE: u32 = 1;
const LOOKING: u32 = 2;
const FOUND: u32 = 3;

static JOB: AtomicPtr<Job> = AtomicPtr::new(std::ptr::null_mut());
/// Counts the processes from the first one to this one, over forks.
static GENERATION: AtomicU32 = AtomicU32::new(1);
static UMASK: AtomicU32 = AtomicU32::new(0o022);

thread_local! {
    /// The generation in which this thread claimed its slot, and the slot.
    static SLOT: Cell<u64> = const { Cell::new(0) };
}

/// Answers for the region about threads of this machine.
pub(crate) struct Machine;

impl Host for Machine {
    #[cold]
    fn is_alive(&self, pid: u32, tid: u32) -> bool {
        let mut path = Text::<64>::new();
        path.push(b"/proc/").number(pid).push(b"/task/").number(tid).push(b"/stat\0");
        let mut buffer = [0_u8; 512];
        // SAFETY: system calls with memory of this function.
        let len = unsafe {
            let flags = libc::O_RDONLY | libc::O_CLOEXEC;
            let file = sys!(libc::SYS_openat, libc::AT_FDCWD, path.as_ptr(), flags, 0);
            if file < 0 {
                return real::errno() != libc::ENOENT;
            }
            let len = sys!(libc::SYS_read, file, buffer.as_mut_ptr(), buffer.len());
            sys!(libc::SYS_close, file);
            len
        };
        let Some(text) = usize::try_from(len).ok().and_then(|len| buffer.get(..len)) else {
            // The thread ended between the two calls.
            return false;
        };
        // The state follows the name in brackets, which may contain anything.
        let Some(end) = text.iter().rposition(|byte| *byte == b')') else { return true };
        !matches!(text.get(end + 2), Some(b'Z' | b'X' | b'x'))
    }

    fn prepare(&self, start: *mut u8, bytes: u64) {
        let errno = real::errno();
        // SAFETY: memory of the region; the kernel only maps it. An older one refuses.
        unsafe { sys!(libc::SYS_madvise, start, bytes, POPULATE_WRITE) };
        real::set_errno(errno);
    }

    #[inline]
    fn pause(&self, round: u32) {
        if round < 32 {
            std::hint::spin_loop();
            return;
        }
        // SAFETY: system calls without memory, or with a value of this function.
        unsafe {
            if round < 64 {
                sys!(libc::SYS_sched_yield);
            } else {
                let wait = libc::timespec { tv_sec: 0, tv_nsec: 50_000 };
                sys!(libc::SYS_nanosleep, &raw const wait, 0);
            }
        }
    }
}

static MACHINE: Machine = Machine;
/// Makes the kernel take memory at once, and not page by page.
const POPULATE_WRITE: c_int = 23;

/// A short text on the stack.
pub(crate) struct Text<const N: usize> {
    bytes: [u8; N],
    len: usize,
}

impl<const N: usize> Text<N> {
    pub(crate) fn new() -> Self {
        Self { bytes: [0; N], len: 0 }
    }

    /// Adds bytes as far as there is room, and keeps one for the end.
    pub(crate) fn push(&mut self, bytes: &[u8]) -> &mut Self {
        let len = bytes.len().min(N - 1 - self.len);
        self.bytes[self.len..self.len + len].copy_from_slice(&bytes[..len]);
        self.len += len;
        self
    }

    pub(crate) fn number(&mut self, number: u32) -> &mut Self {
        let mut digits = [0; 10];
        let mut at = digits.len();
        let mut rest = number;
        loop {
            at -= 1;
            digits[at] = b'0' + (rest % 10) as u8;
            rest /= 10;
            if rest == 0 {
                return self.push(&digits[at..]);
            }
        }
    }

    pub(crate) fn is_full(&self) -> bool {
        self.len == N - 1
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    /// The text with a zero byte at its end.
    pub(crate) fn as_ptr(&self) -> *const c_char {
        self.bytes.as_ptr().cast()
    }
}

/// The job of this process.
#[inline]
pub(crate) fn job() -> Option<&'static Job> {
    match STATE.load(Ordering::Acquire) {
        // SAFETY: set before the state, and never freed.
        FOUND => unsafe { JOB.load(Ordering::Relaxed).as_ref() },
        NONE | LOOKING => None,
        _ => look(),
    }
}

#[cold]
fn look() -> Option<&'static Job> {
    let first =
        STATE.compare_exchange(UNKNOWN, LOOKING, Ordering::AcqRel, Ordering::Acquire).is_ok();
    if !first {
        return None;
    }
    let found = open_region().and_then(Job::new);
    let Some(found) = found else {
        STATE.store(NONE, Ordering::Release);
        return None;
    };
    JOB.store(Box::into_raw(Box::new(found)), Ordering::Release);
    STATE.store(FOUND, Ordering::Release);
    let job = job()?;
    // SAFETY: system calls without memory; no other thread makes files at this moment.
    let umask = unsafe {
        let mask = sys!(libc::SYS_umask, 0o077);
        sys!(libc::SYS_umask, mask);
        mask
    };
    UMASK.store(umask as u32, Ordering::Relaxed);
    // SAFETY: a function of this library, which stays loaded.
    unsafe { libc::pthread_atfork(Some(before_fork), None, None) };
    path::start(job);
    Some(job)
}

unsafe extern "C" fn before_fork() {
    descriptors::share_all();
}

/// Maps the region that the environment names.
fn open_region() -> Option<JobRegion> {
    // SAFETY: the environment at the start of the program; system calls with memory of this
    // function; the mapping stays for the rest of the process.
    unsafe {
        let name = libc::getenv(VARIABLE.as_ptr());
        if name.is_null() || *name == 0 {
            return None;
        }
        let flags = libc::O_RDWR | libc::O_CLOEXEC;
        let file = sys!(libc::SYS_openat, libc::AT_FDCWD, name, flags, 0) as c_int;
        if file < 0 {
            return None;
        }
        let len = sys!(libc::SYS_lseek, file, 0, libc::SEEK_END);
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let base = sys!(libc::SYS_mmap, 0, len, protection, libc::MAP_SHARED, file, 0);
        sys!(libc::SYS_close, file);
        if len < 64 << 20 || base as usize == usize::MAX || (-4095..0).contains(&base) {
            return None;
        }
        let region = JobRegion::new(base as *mut u8, len as u64);
        region.is_valid().then_some(region)
    }
}

impl Job {
    fn new(region: JobRegion) -> Option<Self> {
        // The texts live as long as the mapping.
        // SAFETY: the region is never unmapped, and the keeper wrote the texts before.
        let texts = unsafe { &*std::ptr::from_ref(&region) }.texts();
        let mut socket: &'static [u8] = b"";
        let mut prefixes: [&'static [u8]; PREFIXES_MAX] = [b""; PREFIXES_MAX];
        for (at, text) in texts.enumerate() {
            // SAFETY: as above.
            let text: &'static [u8] =
                unsafe { std::slice::from_raw_parts(text.as_ptr(), text.len()) };
            match at.checked_sub(1) {
                None => socket = text,
                Some(at) if at < PREFIXES_MAX => prefixes[at] = text,
                Some(_) => {}
            }
        }
        if pid_namespace() != region.note(Note::PidNamespace).load(Ordering::Relaxed) {
            return None;
        }
        Some(Self { region, socket, prefixes, alive: page_of_this_process()? })
    }

    #[inline]
    pub(crate) fn region(&self) -> &JobRegion {
        &self.region
    }

    pub(crate) fn socket(&self) -> &[u8] {
        self.socket
    }

    /// The paths under which programs name the root of the region.
    pub(crate) fn prefixes(&self) -> impl Iterator<Item = &'static [u8]> {
        self.prefixes.into_iter().filter(|prefix| !prefix.is_empty())
    }

    pub(crate) fn device(&self) -> u64 {
        self.region.note(Note::Device).load(Ordering::Relaxed)
    }

    /// Whether a file on a device and with so many names can be a stand-in: they have none.
    pub(crate) fn may_stand_in(&self, device: u64, names: u64) -> bool {
        names == 0 && device == self.region.note(Note::StandInDevice).load(Ordering::Relaxed)
    }

    /// Whether `fsync` promises something here.
    pub(crate) fn sync_matters(&self) -> bool {
        self.region.note(Note::Persists).load(Ordering::Relaxed) != 0
    }

    /// The path under which the kernel shows a stand-in.
    pub(crate) fn stand_in_path(&self, number: u32) -> Text<64> {
        let mut path = Text::new();
        path.push(b"/proc/").number(self.region.keeper()).push(b"/fd/").number(number);
        path
    }

    /// This thread in the region.
    #[inline]
    pub(crate) fn session(&'static self) -> Option<Visit<'static, Machine>> {
        let known = SLOT.get();
        let generation = u64::from(GENERATION.load(Ordering::Relaxed));
        if known >> 32 == generation && self.alive.load(Ordering::Relaxed) != 0 {
            return Some(Visit::at(&self.region, &MACHINE, known as u32));
        }
        self.claim()
    }

    #[cold]
    fn claim(&'static self) -> Option<Visit<'static, Machine>> {
        if self.alive.swap(1, Ordering::Relaxed) == 0 {
            // The first call after a fork.
            GENERATION.fetch_add(1, Ordering::Relaxed);
        }
        // SAFETY: system calls without memory.
        let (pid, tid) = unsafe { (sys!(libc::SYS_getpid), sys!(libc::SYS_gettid)) };
        let session = Visit::claim(&self.region, &MACHINE, pid as u32, tid as u32)?;
        let generation = u64::from(GENERATION.load(Ordering::Relaxed));
        SLOT.set(generation << 32 | u64::from(session.slot()));
        Some(session)
    }

    /// This thread inside the region.
    #[inline]
    pub(crate) fn enter(&'static self) -> Result<Inside, Denied> {
        let Some(session) = self.session() else {
            // Every slot is taken: the mount has room for any number of threads.
            let closed = Visit::at(&self.region, &MACHINE, 0).is_closed();
            return Err(if closed { Denied::Closed } else { Denied::Unable });
        };
        let guard = session.enter()?;
        Ok(Inside { session, guard })
    }

    /// Gives this thread's slot back, before the process becomes another program.
    pub(crate) fn leave(&'static self) {
        if let Some(session) = self.session() {
            session.release();
        }
        SLOT.set(0);
    }
}

/// A thread inside the region.
pub(crate) struct Inside {
    pub(crate) session: Visit<'static, Machine>,
    #[expect(dead_code, reason = "its end is what counts")]
    guard: Guard<'static>,
}

impl Inside {
    pub(crate) fn region(&self) -> &'static JobRegion {
        self.session.region()
    }
}

/// A word that the kernel sets to 0 in the child of a fork.
fn page_of_this_process() -> Option<&'static AtomicU64> {
    // SAFETY: a new private page, for the rest of the process.
    unsafe {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let page = sys!(libc::SYS_mmap, 0, 4096, protection, flags, -1, 0);
        if (-4095..0).contains(&page) {
            return None;
        }
        if sys!(libc::SYS_madvise, page, 4096, libc::MADV_WIPEONFORK) != 0 {
            return None;
        }
        let word = &*(page as *const AtomicU64);
        word.store(1, Ordering::Relaxed);
        Some(word)
    }
}

fn pid_namespace() -> u64 {
    // SAFETY: system calls with memory of this function.
    unsafe {
        let mut stat: libc::stat = std::mem::zeroed();
        let path = c"/proc/self/ns/pid";
        let at = libc::AT_FDCWD;
        if sys!(libc::SYS_newfstatat, at, path.as_ptr(), &raw mut stat, 0) != 0 {
            return 0;
        }
        stat.st_ino
    }
}

pub(crate) fn umask() -> u32 {
    UMASK.load(Ordering::Relaxed)
}

pub(crate) fn set_umask(mask: u32) {
    UMASK.store(mask & 0o777, Ordering::Relaxed);
}

/// The time of the kernel's file systems, in nanoseconds.
#[inline]
pub(crate) fn now() -> i64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: a value of this function.
    unsafe { libc::clock_gettime(libc::CLOCK_REALTIME_COARSE, &raw mut time) };
    time.tv_sec * 1_000_000_000 + time.tv_nsec
}

static CRED_KNOWN: AtomicBool = AtomicBool::new(false);
static CRED_IDS: AtomicU64 = AtomicU64::new(0);
static GROUPS: [AtomicU32; GROUPS_MAX] = [const { AtomicU32::new(0) }; GROUPS_MAX];
static GROUPS_LEN: AtomicI64 = AtomicI64::new(0);

/// The identity changes: it is read again.
pub(crate) fn forget_cred() {
    CRED_KNOWN.store(false, Ordering::Release);
}

/// The identity of this process.
#[inline]
pub(crate) fn cred() -> Identity<'static> {
    if !CRED_KNOWN.load(Ordering::Acquire) {
        read_cred();
    }
    let ids = CRED_IDS.load(Ordering::Relaxed);
    let len = GROUPS_LEN.load(Ordering::Relaxed).clamp(0, GROUPS_MAX as i64) as usize;
    // SAFETY: atomics of 32 bits have the layout of numbers; they change with the identity only.
    let groups = unsafe { std::slice::from_raw_parts(GROUPS.as_ptr().cast::<u32>(), len) };
    Identity { uid: (ids >> 32) as u32, gid: ids as u32, groups }
}

#[cold]
fn read_cred() {
    // SAFETY: system calls; the list has room for as many groups as it says.
    unsafe {
        let uid = sys!(libc::SYS_geteuid) as u64;
        let gid = sys!(libc::SYS_getegid) as u64;
        let len = sys!(libc::SYS_getgroups, GROUPS_MAX, GROUPS.as_ptr());
        GROUPS_LEN.store(len.max(0), Ordering::Relaxed);
        CRED_IDS.store(uid << 32 | gid, Ordering::Relaxed);
    }
    CRED_KNOWN.store(true, Ordering::Release);
}

/// A directory by the attributes that the kernel gives.
pub(crate) fn dir_of(job: &Job, stat: &libc::stat) -> Option<Inode> {
    if stat.st_dev != job.device() {
        return None;
    }
    job.region().dir_numbered(stat.st_ino)
}

/// The process is about to run another program in its place.
pub(crate) fn before_exec() {
    if let Some(job) = job() {
        descriptors::pass_on(job);
        job.leave();
    }
}
