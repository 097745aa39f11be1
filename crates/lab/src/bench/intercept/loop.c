/* Makes, looks at and removes files of one directory with the calls of libc, as mdtest does, and
 * says how many seconds each took.
 *
 * loop DIRECTORY NAME FILES BYTES */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static char path[4096], content[65536];

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + time.tv_nsec / 1e9;
}

static void name(char **argv, long at) {
    snprintf(path, sizeof path, "%s/%s.%ld", argv[1], argv[2], at);
}

static void fail(void) {
    perror(path);
    exit(1);
}

int main(int argc, char **argv) {
    if (argc != 5) return 2;
    long files = atol(argv[3]), bytes = atol(argv[4]);
    struct stat found;
    if (bytes > (long)sizeof content) return 2;
    memset(content, 'x', sizeof content);
    double start = now();
    for (long at = 0; at < files; at++) {
        name(argv, at);
        int file = open(path, O_CREAT | O_EXCL | O_WRONLY, 0644);
        if (file < 0 || (bytes && write(file, content, bytes) != bytes) || close(file)) fail();
    }
    double created = now();
    for (long at = 0; at < files; at++) {
        name(argv, at);
        if (stat(path, &found) || found.st_size != bytes) fail();
    }
    double looked = now();
    for (long at = 0; at < files; at++) {
        name(argv, at);
        if (unlink(path)) fail();
    }
    double removed = now();
    printf("%.9f %.9f %.9f\n", created - start, looked - created, removed - looked);
    return 0;
}
