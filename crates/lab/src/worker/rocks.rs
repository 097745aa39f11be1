//! RocksDB through its own C interface, as a peer that takes the same rows on the same machine.
//!
//! The library is loaded on demand, so that the program does not depend on it. The rows are those
//! of a metadata store: the directory's number and the name are the key, and the value is the inode
//! as a run encodes it. Neither side writes a log of its input; both have it on the disk when they
//! are done.
#![allow(unsafe_code, reason = "calls into librocksdb, through its C interface")]

use std::ffi::{CStr, CString, c_char, c_int, c_uchar, c_void};
use std::ops::Range;
use std::path::Path;
use std::ptr::null_mut;

use cudele::{Attr, Errno, Error, FileType, Ino, Result, Timestamp};
use libloading::Library;
use metastore::{InodeRecord, RowValue, Rows};

use super::dialogue::{Stopwatch, await_start, disk_bytes, peak_bytes};
use crate::harness::clock::clock_ns;
use crate::harness::job::{Entries, JobOutcome};
use crate::harness::numbered::Shuffled;
use crate::harness::stats::{real, seconds_between};

/// The versions that the machine may have, newest first.
const LIBRARIES: [&str; 4] =
    ["librocksdb.so.9.10", "librocksdb.so.8.9", "librocksdb.so.7.8", "librocksdb.so"];
/// Rows of a batch.
const BATCH_ROWS: usize = 1000;
/// For unwritten rows, as much memory as the metadata server has in all.
const MEMTABLE_BYTES: u64 = 350_000_000;
/// Rows of a sorted table.
const TABLE_ROWS: usize = 10_000_000;

type Pointer = *mut c_void;
type Make = unsafe extern "C" fn() -> Pointer;
type Release = unsafe extern "C" fn(Pointer);
type Put = unsafe extern "C" fn(Pointer, *const c_char, usize, *const c_char, usize);

/// The used functions of the library.
struct Api {
    options: Make,
    create_if_missing: unsafe extern "C" fn(Pointer, c_uchar),
    parallelism: unsafe extern "C" fn(Pointer, c_int),
    level_style: unsafe extern "C" fn(Pointer, u64),
    open: unsafe extern "C" fn(Pointer, *const c_char, *mut *mut c_char) -> Pointer,
    close: Release,
    write_options: Make,
    disable_log: unsafe extern "C" fn(Pointer, c_int),
    batch: Make,
    put: Put,
    clear: Release,
    write: unsafe extern "C" fn(Pointer, Pointer, Pointer, *mut *mut c_char),
    flush_options: Make,
    flush: unsafe extern "C" fn(Pointer, Pointer, *mut *mut c_char),
    get: unsafe extern "C" fn(
        Pointer,
        Pointer,
        *const c_char,
        usize,
        *mut usize,
        *mut *mut c_char,
    ) -> *mut c_char,
    read_options: Make,
    env_options: Make,
    table: unsafe extern "C" fn(Pointer, Pointer) -> Pointer,
    open_table: unsafe extern "C" fn(Pointer, *const c_char, *mut *mut c_char),
    add:
        unsafe extern "C" fn(Pointer, *const c_char, usize, *const c_char, usize, *mut *mut c_char),
    finish_table: unsafe extern "C" fn(Pointer, *mut *mut c_char),
    ingest_options: Make,
    move_files: unsafe extern "C" fn(Pointer, c_uchar),
    ingest: unsafe extern "C" fn(Pointer, *const *const c_char, usize, Pointer, *mut *mut c_char),
    _library: Library,
}

fn missing(error: &libloading::Error) -> Error {
    Error::new(Errno::NotFound, "librocksdb", error.to_string())
        .remedy("install the package librocksdb7.8")
}

/// A function of the library.
fn symbol<T: Copy>(library: &Library, name: &CStr) -> Result<T> {
    // SAFETY: every caller names the type that the library's header declares.
    let found = unsafe { library.get::<T>(name.to_bytes_with_nul()) };
    found.map(|found| *found).map_err(|error| missing(&error))
}

fn library() -> Result<Library> {
    // SAFETY: loading it runs its initialisers, which expect nothing.
    let load = |name: &&str| unsafe { Library::new(*name) };
    let loaded = LIBRARIES.iter().map(load).reduce(|best, next| best.or(next));
    loaded.map_or_else(
        || Err(Error::of(Errno::NotFound, "librocksdb")),
        |loaded| loaded.map_err(|error| missing(&error)),
    )
}

/// Whether this machine has it.
pub(crate) fn is_there() -> bool {
    library().is_ok()
}

impl Api {
    fn load() -> Result<Self> {
        let library = library()?;
        let of = &library;
        Ok(Self {
            options: symbol(of, c"rocksdb_options_create")?,
            create_if_missing: symbol(of, c"rocksdb_options_set_create_if_missing")?,
            parallelism: symbol(of, c"rocksdb_options_increase_parallelism")?,
            level_style: symbol(of, c"rocksdb_options_optimize_level_style_compaction")?,
            open: symbol(of, c"rocksdb_open")?,
            close: symbol(of, c"rocksdb_close")?,
            write_options: symbol(of, c"rocksdb_writeoptions_create")?,
            disable_log: symbol(of, c"rocksdb_writeoptions_disable_WAL")?,
            batch: symbol(of, c"rocksdb_writebatch_create")?,
            put: symbol(of, c"rocksdb_writebatch_put")?,
            clear: symbol(of, c"rocksdb_writebatch_clear")?,
            write: symbol(of, c"rocksdb_write")?,
            flush_options: symbol(of, c"rocksdb_flushoptions_create")?,
            flush: symbol(of, c"rocksdb_flush")?,
            get: symbol(of, c"rocksdb_get")?,
            read_options: symbol(of, c"rocksdb_readoptions_create")?,
            env_options: symbol(of, c"rocksdb_envoptions_create")?,
            table: symbol(of, c"rocksdb_sstfilewriter_create")?,
            open_table: symbol(of, c"rocksdb_sstfilewriter_open")?,
            add: symbol(of, c"rocksdb_sstfilewriter_put")?,
            finish_table: symbol(of, c"rocksdb_sstfilewriter_finish")?,
            ingest_options: symbol(of, c"rocksdb_ingestexternalfileoptions_create")?,
            move_files: symbol(of, c"rocksdb_ingestexternalfileoptions_set_move_files")?,
            ingest: symbol(of, c"rocksdb_ingest_external_file")?,
            _library: library,
        })
    }
}

/// Calls a function that returns its error in a string.
fn checked<T>(call: impl FnOnce(*mut *mut c_char) -> T) -> Result<T> {
    let mut error = null_mut();
    let result = call(&raw mut error);
    if error.is_null() {
        return Ok(result);
    }
    // SAFETY: its value is a string; the process ends, so it need not be freed.
    let text = unsafe { CStr::from_ptr(error) }.to_string_lossy().into_owned();
    Err(Error::new(Errno::Io, "RocksDB", text))
}

fn text(path: &Path) -> Result<CString> {
    let text = path.to_string_lossy().into_owned();
    CString::new(text).map_err(|_| Error::of(Errno::Invalid, path.display().to_string()))
}

/// A data base that is open in this process.
struct Db {
    api: Api,
    handle: Pointer,
    options: Pointer,
}

impl Drop for Db {
    fn drop(&mut self) {
        // SAFETY: it is closed once, after everything else.
        unsafe { (self.api.close)(self.handle) };
    }
}

impl Db {
    fn open(place: &Path) -> Result<Self> {
        let api = Api::load()?;
        let name = text(&place.join("db"))?;
        // SAFETY: options that were made, and a string that outlives the call.
        let (options, handle) = unsafe {
            let options = (api.options)();
            (api.create_if_missing)(options, 1);
            (api.parallelism)(options, 2);
            (api.level_style)(options, MEMTABLE_BYTES);
            (options, checked(|error| (api.open)(options, name.as_ptr(), error))?)
        };
        Ok(Self { api, handle, options })
    }

    /// Puts rows in, in batches, and waits until they are in tables.
    fn put(&self, rows: &mut RowMaker, files: u64) -> Result<u64> {
        let api = &self.api;
        // SAFETY: handles that were made; keys and values are copied by the calls.
        unsafe {
            let (options, batch) = ((api.write_options)(), (api.batch)());
            (api.disable_log)(options, 1);
            let mut bytes = 0;
            for first in (0..files).step_by(BATCH_ROWS) {
                let last = files.min(first + BATCH_ROWS as u64);
                for (key, value) in rows.rows(first..last) {
                    bytes += (key.len() + value.len()) as u64;
                    let (key_at, value_at) = (key.as_ptr().cast(), value.as_ptr().cast());
                    (api.put)(batch, key_at, key.len(), value_at, value.len());
                }
                checked(|error| (api.write)(self.handle, options, batch, error))?;
                (api.clear)(batch);
            }
            let options = (api.flush_options)();
            checked(|error| (api.flush)(self.handle, options, error))?;
            Ok(bytes)
        }
    }

    /// Writes sorted rows as tables; returns their names.
    fn tables(&self, place: &Path, sorted: &[(Vec<u8>, Vec<u8>)]) -> Result<Vec<CString>> {
        let api = &self.api;
        let mut names = Vec::new();
        for (number, rows) in sorted.chunks(TABLE_ROWS).enumerate() {
            let name = text(&place.join(format!("{number}.sst")))?;
            // SAFETY: handles that were made; keys and values are copied by the calls.
            unsafe {
                let table = (api.table)((api.env_options)(), self.options);
                checked(|error| (api.open_table)(table, name.as_ptr(), error))?;
                for (key, value) in rows {
                    let (key_at, value_at) = (key.as_ptr().cast(), value.as_ptr().cast());
                    checked(|error| {
                        (api.add)(table, key_at, key.len(), value_at, value.len(), error);
                    })?;
                }
                checked(|error| (api.finish_table)(table, error))?;
            }
            names.push(name);
        }
        Ok(names)
    }

    /// Takes in tables that are there.
    fn ingest(&self, names: &[CString]) -> Result<()> {
        let files: Vec<*const c_char> = names.iter().map(|name| name.as_ptr()).collect();
        // SAFETY: handles that were made, and strings that outlive the call.
        unsafe {
            let options = (self.api.ingest_options)();
            (self.api.move_files)(options, 1);
            checked(|error| {
                (self.api.ingest)(self.handle, files.as_ptr(), files.len(), options, error);
            })
        }
    }

    /// Looks some of the rows up: all of them must be there.
    fn prove(&self, rows: &mut RowMaker, files: u64) -> Result<()> {
        let every = usize::try_from(files / 1000).unwrap_or(1).max(1);
        for place in (0..files).step_by(every) {
            let Some((key, _)) = rows.rows(place..place + 1).next() else { continue };
            let mut length = 0;
            // SAFETY: handles that were made, and a key that outlives the call.
            let found = checked(|error| unsafe {
                let (options, length) = ((self.api.read_options)(), &raw mut length);
                let key_at = key.as_ptr().cast();
                (self.api.get)(self.handle, options, key_at, key.len(), length, error)
            })?;
            if found.is_null() || length == 0 {
                return Err(Error::new(Errno::Io, "RocksDB", "a row that was put in is not there"));
            }
        }
        Ok(())
    }
}

/// Makes the rows of files that a client creates in a random order.
struct RowMaker {
    names: Shuffled,
    directories: u64,
    rows: Rows,
    /// Of each row, its key.
    keys: Vec<Vec<u8>>,
}

impl RowMaker {
    fn new(entries: &Entries) -> Self {
        let names = Shuffled::new(entries.files);
        Self { names, directories: entries.directories, rows: Rows::new(), keys: Vec::new() }
    }

    /// Keys and values of the creates at some places of the order.
    fn rows(&mut self, places: Range<u64>) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.rows.clear();
        self.keys.clear();
        for place in places {
            let number = self.names.at(place);
            let name = self.names.name(number);
            let directory = Ino::FIRST_FREE + 1 + number % self.directories;
            self.keys.push([&directory.to_be_bytes(), name].concat());
            let time = 1_700_000_000_000_000_000 + 333 * i64::try_from(place).unwrap_or(0);
            let (mtime, ctime, atime, btime) =
                (Timestamp(time), Timestamp(time), Timestamp(time), Timestamp(time));
            let mode = FileType::Regular.mode_bits() | 0o644;
            let ino = Ino(Ino::FIRST_FREE + 1 + self.directories + place);
            let times = Attr { mtime, ctime, atime, btime, ..Attr::default() };
            let attr = Attr { ino, mode, nlink: 1, ..times };
            let record = InodeRecord { attr, ..InodeRecord::default() };
            self.rows.push(name, RowValue::Inode(record));
        }
        let keys = self.keys.iter().map(Vec::as_slice);
        keys.zip(self.rows.encoded().map(|(_, value)| value))
    }
}

/// Puts the rows into a data base of its own at a place.
pub(super) fn insert(place: &Path, entries: Entries, tables: bool) -> Result<JobOutcome> {
    std::fs::create_dir_all(place).map_err(|error| terminal::io(place, &error))?;
    let mut rows = RowMaker::new(&entries);
    let db = Db::open(place)?;
    let mut outcome = JobOutcome { events: entries.files, ..JobOutcome::default() };
    let written = disk_bytes();
    let mut ready = Vec::new();
    if tables {
        let start = clock_ns();
        let mut sorted = Vec::new();
        for first in (0..entries.files).step_by(BATCH_ROWS) {
            let last = entries.files.min(first + BATCH_ROWS as u64);
            let owned = |(key, value): (&[u8], &[u8])| (key.to_vec(), value.to_vec());
            sorted.extend(rows.rows(first..last).map(owned));
        }
        sorted.sort_unstable();
        ready = db.tables(place, &sorted)?;
        outcome.bytes = sorted.iter().map(|(key, value)| (key.len() + value.len()) as u64).sum();
        outcome.parts.insert("tables".into(), seconds_between(start, clock_ns()));
    }
    await_start()?;
    let watch = Stopwatch::start();
    if tables {
        db.ingest(&ready)?;
    } else {
        outcome.bytes = db.put(&mut rows, entries.files)?;
    }
    watch.stop(&mut outcome);
    outcome.parts.insert("disk_bytes".into(), real(disk_bytes() - written));
    outcome.parts.insert("peak_bytes".into(), real(peak_bytes()));
    db.prove(&mut rows, entries.files)?;
    Ok(outcome)
}
