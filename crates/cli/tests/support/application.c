/*
 * An application of the tests: a program, or a shared object for a warm parent. It connects to the
 * socket argv[1], introduces itself as argv[2], and does what it is told there.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

static int preloader;

void baton_preload(void) { preloader = getpid(); }

int baton_main(int argc, char **argv) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int s = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (argc < 3) return 9;
    strncpy(address.sun_path, argv[1], sizeof address.sun_path - 1);
    if (connect(s, (struct sockaddr *)&address, sizeof address) != 0) return 8;
    FILE *in = fdopen(s, "r"), *out = fdopen(dup(s), "w");
    fprintf(out, "%s %d %d %d %d\n", argv[2], getpid(), getuid(), preloader, getsid(0));
    fflush(out);
    char line[64];
    while (fgets(line, sizeof line, in)) {
        long number = atol(line + 1);
        if (line[0] == 'x') return (int)number;
        if (line[0] == 'a') {
            char *memory = malloc((size_t)number << 20);
            if (memory == NULL) return 7;
            memset(memory, 1, (size_t)number << 20);
            fprintf(out, "allocated %p\n", (void *)memory);
            fflush(out);
        }
    }
    return 0;
}

#ifdef PROGRAM
int main(int argc, char **argv) { return baton_main(argc, argv); }
#endif
