/* SPDX-License-Identifier: Apache-2.0 */
/* test_device.c - tiles in the memory of every device, against one element at a time on the host.
 */
#include <stdio.h>

#include "kernels/kernels.h"
#include "lib/base/alloc.h"
#include "lib/base/order.h"
#include "lib/tensor/fingerprint.h"
#include "tests/check.h"
#include "tests/random.h"

#define SRC_BYTES  (512u << 10)
#define ROOM_BYTES (32u << 10) /* of one tile at the destination */
#define N_ROOMS    16
#define DST_BYTES  (N_ROOMS * ROOM_BYTES)
#define N_SUMS     4
#define POISON     0xa5
#define TIMEOUT_MS 60000

/* A device that is there, with memory in it and its images on the host. */
struct bench {
    const struct dcpk_device_ops *ops;
    struct dcpk_device *device;
    uint8_t *src, *dst; /* of the device */
    uint64_t *sums;
    uint8_t *src_image, *want, *got;
    uint64_t want_sums[N_SUMS], got_sums[N_SUMS];
    struct dcpk_tile tiles[N_ROOMS]; /* addresses are offsets into src and dst until bench_run */
    struct dcpk_tile_words words[N_ROOMS];
    size_t n;
};

static const enum dcpk_dtype floats[] = {DCPK_F64,  DCPK_F32,       DCPK_F16,
                                         DCPK_BF16, DCPK_F8_E4M3FN, DCPK_F8_E5M2};
#define N_FLOATS (sizeof floats / sizeof floats[0])

static bool bench_open(struct bench *b, const struct dcpk_device_ops *ops)
{
    const struct dcpk_device_options options = {0};
    struct dcpk_error err = DCPK_ERROR_INIT;
    uint64_t seed = 7;
    dcpk_status st;
    void *at;

    *b = (struct bench){.ops = ops};
    st = ops->open(&options, &b->device, &err);
    if (st == DCPK_EUNSUPPORTED)
        return false;
    CHECK_OK(st, ops->name);
    CHECK_OK(ops->alloc(b->device, DCPK_MEMORY_DEVICE, SRC_BYTES, &at, &err), "alloc");
    b->src = at;
    CHECK_OK(ops->alloc(b->device, DCPK_MEMORY_DEVICE, DST_BYTES, &at, &err), "alloc");
    b->dst = at;
    CHECK_OK(ops->alloc(b->device, DCPK_MEMORY_DEVICE, sizeof b->got_sums, &at, &err), "alloc");
    b->sums = at;
    CHECK_EQ_INT((uintptr_t)b->src % 256 + (uintptr_t)b->dst % 256, 0, "aligned");
    b->src_image = dcpk_alloc(SRC_BYTES, &err);
    b->want = dcpk_alloc(DST_BYTES, &err);
    b->got = dcpk_alloc(DST_BYTES, &err);
    CHECK(b->src_image != NULL && b->want != NULL && b->got != NULL, err.text);
    for (size_t i = 0; i < SRC_BYTES; i += 8)
        memcpy(b->src_image + i, &(uint64_t){random_next(&seed)}, 8);
    CHECK_OK(ops->copy(b->device, 0, b->src, b->src_image, SRC_BYTES, &err), "copy");
    CHECK_OK(dcpk_device_wait(b->device, 0, TIMEOUT_MS, &err), "wait");
    return true;
}

static void bench_close(struct bench *b)
{
    const struct dcpk_device_ops *ops = b->ops;

    ops->free(b->device, b->src);
    ops->free(b->device, NULL);
    ops->close(b->device); /* releases dst and sums */
    dcpk_free(b->src_image);
    dcpk_free(b->want);
    dcpk_free(b->got);
}

/* K(i) as the specification writes it. */
static uint64_t key_of(uint64_t i)
{
    uint64_t k = (i + 1) * 0x9E3779B97F4A7C15u;

    k ^= k >> 32;
    k *= 0xD6E8FEB86659FD93u;
    return k | 1;
}

/* What tile i should do, an element at a time, in the images. */
static void model_tile(struct bench *b, size_t i)
{
    const struct dcpk_tile *t = &b->tiles[i];
    const struct dcpk_tile_words *w = &b->words[i];
    const size_t from_bytes = dcpk_dtype_bytes((enum dcpk_dtype)t->from);
    const size_t to_bytes = dcpk_dtype_bytes((enum dcpk_dtype)t->to);
    const size_t word_bytes = to_bytes < 4 ? to_bytes : 4, per_elem = to_bytes / word_bytes;
    struct dcpk_error err = DCPK_ERROR_INIT;
    uint8_t elem[16];

    for (int64_t r = 0; r < (int64_t)t->n_rows; r++)
        for (int64_t e = 0; e < (int64_t)t->n_elems; e++) {
            const int64_t in = (int64_t)t->src + r * t->src_stride_bytes + e * (int64_t)from_bytes;
            const int64_t out = (int64_t)t->dst + r * t->dst_stride_bytes + e * (int64_t)to_bytes;

            memcpy(elem, b->src_image + in, from_bytes);
            if (t->from != t->to)
                CHECK_OK(dcpk_host_kernels_plain.cast((enum dcpk_dtype)t->from, b->src_image + in,
                                                      (enum dcpk_dtype)t->to, elem, 1, &err),
                         "cast");
            if (t->dst != 0)
                memcpy(b->want + out, elem, to_bytes);
            for (size_t k = 0; k < per_elem; k++) {
                const uint64_t number =
                    w->first + (uint64_t)r * w->row_step + (uint64_t)e * per_elem + k;
                uint64_t v = 0;

                for (size_t byte = 0; byte < word_bytes; byte++)
                    v |= (uint64_t)elem[k * word_bytes + byte] << (8 * byte);
                b->want_sums[w->sum] += v * key_of(number);
            }
        }
}

static void bench_load_run(struct bench *b, enum dcpk_pace pace, bool with_words, const char *label)
{
    const struct dcpk_device_ops *ops = b->ops;
    const struct dcpk_tiles tiles = {b->tiles, with_words ? b->words : NULL, b->n, pace};
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_table *table;

    CHECK_OK(ops->load(b->device, &tiles, &table, &err), label);
    CHECK_EQ_INT(table->n_tiles, b->n, label);
    CHECK_OK(ops->copy(b->device, 1, b->dst, b->got, DST_BYTES, &err), label);
    CHECK_OK(ops->copy(b->device, 1, b->sums, b->got_sums, sizeof b->got_sums, &err), label);
    CHECK_OK(ops->run(b->device, 1, table, with_words ? b->sums : NULL, &err), label);
    CHECK_OK(dcpk_device_wait(b->device, 1, TIMEOUT_MS, &err), label);
    CHECK_OK(ops->copy(b->device, 0, b->got, b->dst, DST_BYTES, &err), label);
    CHECK_OK(ops->copy(b->device, 0, b->got_sums, b->sums, sizeof b->got_sums, &err), label);
    CHECK_OK(dcpk_device_wait(b->device, 0, TIMEOUT_MS, &err), label);
    ops->unload(b->device, table);
    ops->unload(b->device, NULL);
}

/* Run the tiles of b on the device and in the model; all of the destination must be the same. */
static void bench_run(struct bench *b, enum dcpk_pace pace, bool with_words, const char *label)
{
    memset(b->want, POISON, DST_BYTES);
    memset(b->got, POISON, DST_BYTES);
    memset(b->want_sums, 0, sizeof b->want_sums);
    memset(b->got_sums, 0, sizeof b->got_sums);
    for (size_t i = 0; i < b->n; i++) {
        model_tile(b, i);
        b->tiles[i].src += (uint64_t)(uintptr_t)b->src;
        if (b->tiles[i].dst != 0)
            b->tiles[i].dst += (uint64_t)(uintptr_t)b->dst;
    }
    bench_load_run(b, pace, with_words, label);
    CHECK(memcmp(b->want, b->got, DST_BYTES) == 0, label);
    for (size_t s = 0; s < N_SUMS; s++)
        CHECK(!with_words || b->want_sums[s] == b->got_sums[s], label);
    b->n = 0;
}

/* Put a tile into the next room, with its rows apart by row_bytes + gap, in either direction. */
static void bench_add(struct bench *b, struct dcpk_tile tile, int64_t gap, bool backwards)
{
    const int64_t row_bytes = (int64_t)(tile.n_elems * dcpk_dtype_bytes((enum dcpk_dtype)tile.to));

    tile.dst_stride_bytes = row_bytes + gap;
    tile.dst += b->n * ROOM_BYTES + 64;
    if (backwards) {
        tile.dst += (uint64_t)(tile.n_rows - 1) * (uint64_t)tile.dst_stride_bytes;
        tile.dst_stride_bytes = -tile.dst_stride_bytes;
    }
    b->words[b->n] = (struct dcpk_tile_words){.first = 3 + 977 * b->n, .sum = b->n % N_SUMS};
    b->words[b->n].row_step = UINT64_C(100003);
    b->tiles[b->n++] = tile;
}

/* All 16 x 16 misalignments of source and destination, rows of many lengths. */
static void misaligned_rows(struct bench *b)
{
    static const uint32_t lengths[] = {1, 2, 3, 7, 15, 16, 17, 31, 63, 64, 65, 255, 1000, 4096};
    char label[96];

    for (uint32_t src = 0; src < 16; src++)
        for (size_t l = 0; l < sizeof lengths / sizeof lengths[0]; l++) {
            for (uint32_t dst = 0; dst < 16; dst++) {
                const struct dcpk_tile tile = {.src = 4096 + src,
                                               .dst = dst,
                                               .src_stride_bytes = 4096 + (dst % 3) * 8,
                                               .n_elems = lengths[l],
                                               .n_rows = 1 + (src + dst) % 4,
                                               .from = DCPK_U8,
                                               .to = DCPK_U8};

                bench_add(b, tile, dst % 5 * 4, dst % 7 == 6);
            }
            snprintf(label, sizeof label, "%s: %u bytes from %u", b->ops->name, lengths[l], src);
            bench_run(b, DCPK_PACE_MEMORY, l % 3 != 0, label);
        }
}

/* One that may or may not be aligned, of any dtype, cast or not, or only read. */
static void add_random(struct bench *b, uint64_t *seed)
{
    const bool casts = random_below(seed, 3) == 0;
    const enum dcpk_dtype from = casts
                                     ? floats[random_below(seed, N_FLOATS)]
                                     : (enum dcpk_dtype)(1 + random_below(seed, DCPK_N_DTYPES - 1));
    const enum dcpk_dtype to = casts ? floats[random_below(seed, N_FLOATS)] : from;
    const size_t from_bytes = dcpk_dtype_bytes(from), to_bytes = dcpk_dtype_bytes(to);
    const int64_t gap = (int64_t)(random_below(seed, 3) * random_below(seed, 40));
    const size_t room = ROOM_BYTES - 256 - 2 * 40;
    const size_t most = room / (from_bytes > to_bytes ? from_bytes : to_bytes);
    struct dcpk_tile tile = {.from = (uint8_t)from, .to = (uint8_t)to};

    tile.n_elems = (uint32_t)(1 + random_below(seed, random_below(seed, 2) ? 40 : most));
    tile.n_rows =
        (uint32_t)(1 +
                   random_below(seed, ROOM_BYTES / (tile.n_elems * to_bytes + (size_t)gap + 256)));
    tile.src_stride_bytes = (int64_t)random_below(seed, SRC_BYTES / 2 / tile.n_rows);
    tile.src = random_below(seed, 64) * (random_below(seed, 2) ? 1 : 16);
    if (random_below(seed, 4) == 0) { /* the other way */
        tile.src += (uint64_t)(tile.n_rows - 1) * (uint64_t)tile.src_stride_bytes;
        tile.src_stride_bytes = -tile.src_stride_bytes;
    }
    tile.dst = random_below(seed, 2) ? random_below(seed, 32) : 0;
    bench_add(b, tile, gap, random_below(seed, 5) == 0);
    if (from == to && random_below(seed, 8) == 0)
        b->tiles[b->n - 1].dst = 0;
}

static void random_tiles(struct bench *b)
{
    char label[96];

    for (uint64_t round = 1; round <= 300; round++) {
        uint64_t seed = round;

        while (b->n < N_ROOMS)
            add_random(b, &seed);
        snprintf(label, sizeof label, "%s: seed %" PRIu64, b->ops->name, round);
        bench_run(b, (enum dcpk_pace)(round % 3), true, label);
    }
}

#define N_CODES     65536u
#define ODD_CODES   (262144u + 1) /* where all codes lie a second time, misaligned */
#define ROOM_ELEMS  2048u         /* of eight bytes */
#define CODE_PASSES (N_CODES / ROOM_ELEMS / N_ROOMS)

/* A part of all codes, from even or odd addresses, to odd or even ones. */
static void add_codes(struct bench *b, enum dcpk_dtype from, enum dcpk_dtype to, uint32_t first)
{
    const uint32_t from_bytes = (uint32_t)dcpk_dtype_bytes(from);
    const bool is_odd = (from + to) % 2 != 0;
    struct dcpk_tile tile = {.src = first * dcpk_min_u64(from_bytes, 2),
                             .dst = is_odd ? 0 : 1,
                             .src_stride_bytes = (int64_t)(ROOM_ELEMS / 2 * from_bytes),
                             .n_elems = ROOM_ELEMS / 2,
                             .n_rows = 2,
                             .from = (uint8_t)from,
                             .to = (uint8_t)to};

    if (is_odd)
        tile.src += ODD_CODES;
    bench_add(b, tile, 0, false);
}

/* Every pair of floats; of those of two bytes all codes. */
static void casts(struct bench *b)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    char label[96];

    for (uint32_t i = 0; i < N_CODES; i++) {
        memcpy(b->src_image + 2 * i, &(uint16_t){(uint16_t)i}, 2);
        memcpy(b->src_image + ODD_CODES + 2 * i, &(uint16_t){(uint16_t)i}, 2);
    }
    CHECK_OK(b->ops->copy(b->device, 0, b->src, b->src_image, SRC_BYTES, &err), "copy");
    CHECK_OK(dcpk_device_wait(b->device, 0, TIMEOUT_MS, &err), "wait");
    for (size_t f = 0; f < N_FLOATS; f++)
        for (size_t t = 0; t < N_FLOATS; t++)
            for (uint32_t pass = 0; pass < CODE_PASSES && f != t; pass++) {
                for (uint32_t at = 0; at < N_ROOMS; at++)
                    add_codes(b, floats[f], floats[t], (pass * N_ROOMS + at) * ROOM_ELEMS);
                snprintf(label, sizeof label, "%s: %s to %s, part %u", b->ops->name,
                         dcpk_dtype_name(floats[f]), dcpk_dtype_name(floats[t]), pass);
                bench_run(b, DCPK_PACE_MEMORY, true, label);
            }
}

static void on_every_device(void (*script)(struct bench *b))
{
    struct bench b;

    for (const struct dcpk_device_ops *const *d = dcpk_devices; *d != NULL; d++) {
        if (!bench_open(&b, *d))
            continue;
        script(&b);
        bench_close(&b);
    }
}

static void rows_of_any_alignment(void **state)
{
    (void)state;
    on_every_device(misaligned_rows);
}

static void tiles_of_any_kind(void **state)
{
    (void)state;
    on_every_device(random_tiles);
}

static void casts_of_all_codes(void **state)
{
    (void)state;
    on_every_device(casts);
}

/* What cannot be done is refused when the table is loaded. */
static void refuse(struct bench *b)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_tile tile = {.src = (uint64_t)(uintptr_t)b->src,
                             .dst = (uint64_t)(uintptr_t)b->dst,
                             .n_elems = 1,
                             .n_rows = 1,
                             .from = DCPK_F32,
                             .to = DCPK_I32};
    const struct dcpk_tiles tiles = {&tile, NULL, 1, DCPK_PACE_MEMORY};
    struct dcpk_table *table;
    uint64_t free_bytes = 0, total_bytes = 0;
    void *at;

    CHECK_FAILS(b->ops->load(b->device, &tiles, &table, &err), DCPK_EUNSUPPORTED,
                "cannot cast float32 to int32", b->ops->name);
    CHECK_OK(b->ops->memory_info(b->device, &free_bytes, &total_bytes, &err), "info");
    CHECK(free_bytes <= total_bytes && total_bytes > 0, b->ops->name);
    CHECK_FAILS(b->ops->alloc(b->device, DCPK_MEMORY_DEVICE, SIZE_MAX / 4, &at, &err), DCPK_ENOMEM,
                "are free", b->ops->name);
}

static void what_cannot_be_is_refused(void **state)
{
    (void)state;
    on_every_device(refuse);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_of_any_alignment),
        cmocka_unit_test(tiles_of_any_kind),
        cmocka_unit_test(casts_of_all_codes),
        cmocka_unit_test(what_cannot_be_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
