/* SPDX-License-Identifier: Apache-2.0 */
/* print_doc.c - a document to stdout, as JSON or as a page into a file. */
#include "tools/print_doc.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "lib/base/path.h"
#include "lib/base/text.h"
#include "lib/ckpt/generation.h"
#include "lib/io/file.h"
#include "lib/job/target.h"
#include "tools/cmd.h"

static dcpk_status print_plain(void *to, const char *text, size_t n_bytes, struct dcpk_error *err)
{
    (void)err; /* dcpk_cli_flush finds what did not arrive */
    dcpk_cli_put_plain(to, text, n_bytes);
    return DCPK_OK;
}

static dcpk_status make_json(const struct dcpk_doc *doc, struct dcpk_bytes *bytes,
                             struct dcpk_error *err)
{
    struct dcpk_json_out j;

    dcpk_json_out_init(&j, bytes, 2);
    return dcpk_doc_json(doc, &j, err);
}

static dcpk_status write_doc_json(const struct dcpk_doc *doc, const char *path,
                                  struct dcpk_error *err)
{
    struct dcpk_bytes bytes = {0};

    if (make_json(doc, &bytes, err) == DCPK_OK) {
        dcpk_bytes_text(&bytes, "\n");
        if (dcpk_bytes_status(&bytes, err) == DCPK_OK)
            dcpk_file_write(path, DCPK_FILE_INTO, bytes.data, bytes.n_bytes, err);
    }
    dcpk_bytes_release(&bytes);
    return err->status;
}

static dcpk_status print_doc_json(const struct dcpk_doc *doc, struct dcpk_error *err)
{
    struct dcpk_bytes bytes = {0};

    if (make_json(doc, &bytes, err) == DCPK_OK)
        return dcpk_cli_print_bytes(&bytes, err);
    dcpk_bytes_release(&bytes);
    return err->status;
}

static dcpk_status print_doc_text(const struct dcpk_doc *doc, FILE *to, struct dcpk_error *err)
{
    const struct dcpk_doc_out out = {print_plain, to, dcpk_cli_columns(to),
                                     dcpk_cli_has_colour(to)};

    if (dcpk_doc_text(doc, &out, err) || dcpk_cli_flush(err))
        return err->status;
    return DCPK_OK;
}

static dcpk_status put_page(void *to, const char *text, size_t n_bytes, struct dcpk_error *err)
{
    return dcpk_file_put(to, text, n_bytes, err);
}

/* Under another name until it is whole. */
static dcpk_status write_page(const struct dcpk_doc *doc, const struct dcpk_print_options *way,
                              struct dcpk_error *err)
{
    const unsigned flags = way->replaces_links ? 0 : DCPK_FILE_INTO;
    struct dcpk_file *file = NULL;
    dcpk_status st = dcpk_file_begin(way->html, flags, &file, err);

    if (st != DCPK_OK)
        return st;
    st = dcpk_doc_html(doc, &(struct dcpk_doc_out){.write = put_page, .to = file}, err);
    if (st == DCPK_OK)
        return dcpk_file_publish(file, err);
    dcpk_file_abandon(file);
    return st;
}

dcpk_status dcpk_check_file_path(const char *what, const char *path, bool may_replace,
                                 struct dcpk_error *err)
{
    const size_t folder_bytes = (size_t)(dcpk_name_last(path) - path);
    char folder[PATH_MAX] = ".";
    struct dcpk_path there;

    if (strlen(path) >= sizeof folder)
        return dcpk_fail(err, DCPK_EUSAGE, "the path of the %s is too long", what);
    if (folder_bytes > 0)
        snprintf(folder, sizeof folder, "%.*s", (int)folder_bytes, path);
    if (access(folder, W_OK | X_OK) != 0)
        return dcpk_fail_errno(err, errno, "the %s '%s' cannot be written", what, path);
    if (dcpk_path_look(AT_FDCWD, path, 0, &there, err) != DCPK_OK)
        return err->status;
    if (there.kind == DCPK_PATH_FILE && !may_replace)
        return dcpk_fail(err, DCPK_EUSAGE, "the %s '%s' exists (--force replaces it)", what, path);
    return DCPK_OK;
}

bool dcpk_is_page(const char *path)
{
    char text[sizeof DCPK_DOC_PAGE_BEGIN - 1];
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    ssize_t n = 0;

    if (fd >= 0) {
        n = read(fd, text, sizeof text);
        close(fd);
    }
    return n == (ssize_t)sizeof text && memcmp(text, DCPK_DOC_PAGE_BEGIN, sizeof text) == 0;
}

dcpk_status dcpk_check_page(const char *path, const char *in, struct dcpk_error *err)
{
    struct dcpk_path there;

    if (path == NULL)
        return DCPK_OK;
    if ((in != NULL && dcpk_run_check_apart(in, path, err)) ||
        dcpk_path_look(AT_FDCWD, path, 0, &there, err))
        return err->status;
    if (there.kind == DCPK_PATH_FILE && !dcpk_is_page(path))
        return dcpk_fail(err, DCPK_EUSAGE, "'%s' is not a page of dcpkit: it is not replaced",
                         path);
    return dcpk_check_file_path("page", path, true, err);
}

const char *dcpk_page_title(const char *path)
{
    const char *name = path, *parent = path;

    for (const char *c = path; *c != '\0'; c++)
        if (c[0] == '/' && c[1] != '/' && c[1] != '\0') {
            parent = name;
            name = c + 1;
        }
    if (dcpk_starts_with(name, "iter_") || strcmp(name, "release") == 0)
        return parent;
    return name;
}

void dcpk_doc_page_heading(struct dcpk_doc *doc, const char *text)
{
    const unsigned media = doc->media;

    doc->media = DCPK_DOC_PAGE;
    dcpk_doc_heading(doc, text);
    doc->media = media;
}

dcpk_status dcpk_print_doc(struct dcpk_doc *doc, const struct dcpk_print_options *way,
                           struct dcpk_error *err)
{
    dcpk_status st = dcpk_doc_status(doc, err);

    if (st == DCPK_OK && way->json != NULL)
        st = write_doc_json(doc, way->json, err);
    if (st == DCPK_OK && way->html != NULL)
        st = write_page(doc, way, err);
    if (st == DCPK_OK && !way->is_silent && way->as_json)
        st = print_doc_json(doc, err);
    if (st == DCPK_OK && !way->is_silent && !way->as_json)
        st = print_doc_text(doc, way->text_to_stderr ? stderr : stdout, err);
    dcpk_doc_release(doc);
    return st;
}

static void put_generation(const void *ckpt, struct dcpk_json_out *j)
{
    dcpk_generation_add_json(ckpt, j);
}

static void put_releases(const void *ckpt, struct dcpk_json_out *j)
{
    dcpk_releases_add_json(ckpt, j);
}

void dcpk_doc_set_origin(struct dcpk_doc *doc, const struct dcpk_checkpoint *ckpt)
{
    dcpk_doc_set(doc, "generation", dcpk_fact_member(put_generation, ckpt));
    dcpk_doc_set(doc, "releases", dcpk_fact_member(put_releases, ckpt));
}

static void put_tracker(const void *target, struct dcpk_json_out *j)
{
    dcpk_target_put_tracker(target, false, j);
}

/* For a dry run. */
static void put_untouched_tracker(const void *target, struct dcpk_json_out *j)
{
    dcpk_target_put_tracker(target, true, j);
}

void dcpk_doc_set_tracker(struct dcpk_doc *doc, const struct dcpk_run *target, bool dry_run)
{
    dcpk_doc_set(doc, "tracker",
                 dcpk_fact_member(dry_run ? put_untouched_tracker : put_tracker, target));
}
