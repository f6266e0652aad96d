/* SPDX-License-Identifier: Apache-2.0 */
/* decoded.c - the cache of decoded chunks: a few entries, the one not used for longest gives
 * way. */
#include "lib/exec/workers.h"

#include <assert.h>
#include <inttypes.h>
#include <pthread.h>

#include "lib/base/alloc.h"
#include "lib/base/checked.h"

#define N_ENTRIES 64 /* more than threads, so that none waits for an entry alone */

struct entry {
    const struct dcpk_chunk *chunk; /* NULL: free */
    uint8_t *data;
    uint64_t charge_bytes; /* while it is decoded the encoded bytes count as well */
    unsigned n_users;
    bool is_ready;
    uint64_t last_used;
};

struct dcpk_decoded {
    struct dcpk_checkpoint *ckpt;
    uint64_t limit_bytes, used_bytes, clock;
    pthread_mutex_t mutex;
    pthread_cond_t changed; /* an entry became ready, or free, or lost a user */
    struct entry entries[N_ENTRIES];
};

dcpk_status dcpk_decoded_new(struct dcpk_checkpoint *ckpt, uint64_t limit_bytes,
                             struct dcpk_decoded **decoded, struct dcpk_error *err)
{
    struct dcpk_decoded *made = dcpk_alloc(sizeof *made, err);

    if (made == NULL)
        return err->status;
    made->ckpt = ckpt;
    made->limit_bytes = limit_bytes;
    pthread_mutex_init(&made->mutex, NULL);
    pthread_cond_init(&made->changed, NULL);
    *decoded = made;
    return DCPK_OK;
}

void dcpk_decoded_free(struct dcpk_decoded *decoded)
{
    if (decoded == NULL)
        return;
    for (size_t i = 0; i < N_ENTRIES; i++) {
        assert(decoded->entries[i].n_users == 0);
        dcpk_free(decoded->entries[i].data);
    }
    pthread_cond_destroy(&decoded->changed);
    pthread_mutex_destroy(&decoded->mutex);
    dcpk_free(decoded);
}

static struct entry *decoded_find(struct dcpk_decoded *d, const struct dcpk_chunk *chunk)
{
    for (size_t i = 0; i < N_ENTRIES; i++)
        if (d->entries[i].chunk == chunk)
            return &d->entries[i];
    return NULL;
}

static void clear_entry(struct dcpk_decoded *d, struct entry *e)
{
    d->used_bytes -= e->charge_bytes;
    dcpk_free(e->data);
    *e = (struct entry){.chunk = NULL};
}

/* A free entry with room for charge_bytes; NULL when all the rest is in use. Lock held. */
static struct entry *decoded_make_room(struct dcpk_decoded *d, uint64_t charge_bytes)
{
    for (;;) {
        struct entry *oldest = NULL, *unused = decoded_find(d, NULL);

        if (unused != NULL && charge_bytes <= d->limit_bytes - d->used_bytes)
            return unused;
        for (size_t i = 0; i < N_ENTRIES; i++) {
            struct entry *e = &d->entries[i];

            if (e->chunk != NULL && e->n_users == 0 &&
                (oldest == NULL || e->last_used < oldest->last_used))
                oldest = e;
        }
        if (oldest == NULL)
            return NULL;
        clear_entry(d, oldest);
    }
}

/* Decode into an entry of our own. Lock held; it is released meanwhile. */
static dcpk_status decoded_fill(struct dcpk_decoded *d, struct entry *e,
                                const struct dcpk_extent *where, uint64_t *read_bytes,
                                struct dcpk_error *err)
{
    dcpk_status st;

    pthread_mutex_unlock(&d->mutex);
    e->data = dcpk_alloc((size_t)where->decoded_bytes, err);
    if (e->data == NULL)
        st = err->status;
    else
        st = d->ckpt->format->reader->decode(d->ckpt, e->chunk, e->data, err);
    pthread_mutex_lock(&d->mutex);
    if (st == DCPK_OK) {
        d->used_bytes -= e->charge_bytes - where->decoded_bytes;
        e->charge_bytes = where->decoded_bytes;
        e->is_ready = true;
        *read_bytes += where->record_bytes;
    } else {
        clear_entry(d, e);
    }
    pthread_cond_broadcast(&d->changed);
    return st;
}

/* The chunk's entry, ready and held; *found stays NULL when there is something to wait for. */
static dcpk_status try_get(struct dcpk_decoded *d, const struct dcpk_chunk *chunk,
                           const struct dcpk_extent *where, struct entry **found,
                           uint64_t *read_bytes, struct dcpk_error *err)
{
    struct entry *e = decoded_find(d, chunk);
    const uint64_t charge_bytes = where->decoded_bytes + where->record_bytes;

    if (e != NULL && !e->is_ready)
        return DCPK_OK;
    if (e != NULL) {
        e->n_users++;
        *found = e;
        return DCPK_OK;
    }
    e = decoded_make_room(d, charge_bytes);
    if (e == NULL)
        return DCPK_OK;
    *e = (struct entry){.chunk = chunk, .charge_bytes = charge_bytes, .n_users = 1};
    d->used_bytes += charge_bytes;
    *found = e;
    return decoded_fill(d, e, where, read_bytes, err);
}

dcpk_status dcpk_decoded_get(struct dcpk_decoded *decoded, const struct dcpk_chunk *chunk,
                             const struct dcpk_extent *where, const uint8_t **data,
                             uint64_t *read_bytes, struct dcpk_error *err)
{
    struct entry *e = NULL;
    uint64_t needed;
    dcpk_status st;

    assert(where->decoded_bytes > 0);
    if (!dcpk_add_u64(where->decoded_bytes, where->record_bytes, &needed) ||
        needed > decoded->limit_bytes)
        return dcpk_fail_fix(err, DCPK_ERANGE, DCPK_FIX_MEMORY,
                             "a compressed chunk of %" PRIu64 " bytes, stored in %" PRIu64
                             ", does not fit into half of the memory limit (%" PRIu64 " bytes)",
                             where->decoded_bytes, where->record_bytes, decoded->limit_bytes);
    pthread_mutex_lock(&decoded->mutex);
    do {
        st = try_get(decoded, chunk, where, &e, read_bytes, err);
        if (e == NULL)
            pthread_cond_wait(&decoded->changed, &decoded->mutex);
    } while (e == NULL);
    if (st == DCPK_OK) {
        e->last_used = ++decoded->clock;
        *data = e->data;
    }
    pthread_mutex_unlock(&decoded->mutex);
    return st;
}

void dcpk_decoded_put(struct dcpk_decoded *decoded, const struct dcpk_chunk *chunk)
{
    struct entry *e;

    pthread_mutex_lock(&decoded->mutex);
    e = decoded_find(decoded, chunk);
    assert(e != NULL && e->n_users > 0);
    if (--e->n_users == 0)
        pthread_cond_broadcast(&decoded->changed);
    pthread_mutex_unlock(&decoded->mutex);
}
