// As another user, sends each request to the keeper with the process id of the argument, and prints
// the answers.
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

static int find(const char *pid, char *name, size_t size) {
    char line[512], wanted[64];
    snprintf(wanted, sizeof wanted, "@cudele-job-%s-", pid);
    FILE *all = fopen("/proc/net/unix", "r");
    while (all && fgets(line, sizeof line, all)) {
        char *at = strstr(line, wanted);
        if (at) {
            at[strcspn(at, "\n")] = 0;
            snprintf(name, size, "%s", at + 1);
            fclose(all);
            return 0;
        }
    }
    return -1;
}

int main(int count, char **arguments) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if (count != 2 || setgid(65534) || setuid(65534)) return 2;
    if (find(arguments[1], address.sun_path + 1, sizeof address.sun_path - 1)) return 3;
    socklen_t length = offsetof(struct sockaddr_un, sun_path) + 1 + strlen(address.sun_path + 1);
    for (uint64_t kind = 1; kind <= 4; kind++) {
        uint64_t message[2] = {kind, 1 << 20};
        int answer = -1, keeper = socket(AF_UNIX, SOCK_STREAM, 0);
        if (connect(keeper, (struct sockaddr *)&address, length)) return 4;
        // The keeper may have answered and closed before.
        send(keeper, message, sizeof message, MSG_NOSIGNAL);
        if (recv(keeper, &answer, sizeof answer, MSG_WAITALL) != sizeof answer) return 5;
        printf("%d ", answer);
        close(keeper);
    }
    return 0;
}
