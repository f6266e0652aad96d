/* SPDX-License-Identifier: Apache-2.0 */
/* seen.c - hashes of names, lengths, times and ends of files. */
/*
 * The ends show a copy of another checkpoint's file that kept its time: common.pt and the like are
 * read whole by that, and the last checksum of a file of items.
 */
#include "lib/ckpt/seen.h"

#include <string.h>
#include <sys/stat.h>

#include "lib/base/alloc.h"
#include "lib/base/order.h"
#include "lib/ckpt/run.h"

#define MAX_READ_FILES 1000 /* about as many: a checkpoint of zarr has a hundred thousand */
#define END_BYTES      ((size_t)64 << 10)

struct seeing {
    struct dcpk_hasher hasher;
    uint8_t *buffer; /* END_BYTES, for the ends of files */
};

static void seen_put_number(struct seeing *s, uint64_t v)
{
    dcpk_hasher_update(&s->hasher, &v, sizeof v); /* never leaves this kind of machine */
}

static void put_place(struct seeing *s, const struct dcpk_place *place)
{
    seen_put_number(s, place->file);
    seen_put_number(s, place->offset_bytes);
    seen_put_number(s, place->n_bytes);
}

static uint64_t first_word(const struct dcpk_hash *hash)
{
    uint64_t word;

    memcpy(&word, hash->digest, sizeof word);
    return word;
}

/* Add a hash, so that the order of the files does not matter. */
static void mix(struct dcpk_hash *sum, const struct dcpk_hash *hash)
{
    for (size_t i = 0; i < sizeof hash->digest; i++)
        sum->digest[i] ^= hash->digest[i];
}

static void hash_name(struct seeing *s, const char *name, uint64_t n_bytes, uint64_t stamp,
                      struct dcpk_hash *hash)
{
    dcpk_hasher_begin(&s->hasher);
    dcpk_hasher_update(&s->hasher, name, strlen(name) + 1);
    seen_put_number(s, n_bytes);
    seen_put_number(s, stamp);
    dcpk_hasher_digest(&s->hasher, hash);
}

/* Both ends of a file, END_BYTES of each. `hash` begins it, and is set. */
static dcpk_status hash_ends(struct seeing *s, struct dcpk_source *source, struct dcpk_hash *hash,
                             struct dcpk_error *err)
{
    const uint64_t n_bytes = dcpk_source_bytes(source);
    const size_t n = (size_t)dcpk_min_u64(n_bytes, END_BYTES);

    dcpk_hasher_begin(&s->hasher);
    dcpk_hasher_update(&s->hasher, hash->digest, sizeof hash->digest);
    for (int end = 0; end < 2 && n > 0; end++) {
        if (dcpk_source_read(source, end == 0 ? 0 : n_bytes - n, s->buffer, n, err) != DCPK_OK)
            return err->status;
        dcpk_hasher_update(&s->hasher, s->buffer, n);
    }
    dcpk_hasher_digest(&s->hasher, hash);
    return DCPK_OK;
}

dcpk_status dcpk_seen_file(struct dcpk_source *source, struct dcpk_hash *hash,
                           struct dcpk_error *err)
{
    struct seeing s = {.buffer = dcpk_alloc(END_BYTES, err)};

    if (s.buffer != NULL) {
        hash_name(&s, dcpk_source_name(source), dcpk_source_bytes(source), 0, hash);
        (void)hash_ends(&s, source, hash, err);
    }
    dcpk_free(s.buffer);
    return err->status;
}

static void hash_places(struct seeing *s, const struct dcpk_checkpoint *ckpt,
                        struct dcpk_hash *hash)
{
    dcpk_hasher_begin(&s->hasher);
    for (size_t i = 0; i < ckpt->n_chunks; i++)
        put_place(s, &ckpt->chunks[i].place);
    for (size_t i = 0; i < ckpt->n_objects; i++)
        put_place(s, &ckpt->objects[i].place);
    dcpk_hasher_digest(&s->hasher, hash);
}

static void hash_archive(struct seeing *s, const char *in, struct dcpk_hash *sum)
{
    char archive[DCPK_RUN_PATH_BYTES];
    struct dcpk_hash hash;
    struct stat info;

    (void)dcpk_run_split(in, archive);
    if (stat(archive, &info) != 0 || !S_ISREG(info.st_mode))
        return;
    hash_name(s, "", (uint64_t)info.st_size,
              (uint64_t)info.st_mtim.tv_sec * 1000000000 + (uint64_t)info.st_mtim.tv_nsec, &hash);
    mix(sum, &hash);
}

static dcpk_status hash_files(struct seeing *s, struct dcpk_store *store, struct dcpk_hash *sum,
                              struct dcpk_error *err)
{
    const struct dcpk_source *next = NULL;
    struct dcpk_source *source;
    struct dcpk_hash hash;
    uint64_t stamp;
    size_t n = 0;

    while ((next = dcpk_store_next(store, next)) != NULL)
        n++;
    while ((next = dcpk_store_next(store, next)) != NULL) {
        if (dcpk_store_find(store, dcpk_source_name(next), &source, err) ||
            dcpk_source_stamp(source, &stamp, err))
            return err->status;
        hash_name(s, dcpk_source_name(source), dcpk_source_bytes(source), stamp, &hash);
        if (first_word(&hash) % n < MAX_READ_FILES && hash_ends(s, source, &hash, err))
            return err->status;
        mix(sum, &hash);
    }
    return DCPK_OK;
}

dcpk_status dcpk_seen_checkpoint(const struct dcpk_checkpoint *ckpt, const char *in,
                                 struct dcpk_hash *hash, struct dcpk_error *err)
{
    struct seeing s = {.buffer = dcpk_alloc(END_BYTES, err)};
    struct dcpk_hash sum = {0}, places;

    if (s.buffer != NULL) {
        if (in != NULL)
            hash_archive(&s, in, &sum);
        hash_places(&s, ckpt, &places);
        mix(&sum, &places);
        if (hash_files(&s, ckpt->store, &sum, err) == DCPK_OK &&
            (ckpt->adapter == NULL || hash_files(&s, ckpt->adapter->store, &sum, err) == DCPK_OK))
            *hash = sum;
    }
    dcpk_free(s.buffer);
    return err->status;
}

dcpk_status dcpk_checkpoint_see(struct dcpk_checkpoint *ckpt, const char *in,
                                struct dcpk_error *err)
{
    return dcpk_seen_checkpoint(ckpt, in, &ckpt->seen, err);
}
