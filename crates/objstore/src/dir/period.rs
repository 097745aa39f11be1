//! The period of a file system, in which the kernel keeps all unsynced writes in memory.
//!
//! A period ends when the machine stops and when the file system is unmounted, and a copy of the
//! directory has another period. The kernel numbers mounts and never uses a number twice. An older
//! kernel does reuse numbers, so there each process has a period of its own, and no other process
//! verifies unsynced content.
//!
//! Invariant: two periods are equal only if no unsynced write was lost between them.

use std::os::fd::BorrowedFd;
use std::sync::OnceLock;
use std::time::{SystemTime, UNIX_EPOCH};

use rustix::fs::{AtFlags, StatxFlags};

/// Requests the number of a mount that is never used again (`STATX_MNT_ID_UNIQUE`, Linux 6.8).
const MOUNT_ONCE: StatxFlags = StatxFlags::from_bits_retain(0x4000);
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// The period of the file system of a directory. Never 0.
pub(super) fn of(directory: BorrowedFd<'_>) -> u32 {
    let known = known(directory).unwrap_or_else(|| own().to_vec());
    u32::try_from(xxhash_rust::xxh3::xxh3_64(&known) >> 32).unwrap_or_default().max(1)
}

fn known(directory: BorrowedFd<'_>) -> Option<Vec<u8>> {
    let boot = std::fs::read(BOOT_ID).ok().filter(|boot| boot.len() >= 32)?;
    let wanted = StatxFlags::BASIC_STATS | MOUNT_ONCE;
    let found = rustix::fs::statx(directory, "", AtFlags::EMPTY_PATH, wanted).ok()?;
    if found.stx_mask & MOUNT_ONCE.bits() == 0 {
        return None;
    }
    let mut known = boot;
    known.extend(found.stx_mnt_id.to_le_bytes());
    known.extend(found.stx_ino.to_le_bytes());
    known.extend(found.stx_dev_major.to_le_bytes());
    known.extend(found.stx_dev_minor.to_le_bytes());
    Some(known)
}

/// Bytes that are unique to this process.
fn own() -> [u8; 16] {
    static OWN: OnceLock<[u8; 16]> = OnceLock::new();
    *OWN.get_or_init(|| {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        (since.as_nanos() ^ u128::from(std::process::id()) << 96).to_le_bytes()
    })
}
