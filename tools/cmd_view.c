/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_view.c - dcpkit view: the page of a checkpoint in the temporary folder, and its address. */
#include <ctype.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/digest.h"
#include "lib/base/path.h"
#include "tools/inspect.h"
#include "tools/options.h"
#include "tools/print_doc.h"
#include "tools/run_args.h"

#define NAME "view"

#define MAX_NAME_BYTES 80

struct view_request {
    struct dcpk_inspect_request inspect;
    const char *page; /* the path, which only the sandbox reads before it is known */
    char path[PATH_MAX];
    size_t folder_bytes; /* of path, up to its last slash */
};

/* Finds the temporary folder, which the sandbox has to let through. */
static dcpk_status view_settle(void *values, struct dcpk_error *err)
{
    struct view_request *r = values;
    const char *folder = getenv("TMPDIR");
    char real[PATH_MAX];

    if (folder == NULL || *folder == '\0')
        folder = "/tmp";
    if (realpath(folder, real) == NULL || strlen(real) + 2 * MAX_NAME_BYTES >= sizeof r->path)
        return dcpk_fail(err, DCPK_EIO, "the temporary folder '%s' cannot be used", folder);
    r->folder_bytes = strlen(real) + 1;
    snprintf(r->path, sizeof r->path, "%s/%s", real, "dcpkit-view.html");
    r->page = r->path;
    return DCPK_OK;
}

/*
 * Names the page of a checkpoint: the same each time, so that a browser loads it again. The name
 * has no character that an address would have to escape.
 */
static void name_page(struct view_request *r, const char *arg)
{
    char real[PATH_MAX], *name = r->path + r->folder_bytes;
    size_t n = 0;

    if (realpath(arg, real) != NULL)
        arg = real;
    for (const char *c = dcpk_page_title(arg); *c != '\0' && n < MAX_NAME_BYTES; c++, n++)
        name[n] = isalnum((unsigned char)*c) || *c == '_' ? *c : '-';
    snprintf(name + n, sizeof r->path - r->folder_bytes - n, "-%08x.dcpkit.html",
             dcpk_crc32(0, arg, strlen(arg)));
}

/* A page takes the place of a page; a link of that name is not followed. */
static dcpk_status view_check_place(const struct view_request *r, struct dcpk_error *err)
{
    struct dcpk_path there;

    if (dcpk_path_look(AT_FDCWD, r->path, AT_SYMLINK_NOFOLLOW, &there, err) != DCPK_OK)
        return err->status;
    if (there.kind != DCPK_PATH_NOTHING && there.kind != DCPK_PATH_FILE)
        return dcpk_fail(err, DCPK_EUSAGE, "'%s' is not a file: it is not replaced", r->path);
    return DCPK_OK;
}

/* Prints the path as an address: RFC 8089, and RFC 3986 2.1 for what it escapes. */
static void put_address(const char *path)
{
    char text[3 * PATH_MAX];
    size_t n = 0;

    for (const char *c = path; *c != '\0' && n + 4 < sizeof text; c++)
        if (isalnum((unsigned char)*c) || strchr("/-_.~", *c) != NULL)
            text[n++] = *c;
        else
            n += (size_t)snprintf(text + n, 4, "%%%02X", (unsigned)(unsigned char)*c);
    text[n] = '\0';
    dcpk_cli_printf(stdout, "file://%s\n", text);
}

static int view_main(void *values, const struct dcpk_cli_args *args, struct dcpk_error *err)
{
    struct view_request *r = values;
    int code;

    name_page(r, args->words[0]);
    if (view_check_place(r, err) != DCPK_OK)
        return DCPK_EXIT_USAGE;
    r->inspect.html = r->path;
    r->inspect.is_silent = true;
    code = dcpk_inspect_path(&r->inspect, args->words[0]);
    if (code != DCPK_EXIT_OK)
        return code;
    put_address(r->path);
    (void)dcpk_cli_flush(err);
    return DCPK_EXIT_OK;
}

#define DCPK_OPT_STRUCT struct view_request
static const struct dcpk_option option_rows[] = {
    DCPK_OPT_FLAG("stats", inspect.has_stats,
                  "read all tensors; the page has heat maps of their root mean square"),
    DCPK_OPT_TEXT("keys", "RE", inspect.keys,
                  "list and read only keys that match RE (as Python's re.search)"),
    DCPK_OPT_FORMAT(inspect.format),
    DCPK_OPT_ITERATION(inspect.iteration),
    DCPK_OPT_THREADS(inspect.env.n_threads),
    DCPK_OPT_MEMORY(inspect.env.memory_bytes),
    DCPK_OPT_VERBOSITY(inspect.verbosity),
    DCPK_OPT_END};

static const struct dcpk_option settled_rows[] = {
    DCPK_OPT_OUT_FILE("page", "FILE", page, "the page"), DCPK_OPT_END};

static struct view_request values = {.inspect = {.verbosity = {.command = NAME}}};
static char here[] = ".";
const struct dcpk_cli dcpk_cmd_view = {
    .name = NAME,
    .usage = "[options] [DIR]",
    .summary = "Write the page of 'dcpkit inspect' to the temporary folder (TMPDIR, or /tmp) "
               "and print its address for a browser. DIR: the current folder where none is "
               "given.",
    .options = option_rows,
    .everyday = "stats keys iteration",
    .values = &values,
    .env = &values.inspect.env,
    .example = "dcpkit view checkpoints/run",
    .n_args = {0, 1},
    .if_more = "; 'dcpkit inspect --html FILE DIR' writes the page to FILE",
    .by_default = here,
    .settle = view_settle,
    .settled = settled_rows,
    .run = view_main,
};
