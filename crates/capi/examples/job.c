/*
 * A job of many small files: decouple a directory, make the files at memory speed, merge, and look at
 * them as everybody does.
 *
 *   cc job.c $(pkg-config --cflags --libs cudele) -o job
 *   ./job /scratch/job 100000
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cudele.h>

/* Ends the program with what the library says, which names the path, the cause and the remedy. */
static void check(const char *what, int64_t result)
{
    if (result < 0) {
        fprintf(stderr, "job: %s: %s\n", what, cudele_last_error());
        exit(1);
    }
}

/* What one call each does on shared ground: the server is asked, and others see it at once. */
static void write_summary(struct cudele_fs *fs, const char *dir, const char *text)
{
    char draft[4096], final[4096], back[256];
    struct cudele_file *file;
    int64_t count;

    snprintf(draft, sizeof draft, "%s/.summary", dir);
    snprintf(final, sizeof final, "%s/summary", dir);
    check("open", cudele_open(fs, draft, O_WRONLY | O_CREAT | O_TRUNC, 0644, &file));
    check("write", cudele_write(file, text, strlen(text)));
    check("fsync", cudele_fsync(file));
    check("close", cudele_close(file));
    check("rename", cudele_rename(fs, draft, final));

    check("open", cudele_open(fs, final, O_RDONLY, 0, &file));
    count = cudele_read(file, back, sizeof back);
    check("read", count);
    check("close", cudele_close(file));
    if ((size_t)count != strlen(text) || memcmp(back, text, (size_t)count) != 0) {
        fprintf(stderr, "job: the summary reads otherwise than it was written\n");
        exit(1);
    }
}

int main(int argc, char **argv)
{
    struct cudele_fs *fs;
    struct cudele_subtree *job;
    struct cudele_completion done;
    struct cudele_dir *dir;
    struct cudele_entry entry;
    uint64_t root, results, number, count, seen = 0;
    char name[64], path[4096], text[256];
    int more;

    if (argc != 3) {
        fprintf(stderr, "usage: job DIRECTORY FILES\n");
        return 2;
    }
    count = strtoull(argv[2], NULL, 10);

    check("connect", cudele_connect(NULL, NULL, &fs));
    more = cudele_mkdir(fs, argv[1], 0755);
    if (more != -EEXIST)
        check("mkdir", more);

    /* From here on the directory is this program's: no request per file, no lock. */
    check("decouple", cudele_decouple(fs, argv[1], "batchfs", &job));
    check("root", cudele_subtree_root(job, &root));
    check("append", cudele_append_mkdir(job, root, "results", 0755, &results));
    for (number = 0; number < count; number++) {
        snprintf(name, sizeof name, "file.%07" PRIu64, number);
        snprintf(text, sizeof text, "result %" PRIu64 "\n", number);
        check("append", cudele_append_file(job, results, name, 0644, text, strlen(text), NULL));
    }
    check("merge", cudele_subtree_merge(job, &done));
    printf("merged %" PRIu64 " events, %" PRIu64 " inodes, %" PRIu64 " rejected\n", done.events,
           done.created, done.rejected);

    snprintf(path, sizeof path, "%s/results", argv[1]);
    check("opendir", cudele_opendir(fs, path, &dir));
    while ((more = cudele_readdir(dir, &entry)) > 0)
        seen += entry.stat.size > 0;
    check("readdir", more);
    check("closedir", cudele_closedir(dir));
    printf("found %" PRIu64 " files with content\n", seen);

    snprintf(text, sizeof text, "%" PRIu64 " results\n", seen);
    write_summary(fs, argv[1], text);
    check("sync", cudele_sync(fs));
    check("disconnect", cudele_disconnect(fs));
    return seen == count ? 0 : 1;
}
