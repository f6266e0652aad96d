/* SPDX-License-Identifier: Apache-2.0 */
/* test_units.c - units of work: they cover a planned output once, in the order of the files, within
 * their limit. */
#include "lib/exec/exec.h"
#include "lib/plan/plan.h"
#include "lib/tensor/piece.h"
#include "lib/write/units.h"
#include "tests/fake_ckpt.h"

enum { MAX_TENSORS = 40 };

static struct fake fake;

/* A tensor that is all zero: nothing of the source is needed. */
static void add_tensor(struct dcpk_output *out, uint64_t *seed, const char *label)
{
    static const enum dcpk_dtype dtypes[] = {DCPK_U8, DCPK_BF16, DCPK_F32, DCPK_C128};
    struct dcpk_error err = DCPK_ERROR_INIT;
    int64_t *shape = dcpk_arena_array(out->arena, 4, sizeof *shape, &err);
    const char **keys = dcpk_arena_array(out->arena, 1, sizeof *keys, &err);
    struct dcpk_piece *piece = dcpk_arena_array(out->arena, 1, sizeof *piece, &err);
    struct dcpk_out_tensor tensor = {.keys = keys,
                                     .n_keys = 1,
                                     .dtype = dtypes[fake_below(seed, 4)],
                                     .rank = (int)fake_below(seed, 4),
                                     .shape = shape,
                                     .pieces = piece};
    struct dcpk_box box;

    for (int axis = 0; axis < tensor.rank; axis++)
        shape[axis] = fake_below(seed, 12) == 0 ? 0 : 1 + fake_below(seed, 40);
    keys[0] = dcpk_arena_printf(out->arena, &err, "t%zu", out->n_tensors);
    dcpk_box_whole(shape, tensor.rank, &box);
    CHECK_OK(dcpk_piece_make(out->arena, DCPK_PIECE_FILL, NULL, &box, piece, &err), label);
    tensor.n_pieces = fake_elems(shape, tensor.rank) > 0;
    CHECK_OK(dcpk_output_add_tensor(out, &tensor, &err), label);
}

/* The chunks of a unit that holds whole ones. Returns how many bytes of data they have. */
static uint64_t check_whole(const struct dcpk_units *units, size_t unit, const char *label)
{
    const struct dcpk_unit *u = &units->units[unit];
    uint64_t n_bytes = 0;

    for (uint32_t i = 0; i < u->n_chunks; i++) {
        const struct dcpk_out_chunk *chunk = dcpk_units_chunk(units, u->first + i);

        CHECK_EQ_INT(chunk->file, dcpk_unit_file(units, unit), label);
        n_bytes += chunk->data_bytes;
    }
    CHECK(n_bytes <= units->limit_bytes, label);
    return n_bytes;
}

/* The part of a chunk: begins where the one before it ended, `at` bytes into the chunk. */
static uint64_t check_part(const struct dcpk_units *units, size_t unit, uint64_t at,
                           const char *label)
{
    const struct dcpk_out_chunk *chunk = dcpk_units_chunk(units, units->units[unit].first);
    const struct dcpk_out_tensor *tensor = &units->out->tensors[chunk->tensor];
    const uint64_t n_bytes = dcpk_unit_bytes(units, unit);
    struct dcpk_box whole, box;
    uint64_t first_bytes;

    CHECK(chunk->data_bytes > units->limit_bytes, label);
    dcpk_unit_part_box(units, unit, &box, &first_bytes);
    dcpk_units_chunk_box(units, chunk, &whole);
    CHECK_EQ_INT(first_bytes, at, label);
    CHECK(n_bytes > 0, label);
    CHECK(n_bytes <= units->limit_bytes || n_bytes == dcpk_dtype_bytes(tensor->dtype), label);
    CHECK(dcpk_box_intersect(&whole, &box, &whole), label);
    CHECK_EQ_INT(dcpk_box_elems(&whole), dcpk_box_elems(&box), label);
    return n_bytes;
}

/* Walk the units: each chunk once, one behind the other as they lie in the files. */
static void check_units(const struct dcpk_units *units, const char *label)
{
    uint64_t at = 0;
    size_t next = 0;

    for (size_t i = 0; i < units->n; i++) {
        const struct dcpk_unit *u = &units->units[i];
        const struct dcpk_out_chunk *chunk = dcpk_units_chunk(units, u->first);

        CHECK_EQ_INT(u->first, next, label);
        if (u->n_chunks > 0) {
            CHECK_EQ_INT(dcpk_unit_bytes(units, i), check_whole(units, i, label), label);
            next += u->n_chunks;
            continue;
        }
        at += check_part(units, i, at, label);
        if (at == chunk->data_bytes) {
            next++;
            at = 0;
        }
    }
    CHECK_EQ_INT(next, units->out->n_chunks, label);
    for (size_t i = 1; i < next; i++) {
        const struct dcpk_out_chunk *a = dcpk_units_chunk(units, i - 1);
        const struct dcpk_out_chunk *b = dcpk_units_chunk(units, i);

        CHECK(a->file < b->file || (a->file == b->file && a->offset_bytes <= b->offset_bytes),
              label);
    }
}

/* No unit that the next one's chunks would fit into. */
static void check_full(const struct dcpk_units *units, const char *label)
{
    for (size_t i = 0; i + 1 < units->n; i++) {
        const struct dcpk_out_chunk *next = dcpk_units_chunk(units, units->units[i + 1].first);

        if (units->units[i].n_chunks > 0 && next->file == dcpk_unit_file(units, i))
            CHECK(dcpk_unit_bytes(units, i) + next->data_bytes > units->limit_bytes, label);
    }
}

static void cuts(void **state)
{
    static const uint64_t limits[] = {1, 7, 100, 4096, 50000, DCPK_UNIT_BYTES};
    struct dcpk_checkpoint *ckpt = fake_open(&fake, "empty");

    (void)state;
    for (uint64_t seed = 0; seed < 60; seed++) {
        struct dcpk_error err = DCPK_ERROR_INIT;
        struct dcpk_output *out;
        uint64_t random = seed;
        char label[32];

        snprintf(label, sizeof label, "seed %" PRIu64, seed);
        CHECK_OK(dcpk_output_new(ckpt, &fake_format, &out, &err), label);
        for (int64_t t = fake_below(&random, MAX_TENSORS); t > 0; t--)
            add_tensor(out, &random, label);
        CHECK_OK(dcpk_plan_build(out, &err), label);
        for (size_t l = 0; l < sizeof limits / sizeof *limits; l++) {
            struct dcpk_units units = {0};

            CHECK_OK(dcpk_units_cut(out, limits[l], &units, &err), label);
            check_units(&units, label);
            check_full(&units, label);
            dcpk_units_release(&units);
        }
        dcpk_output_free(out);
    }
    dcpk_checkpoint_close(ckpt);
}

/* The order of the output's tables does not matter, only where the chunks lie. */
static void turned_around(void **state)
{
    struct dcpk_checkpoint *ckpt = fake_open(&fake, "empty");
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_units units = {0};
    struct dcpk_output *out;
    uint64_t want[1000], seed = 5;
    size_t n;

    (void)state;
    CHECK_OK(dcpk_output_new(ckpt, &fake_format, &out, &err), "output");
    for (size_t t = 0; t < MAX_TENSORS; t++)
        add_tensor(out, &seed, "tensor");
    CHECK_OK(dcpk_plan_build(out, &err), "plan");
    CHECK_OK(dcpk_units_cut(out, 5000, &units, &err), "there");
    n = units.n;
    CHECK(n > 10 && n <= sizeof want / sizeof *want, "some units");
    for (size_t i = 0; i < n; i++)
        want[i] = dcpk_unit_bytes(&units, i);
    dcpk_units_release(&units);
    for (size_t i = 0, j = out->n_chunks - 1; i < j; i++, j--) {
        const struct dcpk_out_chunk swapped = out->chunks[i];

        out->chunks[i] = out->chunks[j];
        out->chunks[j] = swapped;
    }
    units = (struct dcpk_units){0};
    CHECK_OK(dcpk_units_cut(out, 5000, &units, &err), "back");
    CHECK_EQ_INT(units.n, n, "units");
    for (size_t i = 0; i < n; i++)
        CHECK_EQ_INT(dcpk_unit_bytes(&units, i), want[i], "bytes");
    dcpk_units_release(&units);
    dcpk_output_free(out);
    dcpk_checkpoint_close(ckpt);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cuts),
        cmocka_unit_test(turned_around),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
