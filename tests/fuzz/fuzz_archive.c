/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_archive.c - any bytes as an archive: sources that can be read from end to end, or an error.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "formats/formats.h"
#include "lib/base/alloc.h"
#include "tests/fuzz/bounded.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes);

/* The largest window that zstd's decoder makes (zstd --long=27); libarchive sets no other limit. */
size_t bounded_more_bytes = (size_t)129 << 20;

/* What the store lists it must have; what it has can be read, whole and not past its end. */
static void read_all(struct dcpk_store *store)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    char **names = NULL;
    size_t n;

    if (dcpk_store_list(store, &names, &n, &err) != DCPK_OK)
        abort();
    for (size_t i = 0; i < n; i++) {
        enum dcpk_path_kind kind;
        struct dcpk_source *source;
        char last;

        if (dcpk_store_look(store, names[i], &kind, &err) != DCPK_OK)
            abort();
        if (kind == DCPK_PATH_NOTHING)
            continue; /* a folder */
        if (dcpk_store_find(store, names[i], &source, &err) != DCPK_OK)
            abort();
        if (dcpk_source_bytes(source) > 0 &&
            dcpk_source_read(source, dcpk_source_bytes(source) - 1, &last, 1, &err) != DCPK_OK)
            abort();
        if (dcpk_source_read(source, dcpk_source_bytes(source), &last, 1, &err) == DCPK_OK)
            abort();
    }
    dcpk_free(names);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    const struct dcpk_opening opening = {.formats = dcpk_formats};
    struct dcpk_store *store = NULL;
    struct dcpk_run run = {0};
    char path[64];
    const int fd = memfd_create("fuzz", MFD_CLOEXEC);

    if (fd < 0 || write(fd, data, n_bytes) != (ssize_t)n_bytes)
        abort();
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    if (dcpk_archive_opener != NULL &&
        dcpk_archive_opener(path, NULL, &opening, &run, &store, &err) == DCPK_OK) {
        if (run.folder == NULL)
            abort();
        read_all(store);
    }
    dcpk_store_close(store);
    dcpk_run_release(&run);
    close(fd);
    return 0;
}
