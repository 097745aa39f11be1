/* Works in one directory until it is killed, or for so many rounds: makes files with their names as
 * content, renames and removes some, and says after each round how far it is.
 *
 * churn DIRECTORY NAME ROUNDS */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static void fail(const char *what) {
    perror(what);
    exit(1);
}

int main(int argc, char **argv) {
    const char *dir = argv[1], *who = argv[2];
    long rounds = atol(argv[3]);
    char name[512], path[4096], other[4096];
    if (argc != 4) return 2;
    for (long round = 0; round < rounds; round++) {
        for (int at = 0; at < 16; at++) {
            snprintf(name, sizeof name, "%s-%ld-%d", who, round, at);
            snprintf(path, sizeof path, "%s/%s", dir, name);
            int file = open(path, O_CREAT | O_EXCL | O_WRONLY, 0640);
            if (file < 0) fail(path);
            if (write(file, name, strlen(name)) != (long)strlen(name)) fail(path);
            if (close(file)) fail(path);
            snprintf(other, sizeof other, "%s.moved", path);
            if (at % 4 == 1 && rename(path, other)) fail(path);
            if (at % 4 == 2 && unlink(path)) fail(path);
        }
        printf("%ld\n", round);
        fflush(stdout);
    }
    return 0;
}
