/* SPDX-License-Identifier: Apache-2.0 */
/* remote.c - finds a checkpoint on a server, and opens it as a store. */
#include "formats/remote/remote.h"

#include <stdlib.h>

#include "formats/remote/remote_folder.h"
#include "lib/base/alloc.h"
#include "lib/base/order.h"
#include "lib/base/text.h"
#include "lib/ckpt/run_names.h"

#define S3               "s3://"
#define DEFAULT_REGION   "us-east-1"
#define DEFAULT_ENDPOINT "amazonaws.com"

/* ---- addresses ---- */

/* The value of the first of these variables that is set and not empty; NULL: none. */
static const char *first_set(const char *a, const char *b)
{
    const char *value = getenv(a);

    if (value == NULL || *value == '\0')
        value = getenv(b);
    if (value != NULL && *value == '\0')
        value = NULL;
    return value;
}

/* The variables that AWS's own tools read. */
static void read_keys(struct http_keys *keys)
{
    *keys = (struct http_keys){.id = first_set("AWS_ACCESS_KEY_ID", ""),
                               .secret = first_set("AWS_SECRET_ACCESS_KEY", ""),
                               .token = first_set("AWS_SESSION_TOKEN", ""),
                               .region = first_set("AWS_REGION", "AWS_DEFAULT_REGION")};
    keys->region = dcpk_text_or(keys->region, DEFAULT_REGION);
}

/* "s3://bucket/key": the bucket is a part of the path where an endpoint is set, or where its name
 * has dots, which certificates do not cover; else of the host. */
static dcpk_status address_s3(struct remote *r, const struct http_keys *keys,
                              struct dcpk_error *err)
{
    const char *endpoint = first_set("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL");
    const char *name = r->shown + strlen(S3);
    const int n_name = (int)strcspn(name, "/");
    struct dcpk_bytes base = {0};

    if (n_name == 0 || strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789.-_") < (size_t)n_name)
        return dcpk_fail(err, DCPK_EUSAGE, "'%s' names no bucket: s3://BUCKET/FOLDER", r->shown);
    if (endpoint != NULL && !dcpk_starts_with(endpoint, "http://") &&
        !dcpk_starts_with(endpoint, "https://"))
        return dcpk_fail(err, DCPK_EUSAGE,
                         "AWS_ENDPOINT_URL is '%s': it begins with https:// or http://", endpoint);
    if (endpoint != NULL)
        r->bucket = dcpk_arena_printf(r->arena, err, "%.*s/%.*s",
                                      (int)(strlen(endpoint) - dcpk_ends_with(endpoint, "/")),
                                      endpoint, n_name, name);
    else if (memchr(name, '.', (size_t)n_name) != NULL)
        r->bucket = dcpk_arena_printf(r->arena, err, "https://s3.%s." DEFAULT_ENDPOINT "/%.*s",
                                      keys->region, n_name, name);
    else
        r->bucket = dcpk_arena_printf(r->arena, err, "https://%.*s.s3.%s." DEFAULT_ENDPOINT "/",
                                      n_name, name, keys->region);
    name += n_name + (name[n_name] == '/');
    r->prefix = dcpk_arena_printf(r->arena, err, "%s%s", name, dcpk_joint(*name != '\0', "/"));
    if (r->bucket == NULL || r->prefix == NULL)
        return err->status;
    dcpk_bytes_printf(&base, "%s%s", r->bucket, dcpk_joint(!dcpk_ends_with(r->bucket, "/"), "/"));
    http_put_path(&base, r->prefix, false);
    dcpk_bytes_u8(&base, 0);
    if (dcpk_bytes_status(&base, err) == DCPK_OK)
        r->base = dcpk_arena_strdup(r->arena, (const char *)base.data, err);
    dcpk_bytes_release(&base);
    return err->status;
}

/* Parts of a URL that are as good as keys are in no message. */
static dcpk_status check_url(const char *url, struct dcpk_error *err)
{
    const char *host = strstr(url, "://") + 3;
    const size_t n_host = strcspn(host, "/");

    if (memchr(host, '@', n_host) != NULL)
        return dcpk_fail(err, DCPK_EUSAGE,
                         "the URL has a user before '@': outputs and messages would show it");
    if (strpbrk(url, "?#") != NULL)
        return dcpk_fail(err, DCPK_EUSAGE,
                         "'%.*s' is not the URL of a folder: a '?' or '#' follows",
                         (int)strcspn(url, "?#"), url);
    return DCPK_OK;
}

/* Sets the URLs, and what requests are signed with. */
static dcpk_status find_address(struct remote *r, const char *url, bool (*is_stopped)(void),
                                struct dcpk_error *err)
{
    const bool is_s3 = dcpk_starts_with(url, S3);
    struct http_options options = {.ca_file = first_set("AWS_CA_BUNDLE", "CURL_CA_BUNDLE"),
                                   .is_s3 = is_s3,
                                   .is_stopped = is_stopped};
    size_t n = strlen(url);

    while (n > 0 && url[n - 1] == '/')
        n--;
    r->shown = dcpk_arena_strndup(r->arena, url, n, err);
    if (is_s3)
        read_keys(&options.keys);
    if (r->shown == NULL || (is_s3 && address_s3(r, &options.keys, err) != DCPK_OK) ||
        (!is_s3 && check_url(r->shown, err) != DCPK_OK))
        return err->status;
    if (!is_s3)
        r->base = dcpk_arena_printf(r->arena, err, "%s/", r->shown);
    if (r->base == NULL)
        return err->status;
    return http_new(&options, &r->http, err);
}

/* ---- reading ---- */

/* The tracker's whole text: a dcpk_run_files reads by this, too. */
static dcpk_status read_small(void *context, size_t i, char *text, size_t limit_bytes,
                              size_t *n_bytes, struct dcpk_error *err)
{
    const struct remote *r = context;
    struct dcpk_bytes url = {0}, got = {0};

    if (dcpk_remote_url(r, "", r->files[i].name, &url, err) == DCPK_OK)
        (void)http_fetch(r->http, (const char *)url.data, limit_bytes, &got, NULL, err);
    if (err->status == DCPK_OK && got.n_bytes > 0)
        memcpy(text, got.data, got.n_bytes);
    *n_bytes = got.n_bytes;
    dcpk_bytes_release(&url);
    dcpk_bytes_release(&got);
    return err->status;
}

static dcpk_status read_direct(const struct remote *r, uint64_t id, uint64_t at, void *out,
                               size_t n, struct dcpk_error *err)
{
    const struct remote_file *file = &r->files[id];
    struct dcpk_bytes url = {0};

    if (dcpk_remote_url(r, "", file->name, &url, err) == DCPK_OK)
        (void)http_read(r->http, (const char *)url.data,
                        &(struct http_range){at, n, file->n_bytes, file->version}, out, err);
    dcpk_bytes_release(&url);
    return err->status;
}

/* Finds the block of a file, or the one that was used longest ago; the lock is held. */
static struct remote_block *find_block(struct remote *r, uint64_t id, uint64_t at)
{
    struct remote_block *oldest = r->blocks;

    for (struct remote_block *b = r->blocks; b < r->blocks + DCPK_REMOTE_N_BLOCKS; b++) {
        if (b->last_used > 0 && b->id == id && b->at == at)
            return b;
        if (b->last_used < oldest->last_used)
            oldest = b;
    }
    return oldest;
}

/* Copy [at, at + n) out of the block that begins at `begin`, if it is there. */
static bool copy_block(struct remote *r, uint64_t id, uint64_t begin, uint64_t at, void *out,
                       size_t n)
{
    struct remote_block *b;
    bool has;

    pthread_mutex_lock(&r->lock);
    b = find_block(r, id, begin);
    has = b->last_used > 0 && b->id == id && b->at == begin;
    if (has) {
        memcpy(out, b->data + (at - begin), n);
        b->last_used = ++r->clock;
    }
    pthread_mutex_unlock(&r->lock);
    return has;
}

/* Two threads may fetch the same block: each has its own buffer until it is there. */
static dcpk_status fetch_block(struct remote *r, uint64_t id, uint64_t begin,
                               struct dcpk_error *err)
{
    const uint64_t left = r->files[id].n_bytes - begin;
    const size_t n = (size_t)dcpk_min_u64(left, DCPK_REMOTE_BLOCK_BYTES);
    uint8_t *data = dcpk_alloc(n, err), *old;
    struct remote_block *b;

    if (data == NULL || read_direct(r, id, begin, data, n, err) != DCPK_OK) {
        dcpk_free(data);
        return err->status;
    }
    pthread_mutex_lock(&r->lock);
    b = find_block(r, id, begin);
    old = b->data;
    *b = (struct remote_block){id, begin, ++r->clock, data};
    pthread_mutex_unlock(&r->lock);
    dcpk_free(old);
    return DCPK_OK;
}

static dcpk_status remote_read(void *context, uint64_t id, uint64_t at, void *out, size_t n,
                               struct dcpk_error *err)
{
    struct remote *r = context;
    uint8_t *to = out;

    if (n > DCPK_REMOTE_BLOCK_BYTES / 2)
        return read_direct(r, id, at, out, n, err);
    while (n > 0) {
        const uint64_t begin = at - at % DCPK_REMOTE_BLOCK_BYTES;
        const size_t part = (size_t)dcpk_min_u64(n, begin + DCPK_REMOTE_BLOCK_BYTES - at);

        if (copy_block(r, id, begin, at, to, part)) {
            at += part;
            to += part;
            n -= part;
        } else if (fetch_block(r, id, begin, err) != DCPK_OK) {
            return err->status;
        }
    }
    return DCPK_OK;
}

static void remote_free(void *context)
{
    struct remote *r = context;

    http_free(r->http);
    dcpk_free(r->files);
    for (size_t i = 0; i < DCPK_REMOTE_N_BLOCKS; i++)
        dcpk_free(r->blocks[i].data);
    pthread_mutex_destroy(&r->lock);
    dcpk_arena_free(r->arena);
    dcpk_free(r);
}

/* ---- finding ---- */

/* Finds the tracker among the files; NULL: there is none. */
static struct remote_file *find_tracker(const struct remote *r)
{
    for (size_t i = 0; i < r->n; i++)
        if (strcmp(r->files[i].name, DCPK_TRACKER_NAME) == 0)
            return &r->files[i];
    return NULL;
}

/* List the iteration that the tracker, the one file so far, names. */
static dcpk_status list_iteration(struct remote *r, struct dcpk_error *err)
{
    char text[DCPK_RUN_TRACKER_BYTES], *path;
    const char *folder;
    int64_t iteration;
    size_t n;

    if (read_small(r, 0, text, sizeof text, &n, err) ||
        dcpk_run_parse_tracker(text, n, &iteration, err))
        return err->status;
    path = dcpk_run_iteration_path("", iteration, err);
    if (path == NULL)
        return err->status;
    folder = dcpk_arena_printf(r->arena, err, "%s/", path + 1);
    dcpk_free(path);
    if (folder != NULL)
        (void)dcpk_remote_list(r, folder, true, err);
    return err->status;
}

/* List the files of the checkpoint that is meant; without a tracker all that there are. */
static dcpk_status list_files(struct remote *r, struct dcpk_error *err)
{
    const struct remote_file *tracker;

    if (dcpk_remote_list(r, "", false, err) != DCPK_OK)
        return err->status;
    tracker = find_tracker(r);
    if (tracker != NULL) {
        r->files[0] = *tracker;
        r->n = 1;
        return list_iteration(r, err);
    }
    if (dcpk_remote_list(r, "", true, err) == DCPK_OK && r->n == 0)
        dcpk_fail(err, DCPK_EIO, "the server lists no file there");
    return err->status;
}

static dcpk_status remote_find_run(struct remote *r, const struct dcpk_opening *opening,
                                   struct dcpk_run *run, struct dcpk_error *err)
{
    struct dcpk_run_files files = {
        .n = r->n, .read = read_small, .context = r, .formats = opening->formats};
    char **names = dcpk_arena_array(r->arena, r->n, sizeof *names, err);

    if (names == NULL)
        return err->status;
    for (size_t i = 0; i < r->n; i++)
        names[i] = r->files[i].name;
    files.names = names;
    return dcpk_run_find_among(&files, NULL, run, err);
}

/* Enter the files of `folder`, "" for all, into the store. */
static dcpk_status fill(struct remote *r, const char *folder, struct dcpk_store *store,
                        struct dcpk_error *err)
{
    const size_t n = strlen(folder);

    for (size_t i = 0; i < r->n; i++) {
        struct remote_file *file = &r->files[i];
        struct dcpk_bytes url = {0};
        struct http_file there = {.is_there = true, .n_bytes = file->n_bytes};

        if (n > 0 && (strncmp(file->name, folder, n) != 0 || file->name[n] != '/'))
            continue;
        if (file->n_bytes == DCPK_REMOTE_UNKNOWN &&
            dcpk_remote_url(r, "", file->name, &url, err) == DCPK_OK)
            (void)http_look(r->http, (const char *)url.data, &there, err);
        dcpk_bytes_release(&url);
        file->n_bytes = there.n_bytes;
        if (there.version[0] != '\0')
            file->version = dcpk_arena_strdup(r->arena, there.version, err);
        if (err->status == DCPK_OK && there.is_there)
            (void)dcpk_store_add_range(store, file->name + n + (n > 0), i, file->n_bytes, err);
        if (err->status != DCPK_OK)
            return err->status;
    }
    return DCPK_OK;
}

/* run->folder: from the path below the URL to the URL. */
static dcpk_status name_folder(const struct remote *r, struct dcpk_run *run, struct dcpk_error *err)
{
    char *name =
        dcpk_run_text(err, "%s%s%s", r->shown, dcpk_joint(*run->folder != '\0', "/"), run->folder);

    if (name == NULL)
        return err->status;
    dcpk_free(run->folder);
    run->folder = name;
    return DCPK_OK;
}

static dcpk_status open_found(struct remote *r, struct dcpk_run *run, struct dcpk_store **store,
                              struct dcpk_error *err)
{
    const char *folder = dcpk_arena_strdup(r->arena, run->folder, err);
    struct dcpk_store *made;

    if (folder == NULL || name_folder(r, run, err) != DCPK_OK ||
        dcpk_store_new_calls(run->folder, &made, err) != DCPK_OK)
        return err->status;
    if (fill(r, folder, made, err) != DCPK_OK) {
        dcpk_store_close(made);
        return err->status;
    }
    dcpk_store_set_calls(made, &(struct dcpk_store_calls){remote_read, remote_free, r});
    *store = made;
    return DCPK_OK;
}

dcpk_status dcpk_remote_open(const char *path, const char *inner,
                             const struct dcpk_opening *opening, struct dcpk_run *run,
                             struct dcpk_store **store, struct dcpk_error *err)
{
    struct remote *r = dcpk_alloc(sizeof *r, err);
    struct dcpk_run found = {0};

    (void)inner; /* a URL names the folder itself */
    if (r == NULL)
        return err->status;
    pthread_mutex_init(&r->lock, NULL);
    r->arena = dcpk_arena_new();
    if (find_address(r, path, opening->is_stopped, err) || list_files(r, err) ||
        remote_find_run(r, opening, &found, err) || open_found(r, &found, store, err)) {
        dcpk_run_release(&found);
        remote_free(r);
        return dcpk_context(err, "reading '%.*s'", (int)strcspn(path, "?#"), path);
    }
    found.is_archive = true;
    *run = found;
    return DCPK_OK;
}
