/* SPDX-License-Identifier: Apache-2.0 */
/* bounded.c - run a command; exit 99 and say so where it takes more time or memory than it may. */
/*
 * bounded SECONDS MIB COMMAND...: SECONDS of processor time, and wall time tenfold (a machine may
 * be busy); MIB of resident memory, 0: any (a sanitizer's shadow). Else exits as the command does.
 */
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#define EXIT_PASSED 99

static int check(const struct rusage *used, long seconds, long mib)
{
    const long took = used->ru_utime.tv_sec + used->ru_stime.tv_sec;

    if (took < seconds && (mib == 0 || used->ru_maxrss / 1024 <= mib))
        return 0;
    fprintf(stderr, "bounded: %ld s of %ld, %ld MiB of %ld\n", took, seconds,
            used->ru_maxrss / 1024, mib);
    return EXIT_PASSED;
}

int main(int argc, char **argv)
{
    const long seconds = argc < 4 ? 0 : strtol(argv[1], NULL, 10);
    const long mib = argc < 4 ? 0 : strtol(argv[2], NULL, 10);
    struct rusage used;
    pid_t child;
    int status;

    if (seconds <= 0) {
        fputs("usage: bounded SECONDS MIB COMMAND...\n", stderr);
        return EXIT_PASSED;
    }
    child = fork();
    if (child == 0) {
        alarm((unsigned)seconds * 10);
        execvp(argv[3], argv + 3);
        perror(argv[3]);
        _exit(EXIT_PASSED);
    }
    if (child < 0 || wait4(child, &status, 0, &used) != child) {
        perror("bounded");
        return EXIT_PASSED;
    }
    if (!WIFEXITED(status)) {
        fprintf(stderr, "bounded: ended by signal %d\n", WTERMSIG(status));
        return EXIT_PASSED;
    }
    return check(&used, seconds, mib) != 0 ? EXIT_PASSED : WEXITSTATUS(status);
}
