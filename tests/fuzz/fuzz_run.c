/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_run.c - any names, tracker and metadata.json of an archive: one folder in it, or an error.
 */
/*
 * The input: names of files, a line each; an empty line; what every tracker holds, to the next
 * empty line; metadata.json.
 */
#include <stdlib.h>
#include <string.h>

#include "formats/formats.h"
#include "formats/megatron/megatron.h"
#include "lib/ckpt/run.h"
#include "tests/fuzz/fuzz_text.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes);

#define MAX_NAMES 64

/* A run of the input. */
struct part {
    const char *text;
    size_t n;
};

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* A relative path without empty, "." and ".." parts, as an archive's reader hands on. */
static bool is_path(const char *name)
{
    for (;; name++) {
        const size_t n = strcspn(name, "/");

        if (n == 0 || (n <= 2 && strspn(name, ".") >= n))
            return false;
        name += n;
        if (*name == '\0')
            return true;
    }
}

/* The part before the next empty line, which `rest` then begins behind. */
static struct part take_part(struct part *rest)
{
    const char *end = memmem(rest->text, rest->n, "\n\n", 2);
    const struct part part = {rest->text, end == NULL ? rest->n : (size_t)(end - rest->text)};
    const size_t n_taken = end == NULL ? rest->n : part.n + 2;

    rest->text += n_taken;
    rest->n -= n_taken;
    return part;
}

/* Cut text, which is changed, into names; sorted, none twice. */
static size_t take_names(char *text, char *names[MAX_NAMES])
{
    size_t n = 0, n_kept = 0;

    for (char *line; (line = strsep(&text, "\n")) != NULL && n < MAX_NAMES;)
        if (is_path(line))
            names[n++] = line;
    qsort(names, n, sizeof *names, compare_names);
    for (size_t i = 0; i < n; i++)
        if (n_kept == 0 || strcmp(names[n_kept - 1], names[i]) != 0)
            names[n_kept++] = names[i];
    return n_kept;
}

static dcpk_status read_tracker(void *context, size_t i, char *text, size_t limit_bytes,
                                size_t *n_bytes, struct dcpk_error *err)
{
    const struct part *tracker = context;

    (void)i;
    if (tracker->n > limit_bytes)
        return dcpk_fail(err, DCPK_ERANGE, "%zu bytes", tracker->n);
    memcpy(text, tracker->text, tracker->n);
    *n_bytes = tracker->n;
    return DCPK_OK;
}

/* The folder that was found is one that a file lies in, or the root. */
static void check_found(const struct dcpk_run *run, char *const *names, size_t n)
{
    const size_t n_folder = strlen(run->folder);
    bool is_there = n_folder == 0;

    for (size_t i = 0; i < n; i++)
        is_there = is_there ||
                   (strncmp(names[i], run->folder, n_folder) == 0 && names[i][n_folder] == '/');
    if (!is_there || run->iteration < DCPK_ITERATION_UNKNOWN)
        abort();
}

static void find(const struct part *text, struct part *tracker)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_run run = {0};
    char *names[MAX_NAMES], *copy = fuzz_text(text->text, text->n);
    struct dcpk_run_files files = {
        .names = names, .read = read_tracker, .context = tracker, .formats = dcpk_formats};

    files.n = take_names(copy, names);
    if (dcpk_run_find_among(&files, NULL, &run, &err) == DCPK_OK)
        check_found(&run, names, files.n);
    else if (err.text[0] == '\0')
        abort();
    dcpk_run_release(&run);
    free(copy);
}

static void read_backend(const struct part *json)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_megatron_backend backend;
    struct dcpk_store *store = NULL;

    if (dcpk_store_new_memory("fuzz", &store, &err) != DCPK_OK ||
        dcpk_store_add_memory(store, DCPK_MEGATRON_METADATA_JSON, json->text, json->n, &err) !=
            DCPK_OK)
        abort();
    if (dcpk_megatron_read_backend(store, &backend, &err) == DCPK_OK) {
        if (memchr(backend.name, '\0', sizeof backend.name) == NULL)
            abort();
    } else if (err.text[0] == '\0') {
        abort();
    }
    dcpk_store_close(store);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes)
{
    struct part rest = {(const char *)data, n_bytes};
    const struct part names = take_part(&rest);
    struct part tracker = take_part(&rest);

    find(&names, &tracker);
    read_backend(&rest);
    return 0;
}
