/* SPDX-License-Identifier: Apache-2.0 */
/* store.c - sets of named sources: what all kinds share; memory, and ranges of one file. */
#include "lib/io/store_priv.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "lib/base/alloc.h"
#include "lib/base/json.h"
#include "lib/base/order.h"

#define MAX_READ_BYTES ((size_t)1 << 30) /* of one pread: Linux cuts at 2 GiB - 4096 */

dcpk_status dcpk_store_new(const struct dcpk_store_ops *ops, const char *path, int fd,
                           struct dcpk_store **store, struct dcpk_error *err)
{
    struct dcpk_store *s = dcpk_alloc(sizeof *s, err);
    struct rlimit limit;

    if (s == NULL)
        return err->status;
    s->path = dcpk_alloc(strlen(path) + 1, err);
    if (s->path == NULL) {
        dcpk_free(s);
        return err->status;
    }
    memcpy(s->path, path, strlen(path) + 1);
    s->ops = ops;
    s->fd = fd;
    s->max_open = DCPK_STORE_MAX_OPEN;
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur / 2 < s->max_open)
        s->max_open = limit.rlim_cur < 4 ? 1 : (size_t)limit.rlim_cur / 2;
    pthread_mutex_init(&s->lock, NULL); /* cannot fail with default attributes */
    pthread_cond_init(&s->idle, NULL);
    *store = s;
    return DCPK_OK;
}

void dcpk_store_close(struct dcpk_store *store)
{
    if (store == NULL)
        return;
    while (store->sources != NULL) {
        struct dcpk_source *source = store->sources;
        assert(source->n_readers == 0);
        store->sources = source->next;
        if (source->fd >= 0)
            close(source->fd);
        dcpk_free(source->copy);
        dcpk_free(source);
    }
    dcpk_map_release(&store->by_name);
    if (store->fd >= 0)
        close(store->fd);
    if (store->calls.free != NULL)
        store->calls.free(store->calls.context);
    pthread_cond_destroy(&store->idle);
    pthread_mutex_destroy(&store->lock);
    dcpk_free(store->note);
    dcpk_free(store->path);
    dcpk_free(store);
}

const char *dcpk_store_path(const struct dcpk_store *store)
{
    return store->path;
}

dcpk_status dcpk_store_set_note(struct dcpk_store *store, const char *note, struct dcpk_error *err)
{
    const size_t n = strlen(note) + 1;
    char *copy = dcpk_alloc(n, err);

    if (copy == NULL)
        return err->status;
    memcpy(copy, note, n);
    dcpk_free(store->note);
    store->note = copy;
    return DCPK_OK;
}

const char *dcpk_store_note(const struct dcpk_store *store)
{
    return store->note;
}

void dcpk_store_limit_values(struct dcpk_store *store, uint64_t n_bytes)
{
    store->value_bytes = n_bytes;
}

uint64_t dcpk_source_value_limit(const struct dcpk_source *source, uint64_t limit_bytes)
{
    const uint64_t value_bytes = source->store->value_bytes;

    if (value_bytes == 0)
        return limit_bytes;
    return dcpk_min_u64(value_bytes, limit_bytes);
}

/* True if the relative path `name` climbs out of its folder, or names none. */
static bool leaves_folder(const char *name)
{
    if (name[0] == '\0' || name[0] == '/')
        return true;
    for (const char *part = name; part != NULL; part = strchr(part, '/')) {
        if (*part == '/')
            part++;
        if (part[0] == '.' && part[1] == '.' && (part[2] == '/' || part[2] == '\0'))
            return true;
    }
    return false;
}

/* True if it is longer than the system takes, as a whole or in a part. No file can be there
 * then. */
static bool is_too_long(const char *name)
{
    if (strlen(name) >= PATH_MAX)
        return true;
    for (const char *part = name; *part != '\0'; part += *part == '/') {
        const size_t n = strcspn(part, "/");

        if (n > NAME_MAX)
            return true;
        part += n;
    }
    return false;
}

/* Make a source and enter it; the caller holds the lock and knows that the name is new. */
static dcpk_status add_source(struct dcpk_store *store, const char *name, uint64_t n_bytes,
                              struct dcpk_source **out, struct dcpk_error *err)
{
    const size_t name_bytes = strlen(name) + 1;
    struct dcpk_source *source = dcpk_alloc(sizeof *source + name_bytes, err);
    uint64_t found;
    bool existed;

    if (source == NULL)
        return err->status;
    memcpy(source->name, name, name_bytes);
    source->store = store;
    source->n_bytes = n_bytes;
    source->fd = -1;
    if (dcpk_map_put(&store->by_name, source->name, name_bytes - 1, (uintptr_t)source, &existed,
                     &found, err) != DCPK_OK) {
        dcpk_free(source);
        return err->status;
    }
    assert(!existed);
    source->next = store->sources;
    store->sources = source;
    *out = source;
    return DCPK_OK;
}

static struct dcpk_source *known_source(const struct dcpk_store *store, const char *name)
{
    uint64_t address;

    if (!dcpk_map_get(&store->by_name, name, strlen(name), &address))
        return NULL;
    return (struct dcpk_source *)(uintptr_t)address;
}

/* Finds the entry at a checked name; the lock is held. */
static dcpk_status look_locked(const struct dcpk_store *store, const char *name,
                               struct dcpk_path *path, struct dcpk_error *err)
{
    const struct dcpk_source *known = known_source(store, name);

    if (known == NULL && store->ops->look != NULL && !is_too_long(name))
        return store->ops->look(store, name, path, err);
    path->kind = DCPK_PATH_NOTHING;
    path->n_bytes = 0;
    if (known != NULL) {
        path->kind = DCPK_PATH_FILE;
        path->n_bytes = known->n_bytes;
    }
    return DCPK_OK;
}

dcpk_status dcpk_store_look(struct dcpk_store *store, const char *name, enum dcpk_path_kind *kind,
                            struct dcpk_error *err)
{
    struct dcpk_path path = {DCPK_PATH_NOTHING, 0};
    dcpk_status st = DCPK_OK;

    if (!leaves_folder(name)) {
        pthread_mutex_lock(&store->lock);
        st = look_locked(store, name, &path, err);
        pthread_mutex_unlock(&store->lock);
    }
    if (st == DCPK_OK)
        *kind = path.kind;
    return st;
}

/* The lock is held. */
static dcpk_status find_locked(struct dcpk_store *store, const char *name,
                               struct dcpk_source **source, struct dcpk_error *err)
{
    struct dcpk_source *known = known_source(store, name);
    struct dcpk_path path;

    if (known != NULL) {
        *source = known;
        return DCPK_OK;
    }
    if (is_too_long(name))
        return dcpk_fail(err, DCPK_EFORMAT,
                         "file name '%.60s...' in '%s' has %zu bytes, more than any file's", name,
                         store->path, strlen(name));
    if (look_locked(store, name, &path, err) != DCPK_OK)
        return err->status;
    if (path.kind == DCPK_PATH_NOTHING)
        return dcpk_fail_errno(err, ENOENT, "'%.200s' in '%s'", name, store->path);
    if (path.kind != DCPK_PATH_FILE)
        return dcpk_fail(err, DCPK_EIO, "'%.200s' in '%s': not a plain file", name, store->path);
    return add_source(store, name, path.n_bytes, source, err);
}

dcpk_status dcpk_store_find(struct dcpk_store *store, const char *name, struct dcpk_source **source,
                            struct dcpk_error *err)
{
    dcpk_status st;

    if (leaves_folder(name))
        return dcpk_fail(err, DCPK_EFORMAT, "file name '%.200s' leaves the folder '%s'", name,
                         store->path);
    pthread_mutex_lock(&store->lock);
    st = find_locked(store, name, source, err);
    pthread_mutex_unlock(&store->lock);
    return st;
}

const struct dcpk_source *dcpk_store_next(const struct dcpk_store *store,
                                          const struct dcpk_source *source)
{
    return source == NULL ? store->sources : source->next;
}

dcpk_status dcpk_source_stamp(const struct dcpk_source *source, uint64_t *stamp,
                              struct dcpk_error *err)
{
    *stamp = 0;
    if (source->store->ops->stamp == NULL)
        return DCPK_OK;
    return source->store->ops->stamp(source, stamp, err);
}

const char *dcpk_source_name(const struct dcpk_source *source)
{
    return source->name;
}

uint64_t dcpk_source_bytes(const struct dcpk_source *source)
{
    return source->n_bytes;
}

dcpk_status dcpk_source_pread(const struct dcpk_source *source, int fd, uint64_t at, uint8_t *out,
                              size_t n, struct dcpk_error *err)
{
    while (n > 0) {
        const size_t part = dcpk_min_size(n, MAX_READ_BYTES);
        const ssize_t got = pread(fd, out, part, (off_t)(source->offset_bytes + at));
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return dcpk_fail_errno(err, errno,
                                   "reading %zu bytes at byte %" PRIu64 " of '%s' in '%s'", n, at,
                                   source->name, source->store->path);
        if (got == 0)
            return dcpk_fail(err, DCPK_EIO,
                             "'%s' in '%s' shrank: it ends at byte %" PRIu64 ", had %" PRIu64,
                             source->name, source->store->path, at, source->n_bytes);
        at += (uint64_t)got;
        out += got;
        n -= (size_t)got;
    }
    return DCPK_OK;
}

dcpk_status dcpk_source_read(struct dcpk_source *source, uint64_t offset_bytes, void *out,
                             size_t n_bytes, struct dcpk_error *err)
{
    if (offset_bytes > source->n_bytes || n_bytes > source->n_bytes - offset_bytes)
        return dcpk_fail(err, DCPK_EFORMAT,
                         "%zu bytes at byte %" PRIu64 " of '%s' pass its end at byte %" PRIu64,
                         n_bytes, offset_bytes, source->name, source->n_bytes);
    if (n_bytes == 0)
        return DCPK_OK;
    return source->store->ops->read(source, offset_bytes, out, n_bytes, err);
}

dcpk_status dcpk_reader_read(const struct dcpk_reader *reader, struct dcpk_source *source,
                             uint64_t offset_bytes, void *out, size_t n_bytes,
                             struct dcpk_error *err)
{
    if (reader == NULL)
        return dcpk_source_read(source, offset_bytes, out, n_bytes, err);
    return reader->read(reader->context, source, offset_bytes, out, n_bytes, err);
}

void dcpk_source_advise(struct dcpk_source *source, uint64_t offset_bytes, uint64_t n_bytes,
                        enum dcpk_advice advice)
{
    const int how = advice == DCPK_WILL_NEED ? POSIX_FADV_WILLNEED : POSIX_FADV_DONTNEED;

    if (source->store->ops->advise == NULL || offset_bytes >= source->n_bytes || n_bytes == 0)
        return;
    if (n_bytes > source->n_bytes - offset_bytes)
        n_bytes = source->n_bytes - offset_bytes;
    source->store->ops->advise(source, offset_bytes, n_bytes, how);
}

dcpk_status dcpk_source_slurp(struct dcpk_source *source, uint64_t limit_bytes, char **data,
                              size_t *n_bytes, struct dcpk_error *err)
{
    char *text;

    limit_bytes = dcpk_source_value_limit(source, limit_bytes);
    if (source->n_bytes > limit_bytes || source->n_bytes >= SIZE_MAX)
        return dcpk_fail(err, DCPK_ERANGE,
                         "'%s' in '%s' has %" PRIu64 " bytes, the limit is %" PRIu64, source->name,
                         source->store->path, source->n_bytes, limit_bytes);
    text = dcpk_alloc((size_t)source->n_bytes + 1, err);
    if (text == NULL)
        return err->status;
    if (dcpk_source_read(source, 0, text, (size_t)source->n_bytes, err) != DCPK_OK) {
        dcpk_free(text);
        return err->status;
    }
    *data = text;
    *n_bytes = (size_t)source->n_bytes;
    return DCPK_OK;
}

/* Build the sorted array from names that each end in a NUL: pointers first, their text after. */
static dcpk_status sorted_names(const struct dcpk_bytes *text, char ***names, size_t *n,
                                struct dcpk_error *err)
{
    size_t n_names = 0;
    size_t n_unique = 0;
    char **list;
    char *copy;

    for (size_t i = 0; i < text->n_bytes; i++)
        n_names += text->data[i] == 0;
    list = dcpk_alloc(n_names * sizeof *list + text->n_bytes, err);
    if (list == NULL)
        return err->status;
    copy = (char *)(list + n_names);
    if (text->n_bytes > 0)
        memcpy(copy, text->data, text->n_bytes);
    for (size_t i = 0; i < n_names; i++, copy += strlen(copy) + 1)
        list[i] = copy;
    qsort(list, n_names, sizeof *list, dcpk_compare_texts);
    for (size_t i = 0; i < n_names; i++) {
        if (n_unique == 0 || strcmp(list[n_unique - 1], list[i]) != 0)
            list[n_unique++] = list[i];
    }
    *names = list;
    *n = n_unique;
    return DCPK_OK;
}

static dcpk_status list_folder(struct dcpk_store *store, const char *folder, char ***names,
                               size_t *n, struct dcpk_error *err)
{
    struct dcpk_bytes text = {0};
    dcpk_status st = store->ops->list(store, folder, &text, err);

    if (st == DCPK_OK)
        st = dcpk_bytes_status(&text, err);
    if (st == DCPK_OK)
        st = sorted_names(&text, names, n, err);
    dcpk_bytes_release(&text);
    return st;
}

dcpk_status dcpk_store_list(struct dcpk_store *store, char ***names, size_t *n,
                            struct dcpk_error *err)
{
    return list_folder(store, ".", names, n, err);
}

dcpk_status dcpk_store_list_in(struct dcpk_store *store, const char *folder, char ***names,
                               size_t *n, struct dcpk_error *err)
{
    if (leaves_folder(folder))
        return dcpk_fail(err, DCPK_EFORMAT, "folder name '%.200s' leaves the folder '%s'", folder,
                         store->path);
    return list_folder(store, folder, names, n, err);
}

/* ---- memory, and ranges of one file: every source is entered when the store is made ---- */

/* Lists, for a name with '/', its first part, as a folder would show it. */
static dcpk_status list_known(const struct dcpk_store *store, const char *folder,
                              struct dcpk_bytes *text, struct dcpk_error *err)
{
    const size_t n = strcmp(folder, ".") == 0 ? 0 : strlen(folder) + 1; /* with the '/' */
    bool exists = n == 0;

    for (const struct dcpk_source *s = store->sources; s != NULL; s = s->next) {
        if (n > 0 && (strncmp(s->name, folder, n - 1) != 0 || s->name[n - 1] != '/'))
            continue;
        exists = true;
        dcpk_bytes_put(text, s->name + n, strcspn(s->name + n, "/"));
        dcpk_bytes_u8(text, 0);
    }
    if (!exists)
        return dcpk_fail(err, DCPK_EIO, "no folder '%.200s' in '%s'", folder, store->path);
    return DCPK_OK;
}

static dcpk_status read_memory(struct dcpk_source *source, uint64_t at, uint8_t *out, size_t n,
                               struct dcpk_error *err)
{
    (void)err;
    memcpy(out, source->data + at, n);
    return DCPK_OK;
}

static dcpk_status read_range(struct dcpk_source *source, uint64_t at, uint8_t *out, size_t n,
                              struct dcpk_error *err)
{
    return dcpk_source_pread(source, source->store->fd, at, out, n, err);
}

static dcpk_status read_by_call(struct dcpk_source *source, uint64_t at, uint8_t *out, size_t n,
                                struct dcpk_error *err)
{
    const struct dcpk_store_calls *calls = &source->store->calls;

    return calls->read(calls->context, source->offset_bytes, at, out, n, err);
}

static void advise_range(struct dcpk_source *source, uint64_t at, uint64_t n, int how)
{
    (void)posix_fadvise(source->store->fd, (off_t)(source->offset_bytes + at), (off_t)n, how);
}

static const struct dcpk_store_ops memory_ops = {.read = read_memory, .list = list_known};
static const struct dcpk_store_ops range_ops = {
    .read = read_range, .advise = advise_range, .list = list_known};
static const struct dcpk_store_ops call_ops = {.read = read_by_call, .list = list_known};

dcpk_status dcpk_store_new_memory(const char *name, struct dcpk_store **store,
                                  struct dcpk_error *err)
{
    return dcpk_store_new(&memory_ops, name, -1, store, err);
}

dcpk_status dcpk_store_new_ranges(const char *name, int fd, struct dcpk_store **store,
                                  struct dcpk_error *err)
{
    return dcpk_store_new(&range_ops, name, fd, store, err);
}

dcpk_status dcpk_store_new_calls(const char *name, struct dcpk_store **store,
                                 struct dcpk_error *err)
{
    return dcpk_store_new(&call_ops, name, -1, store, err);
}

void dcpk_store_set_calls(struct dcpk_store *store, const struct dcpk_store_calls *calls)
{
    store->calls = *calls;
}

static dcpk_status add_new(struct dcpk_store *store, const char *name, uint64_t n_bytes,
                           struct dcpk_source **source, struct dcpk_error *err)
{
    if (known_source(store, name) != NULL)
        return dcpk_fail(err, DCPK_EUSAGE, "'%s' holds '%.200s' already", store->path, name);
    return add_source(store, name, n_bytes, source, err);
}

dcpk_status dcpk_store_add_borrowed(struct dcpk_store *store, const char *name, const void *data,
                                    size_t n_bytes, struct dcpk_error *err)
{
    struct dcpk_source *source = NULL;

    assert(store->ops == &memory_ops);
    if (add_new(store, name, n_bytes, &source, err) != DCPK_OK)
        return err->status;
    source->data = data;
    return DCPK_OK;
}

dcpk_status dcpk_store_add_memory(struct dcpk_store *store, const char *name, const void *data,
                                  size_t n_bytes, struct dcpk_error *err)
{
    uint8_t *copy = dcpk_alloc(n_bytes, err);

    if (copy == NULL)
        return err->status;
    if (n_bytes > 0)
        memcpy(copy, data, n_bytes);
    if (dcpk_store_add_borrowed(store, name, copy, n_bytes, err) != DCPK_OK) {
        dcpk_free(copy);
        return err->status;
    }
    known_source(store, name)->copy = copy;
    return DCPK_OK;
}

dcpk_status dcpk_store_add_range(struct dcpk_store *store, const char *name, uint64_t offset_bytes,
                                 uint64_t n_bytes, struct dcpk_error *err)
{
    struct dcpk_source *source = NULL;

    assert(store->ops != &memory_ops && n_bytes <= INT64_MAX &&
           offset_bytes <= INT64_MAX - n_bytes);
    if (leaves_folder(name) || is_too_long(name))
        return dcpk_fail(err, DCPK_EFORMAT, "file name '%.200s' leaves the folder '%s'", name,
                         store->path);
    if (add_new(store, name, n_bytes, &source, err) != DCPK_OK)
        return err->status;
    source->offset_bytes = offset_bytes;
    return DCPK_OK;
}

dcpk_status dcpk_json_read(struct dcpk_store *store, const char *name, uint64_t limit_bytes,
                           struct dcpk_json **doc, struct dcpk_error *err)
{
    struct dcpk_source *source;
    char *text = NULL;
    size_t n_bytes;
    dcpk_status st = dcpk_store_find(store, name, &source, err);

    if (st == DCPK_OK)
        st = dcpk_source_slurp(source, limit_bytes, &text, &n_bytes, err);
    if (st == DCPK_OK)
        st = dcpk_json_parse(text, n_bytes, doc, err);
    dcpk_free(text);
    return st;
}
