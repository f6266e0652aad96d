/* SPDX-License-Identifier: Apache-2.0 */
/* remote_list.c - the files of a folder on a server: S3's listing in XML, or a page with links. */
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>

#include "formats/remote/remote_folder.h"
#include "lib/base/alloc.h"
#include "lib/base/order.h"
#include "lib/base/text.h"

#define MAX_FILES        ((size_t)1 << 22)
#define MAX_FOLDERS_DEEP 6
#define MAX_PAGES        10000
#define MAX_PAGE_BYTES   ((size_t)64 << 20)

dcpk_status dcpk_remote_url(const struct remote *r, const char *folder, const char *name,
                            struct dcpk_bytes *url, struct dcpk_error *err)
{
    dcpk_bytes_text(url, r->base);
    http_put_path(url, folder, false);
    http_put_path(url, name, false);
    dcpk_bytes_u8(url, 0);
    return dcpk_bytes_status(url, err);
}

static dcpk_status add_file(struct remote *r, const char *folder, const char *name,
                            const struct http_file *known, struct dcpk_error *err)
{
    const char *parts[] = {folder, name};
    struct remote_file *file;

    if (r->n == MAX_FILES)
        return dcpk_fail(err, DCPK_ERANGE,
                         "'%s' has more than %zu files: name the folder of one "
                         "checkpoint",
                         r->shown, MAX_FILES);
    if (dcpk_grow(&r->files, &r->capacity, r->n, sizeof *r->files, err))
        return err->status;
    file = &r->files[r->n];
    *file = (struct remote_file){.name = dcpk_arena_join(r->arena, parts, 2, err),
                                 .n_bytes = known->n_bytes};
    if (file->name != NULL && known->version[0] != '\0')
        file->version = dcpk_arena_strdup(r->arena, known->version, err);
    if (err->status != DCPK_OK)
        return err->status;
    r->n++;
    return DCPK_OK;
}

static dcpk_status count_page(struct remote *r, struct dcpk_error *err)
{
    if (r->n_pages++ < MAX_PAGES)
        return DCPK_OK;
    return dcpk_fail(err, DCPK_ERANGE,
                     "the listing of '%s' has more than %d pages: name the "
                     "folder of one checkpoint",
                     r->shown, MAX_PAGES);
}

/* Replace the names of characters in XML and HTML. */
static void resolve_entities(char *text)
{
    static const struct {
        const char *name;
        char is;
    } entities[] = {{"&amp;", '&'}, {"&lt;", '<'},    {"&gt;", '>'},  {"&quot;", '"'},
                    {"&#34;", '"'}, {"&apos;", '\''}, {"&#39;", '\''}};
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

/* The text of the first <tag> in `in`; *rest: what is after it; NULL: not wanted. */
static bool find_element(struct part in, const char *tag, struct part *text, struct part *rest)
{
    const size_t n_tag = strlen(tag);
    const char *last = in.at + in.n, *begin = in.at, *end;

    while ((begin = memmem(begin, (size_t)(last - begin), tag, n_tag)) != NULL &&
           (begin == in.at || begin[-1] != '<' || begin[n_tag] != '>'))
        begin += n_tag;
    if (begin == NULL)
        return false;
    begin += n_tag + 1;
    end = begin;
    while ((end = memmem(end, (size_t)(last - end), tag, n_tag)) != NULL &&
           (end[-1] != '/' || end[-2] != '<' || end[n_tag] != '>'))
        end += n_tag;
    if (end == NULL)
        return false;
    *text = (struct part){begin, (size_t)(end - 2 - begin)};
    if (rest != NULL)
        *rest = (struct part){end + n_tag, (size_t)(last - end) - n_tag};
    return true;
}

/* "a+b%2Bc" is "a b+c". */
static bool resolve_form(char *text)
{
    for (char *c = text; (c = strchr(c, '+')) != NULL;)
        *c = ' ';
    return http_resolve(text);
}

/* is_form: keys are encoded, as was asked for. */
static dcpk_status add_key(struct remote *r, struct part content, bool is_form,
                           struct dcpk_error *err)
{
    struct http_file known = {0};
    struct part key, size, etag;
    const char *digits;
    int64_t n_bytes;
    char *name;

    if (!find_element(content, "Key", &key, NULL) || !find_element(content, "Size", &size, NULL))
        return dcpk_fail(err, DCPK_EFORMAT, "the listing of '%s' has an entry without key or size",
                         r->shown);
    name = dcpk_arena_strndup(r->arena, key.at, key.n, err);
    if (name == NULL)
        return err->status;
    resolve_entities(name);
    digits = size.at;
    if ((is_form && !resolve_form(name)) || !dcpk_starts_with(name, r->prefix) ||
        !dcpk_take_size(&digits, &n_bytes) || *digits != '<')
        return dcpk_fail(err, DCPK_EFORMAT, "the listing of '%s' has '%.200s' with a size of %.*s",
                         r->shown, name, (int)dcpk_min_size(size.n, 20), size.at);
    name += strlen(r->prefix);
    if (*name == '\0' || dcpk_ends_with(name, "/")) /* stands for a folder */
        return DCPK_OK;
    known.n_bytes = (uint64_t)n_bytes;
    if (find_element(content, "ETag", &etag, NULL))
        snprintf(known.version, sizeof known.version, "%.*s", (int)dcpk_min_size(etag.n, 1024),
                 etag.at);
    resolve_entities(known.version);
    return add_file(r, "", name, &known, err);
}

static bool has_text(struct part page, const char *text)
{
    return memmem(page.at, page.n, text, strlen(text)) != NULL;
}

dcpk_status dcpk_remote_take_keys(struct remote *r, struct part page, char **token,
                                  struct dcpk_error *err)
{
    struct part entry, rest = page;
    const bool is_form = find_element(page, "EncodingType", &entry, NULL);

    *token = NULL;
    if (!has_text(page, "<ListBucketResult") || !has_text(page, "</ListBucketResult>"))
        return dcpk_fail(err, DCPK_EFORMAT,
                         "'%s': the server's answer is not a whole listing of S3", r->shown);
    while (find_element(rest, "Contents", &entry, &rest))
        if (add_key(r, entry, is_form, err) != DCPK_OK)
            return err->status;
    if (!find_element(page, "NextContinuationToken", &entry, NULL)) {
        if (has_text(page, "<IsTruncated>true"))
            return dcpk_fail(err, DCPK_EFORMAT,
                             "the listing of '%s' goes on without a token for the next page "
                             "(the server lacks ListObjectsV2)",
                             r->shown);
        return DCPK_OK;
    }
    *token = dcpk_arena_strndup(r->arena, entry.at, entry.n, err);
    if (*token == NULL)
        return err->status;
    resolve_entities(*token);
    return DCPK_OK;
}

/* https://docs.aws.amazon.com/AmazonS3/latest/API/API_ListObjectsV2.html. Parameters stand in the
 * order of their names, as the signature wants them. */
static dcpk_status list_s3(struct remote *r, const char *folder, bool deep, struct dcpk_error *err)
{
    struct dcpk_bytes url = {0}, text = {0};
    char *token = NULL;

    do {
        if (count_page(r, err) != DCPK_OK)
            break;
        url.n_bytes = text.n_bytes = 0;
        dcpk_bytes_printf(&url, "%s?", r->bucket);
        if (token != NULL) {
            dcpk_bytes_text(&url, "continuation-token=");
            http_put_path(&url, token, true);
            dcpk_bytes_text(&url, "&");
        }
        dcpk_bytes_printf(
            &url, "%sencoding-type=url&list-type=2&prefix=", dcpk_joint(!deep, "delimiter=%2F&"));
        http_put_path(&url, r->prefix, true);
        http_put_path(&url, folder, true);
        dcpk_bytes_u8(&url, 0);
        token = NULL;
        if (dcpk_bytes_status(&url, err) == DCPK_OK &&
            http_fetch(r->http, (const char *)url.data, MAX_PAGE_BYTES, &text, NULL, err) ==
                DCPK_OK)
            (void)dcpk_remote_take_keys(r, (struct part){(const char *)text.data, text.n_bytes},
                                        &token, err);
    } while (err->status == DCPK_OK && token != NULL);
    dcpk_bytes_release(&url);
    dcpk_bytes_release(&text);
    return err->status;
}

/* ---- a page with links ---- */

static dcpk_status list_page(struct remote *r, const char *folder, int n_levels,
                             struct dcpk_error *err);

/* True if a link leads to an entry of the folder itself. */
static bool is_entry(char *link)
{
    const char *slash;

    resolve_entities(link);
    if (dcpk_starts_with(link, "./"))
        memmove(link, link + 2, strlen(link + 2) + 1);
    link[strcspn(link, "?#")] = '\0';
    if (!http_resolve(link) || link[strspn(link, "./")] == '\0')
        return false;
    slash = strchr(link, '/');
    return slash == NULL || (slash > link && slash[1] == '\0');
}

static dcpk_status add_link(struct remote *r, const char *folder, const char *link, int n_levels,
                            struct dcpk_error *err)
{
    char *inner;

    if (!dcpk_ends_with(link, "/"))
        return add_file(r, folder, link, &(struct http_file){.n_bytes = DCPK_REMOTE_UNKNOWN}, err);
    if (n_levels == 0)
        return DCPK_OK;
    inner = dcpk_arena_join(r->arena, (const char *const[]){folder, link}, 2, err);
    if (inner == NULL)
        return err->status;
    return list_page(r, inner, n_levels - 1, err);
}

dcpk_status dcpk_remote_take_links(struct remote *r, const char *folder, char *page, int n_levels,
                                   struct dcpk_error *err)
{
    char *at = page, *end;

    for (; (at = strcasestr(at, "href=\"")) != NULL; at = end + 1) {
        at += strlen("href=\"");
        end = strchr(at, '"');
        if (end == NULL)
            break;
        *end = '\0';
        if (is_entry(at) && add_link(r, folder, at, n_levels, err) != DCPK_OK)
            return err->status;
    }
    return DCPK_OK;
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
    if (dcpk_remote_url(r, folder, ".metadata", &url, err) == DCPK_OK &&
        http_look(r->http, (const char *)url.data, &file, err) == DCPK_OK && file.is_there)
        (void)add_file(r, folder, ".metadata", &file, err);
    dcpk_bytes_release(&url);
    return err->status;
}

static dcpk_status list_page(struct remote *r, const char *folder, int n_levels,
                             struct dcpk_error *err)
{
    struct dcpk_bytes url = {0}, page = {0};
    const size_t n_before = r->n;
    bool is_there;

    if (count_page(r, err) != DCPK_OK)
        return err->status;
    if (dcpk_remote_url(r, folder, "", &url, err) == DCPK_OK)
        (void)http_fetch(r->http, (const char *)url.data, MAX_PAGE_BYTES, &page, &is_there, err);
    dcpk_bytes_u8(&page, 0);
    if (err->status == DCPK_OK && dcpk_bytes_status(&page, err) == DCPK_OK &&
        dcpk_remote_take_links(r, folder, (char *)page.data, n_levels, err) == DCPK_OK)
        (void)add_hidden(r, folder, n_before, err);
    dcpk_bytes_release(&url);
    dcpk_bytes_release(&page);
    return err->status;
}

static int compare_files(const void *a, const void *b)
{
    return strcmp(((const struct remote_file *)a)->name, ((const struct remote_file *)b)->name);
}

dcpk_status dcpk_remote_list(struct remote *r, const char *folder, bool deep,
                             struct dcpk_error *err)
{
    size_t n = 0;

    if (r->bucket != NULL)
        (void)list_s3(r, folder, deep, err);
    else
        (void)list_page(r, folder, deep ? MAX_FOLDERS_DEEP : 0, err);
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
