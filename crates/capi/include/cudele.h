// The C library of Cudele, a file system in which every subtree of one namespace chooses its own
// consistency and durability. This file is generated: change crates/capi/src/ffi instead.
//
// Return values: 0, or what a call says that it returns; on failure a negative error number of
// errno.h, such as -ENOENT. cudele_last_error() then has a sentence with the path, the cause and the
// remedy. errno itself is not touched.
//
// Handles are not addresses. One that is NULL gives -EINVAL, one that was closed or is of another
// kind -EBADF. Every other pointer must be what its function says: strings end with a zero byte,
// buffers are as long as is said. NULL where that is not allowed gives -EINVAL.
//
// Paths begin with `/`, the root of the namespace. Symbolic links on the way are followed.
//
// Threads: every function may be called by any thread at any time, with the same handles, too. Calls
// with a position of their own (cudele_read, cudele_write, cudele_readdir) on one handle take turns,
// as do all calls in one decoupled subtree. A handle that one thread closes while another one uses it
// is closed when that call is over. After fork() only the parent may go on; the child may connect
// anew after exec.


#ifndef CUDELE_H
#define CUDELE_H

#include <stddef.h>
#include <stdint.h>

// The version of this interface, which the shared library's name ends with. It changes when a program
// must be compiled again.
#define CUDELE_ABI 0

// A time that stays as it is, for cudele_utimens.
#define CUDELE_TIME_KEEP INT64_MIN


// A directory that is being read.
struct cudele_dir;

// A file that is open.
struct cudele_file;

// A connection to a cluster.
struct cudele_fs;

// A subtree that this process has decoupled: its own until it is merged or discarded. Paths in it
// work with every other call of the same connection, without any request to the server.
struct cudele_subtree;

// Attributes, with the meaning of stat(2).
struct cudele_stat {
    // Inode number.
    uint64_t ino;
    // Length in bytes; of a directory, the number of its entries as far as that is known.
    uint64_t size;
    // Type and permissions, as `st_mode`.
    uint32_t mode;
    // Owner.
    uint32_t uid;
    // Group.
    uint32_t gid;
    // Number of names.
    uint32_t nlink;
    // Last access: seconds since 1970, and nanoseconds.
    int64_t atime;
    // See `atime`.
    uint32_t atime_nanos;
    // Last change of the content.
    int64_t mtime;
    // See `mtime`.
    uint32_t mtime_nanos;
    // Last change of the attributes.
    int64_t ctime;
    // See `ctime`.
    uint32_t ctime_nanos;
};

// An entry of a directory.
struct cudele_entry {
    // The name, with a zero byte at its end.
    char name[256];
    // What it names; of a symbolic link, the link itself.
    struct cudele_stat stat;
};

// How much room there is.
struct cudele_space {
    // Bytes of the object store.
    uint64_t total;
    // Of those, free.
    uint64_t available;
};

// The result of a completion or merge.
struct cudele_completion {
    // Events of the journal.
    uint64_t events;
    // Bytes of the journal.
    uint64_t bytes;
    // Inodes that were made.
    uint64_t created;
    // Names of other clients that lost to this client's.
    uint64_t replaced;
    // Rejected events, because another client removed their directory or inode.
    uint64_t rejected;
    // How long it took.
    double seconds;
};

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// Connects to a cluster: to the monitor at the address `mon` (`unix:PATH`, `tcp:HOST:PORT`, or
// `plain:HOST:PORT` on this machine), or if that is NULL to the cluster in the directory `dir`. If
// both are NULL, `$CUDELE_MON`, `$CUDELE_DIR` and the cluster that this user started last are
// tried. Over TCP, `$CUDELE_KEY` names the key file, and calls have its rights; else they have the
// rights of the user of this process.
//
// Errors: `ENOENT` if no cluster is named, `ECONNREFUSED` if it does not run, `EINVAL`.
int cudele_connect(const char *mon, const char *dir, struct cudele_fs **fs);

// Ends a connection. Written data is flushed to the server first, but not made durable: see
// cudele_sync. The part of a decoupled subtree's journal that was neither persisted nor merged is
// lost.
//
// Errors: `EBUSY` if files, directories or subtrees of it are open; `EIO`. Then it is still there.
int cudele_disconnect(struct cudele_fs *fs);

// Waits until everything that was changed through this connection is as durable as the policies
// promise. Of decoupled subtrees it is cudele_subtree_persist and its like that do that.
//
// Errors: `EIO`, `ENOSPC`; the error of a change that was answered and is lost.
int cudele_sync(struct cudele_fs *fs);

// The message of this thread's last failed call, for people: the path, the cause, and the remedy.
// Never NULL; empty if none has failed. It stays until the next call of this thread fails.
const char *cudele_last_error(void);

// Attributes of the object at a path; a symbolic link at its end is followed.
//
// Errors: `ENOENT`, `ENOTDIR`, `EACCES`, `ELOOP`, `EBUSY` in another client's subtree.
int cudele_stat(struct cudele_fs *fs, const char *path, struct cudele_stat *stat);

// As cudele_stat, but of a symbolic link itself.
int cudele_lstat(struct cudele_fs *fs, const char *path, struct cudele_stat *stat);

// Makes a directory. The permissions are `mode` as it is: no umask is taken off.
//
// Errors: `EEXIST`, `ENOENT`, `EACCES`, `EBUSY` in another client's subtree, `EDQUOT`.
int cudele_mkdir(struct cudele_fs *fs, const char *path, uint32_t mode);

// Makes an empty file, and fails if the name exists; cudele_open with `O_CREAT` makes and opens
// one.
//
// Errors: as cudele_mkdir.
int cudele_create(struct cudele_fs *fs, const char *path, uint32_t mode);

// Makes a symbolic link.
//
// Errors: as cudele_mkdir; `ENOENT` for an empty target.
int cudele_symlink(struct cudele_fs *fs, const char *target, const char *path);

// Copies the target of a symbolic link to a buffer, as much as fits, and a zero byte. Returns the
// length of the whole target: if it is not less than `length`, the buffer was too small.
//
// Errors: `EINVAL` if it is no symbolic link.
int64_t cudele_readlink(struct cudele_fs *fs, const char *path, char *buffer, size_t length);

// Removes a name of anything but a directory.
//
// Errors: `ENOENT`, `EISDIR`, `EACCES`, `EPERM`.
int cudele_unlink(struct cudele_fs *fs, const char *path);

// Removes an empty directory.
//
// Errors: `ENOENT`, `ENOTDIR`, `ENOTEMPTY`, `EACCES`; `EBUSY` for the root of a decoupled subtree.
int cudele_rmdir(struct cudele_fs *fs, const char *path);

// Moves a name, and replaces an existing entry of the new name, as rename(2) does.
//
// Errors: those of rename(2); `EXDEV` across the border of a decoupled subtree.
int cudele_rename(struct cudele_fs *fs, const char *from, const char *to);

// Opens a directory for reading.
//
// Errors: `ENOENT`, `ENOTDIR`, `EACCES`, `EBUSY` in another client's subtree.
int cudele_opendir(struct cudele_fs *fs, const char *path, struct cudele_dir **dir);

// Reads the next entry, without `.` and `..`. Returns 1, or 0 at the end. Names that exist
// throughout are seen exactly once, even while other names are made and removed; the order is the
// directory's own.
//
// Errors: `EACCES`, `ESTALE`.
int cudele_readdir(struct cudele_dir *dir, struct cudele_entry *entry);

// Restarts the listing of a directory, which then shows later changes.
int cudele_rewinddir(struct cudele_dir *dir);

// Closes a directory.
int cudele_closedir(struct cudele_dir *dir);

// Copies the policy in force in a directory to a buffer, as the text of a policy file, as much as
// fits, and a zero byte. The last line is a comment with the directory that sets it. Returns the
// length of the whole text: if it is not less than `length`, the buffer was too small.
//
// Errors: `ENOENT`, `ENOTDIR`.
int64_t cudele_policy_get(struct cudele_fs *fs, const char *path, char *buffer, size_t length);

// Sets the policy of a directory: the name of a preset such as `batchfs`, of a cell of Table II
// such as `weak-global`, or the text of a policy file; NULL removes its own policy. Existing files
// are under the new policy when this returns, unless another client has the subtree: then from the
// moment at which that client gives it back.
//
// Errors: `EINVAL` with line and column for a text that is no policy, `EPERM`, `ENOTDIR`;
// `ENODATA` to remove a missing policy.
int cudele_policy_set(struct cudele_fs *fs, const char *path, const char *policy);

// Whether permissions allow this process to read (4), write (2) or search and execute (1) the
// object at a path, as access(2) with `R_OK`, `W_OK` and `X_OK`; 0 (`F_OK`) checks its existence.
//
// Errors: `EACCES` if they do not; `ENOENT`, `ENOTDIR`.
int cudele_access(struct cudele_fs *fs, const char *path, uint32_t mode);

// Changes the permissions.
//
// Errors: `EPERM`, `ENOENT`, `EBUSY` in another client's subtree.
int cudele_chmod(struct cudele_fs *fs, const char *path, uint32_t mode);

// Sets the times of the last access and the last change of the content, in nanoseconds since 1970;
// one that is `CUDELE_TIME_KEEP` stays. A symbolic link at the end of the path is followed.
//
// Errors: as cudele_chmod.
int cudele_utimens(struct cudele_fs *fs, const char *path, int64_t atime, int64_t mtime);

// Cuts a file off, or lengthens it with zeros.
//
// Errors: `EISDIR`, `EFBIG`, `EACCES`, `ENOENT`.
int cudele_truncate(struct cudele_fs *fs, const char *path, uint64_t size);

// As cudele_truncate, of a file that is open for writing.
//
// Errors: `EBADF` if it is not.
int cudele_ftruncate(struct cudele_file *open, uint64_t size);

// Gives a file one more name.
//
// Errors: `EEXIST`, `EPERM` for a directory, `EMLINK`, `EXDEV` across the border of a decoupled
// subtree.
int cudele_link(struct cudele_fs *fs, const char *path, const char *name);

// How much room there is in the object store.
//
// Errors: `EIO`.
int cudele_space(struct cudele_fs *fs, struct cudele_space *space);

// Copies the value of an extended attribute to a buffer, as much as fits. Returns its length: if
// that is more than `length`, the buffer was too small. Names that begin with `cudele.` are facts
// that Cudele knows: `cudele.file.durable` is `none`, `local` or `global`, the failures that the
// file survives at this moment; `cudele.file.visible` is whether other clients see the same file;
// `cudele.dir.state` is the owner of a subtree.
//
// Errors: `ENODATA` if there is no such attribute.
int64_t cudele_getxattr(struct cudele_fs *fs,
                        const char *path,
                        const char *name,
                        void *value,
                        size_t length);

// Sets an extended attribute, or removes it if `value` is NULL.
//
// Errors: `EPERM`, `ERANGE`, `EFBIG`; `ENODATA` to remove a missing attribute.
int cudele_setxattr(struct cudele_fs *fs,
                    const char *path,
                    const char *name,
                    const void *value,
                    size_t length);

// Opens a file. `flags` are those of open(2): one of `O_RDONLY`, `O_WRONLY` and `O_RDWR`, and any
// of `O_CREAT`, `O_EXCL`, `O_TRUNC` and `O_APPEND`; `mode` are the permissions of a new file,
// without an umask.
//
// Other clients see written data when the file is closed or synced; if several clients have it
// open, when the write returns, unless its policy shares lazily.
//
// Errors: those of open(2); `EBUSY` in another client's subtree.
int cudele_open(struct cudele_fs *fs,
                const char *path,
                int flags,
                uint32_t mode,
                struct cudele_file **file);

// Reads from the end of the last read or write of this handle. Returns the number of bytes, which
// is less than `length` only at the end of the file, and 0 there.
//
// Errors: `EBADF` if it is not open for reading, `EIO`.
int64_t cudele_read(struct cudele_file *file, void *buffer, size_t length);

// As cudele_read, from a position.
int64_t cudele_pread(struct cudele_file *file, void *buffer, size_t length, uint64_t offset);

// Writes where the last read or write of this handle ended; with `O_APPEND` at the end. Returns
// `length`: all of it is written, or the call fails.
//
// Errors: `EBADF` if it is not open for writing, `EFBIG`, `ENOSPC`, `EIO`.
int64_t cudele_write(struct cudele_file *file, const void *buffer, size_t length);

// As cudele_write, at a position; with `O_APPEND` at the end all the same.
int64_t cudele_pwrite(struct cudele_file *file, const void *buffer, size_t length, uint64_t offset);

// Moves where the next read or write begins, in bytes from the beginning of the file.
int cudele_seek(struct cudele_file *file, uint64_t offset);

// Attributes of an open file.
int cudele_fstat(struct cudele_file *file, struct cudele_stat *stat);

// Waits until written data of a file is as durable as its policy promises.
//
// Errors: `EIO`, `ENOSPC`.
int cudele_fsync(struct cudele_file *file);

// Closes a file. A later open, by any client, sees the written data.
//
// Errors: `EIO`, `ENOSPC`. Then the file is still open and keeps the written data: try again.
int cudele_close(struct cudele_file *file);

// Takes a directory, with everything below it, for this client alone: later changes there are
// appended to a journal in memory. `policy` is as with cudele_policy_set and must decouple; NULL
// means the policy in force there.
//
// Errors: `EBUSY` if another client has it, `EINVAL` if the policy does not decouple, `ENOENT`,
// `ENOTDIR`, `EACCES`.
int cudele_decouple(struct cudele_fs *fs,
                    const char *path,
                    const char *policy,
                    struct cudele_subtree **subtree);

// Continues with a subtree that an earlier process of this user decoupled on this machine, from
// its persisted journal.
//
// Errors: `ENOENT` if this machine does not own one there, `EBADMSG` if a journal is damaged.
int cudele_attach(struct cudele_fs *fs, const char *path, struct cudele_subtree **subtree);

// The inode number of a subtree's root, in which to append.
int cudele_subtree_root(struct cudele_subtree *subtree, uint64_t *ino);

// Appends the creation of a file with content to the journal of a subtree, in the directory with
// the inode number `parent`: the fastest way to make files. Unless the policy has `check: client`,
// no check is made for an existing name, or for `parent` to be a directory of the subtree; the
// merge rejects and counts impossible events. `ino`, if it is not NULL, is set to the number of
// the new file.
//
// Errors: `EINVAL`, `ENAMETOOLONG` for the name, `EDQUOT`; `ENOSPC` and `EIO` for large content.
int cudele_append_file(struct cudele_subtree *subtree,
                       uint64_t parent,
                       const char *name,
                       uint32_t mode,
                       const void *content,
                       size_t length,
                       uint64_t *ino);

// Appends the making of a directory, as cudele_append_file.
int cudele_append_mkdir(struct cudele_subtree *subtree,
                        uint64_t parent,
                        const char *name,
                        uint32_t mode,
                        uint64_t *ino);

// How many events a subtree holds that are not merged.
int cudele_subtree_pending(struct cudele_subtree *subtree, uint64_t *events);

// Makes the journal of a subtree as durable as its policy promises, on this machine's disk, in the
// object store, or not at all. Other clients see nothing of it.
//
// Errors: `EIO`, `ENOSPC`; the subtree keeps its journal.
int cudele_subtree_persist(struct cudele_subtree *subtree);

// Runs every mechanism of the policy: its promise holds when this returns. The subtree stays this
// client's. `completion`, here and below, may be NULL.
//
// Errors: those of the mechanisms; the subtree keeps its journal.
int cudele_subtree_complete(struct cudele_subtree *subtree, struct cudele_completion *completion);

// Namespace sync: publishes the journal so far to other clients, under any policy. The subtree
// stays this client's.
//
// Errors: as cudele_subtree_complete.
int cudele_subtree_sync(struct cudele_subtree *subtree, struct cudele_completion *completion);

// Merges a subtree and gives it back: all clients see the work, under any policy, and may work
// there. Closes the handle.
//
// Errors: those of the mechanisms; then the handle stays open and the subtree keeps its journal.
int cudele_subtree_merge(struct cudele_subtree *subtree, struct cudele_completion *completion);

// Gives a subtree back without a merge and discards its unmerged work. Closes the handle.
//
// Errors: `EIO`.
int cudele_subtree_discard(struct cudele_subtree *subtree);

// Closes the handle and nothing else: the subtree stays this client's. cudele_attach continues
// from the persisted journal, in a later process or, after cudele_disconnect, in this one.
int cudele_subtree_close(struct cudele_subtree *subtree);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* CUDELE_H */
