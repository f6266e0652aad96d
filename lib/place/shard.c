/* SPDX-License-Identifier: Apache-2.0 */
/* shard.c - addresses of shards, and lists of them as bytes. */
/*
 * A list, everything aligned to 8 bytes, in the byte order of the machine:
 *
 *     n | entry | shape, span, strides | name with its NUL | entry | ...
 */
#include "lib/place/shard.h"

#include <stdio.h>
#include <string.h>

#include "lib/base/checked.h"

struct entry {
    uint64_t at;
    uint32_t memory, name_bytes;
    uint32_t dtype, rank;
};

bool dcpk_shard_is_empty(const struct dcpk_shard *shard)
{
    for (int a = 0; a < shard->rank; a++)
        if (shard->span[shard->rank + a] == 0)
            return true;
    return false;
}

uint64_t dcpk_shard_bytes(const struct dcpk_shard *shard)
{
    return dcpk_count_elems(shard->span + shard->rank, shard->rank) *
           dcpk_dtype_bytes(shard->dtype);
}

uint64_t dcpk_shard_address(const struct dcpk_shard *shard, const int64_t *index)
{
    uint64_t at = shard->at;

    for (int a = 0; a < shard->rank; a++)
        at += (uint64_t)(index[a] - shard->span[a]) * (uint64_t)shard->stride_bytes[a];
    return at;
}

void dcpk_shard_range(const struct dcpk_shard *shard, uint64_t *first, uint64_t *n_bytes)
{
    *first = shard->at;
    *n_bytes = dcpk_dtype_bytes(shard->dtype);
    for (int a = 0; a < shard->rank; a++) {
        const int64_t reach = (shard->span[shard->rank + a] - 1) * shard->stride_bytes[a];

        *n_bytes += (uint64_t)(reach < 0 ? -reach : reach);
        if (reach < 0)
            *first -= (uint64_t)-reach;
    }
}

const char *dcpk_shard_format(const struct dcpk_shard *shard, char *text, size_t n)
{
    struct dcpk_box box;
    char box_text[256];

    dcpk_box_unpack(shard->span, shard->rank, &box);
    snprintf(text, n, "rank %d: '%.200s' %s", shard->holder, shard->name,
             dcpk_box_format(&box, box_text, sizeof box_text));
    return text;
}

/* ---- as bytes ---- */

dcpk_status dcpk_shards_put(struct dcpk_bytes *out, const struct dcpk_shard *shards, size_t n,
                            struct dcpk_error *err)
{
    dcpk_bytes_u64(out, n);
    for (const struct dcpk_shard *s = shards; s < shards + n; s++) {
        const size_t name_bytes = strlen(s->name) + 1;
        const size_t numbers = (size_t)s->rank * sizeof(int64_t);
        const struct entry entry = {s->at, s->memory, (uint32_t)name_bytes, (uint32_t)s->dtype,
                                    (uint32_t)s->rank};

        if (s->rank < 0 || s->rank > DCPK_MAX_RANK)
            return dcpk_fail(err, DCPK_EUNSUPPORTED, "'%.200s' has %d axes, the limit is %d",
                             s->name, s->rank, DCPK_MAX_RANK);
        dcpk_bytes_put(out, &entry, sizeof entry);
        dcpk_bytes_put(out, s->shape, numbers);
        dcpk_bytes_put(out, s->span, 2 * numbers);
        dcpk_bytes_put(out, s->stride_bytes, numbers);
        dcpk_bytes_put(out, s->name, name_bytes);
        dcpk_bytes_zeros(out, (8 - name_bytes % 8) % 8);
    }
    return DCPK_OK;
}

dcpk_status dcpk_shards_fail(int holder, struct dcpk_error *err)
{
    return dcpk_fail(err, DCPK_EIO, "rank %d gave a damaged list of shards (please report this)",
                     holder);
}

/* The next n bytes; NULL: there are not so many. */
static const void *take_bytes(struct dcpk_cursor *from, uint64_t n)
{
    const uint8_t *bytes = from->data + from->at_bytes;

    if (n > from->n_bytes - from->at_bytes)
        return NULL;
    from->at_bytes += (size_t)n;
    return bytes;
}

/* True if sizes are at least 0, and no axis reaches further than numbers do. */
static bool has_sizes(const struct dcpk_shard *shard)
{
    int64_t n_bytes = (int64_t)dcpk_dtype_bytes(shard->dtype);
    bool is_within = true;

    for (int a = 0; a < shard->rank; a++) {
        int64_t reach;

        if (shard->shape[a] < 0 || shard->span[a] < 0 || shard->span[shard->rank + a] < 0)
            return false;
        is_within =
            is_within &&
            dcpk_mul_i64(shard->span[shard->rank + a] - 1, shard->stride_bytes[a], &reach) &&
            reach != INT64_MIN && dcpk_add_i64(n_bytes, reach < 0 ? -reach : reach, &n_bytes);
    }
    return is_within || dcpk_shard_is_empty(shard);
}

static bool take_shard(struct dcpk_cursor *from, int holder, struct dcpk_shard *shard)
{
    const void *bytes = take_bytes(from, sizeof(struct entry));
    const int64_t *numbers;
    const char *name;
    struct entry entry;

    if (bytes == NULL)
        return false;
    memcpy(&entry, bytes, sizeof entry);
    if (entry.rank > DCPK_MAX_RANK || entry.dtype >= DCPK_N_DTYPES || entry.name_bytes == 0)
        return false;
    numbers = take_bytes(from, 4 * entry.rank * sizeof *numbers);
    name = take_bytes(from, ((uint64_t)entry.name_bytes + 7) / 8 * 8);
    if (numbers == NULL || name == NULL || name[entry.name_bytes - 1] != '\0')
        return false;
    *shard = (struct dcpk_shard){.name = name,
                                 .dtype = (enum dcpk_dtype)entry.dtype,
                                 .rank = (int)entry.rank,
                                 .holder = holder,
                                 .memory = entry.memory,
                                 .shape = numbers,
                                 .span = numbers + entry.rank,
                                 .stride_bytes = numbers + 3 * entry.rank,
                                 .at = entry.at};
    return has_sizes(shard);
}

dcpk_status dcpk_shards_take(struct dcpk_cursor *from, int holder, struct dcpk_shard *shards,
                             size_t *n, struct dcpk_error *err)
{
    uint64_t n_shards = 0;

    if (dcpk_cursor_u64(from, &n_shards, err) || n_shards > from->n_bytes / sizeof(struct entry))
        return dcpk_shards_fail(holder, err);
    for (uint64_t i = 0; i < n_shards; i++) {
        struct dcpk_shard shard;

        if (!take_shard(from, holder, &shard))
            return dcpk_shards_fail(holder, err);
        if (shards != NULL)
            shards[i] = shard;
    }
    *n = (size_t)n_shards;
    return DCPK_OK;
}
