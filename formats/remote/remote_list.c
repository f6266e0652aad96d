/* SPDX-License-Identifier: Apache-2.0 */
/* remote_list.c - the files of a folder on a server: S3's listing in XML, or a page with links. */
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>

#include "formats/remote/remote_priv.h"
#include "lib/base/alloc.h"
#include "lib/base/order.h"
#include "lib/base/text.h"

#define MAX_FILES        ((size_t)1 << 22)
#define MAX_FOLDERS_DEEP 6
#define MAX_PAGES        10000
#define MAX_PAGE_BYTES   ((size_t)64 << 20)

static dcpk_status add_file(struct remote *r, const char *folder, const char *name,
                            uint64_t n_bytes, struct dcpk_error *err)
{
    const char *parts[] = {folder, name};
    struct remote_file *file;

    if (r->n == MAX_FILES)
        return dcpk_fail(err, DCPK_ERANGE,
                         "'%s' has more than %zu files: name the folder of one "
                         "checkpoint",
                         r->shown, MAX_FILES);
    if (r->n == r->capacity) {
        const size_t more = r->capacity == 0 ? 256 : 2 * r->capacity;
        struct remote_file *grown = dcpk_arena_array(r->arena, more, sizeof *grown, err);

        if (grown == NULL)
            return err->status;
        if (r->n > 0)
            memcpy(grown, r->files, r->n * sizeof *grown);
        r->files = grown;
        r->capacity = more;
    }
    file = &r->files[r->n];
    *file = (struct remote_file){dcpk_arena_join(r->arena, parts, 2, err), n_bytes};
    if (file->name == NULL)
        return err->status;
    r->n++;
    return DCPK_OK;
}

/* Replace the names of characters in XML and HTML. */
static void resolve_entities(char *text)
{
    static const struct {
        const char *name;
        char is;
    } entities[] = {{"&amp;", '&'},  {"&lt;", '<'},    {"&gt;", '>'},
                    {"&quot;", '"'}, {"&apos;", '\''}, {"&#39;", '\''}};
    char *to = text;

    while (*text != '\0') {
        size_t i = 0;

        while (i < DCPK_COUNT(entities) && !dcpk_starts_with(text, entities[i].name))
            i++;
        if (i < DCPK_COUNT(entities)) {
            *to++ = entities[i].is;
            text += strlen(entities[i].name);
        } else {
            *to++ = *text++;
        }
    }
    *to = '\0';
}

/* ---- S3 ---- */

/*
 * The text of the first <tag> in [*at, end), ended by a NUL that is written there; *at: after it.
 * NULL: there is none.
 */
static char *take_element(char **at, const char *end, const char *tag)
{
    char open[64], close[64], *begin, *last;

    snprintf(open, sizeof open, "<%s>", tag);
    snprintf(close, sizeof close, "</%s>", tag);
    begin = strstr(*at, open);
    if (begin == NULL || begin >= end)
        return NULL;
    begin += strlen(open);
    last = strstr(begin, close);
    if (last == NULL || last >= end)
        return NULL;
    *last = '\0';
    *at = last + strlen(close);
    return begin;
}

static dcpk_status add_key(struct remote *r, char *content, struct dcpk_error *err)
{
    const char *end = content + strlen(content);
    char *at = content, *key = take_element(&at, end, "Key"), *size;
    int64_t n_bytes;
    const char *digits;

    at = key == NULL ? content : at;
    size = take_element(&at, end, "Size");
    digits = size;
    if (key == NULL || size == NULL || !dcpk_take_size(&digits, &n_bytes) || *digits != '\0')
        return dcpk_fail(err, DCPK_EFORMAT, "the listing of '%s' has an entry without key or size",
                         r->shown);
    resolve_entities(key);
    if (!http_resolve(key) || !dcpk_starts_with(key, r->prefix))
        return dcpk_fail(err, DCPK_EFORMAT, "the listing of '%s' has the key '%.200s'", r->shown,
                         key);
    key += strlen(r->prefix);
    if (*key == '\0' || dcpk_ends_with(key, "/")) /* stands for a folder */
        return DCPK_OK;
    return add_file(r, "", key, (uint64_t)n_bytes, err);
}

/* Take one page of the listing. *token: where the next one begins, borrowed from text; NULL: it is
 * the last. */
static dcpk_status read_page(struct remote *r, char *text, char **token, struct dcpk_error *err)
{
    char *at = text, *entry;
    const char *end = text + strlen(text);

    if (strstr(text, "<ListBucketResult") == NULL)
        return dcpk_fail(err, DCPK_EFORMAT, "'%s': the server's answer is no listing of S3",
                         r->shown);
    *token = take_element(&at, end, "NextContinuationToken");
    for (at = *token == NULL ? text : *token + strlen(*token) + 1;
         (entry = take_element(&at, end, "Contents")) != NULL;)
        if (add_key(r, entry, err) != DCPK_OK)
            return err->status;
    return DCPK_OK;
}

/* https://docs.aws.amazon.com/AmazonS3/latest/API/API_ListObjectsV2.html. Parameters stand in the
 * order of their names, as the signature wants them. */
static dcpk_status list_s3(struct remote *r, const char *folder, bool deep, bool *is_there,
                           struct dcpk_error *err)
{
    struct dcpk_bytes url = {0}, text = {0}, next = {0};
    char *token = NULL;
    size_t n_before = r->n;

    do {
        url.n_bytes = text.n_bytes = 0;
        dcpk_bytes_text(&url, r->bucket);
        dcpk_bytes_text(&url, "?");
        if (token != NULL) {
            dcpk_bytes_text(&url, "continuation-token=");
            http_put_path(&url, (const char *)next.data, true);
            dcpk_bytes_text(&url, "&");
        }
        dcpk_bytes_printf(&url,
                          "%sencoding-type=url&list-type=2&prefix=", deep ? "" : "delimiter=%2F&");
        http_put_path(&url, r->prefix, true);
        http_put_path(&url, folder, true);
        dcpk_bytes_u8(&url, 0);
        if (dcpk_bytes_status(&url, err) ||
            http_fetch(r->http, (const char *)url.data, MAX_PAGE_BYTES, &text, is_there, err))
            break;
        dcpk_bytes_u8(&text, 0);
        if (!*is_there || dcpk_bytes_status(&text, err) ||
            read_page(r, (char *)text.data, &token, err) != DCPK_OK)
            break;
        next.n_bytes = 0;
        if (token != NULL) {
            resolve_entities(token);
            dcpk_bytes_printf(&next, "%s%c", token, 0);
        }
    } while (token != NULL && dcpk_bytes_status(&next, err) == DCPK_OK);
    *is_there = *is_there && r->n > n_before;
    dcpk_bytes_release(&url);
    dcpk_bytes_release(&text);
    dcpk_bytes_release(&next);
    return err->status;
}

/* ---- a page with links ---- */

static dcpk_status list_page(struct remote *r, const char *folder, int n_levels, bool *is_there,
                             struct dcpk_error *err);

/* True if a link leads to an entry of the folder itself. */
static bool is_entry(char *link)
{
    const char *slash;

    resolve_entities(link);
    if (dcpk_starts_with(link, "./"))
        memmove(link, link + 2, strlen(link + 2) + 1);
    link[strcspn(link, "?#")] = '\0';
    if (!http_resolve(link) || link[0] == '\0' || dcpk_starts_with(link, "..") ||
        strcmp(link, "./") == 0)
        return false;
    slash = strchr(link, '/');
    return slash == NULL || (slash > link && slash[1] == '\0');
}

static dcpk_status add_link(struct remote *r, const char *folder, const char *link, int n_levels,
                            struct dcpk_error *err)
{
    bool is_there;
    char *inner;

    if (!dcpk_ends_with(link, "/"))
        return add_file(r, folder, link, DCPK_REMOTE_UNKNOWN, err);
    if (n_levels == 0)
        return DCPK_OK;
    inner = dcpk_arena_join(r->arena, (const char *const[]){folder, link}, 2, err);
    if (inner == NULL)
        return err->status;
    return list_page(r, inner, n_levels - 1, &is_there, err);
}

/* Some servers leave names that begin with a dot out of their pages. */
static dcpk_status add_hidden(struct remote *r, const char *folder, size_t n_before,
                              struct dcpk_error *err)
{
    struct dcpk_bytes url = {0};
    struct http_file file = {0};
    bool has_data = false, has_it = false;

    for (size_t i = n_before; i < r->n; i++) {
        has_data = has_data || dcpk_ends_with(r->files[i].name, ".distcp");
        has_it = has_it || strcmp(r->files[i].name + strlen(folder), ".metadata") == 0;
    }
    if (!has_data || has_it)
        return DCPK_OK;
    dcpk_bytes_text(&url, r->base);
    http_put_path(&url, folder, false);
    dcpk_bytes_printf(&url, ".metadata%c", 0);
    if (dcpk_bytes_status(&url, err) == DCPK_OK &&
        http_look(r->http, (const char *)url.data, &file, err) == DCPK_OK && file.is_there)
        (void)add_file(r, folder, ".metadata", file.n_bytes, err);
    dcpk_bytes_release(&url);
    return err->status;
}

static dcpk_status list_page(struct remote *r, const char *folder, int n_levels, bool *is_there,
                             struct dcpk_error *err)
{
    struct dcpk_bytes url = {0}, page = {0};
    const size_t n_before = r->n;
    char *at, *end;

    if (r->n_pages++ == MAX_PAGES)
        return dcpk_fail(err, DCPK_ERANGE,
                         "'%s' has more than %d folders: name that of one checkpoint", r->shown,
                         MAX_PAGES);
    dcpk_bytes_text(&url, r->base);
    http_put_path(&url, folder, false);
    dcpk_bytes_u8(&url, 0);
    if (dcpk_bytes_status(&url, err) == DCPK_OK)
        (void)http_fetch(r->http, (const char *)url.data, MAX_PAGE_BYTES, &page, is_there, err);
    dcpk_bytes_u8(&page, 0);
    if (err->status == DCPK_OK)
        (void)dcpk_bytes_status(&page, err);
    for (at = (char *)page.data; err->status == DCPK_OK && (at = strcasestr(at, "href=\"")) != NULL;
         at = end + 1) {
        at += strlen("href=\"");
        end = strchr(at, '"');
        if (end == NULL)
            break;
        *end = '\0';
        if (is_entry(at))
            (void)add_link(r, folder, at, n_levels, err);
    }
    if (err->status == DCPK_OK)
        (void)add_hidden(r, folder, n_before, err);
    dcpk_bytes_release(&url);
    dcpk_bytes_release(&page);
    return err->status;
}

static int compare_files(const void *a, const void *b)
{
    return strcmp(((const struct remote_file *)a)->name, ((const struct remote_file *)b)->name);
}

dcpk_status dcpk_remote_list(struct remote *r, const char *folder, bool deep, bool *is_there,
                             struct dcpk_error *err)
{
    size_t n = 0;

    if (r->bucket != NULL)
        (void)list_s3(r, folder, deep, is_there, err);
    else
        (void)list_page(r, folder, deep ? MAX_FOLDERS_DEEP : 0, is_there, err);
    if (err->status != DCPK_OK)
        return err->status;
    if (r->n > 0)
        qsort(r->files, r->n, sizeof *r->files, compare_files);
    for (size_t i = 0; i < r->n; i++)
        if (n == 0 || strcmp(r->files[n - 1].name, r->files[i].name) != 0)
            r->files[n++] = r->files[i];
    r->n = n;
    return DCPK_OK;
}
