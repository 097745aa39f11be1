/*
 * IOR and mdtest on Cudele: a back end for the abstract interface of IOR 4 (AIORI), over cudele.h.
 *
 * Each process has a connection of its own, and paths are those of the namespace. What this is not: a
 * way around what the benchmark measures. Nothing is remembered between calls, and every call waits for
 * its answer, but in subtrees that the option cudele.decouple asks for.
 *
 * docs/c.md says how to use it. Written for IOR 4.1; for 4.0, which calls one member of the interface
 * otherwise, define CUDELE_IOR_4_0.
 */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <cudele.h>

#include "aiori.h"
#include "ior.h"
#include "utilities.h"

/* Options of the command line. */
struct options {
    /* Where the cluster is, as with cudele_connect. */
    char *mon;
    char *dir;
    /* If given, the directory trees of mdtest are decoupled under this policy. */
    char *decouple;
};

/* Directories that this process has decoupled: one for each directory per process and iteration. */
#define SUBTREES_MAX 64

struct subtree {
    char *path;
    struct cudele_subtree *handle;
};

static struct cudele_fs *fs;
static struct subtree subtrees[SUBTREES_MAX];
static aiori_xfer_hint_t *hints;

/* Ends the program with what the library says: a benchmark that goes on after an error measures nothing. */
static void must(int64_t result, const char *call, const char *path)
{
    if (result < 0)
        ERRF("%s(%s): %s", call, path, cudele_last_error());
}

/* What callers of POSIX expect. */
static int answer(int result)
{
    if (result == 0)
        return 0;
    errno = -result;
    return -1;
}

static option_help *CUDELE_options(aiori_mod_opt_t **filled, aiori_mod_opt_t *given)
{
    struct options *o = safeMalloc(sizeof *o);
    if (given != NULL)
        *o = *(struct options *)given;
    else
        memset(o, 0, sizeof *o);
    *filled = (aiori_mod_opt_t *)o;

    option_help list[] = {
        {0, "cudele.mon", "Address of the monitor, unix:PATH or tcp:HOST:PORT",
         OPTION_OPTIONAL_ARGUMENT, 's', &o->mon},
        {0, "cudele.dir", "Directory of the cluster", OPTION_OPTIONAL_ARGUMENT, 's', &o->dir},
        {0, "cudele.decouple",
         "Policy under which mdtest's directory trees are decoupled; with -u and -Y of mdtest",
         OPTION_OPTIONAL_ARGUMENT, 's', &o->decouple},
        LAST_OPTION,
    };
    option_help *help = safeMalloc(sizeof list);
    memcpy(help, list, sizeof list);
    return help;
}

static void CUDELE_initialize(aiori_mod_opt_t *given)
{
    struct options *o = (struct options *)given;
    if (fs == NULL)
        must(cudele_connect(o->mon, o->dir, &fs), "cudele_connect", o->dir ? o->dir : "");
}

static void CUDELE_finalize(aiori_mod_opt_t *given)
{
    int i;

    for (i = 0; i < SUBTREES_MAX; i++) {
        if (subtrees[i].handle == NULL)
            continue;
        must(cudele_subtree_merge(subtrees[i].handle, NULL), "cudele_subtree_merge",
             subtrees[i].path);
        free(subtrees[i].path);
        subtrees[i].handle = NULL;
    }
    if (fs != NULL)
        must(cudele_disconnect(fs), "cudele_disconnect", "");
    fs = NULL;
}

static void CUDELE_xfer_hints(aiori_xfer_hint_t *given)
{
    hints = given;
}

static aiori_fd_t *CUDELE_open(char *path, int flags, aiori_mod_opt_t *given)
{
    struct cudele_file *file = NULL;
    int how = flags & IOR_RDWR ? O_RDWR : flags & IOR_WRONLY ? O_WRONLY : O_RDONLY;

    if (flags & IOR_DIRECT)
        ERR("the library has no way around its buffers: leave direct I/O out");
    if (hints != NULL && hints->dryRun)
        return NULL;
    how |= flags & IOR_CREAT ? O_CREAT : 0;
    how |= flags & IOR_EXCL ? O_EXCL : 0;
    how |= flags & IOR_APPEND ? O_APPEND : 0;
    how |= flags & IOR_TRUNC && how & O_ACCMODE ? O_TRUNC : 0;
    must(cudele_open(fs, path, how, 0664, &file), "cudele_open", path);
    return (aiori_fd_t *)file;
}

static aiori_fd_t *CUDELE_create(char *path, int flags, aiori_mod_opt_t *given)
{
    return CUDELE_open(path, flags | IOR_CREAT, given);
}

static int CUDELE_mknod(char *path)
{
    int result = cudele_create(fs, path, 0664);
    must(result, "cudele_create", path);
    return result;
}

static void CUDELE_fsync(aiori_fd_t *file, aiori_mod_opt_t *given)
{
    must(cudele_fsync((struct cudele_file *)file), "cudele_fsync", "");
}

static IOR_offset_t CUDELE_xfer(int access, aiori_fd_t *open, IOR_size_t *buffer, IOR_offset_t length,
                                IOR_offset_t offset, aiori_mod_opt_t *given)
{
    struct cudele_file *file = (struct cudele_file *)open;
    int64_t done;

    if (hints != NULL && hints->dryRun)
        return length;
    if (access != WRITE) {
        done = cudele_pread(file, buffer, (size_t)length, (uint64_t)offset);
        must(done, "cudele_pread", "");
        return done;
    }
    done = cudele_pwrite(file, buffer, (size_t)length, (uint64_t)offset);
    must(done, "cudele_pwrite", "");
    if (hints != NULL && hints->fsyncPerWrite)
        CUDELE_fsync(open, given);
    return done;
}

static void CUDELE_close(aiori_fd_t *file, aiori_mod_opt_t *given)
{
    if (hints != NULL && hints->dryRun)
        return;
    must(cudele_close((struct cudele_file *)file), "cudele_close", "");
}

static void CUDELE_remove(char *path, aiori_mod_opt_t *given)
{
    if (hints != NULL && hints->dryRun)
        return;
    if (cudele_unlink(fs, path) < 0)
        WARNF("[RANK %03d]: %s", rank, cudele_last_error());
}

static IOR_offset_t CUDELE_get_file_size(aiori_mod_opt_t *given, char *path)
{
    struct cudele_stat found;

    if (hints != NULL && hints->dryRun)
        return 0;
    must(cudele_stat(fs, path, &found), "cudele_stat", path);
    return (IOR_offset_t)found.size;
}

static int CUDELE_statfs(const char *path, ior_aiori_statfs_t *stat, aiori_mod_opt_t *given)
{
    struct cudele_space space;
    int result = cudele_space(fs, &space);

    if (result < 0)
        return answer(result);
    memset(stat, 0, sizeof *stat);
    stat->f_bsize = 4096;
    stat->f_blocks = space.total / 4096;
    stat->f_bfree = stat->f_bavail = space.available / 4096;
    /* Inodes are numbers of 64 bits: there are as many as anybody needs. */
    stat->f_files = stat->f_ffree = UINT64_MAX / 2;
    return 0;
}

/* The length of a path without slashes at its end. */
static size_t length_of(const char *path)
{
    size_t length = strlen(path);
    while (length > 1 && path[length - 1] == '/')
        length--;
    return length;
}

/* The root of a tree that mdtest makes for one process, and not what is in it. */
static bool is_tree(const char *path)
{
    const char *tree = strstr(path, "/mdtest_tree.");
    return tree != NULL && memchr(tree + 1, '/', length_of(path) - (tree + 1 - path)) == NULL;
}

static int CUDELE_mkdir(const char *path, mode_t mode, aiori_mod_opt_t *given)
{
    struct options *o = (struct options *)given;
    int i, result = cudele_mkdir(fs, path, mode);

    if (result < 0 || o == NULL || o->decouple == NULL || !is_tree(path))
        return answer(result);
    for (i = 0; i < SUBTREES_MAX && subtrees[i].handle != NULL; i++)
        ;
    if (i == SUBTREES_MAX)
        ERR("more directory trees than one process can decouple: fewer iterations, or without it");
    subtrees[i].path = strndup(path, length_of(path));
    if (subtrees[i].path == NULL)
        ERR("no memory is left");
    must(cudele_decouple(fs, path, o->decouple, &subtrees[i].handle), "cudele_decouple", path);
    return 0;
}

static int CUDELE_rmdir(const char *path, aiori_mod_opt_t *given)
{
    int i;

    /* The tree is empty again: it is given back, with what is not merged, before it goes. */
    for (i = 0; i < SUBTREES_MAX; i++) {
        if (subtrees[i].handle == NULL || strlen(subtrees[i].path) != length_of(path) ||
            strncmp(subtrees[i].path, path, length_of(path)) != 0)
            continue;
        must(cudele_subtree_merge(subtrees[i].handle, NULL), "cudele_subtree_merge", path);
        free(subtrees[i].path);
        subtrees[i].handle = NULL;
    }
    return answer(cudele_rmdir(fs, path));
}

static int CUDELE_access(const char *path, int mode, aiori_mod_opt_t *given)
{
    return answer(cudele_access(fs, path, (uint32_t)mode));
}

static int CUDELE_stat(const char *path, struct stat *stat, aiori_mod_opt_t *given)
{
    struct cudele_stat found;
    int result = cudele_stat(fs, path, &found);

    if (result < 0)
        return answer(result);
    memset(stat, 0, sizeof *stat);
    stat->st_ino = found.ino;
    stat->st_mode = found.mode;
    stat->st_nlink = found.nlink;
    stat->st_uid = found.uid;
    stat->st_gid = found.gid;
    stat->st_size = (off_t)found.size;
    stat->st_atime = found.atime;
    stat->st_mtime = found.mtime;
    stat->st_ctime = found.ctime;
    return 0;
}

static int CUDELE_rename(const char *from, const char *to, aiori_mod_opt_t *given)
{
    return answer(cudele_rename(fs, from, to));
}

static void CUDELE_sync(aiori_mod_opt_t *given)
{
    int i;

    /* What was done in decoupled trees is shown to others; all else is made durable. */
    for (i = 0; i < SUBTREES_MAX; i++)
        if (subtrees[i].handle != NULL)
            must(cudele_subtree_sync(subtrees[i].handle, NULL), "cudele_subtree_sync",
                 subtrees[i].path);
    must(cudele_sync(fs), "cudele_sync", "");
}

ior_aiori_t cudele_aiori = {
    .name = "CUDELE",
    .name_legacy = NULL,
    .create = CUDELE_create,
    .mknod = CUDELE_mknod,
    .open = CUDELE_open,
    .xfer_hints = CUDELE_xfer_hints,
    .xfer = CUDELE_xfer,
    .close = CUDELE_close,
#ifdef CUDELE_IOR_4_0
    .delete = CUDELE_remove,
#else
    .remove = CUDELE_remove,
#endif
    .get_version = aiori_get_version,
    .fsync = CUDELE_fsync,
    .get_file_size = CUDELE_get_file_size,
    .statfs = CUDELE_statfs,
    .mkdir = CUDELE_mkdir,
    .rmdir = CUDELE_rmdir,
    .access = CUDELE_access,
    .stat = CUDELE_stat,
    .initialize = CUDELE_initialize,
    .finalize = CUDELE_finalize,
    .rename = CUDELE_rename,
    .get_options = CUDELE_options,
    .sync = CUDELE_sync,
    .enable_mdtest = true,
};
