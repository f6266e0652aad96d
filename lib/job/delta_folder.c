/* SPDX-License-Identifier: Apache-2.0 */
/* delta_folder.c - the tables of a delta's folder, and the threads that write and apply it. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "lib/base/alloc.h"
#include "lib/base/order.h"
#include "lib/ckpt/integrity.h"
#include "lib/job/delta_priv.h"

#define MAX_INDEX_BYTES ((uint64_t)1 << 30)
#define HASH_BYTES      (sizeof((struct dcpk_hash *)0)->digest)

/* ---- records ---- */

void dcpk_delta_record_put(struct dcpk_bytes *out, const struct dcpk_delta_record *record)
{
    dcpk_bytes_u32(out, record->n_bytes);
    dcpk_bytes_u32(out, record->base);
    dcpk_bytes_u64(out, record->base_at_bytes);
    dcpk_bytes_u32(out, record->stored_bytes);
    dcpk_bytes_u32(out, record->method);
    dcpk_bytes_put(out, record->hash.digest, HASH_BYTES);
}

void dcpk_delta_record_get(const uint8_t *data, struct dcpk_delta_record *record)
{
    record->n_bytes = dcpk_load_u32le(data);
    record->base = dcpk_load_u32le(data + 4);
    record->base_at_bytes = dcpk_load_u64le(data + 8);
    record->stored_bytes = dcpk_load_u32le(data + 16);
    record->method = dcpk_load_u32le(data + 20);
    memcpy(record->hash.digest, data + 24, HASH_BYTES);
}

const char *dcpk_delta_part_name(uint64_t part, char name[DCPK_DELTA_PART_NAME_BYTES])
{
    snprintf(name, DCPK_DELTA_PART_NAME_BYTES, "part.%06" PRIu64, part);
    return name;
}

/* ---- delta.index ---- */

static void put_files(const struct dcpk_delta_file *files, size_t n, bool has_seen,
                      struct dcpk_bytes *out)
{
    dcpk_bytes_u64(out, n);
    for (size_t i = 0; i < n; i++) {
        const size_t n_name = strlen(files[i].name);

        dcpk_bytes_u64(out, files[i].n_bytes);
        if (has_seen)
            dcpk_bytes_put(out, files[i].seen.digest, HASH_BYTES);
        dcpk_bytes_u16(out, (uint16_t)n_name);
        dcpk_bytes_put(out, files[i].name, n_name);
    }
}

dcpk_status dcpk_delta_index_put(const struct dcpk_delta_index *index, struct dcpk_bytes *out,
                                 struct dcpk_error *err)
{
    struct dcpk_hash hash;

    dcpk_bytes_put(out, DCPK_DELTA_MAGIC, sizeof DCPK_DELTA_MAGIC);
    dcpk_bytes_u64(out, index->n_parts);
    dcpk_bytes_put(out, index->records.digest, HASH_BYTES);
    put_files(index->base, index->n_base, true, out);
    put_files(index->next, index->n_next, false, out);
    if (dcpk_bytes_status(out, err) != DCPK_OK)
        return err->status;
    dcpk_hash_bytes(out->data, out->n_bytes, &hash);
    dcpk_bytes_put(out, hash.digest, HASH_BYTES);
    return dcpk_bytes_status(out, err);
}

static dcpk_status take_hash(struct dcpk_cursor *c, struct dcpk_hash *hash, struct dcpk_error *err)
{
    const uint8_t *bytes;

    if (dcpk_cursor_bytes(c, HASH_BYTES, &bytes, err) != DCPK_OK)
        return err->status;
    memcpy(hash->digest, bytes, HASH_BYTES);
    return DCPK_OK;
}

static dcpk_status index_take_file(struct dcpk_cursor *c, bool has_seen, struct dcpk_arena *arena,
                                   struct dcpk_delta_file *file, struct dcpk_error *err)
{
    const uint8_t *name;
    uint16_t n_name;

    if (dcpk_cursor_u64(c, &file->n_bytes, err) || (has_seen && take_hash(c, &file->seen, err)) ||
        dcpk_cursor_u16(c, &n_name, err) || dcpk_cursor_bytes(c, n_name, &name, err))
        return err->status;
    if (n_name == 0 || memchr(name, '\0', n_name) != NULL)
        return dcpk_fail(err, DCPK_EFORMAT, "a name before byte %zu is empty or holds a NUL",
                         c->at_bytes);
    file->name = dcpk_arena_strndup(arena, (const char *)name, n_name, err);
    return dcpk_made(file->name, err);
}

/* A list; its memory is that of the bytes, whatever number it claims. */
static dcpk_status index_take_files(struct dcpk_cursor *c, bool has_seen, struct dcpk_arena *arena,
                                    struct dcpk_delta_file **files, size_t *n_files,
                                    struct dcpk_error *err)
{
    uint64_t n;

    if (dcpk_cursor_u64(c, &n, err) != DCPK_OK)
        return err->status;
    if (n > (c->n_bytes - c->at_bytes) / sizeof(uint64_t) || n >= DCPK_DELTA_NO_FILE)
        return dcpk_fail(err, DCPK_EFORMAT, "a list of %" PRIu64 " files passes the end", n);
    *files = dcpk_arena_array(arena, (size_t)n, sizeof **files, err);
    if (*files == NULL)
        return err->status;
    for (*n_files = 0; *n_files < n; ++*n_files)
        if (index_take_file(c, has_seen, arena, &(*files)[*n_files], err) != DCPK_OK)
            return err->status;
    return DCPK_OK;
}

static dcpk_status parse_index(const char *data, size_t n_bytes, struct dcpk_delta_index *index,
                               struct dcpk_error *err)
{
    const size_t n_magic = sizeof DCPK_DELTA_MAGIC;
    struct dcpk_hash hash;
    struct dcpk_cursor c;

    if (n_bytes < n_magic + HASH_BYTES || memcmp(data, DCPK_DELTA_MAGIC, n_magic) != 0)
        return dcpk_fail(err, DCPK_EFORMAT,
                         "it does not begin with the mark of this version of "
                         "deltas");
    dcpk_hash_bytes(data, n_bytes - HASH_BYTES, &hash);
    if (memcmp(data + n_bytes - HASH_BYTES, hash.digest, HASH_BYTES) != 0)
        return dcpk_fail(err, DCPK_EFORMAT, "it is damaged: its hash differs");
    dcpk_cursor_init(&c, data, n_bytes - HASH_BYTES, 0);
    c.at_bytes = n_magic;
    if (dcpk_cursor_u64(&c, &index->n_parts, err) || take_hash(&c, &index->records, err) ||
        index_take_files(&c, true, index->arena, &index->base, &index->n_base, err) ||
        index_take_files(&c, false, index->arena, &index->next, &index->n_next, err))
        return err->status;
    if (c.at_bytes != c.n_bytes)
        return dcpk_fail(err, DCPK_EFORMAT, "%zu bytes follow its lists", c.n_bytes - c.at_bytes);
    for (size_t i = 1; i < index->n_next; i++)
        if (strcmp(index->next[i - 1].name, index->next[i].name) >= 0)
            return dcpk_fail(err, DCPK_EFORMAT, "the name '%.200s' is out of order",
                             index->next[i].name);
    return DCPK_OK;
}

dcpk_status dcpk_delta_index_read(struct dcpk_store *delta, struct dcpk_delta_index *index,
                                  struct dcpk_error *err)
{
    enum dcpk_path_kind kind;
    struct dcpk_source *source;
    char *data = NULL;
    size_t n_bytes;
    dcpk_status st;

    if (dcpk_store_look(delta, DCPK_DELTA_INDEX, &kind, err) != DCPK_OK)
        return err->status;
    if (kind != DCPK_PATH_FILE)
        return dcpk_fail(err, DCPK_EFORMAT, "'%s' is not a delta: it has no '" DCPK_DELTA_INDEX "'",
                         dcpk_store_path(delta));
    index->arena = dcpk_arena_new();
    st = dcpk_store_find(delta, DCPK_DELTA_INDEX, &source, err);
    if (st == DCPK_OK)
        st = dcpk_source_slurp(source, MAX_INDEX_BYTES, &data, &n_bytes, err);
    if (st == DCPK_OK)
        st = parse_index(data, n_bytes, index, err);
    dcpk_free(data);
    if (st != DCPK_OK)
        dcpk_context(err, "reading '" DCPK_DELTA_INDEX "'");
    return st;
}

/* ---- files of a store ---- */

static dcpk_status list_file(struct dcpk_store *store, const char *name,
                             struct dcpk_delta_file *file, struct dcpk_error *err)
{
    struct dcpk_source *source;

    if (dcpk_store_leads_to_private(store, name, NULL))
        return dcpk_fail(err, DCPK_EUSAGE,
                         "'%.200s' is a link to a file that fewer users may read than '%s': remove "
                         "it, or put a copy in its place",
                         name, dcpk_store_path(store));
    if (dcpk_store_find(store, name, &source, err) != DCPK_OK)
        return err->status;
    file->name = dcpk_source_name(source);
    file->n_bytes = dcpk_source_bytes(source);
    return DCPK_OK;
}

dcpk_status dcpk_delta_list(struct dcpk_store *store, struct dcpk_arena **arena,
                            struct dcpk_delta_file **files, size_t *n_files, struct dcpk_error *err)
{
    struct dcpk_integrity list = {0};
    dcpk_status st = dcpk_integrity_collect_all(store, &list, err);

    *arena = list.arena;
    if (st != DCPK_OK)
        return st;
    *files = dcpk_arena_array(list.arena, list.n_files, sizeof **files, err);
    if (*files == NULL)
        return err->status;
    *n_files = list.n_files;
    for (size_t i = 0; i < list.n_files; i++)
        if (list_file(store, list.files[i].name, &(*files)[i], err) != DCPK_OK)
            return err->status;
    return DCPK_OK;
}

/* ---- threads ---- */

dcpk_status dcpk_delta_crew_init(struct dcpk_delta_crew *crew, const struct dcpk_env *env,
                                 uint64_t thread_bytes, uint64_t total_bytes,
                                 struct dcpk_error *err)
{
    int n = env->n_threads;

    if (n <= 0)
        n = dcpk_pool_default_threads();
    n = (int)dcpk_min_u64((uint64_t)n, dcpk_exec_memory_bytes(env) / thread_bytes);
    dcpk_meter_begin(&crew->meter, &env->progress, total_bytes);
    crew->hands = dcpk_alloc_array((size_t)n, sizeof *crew->hands, err);
    if (crew->hands == NULL)
        return err->status;
    crew->n_threads = n;
    crew->memory = dcpk_alloc_aligned(4096, 2 * DCPK_DELTA_SPAN_BYTES * (size_t)n, err);
    if (crew->memory == NULL)
        return err->status;
    for (int i = 0; i < n; i++) {
        crew->hands[i].a = crew->memory + 2 * DCPK_DELTA_SPAN_BYTES * (size_t)i;
        crew->hands[i].b = crew->hands[i].a + DCPK_DELTA_SPAN_BYTES;
    }
    return DCPK_OK;
}

void dcpk_delta_crew_release(struct dcpk_delta_crew *crew)
{
    dcpk_free(crew->memory);
    dcpk_free(crew->hands);
}

void dcpk_delta_xor(uint8_t *a, const uint8_t *b, size_t n_bytes)
{
    for (size_t i = 0; i < n_bytes; i++)
        a[i] ^= b[i];
}

/* ---- hashes of blocks ---- */

struct block_hashing {
    struct dcpk_delta_crew crew;
    struct dcpk_source *source;
    struct dcpk_file_blocks *file;
};

static dcpk_status hash_block(void *context, int worker, uint64_t i, struct dcpk_error *err)
{
    struct block_hashing *h = context;
    struct dcpk_delta_hand *hand = &h->crew.hands[worker];
    const uint64_t at = i * DCPK_BLOCK_BYTES;
    const size_t n = (size_t)dcpk_min_u64(h->file->n_bytes - at, DCPK_BLOCK_BYTES);

    if (dcpk_source_read(h->source, at, hand->a, n, err) != DCPK_OK)
        return err->status;
    dcpk_hash_bytes(hand->a, n, &h->file->hashes[i]);
    return dcpk_meter_add(&h->crew.meter, n, err);
}

static dcpk_status hash_file_blocks(struct block_hashing *h, struct dcpk_store *store,
                                    struct dcpk_arena *arena, struct dcpk_error *err)
{
    const uint64_t n = (h->file->n_bytes + DCPK_BLOCK_BYTES - 1) / DCPK_BLOCK_BYTES;

    h->file->hashes = dcpk_arena_array(arena, (size_t)n, sizeof *h->file->hashes, err);
    if (h->file->hashes == NULL || dcpk_store_find(store, h->file->name, &h->source, err))
        return err->status;
    return dcpk_pool_run(h->crew.n_threads, n, hash_block, h, err);
}

dcpk_status dcpk_blocks_hash(struct dcpk_store *store, const struct dcpk_env *env,
                             struct dcpk_block_list *blocks, struct dcpk_error *err)
{
    struct block_hashing h = {0};
    struct dcpk_delta_file *files;
    uint64_t total_bytes = 0;
    dcpk_status st = dcpk_delta_list(store, &blocks->arena, &files, &blocks->n_files, err);

    if (st != DCPK_OK)
        return st;
    blocks->files = dcpk_arena_array(blocks->arena, blocks->n_files, sizeof *blocks->files, err);
    if (blocks->files == NULL)
        return err->status;
    for (size_t i = 0; i < blocks->n_files; i++) {
        blocks->files[i].name = files[i].name;
        blocks->files[i].n_bytes = files[i].n_bytes;
        total_bytes += files[i].n_bytes;
    }
    st = dcpk_delta_crew_init(&h.crew, env, 2 * DCPK_DELTA_SPAN_BYTES, total_bytes, err);
    for (size_t i = 0; i < blocks->n_files && st == DCPK_OK; i++) {
        h.file = &blocks->files[i];
        st = hash_file_blocks(&h, store, blocks->arena, err);
    }
    st = dcpk_meter_end(&h.crew.meter, NULL, NULL, NULL, st);
    dcpk_delta_crew_release(&h.crew);
    return st;
}

void dcpk_blocks_release(struct dcpk_block_list *blocks)
{
    dcpk_arena_free(blocks->arena);
}
