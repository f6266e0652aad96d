/* SPDX-License-Identifier: Apache-2.0 */
/* test_megatron_flattened.c - flattened tensors of any cut, element by element against the formula;
 * cuts that are refused. */
#include "formats/megatron/megatron_flatten.h"
#include "tests/fake_model.h"
#include "tests/flat_fake.h"

#define MAX_CHUNKS 1024

/* A tensor of `shape` in blocks, as formats/torch_dist/FORMAT.md 5.2 has it. */
struct cut {
    int rank;
    int64_t shape[5], block[5];
    int64_t stored[6]; /* blocks along each axis, then elements of one */
    struct dcpk_box chunks[MAX_CHUNKS];
    size_t n_chunks;
};

/* The chunks of one block: ranks cut it anywhere. */
static void cut_block(struct cut *c, int64_t number, uint64_t *seed)
{
    const int64_t m = c->stored[c->rank];
    struct dcpk_box box = {.rank = c->rank + 1};

    for (int a = c->rank - 1; a >= 0; a--) {
        box.offset[a] = number % c->stored[a];
        box.extent[a] = 1;
        number /= c->stored[a];
    }
    for (int64_t s = 0; s < m; s += box.extent[c->rank]) {
        box.offset[c->rank] = s;
        box.extent[c->rank] = 1 + fake_below(seed, m - s);
        c->chunks[c->n_chunks++] = box;
    }
}

static void make_cut(struct cut *c, uint64_t seed)
{
    memset(c, 0, sizeof *c);
    c->rank = 1 + (int)fake_below(&seed, 4);
    c->stored[c->rank] = 1;
    for (int a = 0; a < c->rank; a++) {
        c->stored[a] = 1 + fake_below(&seed, 3);
        c->block[a] = 1 + fake_below(&seed, 4);
        c->shape[a] = c->stored[a] * c->block[a];
        c->stored[c->rank] *= c->block[a];
    }
    for (int64_t b = 0; b < fake_elems(c->stored, c->rank); b++)
        cut_block(c, b, &seed);
    for (size_t i = c->n_chunks - 1; i > 0; i--) { /* chunks come in the order of ranks */
        const size_t k = (size_t)fake_below(&seed, (int64_t)i + 1);
        const struct dcpk_box swap = c->chunks[i];

        c->chunks[i] = c->chunks[k];
        c->chunks[k] = swap;
    }
}

/* The row-major index, in the stored tensor, of an element of the model's. */
static int64_t formula(const struct cut *c, int64_t element)
{
    int64_t at[5], block = 0, in_block = 0;

    for (int a = c->rank - 1; a >= 0; a--) {
        at[a] = element % c->shape[a];
        element /= c->shape[a];
    }
    for (int a = 0; a < c->rank; a++) {
        block = block * c->stored[a] + at[a] / c->block[a];
        in_block = in_block * c->block[a] + at[a] % c->block[a];
    }
    return block * c->stored[c->rank] + in_block;
}

static dcpk_status add_cut(struct fake *fake, const struct cut *c, struct dcpk_checkpoint **ckpt,
                           uint32_t *view, struct dcpk_error *err, const char *label)
{
    const uint32_t source = flat_add(fake, c->rank + 1, c->stored, c->chunks, c->n_chunks);

    *ckpt = fake_open(fake, label);
    return dcpk_megatron_add_flattened(*ckpt, source, c->shape, c->rank, view, err);
}

static void any_cut_is_read_exactly(void **state)
{
    static struct cut c;

    (void)state;
    for (uint64_t seed = 1; seed <= 1000; seed++) {
        struct dcpk_error err = DCPK_ERROR_INIT;
        struct fake fake = {0};
        struct dcpk_checkpoint *ckpt;
        const struct dcpk_tensor *view;
        int64_t n_seen = 0;
        uint32_t index;
        char label[32];

        snprintf(label, sizeof label, "seed %" PRIu64, seed);
        make_cut(&c, seed);
        CHECK_OK(add_cut(&fake, &c, &ckpt, &index, &err, label), label);
        view = &ckpt->tensors[index];
        CHECK_EQ_STR(view->key, "tensor0", label);
        CHECK_EQ_INT(view->dtype, DCPK_I64, label);
        for (size_t i = view->first_chunk; i < view->first_chunk + view->n_chunks; i++) {
            struct dcpk_box box;

            dcpk_box_unpack(ckpt->chunks[i].span, c.rank, &box);
            for (int64_t k = 0; k < fake_elems(box.extent, c.rank); k++, n_seen++)
                CHECK_EQ_INT(flat_read(ckpt, &ckpt->chunks[i], k, label),
                             formula(&c, fake_index(c.shape, &box, k)), label);
        }
        CHECK_EQ_INT(n_seen, fake_elems(c.shape, c.rank), label); /* no overlap: the cover check */
        dcpk_checkpoint_close(ckpt);
        fake_release(&fake);
    }
}

/* (4, 6) in two blocks of rows: (2, 1, 12). */
static const struct cut good = {
    .rank = 2,
    .shape = {4, 6},
    .stored = {2, 1, 12},
    .chunks = {{3, {0, 0, 0}, {1, 1, 12}}, {3, {1, 0, 0}, {1, 1, 5}}, {3, {1, 0, 5}, {1, 1, 7}}},
    .n_chunks = 3,
};

static void odd_axis(struct cut *c)
{
    c->shape[0] = 3;
}
static void padded(struct cut *c)
{
    c->stored[2] = 16;
}
static void too_short(struct cut *c)
{
    c->shape[1] = 8;
}
static void no_blocks(struct cut *c)
{
    c->stored[1] = 0;
    c->n_chunks = 0;
}
static void other_rank(struct cut *c)
{
    c->rank = 2;
    c->shape[0] = 24;
    c->stored[0] = 24;
    c->stored[1] = 1;
    c->stored[2] = 1;
    c->shape[1] = 2;
    c->n_chunks = 0;
}
static void two_blocks(struct cut *c)
{
    c->chunks[0].extent[0] = 2;
    c->n_chunks = 1;
}
static void hole(struct cut *c)
{
    c->chunks[1].extent[2] = 4;
}
static void overlap(struct cut *c)
{
    c->chunks[2].offset[2] = 4;
}
static void nothing(struct cut *c)
{
    c->n_chunks = 0;
}
static void leave(struct cut *c)
{
    (void)c;
}

static void bad_cuts_are_refused(void **state)
{
    static const struct {
        const char *label;
        void (*damage)(struct cut *c);
        dcpk_status status;
        const char *text;
    } cases[] = {
        {"untouched", leave, DCPK_OK, ""},
        {"rows that two do not divide", odd_axis, DCPK_EUNSUPPORTED, "not an even cut of [3, 6]"},
        {"padded blocks", padded, DCPK_EUNSUPPORTED, "[2, 1, 16] is not an even cut of [4, 6]"},
        {"blocks too short", too_short, DCPK_EUNSUPPORTED, "not an even cut of [4, 8]"},
        {"no blocks along an axis", no_blocks, DCPK_EUNSUPPORTED, "not an even cut"},
        {"another model", other_rank, DCPK_EUNSUPPORTED, "not an even cut of [24, 2]"},
        {"a chunk over two blocks", two_blocks, DCPK_EUNSUPPORTED, "[0:2, 0:1, 0:12]"},
        {"a hole", hole, DCPK_EFORMAT, "missing"},
        {"an overlap", overlap, DCPK_EFORMAT, "overlap"},
        {"no chunks", nothing, DCPK_EFORMAT, "missing"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct dcpk_error err = DCPK_ERROR_INIT;
        struct fake fake = {0};
        struct dcpk_checkpoint *ckpt;
        struct cut c = good;
        uint32_t view;

        cases[i].damage(&c);
        CHECK_FAILS(add_cut(&fake, &c, &ckpt, &view, &err, cases[i].label), cases[i].status,
                    cases[i].text, cases[i].label);
        dcpk_checkpoint_close(ckpt);
        fake_release(&fake);
    }
}

/* Options of a run as its args have them. */
enum options {
    GROUPED_GEMM = 1,
    LEGACY = 2,
    LOCAL = 4,
    ALL_OPTIONS = 7,
};

static const struct dcpk_value *make_args(struct dcpk_arena *arena, unsigned options)
{
    const struct fake_arg args[] = {
        {"moe_grouped_gemm", .text = (options & GROUPED_GEMM) != 0 ? "True" : "False"},
        {"moe_use_legacy_grouped_gemm", .text = (options & LEGACY) != 0 ? "True" : "False"},
        {"transformer_impl", .text = (options & LOCAL) != 0 ? "local" : "transformer_engine"},
        {.name = NULL},
    };

    return fake_args(arena, args);
}

/*
 * GroupedMLP's state is not in its weight's order (formats/torch_dist/FORMAT.md 4.5): known by its
 * shape, by the axis that was cut, by the options, or in need of proof.
 */
static void experts_out_of_order_are_refused(void **state)
{
    static const struct {
        const char *label, *key; /* behind "mlp.experts.experts.", else the whole key */
        int64_t weight[3], recorded[3], stored[4]; /* recorded all 0: lost */
        unsigned options, flags;
        bool is_good, needs_proof;
    } cases[] = {
        {"fc1 of TEGroupedMLP", .key = "linear_fc1.weight", .weight = {4, 6, 2},
         .recorded = {4, 6, 2}, .stored = {4, 2, 1, 6}, .is_good = true},
        {"fc1 of GroupedMLP", .key = "linear_fc1.weight", .weight = {4, 6, 2},
         .recorded = {4, 2, 6}, .stored = {4, 1, 2, 6}},
        {"fc2 of GroupedMLP", .key = "linear_fc2.weight", .weight = {4, 2, 3},
         .recorded = {4, 3, 2}, .stored = {4, 1, 1, 6}},
        {"square, cut by rows", .key = "linear_fc1.weight", .weight = {4, 2, 2},
         .recorded = {4, 2, 2}, .stored = {4, 2, 1, 2}, .options = ALL_OPTIONS, .is_good = true},
        {"square, cut by columns", .key = "linear_fc1.weight", .weight = {4, 2, 2},
         .recorded = {4, 2, 2}, .stored = {4, 1, 2, 2}},
        {"square fc2, cut by columns", .key = "linear_fc2.weight", .weight = {4, 2, 2},
         .recorded = {4, 2, 2}, .stored = {4, 1, 2, 2}, .is_good = true},
        {"square fc2, cut by rows", .key = "linear_fc2.weight", .weight = {4, 2, 2},
         .recorded = {4, 2, 2}, .stored = {4, 2, 1, 2}},
        {"square, not cut", .key = "linear_fc2.weight", .weight = {4, 2, 2}, .recorded = {4, 2, 2},
         .stored = {4, 1, 1, 4}, .options = GROUPED_GEMM, .is_good = true, .needs_proof = true},
        {"square, local", .key = "linear_fc2.weight", .weight = {4, 2, 2}, .recorded = {4, 2, 2},
         .stored = {4, 1, 1, 4}, .options = GROUPED_GEMM | LOCAL},
        {"square, legacy", .key = "linear_fc2.weight", .weight = {4, 2, 2}, .recorded = {4, 2, 2},
         .stored = {4, 1, 1, 4}, .options = GROUPED_GEMM | LEGACY},
        {"square, sequential", .key = "linear_fc2.weight", .weight = {4, 2, 2},
         .recorded = {4, 2, 2}, .stored = {4, 1, 1, 4}, .options = LOCAL, .is_good = true,
         .needs_proof = true},
        {"square, weights only", .key = "linear_fc2.weight", .weight = {4, 2, 2},
         .recorded = {4, 2, 2}, .stored = {4, 1, 1, 4}, .flags = DCPK_MODEL_WEIGHTS_ONLY},
        {"lost, cut by rows", .key = "linear_fc1.weight", .weight = {4, 6, 2},
         .stored = {4, 2, 1, 6}, .is_good = true},
        {"lost, cut by columns", .key = "linear_fc1.weight", .weight = {4, 6, 2},
         .stored = {4, 1, 2, 6}},
        {"lost, not cut", .key = "linear_fc2.weight", .weight = {4, 6, 2}, .stored = {4, 1, 1, 12},
         .is_good = true, .needs_proof = true},
        {"a bias", .key = "linear_fc1.bias", .weight = {2, 4, 4}, .recorded = {2, 4, 4},
         .stored = {2, 1, 4, 4}, .options = ALL_OPTIONS, .is_good = true},
        {"not an expert", .key = "decoder.weight", .weight = {4, 2, 2}, .recorded = {4, 2, 2},
         .stored = {4, 1, 2, 2}, .options = ALL_OPTIONS, .is_good = true},
        {"lost, not an expert", .key = "decoder.weight", .weight = {4, 6, 2},
         .stored = {4, 1, 1, 12}, .options = ALL_OPTIONS, .is_good = true},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct dcpk_error err = DCPK_ERROR_INIT;
        struct fake fake = {0};
        struct dcpk_arena *arena = dcpk_arena_new();
        struct dcpk_model model = {.flags = cases[i].flags};
        struct cut c = {.rank = 3};
        struct dcpk_tensor weight = {.rank = 3, .shape = cases[i].weight};
        char key[64];
        uint32_t view;

        snprintf(key, sizeof key, "%s%s",
                 cases[i].key[0] == 'l' ? "layers.0.mlp.experts.experts." : "", cases[i].key);
        weight.key = key;
        memcpy(c.stored, cases[i].stored, sizeof cases[i].stored);
        for (int64_t b = 0; b < fake_elems(c.stored, 3); b++)
            cut_block(&c, b, &(uint64_t){i});
        flat_add(&fake, 4, c.stored, c.chunks, c.n_chunks);
        fake.tensors[0].model_shape = cases[i].recorded[0] == 0 ? NULL : cases[i].recorded;
        fake.tensors[0].model_rank = cases[i].recorded[0] == 0 ? 0 : 3;
        model.args = make_args(arena, cases[i].options);
        model.ckpt = fake_open(&fake, cases[i].label);
        if (cases[i].is_good)
            CHECK_OK(dcpk_megatron_unflatten(&model, 0, &weight, &view, &err), cases[i].label);
        else
            CHECK_FAILS(dcpk_megatron_unflatten(&model, 0, &weight, &view, &err), DCPK_EUNSUPPORTED,
                        "GroupedMLP", cases[i].label);
        CHECK_EQ_INT(model.needs_proof, cases[i].needs_proof, cases[i].label);
        dcpk_checkpoint_close(model.ckpt);
        dcpk_arena_free(arena);
        fake_release(&fake);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_cut_is_read_exactly),
        cmocka_unit_test(bad_cuts_are_refused),
        cmocka_unit_test(experts_out_of_order_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
