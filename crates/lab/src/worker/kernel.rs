//! The terms of the mount with the kernel, for a file system that does nothing: options, threads,
//! capabilities.
//!
//! Invariant: the terms are those of crate `mount`, so that the two are comparable.

use fuser::{
    Config, FopenFlags, InitFlags, KernelConfig, MountOption, OpenAccMode, OpenFlags, SessionACL,
};

use mount::{MountOptions, READ_AHEAD_KIB, TRANSFER_BYTES_MAX};

/// The options of the mount; `mount(8)` shows `source` as the device.
pub(super) fn config(source: &str, options: &MountOptions) -> Config {
    let mut config = Config::default();
    let on = |wanted, yes, no| if wanted { yes } else { no };
    config.mount_options = vec![
        MountOption::FSName(source.to_owned()),
        MountOption::Subtype("cudele".to_owned()),
        MountOption::DefaultPermissions,
        on(options.read_only, MountOption::RO, MountOption::RW),
        on(options.devices, MountOption::Dev, MountOption::NoDev),
        on(options.set_id, MountOption::Suid, MountOption::NoSuid),
        on(options.no_exec, MountOption::NoExec, MountOption::Exec),
        on(options.atime == posix::Atime::Never, MountOption::NoAtime, MountOption::Atime),
    ];
    config.acl = if options.allow_other { SessionACL::All } else { SessionACL::Owner };
    config.n_threads = Some(options.threads);
    config.clone_fd = true;
    config
}

/// The kernel's treatment of an opened file. A file that is only written gains nothing from the
/// page cache of the kernel, and a copy into it costs as much as a write to a store.
pub(super) fn open_flags(flags: OpenFlags) -> FopenFlags {
    if flags.acc_mode() == OpenAccMode::O_WRONLY {
        FopenFlags::FOPEN_DIRECT_IO
    } else {
        FopenFlags::empty()
    }
}

/// Asks for the features of the kernel that save requests, as far as this kernel has them.
pub(super) fn negotiate(config: &mut KernelConfig) {
    let wanted = [
        InitFlags::FUSE_ASYNC_READ,
        InitFlags::FUSE_BIG_WRITES,
        InitFlags::FUSE_DO_READDIRPLUS,
        InitFlags::FUSE_READDIRPLUS_AUTO,
        InitFlags::FUSE_PARALLEL_DIROPS,
        InitFlags::FUSE_HANDLE_KILLPRIV_V2,
        InitFlags::FUSE_CACHE_SYMLINKS,
        InitFlags::FUSE_ASYNC_DIO,
        InitFlags::FUSE_AUTO_INVAL_DATA,
        InitFlags::FUSE_POSIX_LOCKS,
        InitFlags::FUSE_FLOCK_LOCKS,
    ];
    for flag in wanted {
        let _ = config.add_capabilities(flag);
    }
    let _ = config.set_max_write(TRANSFER_BYTES_MAX);
    let _ = config.set_max_readahead(READ_AHEAD_KIB * 1024);
}
