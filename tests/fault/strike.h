/* SPDX-License-Identifier: Apache-2.0 */
/* strike.h - a command's run in which a call goes wrong (fault.h), and what it has to say then. */
#ifndef DCPK_TESTS_FAULT_STRIKE_H
#define DCPK_TESTS_FAULT_STRIKE_H

#include <errno.h>
#include <sys/mman.h>

#include "tests/fault/fault.h"
#include "tests/fault/scene.h"

/* What came of a run with a fault. */
struct strike {
    struct result result;
    struct fault_report fault;
};

static struct fault_report *strike_report; /* mapped from scratch("report") */

static inline int strike_setup(void **state)
{
    void *memory = MAP_FAILED;
    int fd;

    if (scratch_setup(state) != 0)
        return -1;
    fd = open(scratch("report"), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd >= 0 && ftruncate(fd, sizeof *strike_report) == 0)
        memory = mmap(NULL, sizeof *strike_report, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    strike_report = memory;
    return memory == MAP_FAILED ? -1 : 0;
}

static inline int strike_teardown(void **state)
{
    munmap(strike_report, sizeof *strike_report);
    return scratch_teardown(state);
}

/* The value of FAULT_VARIABLE; valid until the next call. */
static inline const char *strike_value(const char *kind, uint64_t nth)
{
    static char value[8192];

    snprintf(value, sizeof value, "%s %" PRIu64 " %s", kind, nth, scratch("report"));
    return value;
}

/* Run DCPK_PROGRAM; kind "": nothing is preloaded. */
static inline struct strike strike_run(const char *const *args, const char *kind, uint64_t nth)
{
    const bool in_memory = strcmp(kind, "nomem") == 0;
    struct strike strike = {0};
    struct preload preload = {.variable = FAULT_VARIABLE, .value = strike_value(kind, nth)};

    *strike_report = (struct fault_report){0};
    if (kind[0] != '\0')
        preload.library = in_memory ? DCPK_ALLOC_FAULT : DCPK_IO_FAULT;
    strike.result = scene_run(DCPK_PROGRAM, args, &preload);
    strike.fault = *strike_report;
    return strike;
}

/* Next line that is no note, of at most `capacity` bytes; NULL: there is none. */
static inline const char *strike_next_line(const char **said, char *line, size_t capacity)
{
    while (**said != '\0') {
        const size_t n = strcspn(*said, "\n");

        snprintf(line, capacity, "%.*s", (int)n, *said);
        *said += n + ((*said)[n] == '\n');
        if (strstr(line, ": note: ") == NULL)
            return line;
    }
    return NULL;
}

/* One line that says what failed and where; "" : none. */
static inline void strike_check_message(const char *said, const char *reason, const char *label)
{
    char line[8192];

    if (reason[0] == '\0') {
        CHECK(strike_next_line(&said, line, sizeof line) == NULL, label);
        return;
    }
    CHECK(strike_next_line(&said, line, sizeof line) != NULL, label);
    CHECK(strncmp(line, "dcpkit: ", 8) == 0 && strstr(line, reason) != NULL, label);
    CHECK(strchr(line, '\'') != NULL || strstr(line, "stdout") != NULL ||
              strstr(line, "emory") != NULL,
          label);
    CHECK(strike_next_line(&said, line, sizeof line) == NULL, label);
}

static inline const char *strike_reason(const char *kind)
{
    if (strcmp(kind, "enospc") == 0 || strcmp(kind, "full") == 0)
        return strerror(ENOSPC);
    return strcmp(kind, "nomem") == 0 ? "emory" : strerror(EIO);
}

#endif
