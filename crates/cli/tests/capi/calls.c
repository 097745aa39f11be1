/* Every call of cudele.h, and what it refuses: one part after the other, named by the argument. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <cudele.h>

#define LARGE 9000000

/* The call must return this; if not, the program ends and says which did not. */
#define IS(call, wanted) is(__LINE__, #call, (call), (wanted))
#define OK(call) IS(call, 0)
#define HOLDS(condition) IS((condition) ? 1 : 0, 1)
/* The last error says this. */
#define SAID(part) said(__LINE__, part)

static struct cudele_fs *fs;

static void is(int line, const char *call, int64_t result, int64_t wanted)
{
    if (result != wanted) {
        fprintf(stderr, "line %d: %s is %lld, not %lld: %s\n", line, call, (long long)result,
                (long long)wanted, cudele_last_error());
        exit(1);
    }
}

static void said(int line, const char *part)
{
    if (strstr(cudele_last_error(), part) == NULL) {
        fprintf(stderr, "line %d: \"%s\" does not say \"%s\"\n", line, cudele_last_error(), part);
        exit(1);
    }
}

static int entries(const char *path)
{
    struct cudele_dir *dir;
    struct cudele_entry entry;
    int count = 0, more;

    OK(cudele_opendir(fs, path, &dir));
    while ((more = cudele_readdir(dir, &entry)) == 1)
        count++;
    OK(more);
    OK(cudele_closedir(dir));
    return count;
}

static void handles(void)
{
    struct cudele_fs *other;
    struct cudele_file *file;
    struct cudele_dir *dir;
    struct cudele_stat stat;
    struct cudele_subtree *subtree;
    char buffer[8];

    IS(cudele_connect(NULL, NULL, NULL), -EINVAL);
    SAID("fs: the pointer is NULL");
    IS(cudele_connect("nonsense", NULL, &other), -EINVAL);
    SAID("unix:PATH, tcp:HOST:PORT");
    IS(cudele_mkdir(NULL, "/x", 0755), -EINVAL);
    SAID("connection: the handle is NULL");
    IS(cudele_mkdir((struct cudele_fs *)buffer, "/x", 0755), -EBADF);
    IS(cudele_mkdir(fs, NULL, 0755), -EINVAL);
    SAID("path: the pointer is NULL");
    IS(cudele_mkdir(fs, "", 0755), -ENOENT);
    IS(cudele_mkdir(fs, "handles", 0755), -EINVAL);
    SAID("does not begin with `/`");
    IS(cudele_mkdir(fs, "/", 0755), -EINVAL);
    IS(cudele_stat(fs, "/", NULL), -EINVAL);
    OK(cudele_stat(fs, "/", &stat));
    HOLDS(stat.ino == 1 && S_ISDIR(stat.mode));

    OK(cudele_mkdir(fs, "/handles", 0755));
    OK(cudele_open(fs, "/handles/f", O_RDWR | O_CREAT, 0600, &file));
    IS(cudele_closedir((struct cudele_dir *)file), -EBADF);
    IS(cudele_read(file, NULL, 1), -EINVAL);
    OK(cudele_read(file, NULL, 0));
    IS(cudele_disconnect(fs), -EBUSY);
    SAID("close them first");
    OK(cudele_close(file));
    IS(cudele_close(file), -EBADF);
    SAID("the handle is not open (EBADF)");
    IS(cudele_read(file, buffer, sizeof buffer), -EBADF);
    OK(cudele_opendir(fs, "/handles", &dir));
    IS(cudele_readdir(dir, NULL), -EINVAL);
    OK(cudele_closedir(dir));
    IS(cudele_closedir(dir), -EBADF);
    IS(cudele_subtree_merge(NULL, NULL), -EINVAL);
    IS(cudele_decouple(fs, "/handles", "posix", &subtree), -EINVAL);
    SAID("/handles: ");

    OK(cudele_connect(NULL, NULL, &other));
    OK(cudele_stat(other, "/handles", &stat));
    OK(cudele_disconnect(other));
    IS(cudele_stat(other, "/handles", &stat), -EBADF);
}

static void names(void)
{
    struct cudele_stat stat;
    struct cudele_dir *dir;
    struct cudele_entry entry;
    char target[8];

    OK(cudele_mkdir(fs, "/names", 0750));
    IS(cudele_mkdir(fs, "/names", 0750), -EEXIST);
    SAID("/names: ");
    IS(cudele_mkdir(fs, "/names/a/b", 0750), -ENOENT);
    OK(cudele_mkdir(fs, "/names/a", 0750));
    OK(cudele_create(fs, "/names/a/file", 0640));
    IS(cudele_create(fs, "/names/a/file", 0640), -EEXIST);
    IS(cudele_create(fs, "/names/a/file/below", 0640), -ENOTDIR);
    OK(cudele_stat(fs, "/names//a/./file", &stat));
    HOLDS(S_ISREG(stat.mode) && (stat.mode & 07777) == 0640 && stat.size == 0 && stat.nlink == 1);
    HOLDS(stat.mtime > 1600000000 && stat.mtime_nanos < 1000000000);

    OK(cudele_symlink(fs, "a/../a", "/names/link"));
    OK(cudele_symlink(fs, "/names/loop", "/names/loop"));
    OK(cudele_stat(fs, "/names/link/file", &stat));
    OK(cudele_stat(fs, "/names/link", &stat));
    HOLDS(S_ISDIR(stat.mode));
    OK(cudele_lstat(fs, "/names/link", &stat));
    HOLDS(S_ISLNK(stat.mode));
    IS(cudele_stat(fs, "/names/loop/x", &stat), -ELOOP);
    IS(cudele_readlink(fs, "/names/link", target, sizeof target), 6);
    HOLDS(strcmp(target, "a/../a") == 0);
    IS(cudele_readlink(fs, "/names/link", target, 3), 6);
    HOLDS(strcmp(target, "a/") == 0);
    IS(cudele_readlink(fs, "/names/a", target, sizeof target), -EINVAL);

    IS(cudele_rmdir(fs, "/names/a"), -ENOTEMPTY);
    IS(cudele_unlink(fs, "/names/a"), -EISDIR);
    IS(cudele_unlink(fs, "/names/none"), -ENOENT);
    OK(cudele_rename(fs, "/names/a/file", "/names/kept"));
    IS(cudele_rename(fs, "/names/a/file", "/names/kept"), -ENOENT);
    SAID("/names/a/file");
    OK(cudele_opendir(fs, "/names", &dir));
    while (cudele_readdir(dir, &entry) == 1)
        HOLDS(strcmp(entry.name, ".") != 0 && entry.stat.ino != 0);
    OK(cudele_readdir(dir, &entry));
    OK(cudele_rewinddir(dir));
    IS(cudele_readdir(dir, &entry), 1);
    OK(cudele_closedir(dir));
    IS(cudele_opendir(fs, "/names/kept", &dir), -ENOTDIR);
    IS(entries("/names"), 4);
    OK(cudele_rmdir(fs, "/names/a"));
    OK(cudele_unlink(fs, "/names/link"));
    OK(cudele_unlink(fs, "/names/loop"));
    OK(cudele_sync(fs));
}

static void attributes(void)
{
    struct cudele_stat stat;
    struct cudele_space space;
    struct cudele_file *file;
    char value[8];

    OK(cudele_mkdir(fs, "/attributes", 0755));
    OK(cudele_open(fs, "/attributes/f", O_RDWR | O_CREAT, 0600, &file));
    IS(cudele_write(file, "0123456789", 10), 10);
    OK(cudele_ftruncate(file, 4));
    OK(cudele_fstat(file, &stat));
    HOLDS(stat.size == 4);
    OK(cudele_close(file));
    IS(cudele_ftruncate(file, 4), -EBADF);
    OK(cudele_open(fs, "/attributes/f", O_RDONLY, 0, &file));
    IS(cudele_ftruncate(file, 4), -EBADF);
    SAID("not open for writing");
    OK(cudele_close(file));
    OK(cudele_truncate(fs, "/attributes/f", 7));
    IS(cudele_truncate(fs, "/attributes", 7), -EISDIR);
    OK(cudele_chmod(fs, "/attributes/f", 0640));
    OK(cudele_utimens(fs, "/attributes/f", 1000000001, -1));
    OK(cudele_utimens(fs, "/attributes/f", 2000000002, CUDELE_TIME_KEEP));
    OK(cudele_stat(fs, "/attributes/f", &stat));
    HOLDS(stat.size == 7 && (stat.mode & 07777) == 0640);
    HOLDS(stat.atime == 2 && stat.atime_nanos == 2 && stat.mtime == -1);
    HOLDS(stat.mtime_nanos == 999999999);
    OK(cudele_link(fs, "/attributes/f", "/attributes/g"));
    IS(cudele_link(fs, "/attributes/f", "/attributes/g"), -EEXIST);
    OK(cudele_stat(fs, "/attributes/g", &stat));
    HOLDS(stat.nlink == 2);
    OK(cudele_access(fs, "/attributes/f", 4 | 2));
    IS(cudele_access(fs, "/attributes/none", 0), -ENOENT);
    IS(cudele_space(fs, NULL), -EINVAL);
    OK(cudele_space(fs, &space));
    HOLDS(space.available > 0 && space.available <= space.total);

    IS(cudele_getxattr(fs, "/attributes/f", "user.x", value, sizeof value), -ENODATA);
    SAID("/attributes/f: there is no attribute user.x");
    OK(cudele_setxattr(fs, "/attributes/f", "user.x", "value", 5));
    IS(cudele_getxattr(fs, "/attributes/f", "user.x", value, sizeof value), 5);
    HOLDS(memcmp(value, "value", 5) == 0);
    IS(cudele_getxattr(fs, "/attributes/f", "user.x", value, 2), 5);
    IS(cudele_getxattr(fs, "/attributes/f", "user.x", NULL, 0), 5);
    OK(cudele_setxattr(fs, "/attributes/f", "user.x", NULL, 0));
    IS(cudele_setxattr(fs, "/attributes/f", "user.x", NULL, 0), -ENODATA);
    IS(cudele_getxattr(fs, "/attributes/f", "cudele.file.visible", value, sizeof value), 3);
    HOLDS(memcmp(value, "yes", 3) == 0);
}

static void files(void)
{
    struct cudele_file *file, *again;
    struct cudele_stat stat;
    unsigned char *content = malloc(LARGE), *back = malloc(LARGE);
    size_t i;

    for (i = 0; i < LARGE; i++)
        content[i] = (unsigned char)(i * 7 + i / 4096);
    OK(cudele_mkdir(fs, "/files", 0755));
    IS(cudele_open(fs, "/files/none", O_RDONLY, 0, &file), -ENOENT);
    IS(cudele_open(fs, "/files", O_RDONLY, 0, &file), -EISDIR);
    IS(cudele_open(fs, "/files/f", O_RDONLY | O_DSYNC, 0, &file), -EINVAL);
    SAID("cudele_fsync");

    /* Small: with its inode. */
    OK(cudele_open(fs, "/files/small", O_WRONLY | O_CREAT | O_EXCL, 0644, &file));
    IS(cudele_open(fs, "/files/small", O_WRONLY | O_CREAT | O_EXCL, 0644, &again), -EEXIST);
    IS(cudele_write(file, "hello ", 6), 6);
    IS(cudele_write(file, "world", 5), 5);
    IS(cudele_read(file, back, 1), -EBADF);
    OK(cudele_fstat(file, &stat));
    HOLDS(stat.size == 11);
    OK(cudele_fsync(file));
    OK(cudele_close(file));
    OK(cudele_open(fs, "/files/small", O_RDWR | O_APPEND, 0, &file));
    IS(cudele_pwrite(file, "!", 1, 0), 1);
    IS(cudele_read(file, back, 100), 12);
    HOLDS(memcmp(back, "hello world!", 12) == 0);
    OK(cudele_read(file, back, 100));
    OK(cudele_seek(file, 6));
    IS(cudele_read(file, back, 5), 5);
    HOLDS(memcmp(back, "world", 5) == 0);
    OK(cudele_close(file));
    OK(cudele_open(fs, "/files/small", O_RDONLY, 0, &file));
    IS(cudele_write(file, "x", 1), -EBADF);
    OK(cudele_close(file));

    /* Large: objects in the store. */
    OK(cudele_open(fs, "/files/large", O_RDWR | O_CREAT, 0644, &file));
    IS(cudele_write(file, content, LARGE / 2), LARGE / 2);
    IS(cudele_pwrite(file, content + LARGE / 2, LARGE - LARGE / 2, LARGE / 2), LARGE - LARGE / 2);
    IS(cudele_pread(file, back, LARGE, 0), LARGE);
    HOLDS(memcmp(content, back, LARGE) == 0);
    IS(cudele_pread(file, back, 100, LARGE - 10), 10);
    OK(cudele_pread(file, back, 100, LARGE));
    OK(cudele_close(file));
    OK(cudele_open(fs, "/files/large", O_RDONLY, 0, &file));
    memset(back, 0, LARGE);
    IS(cudele_read(file, back, LARGE), LARGE);
    HOLDS(memcmp(content, back, LARGE) == 0);
    OK(cudele_close(file));

    /* Thrown away, and open without a name. */
    OK(cudele_open(fs, "/files/small", O_RDWR | O_CREAT | O_TRUNC, 0644, &file));
    OK(cudele_fstat(file, &stat));
    HOLDS(stat.size == 0);
    IS(cudele_write(file, "still here", 10), 10);
    OK(cudele_unlink(fs, "/files/small"));
    IS(cudele_pread(file, back, 100, 0), 10);
    OK(cudele_close(file));
    IS(cudele_stat(fs, "/files/small", &stat), -ENOENT);
    free(content);
    free(back);
}

static void *make_files(void *number)
{
    char path[64];
    struct cudele_file *file;
    int i;

    for (i = 0; i < 50; i++) {
        snprintf(path, sizeof path, "/threads/%c.%d", *(const char *)number, i);
        OK(cudele_open(fs, path, O_WRONLY | O_CREAT | O_EXCL, 0644, &file));
        IS(cudele_write(file, path, strlen(path)), (int64_t)strlen(path));
        OK(cudele_close(file));
    }
    IS(cudele_rmdir(fs, "/threads"), -ENOTEMPTY);
    snprintf(path, sizeof path, "/threads/%c.none", *(const char *)number);
    IS(cudele_unlink(fs, path), -ENOENT);
    SAID(path);
    return NULL;
}

static void threads(void)
{
    pthread_t all[8];
    int i;

    OK(cudele_mkdir(fs, "/threads", 0755));
    for (i = 0; i < 8; i++)
        OK(pthread_create(&all[i], NULL, make_files, &"abcdefgh"[i]));
    for (i = 0; i < 8; i++)
        OK(pthread_join(all[i], NULL));
    HOLDS(cudele_last_error()[0] == '\0');
    IS(entries("/threads"), 400);
}

static void policies(void)
{
    char text[4096];
    int64_t length;

    OK(cudele_mkdir(fs, "/policies", 0755));
    HOLDS(cudele_policy_get(fs, "/policies", text, sizeof text) > 0);
    HOLDS(strstr(text, "# the default") != NULL);
    OK(cudele_policy_set(fs, "/policies", "weak-global"));
    length = cudele_policy_get(fs, "/policies", text, sizeof text);
    IS(length, (int64_t)strlen(text));
    HOLDS(strstr(text, "global_persist") != NULL && strstr(text, "# set here") != NULL);
    IS(cudele_policy_get(fs, "/policies", text, 4), length);
    HOLDS(strlen(text) == 3);
    HOLDS(cudele_policy_get(fs, "/policies", NULL, 0) > 4);
    IS(cudele_policy_set(fs, "/policies", "consistency: nonsense"), -EINVAL);
    SAID("nonsense");
    OK(cudele_policy_set(fs, "/policies", NULL));
    IS(cudele_policy_set(fs, "/policies", NULL), -ENODATA);
    IS(cudele_policy_set(fs, "/none", "posix"), -ENOENT);
}

static void subtree(void)
{
    struct cudele_fs *other;
    struct cudele_subtree *own, *second;
    struct cudele_completion done;
    struct cudele_stat stat;
    struct cudele_file *file;
    uint64_t root, dir, ino, events;
    char back[16];

    OK(cudele_mkdir(fs, "/subtree", 0755));
    OK(cudele_connect(NULL, NULL, &other));
    OK(cudele_decouple(fs, "/subtree", "weak-none", &own));
    IS(cudele_decouple(other, "/subtree", "batchfs", &second), -EBUSY);
    OK(cudele_subtree_root(own, &root));
    OK(cudele_append_mkdir(own, root, "dir", 0700, &dir));
    OK(cudele_append_file(own, dir, "file", 0600, "inside", 6, &ino));
    IS(cudele_append_file(own, dir, "a/b", 0600, NULL, 0, NULL), -EINVAL);
    OK(cudele_subtree_pending(own, &events));
    HOLDS(events == 2);

    /* Every other call works there, too, and nobody else sees it. */
    OK(cudele_stat(fs, "/subtree/dir/file", &stat));
    HOLDS(stat.ino == ino && stat.size == 6);
    OK(cudele_open(fs, "/subtree/dir/file", O_RDWR, 0, &file));
    IS(cudele_read(file, back, sizeof back), 6);
    IS(cudele_write(file, " too", 4), 4);
    OK(cudele_close(file));
    OK(cudele_mkdir(fs, "/subtree/own", 0755));
    IS(cudele_rename(fs, "/subtree/own", "/elsewhere"), -EXDEV);
    IS(cudele_rmdir(fs, "/subtree"), -EBUSY);
    IS(cudele_stat(other, "/subtree/own", &stat), -ENOENT);

    /* Namespace sync: others see it, and it is still ours. */
    OK(cudele_append_file(own, root, "seen", 0644, NULL, 0, NULL));
    OK(cudele_subtree_sync(own, &done));
    OK(cudele_stat(other, "/subtree/seen", &stat));
    OK(cudele_stat(other, "/subtree/dir/file", &stat));
    HOLDS(stat.size == 10);

    OK(cudele_append_file(own, root, "more", 0644, NULL, 0, NULL));
    IS(cudele_disconnect(fs), -EBUSY);
    OK(cudele_subtree_merge(own, &done));
    HOLDS(done.rejected == 0 && done.seconds > 0);
    IS(cudele_subtree_pending(own, &events), -EBADF);
    OK(cudele_stat(other, "/subtree/more", &stat));

    /* What is discarded is gone. The policy blocks others meanwhile. */
    OK(cudele_decouple(fs, "/subtree", "batchfs", &own));
    IS(cudele_create(other, "/subtree/not", 0644), -EBUSY);
    SAID("/subtree/not: ");
    OK(cudele_subtree_root(own, &root));
    OK(cudele_append_file(own, root, "gone", 0644, NULL, 0, NULL));
    OK(cudele_subtree_discard(own));
    IS(cudele_stat(fs, "/subtree/gone", &stat), -ENOENT);
    IS(cudele_stat(other, "/subtree/gone", &stat), -ENOENT);
    OK(cudele_disconnect(other));
}

/* Leaves what the next part goes on with, as a process that ended early. */
static void persist(void)
{
    struct cudele_subtree *own;
    struct cudele_stat stat;
    uint64_t root;

    OK(cudele_mkdir(fs, "/persist", 0755));
    OK(cudele_policy_set(fs, "/persist", "invisible-local"));
    OK(cudele_decouple(fs, "/persist", NULL, &own));
    OK(cudele_subtree_root(own, &root));
    OK(cudele_append_file(own, root, "held", 0644, "held by its journal", 19, NULL));
    OK(cudele_subtree_persist(own));
    OK(cudele_append_file(own, root, "second", 0644, NULL, 0, NULL));
    OK(cudele_subtree_complete(own, NULL));
    OK(cudele_append_file(own, root, "lost", 0644, NULL, 0, NULL));
    OK(cudele_stat(fs, "/persist/lost", &stat));
    OK(cudele_subtree_close(own));
}

static void attach(void)
{
    struct cudele_subtree *own;
    struct cudele_stat stat;

    IS(cudele_attach(fs, "/names", &own), -ENOENT);
    IS(cudele_stat(fs, "/persist/held", &stat), -ENOENT);
    OK(cudele_attach(fs, "/persist", &own));
    OK(cudele_stat(fs, "/persist/held", &stat));
    OK(cudele_stat(fs, "/persist/second", &stat));
    IS(cudele_stat(fs, "/persist/lost", &stat), -ENOENT);
    OK(cudele_subtree_merge(own, NULL));
    OK(cudele_stat(fs, "/persist/held", &stat));
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*run)(void);
    } parts[] = {
        {"handles", handles}, {"names", names},       {"attributes", attributes},
        {"files", files},     {"threads", threads},   {"policies", policies},
        {"subtree", subtree}, {"persist", persist},   {"attach", attach},
    };
    size_t i;

    for (i = 0; argc == 2 && i < sizeof parts / sizeof *parts; i++) {
        if (strcmp(argv[1], parts[i].name) != 0)
            continue;
        OK(cudele_connect(NULL, NULL, &fs));
        parts[i].run();
        OK(cudele_disconnect(fs));
        printf("%s: done\n", argv[1]);
        return 0;
    }
    fprintf(stderr, "usage: calls PART\n");
    return 2;
}
