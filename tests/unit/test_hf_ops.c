/* SPDX-License-Identifier: Apache-2.0 */
/* test_hf_ops.c - where each op puts every element, by hand; and that split takes all of it back.
 */
#include <stdio.h>
#include <string.h>

#include "formats/safetensors/hf_ops.h"
#include "lib/base/order.h"
#include "tests/check.h"

#define MOST 64

/* 4 heads of 2 rows in 2 groups. */
static const struct dcpk_hf_sizes sizes = {
    .n_layers = 1, .n_heads = 4, .n_groups = 2, .head_size = 2};

/* 2 heads of 4 rows in a group, whose halves can be told apart. */
static const struct dcpk_hf_sizes sizes_of_halves = {
    .n_layers = 1, .n_heads = 2, .n_groups = 1, .head_size = 4};

/* Parts of `shape`, and the element of the parts (100 * part + number) at each place of the whole.
 */
static const struct {
    const char *label;
    enum dcpk_hf_op ops[2];
    size_t n_ops, n_parts;
    int rank, want_rank;
    int64_t shape[3][3]; /* rows that take turns: pairs, and 2 */
    int64_t want_shape[3];
    int want[MOST];
} cases[] = {
    {"as it is", {0}, 0, 1, 2, 2, {{2, 2}}, {2, 2}, {0, 1, 2, 3}},
    {"transpose", {DCPK_HF_TRANSPOSE}, 1, 1, 2, 2, {{2, 3}}, {3, 2}, {0, 3, 1, 4, 2, 5}},
    {"transpose, more rows", {DCPK_HF_TRANSPOSE}, 1, 1, 2, 2, {{3, 2}}, {2, 3}, {0, 2, 4, 1, 3, 5}},
    {"deinterleave", {DCPK_HF_DEINTERLEAVE}, 1, 1, 2, 1, {{3, 2}}, {6}, {0, 2, 4, 1, 3, 5}},
    {"transpose, deinterleave",
     {DCPK_HF_TRANSPOSE, DCPK_HF_DEINTERLEAVE},
     2,
     1,
     3,
     2,
     {{2, 2, 2}},
     {4, 2},
     {0, 4, 2, 6, 1, 5, 3, 7}},
    {"deinterleave rows of two",
     {DCPK_HF_DEINTERLEAVE},
     1,
     1,
     3,
     2,
     {{2, 2, 2}},
     {4, 2},
     {0, 1, 4, 5, 2, 3, 6, 7}},
    {"cat", {DCPK_HF_CAT}, 1, 2, 2, 2, {{2, 2}, {2, 2}}, {4, 2}, {0, 1, 2, 3, 100, 101, 102, 103}},
    {"qkv of three",
     {DCPK_HF_QKV},
     1,
     3,
     1,
     1,
     {{8}, {4}, {4}},
     {16},
     {0, 1, 2, 3, 100, 101, 200, 201, 4, 5, 6, 7, 102, 103, 202, 203}},
    {"qkv of one",
     {DCPK_HF_QKV},
     1,
     1,
     1,
     1,
     {{16}},
     {16},
     {0, 1, 2, 3, 8, 9, 12, 13, 4, 5, 6, 7, 10, 11, 14, 15}},
    {"rope halves of q and k",
     {DCPK_HF_ROPE_HALVES, DCPK_HF_QKV},
     2,
     3,
     2,
     1,
     {{4, 2}, {2, 2}, {4}},
     {16},
     {0, 2, 1, 3, 4, 6, 5, 7, 100, 102, 101, 103, 200, 201, 202, 203}},
    {"transpose, qkv of one",
     {DCPK_HF_TRANSPOSE, DCPK_HF_QKV},
     2,
     1,
     2,
     2,
     {{1, 16}},
     {16, 1},
     {0, 1, 2, 3, 8, 9, 12, 13, 4, 5, 6, 7, 10, 11, 14, 15}},
};

/* A tensor that is all of the source tensor `src`. */
static struct dcpk_model_tensor whole_source(struct dcpk_arena *arena, uint32_t src,
                                             const int64_t *shape, int rank)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_piece *piece = dcpk_arena_alloc(arena, sizeof *piece, &err);
    struct dcpk_box box;

    CHECK(piece != NULL, "memory");
    dcpk_box_whole(shape, rank, &box);
    CHECK_OK(dcpk_piece_make(arena, src, &box, &box, piece, &err), "a piece");
    return (struct dcpk_model_tensor){
        .dtype = DCPK_F32, .rank = rank, .shape = shape, .pieces = piece, .n_pieces = 1};
}

/* The number of element i of a box, counted in a tensor of that shape. */
static int64_t element_of(const struct dcpk_box *box, const int64_t *shape, int64_t i)
{
    int64_t at[DCPK_MAX_RANK], number = 0;

    for (int a = box->rank - 1; a >= 0; a--) {
        at[a] = box->offset[a] + i % box->extent[a];
        i /= box->extent[a];
    }
    for (int a = 0; a < box->rank; a++)
        number = number * shape[a] + at[a];
    return number;
}

/* What lies at each place of a tensor: 100 * source + element; each place once. */
static void show(const struct dcpk_model_tensor *t, const int64_t shapes[][3], int *got)
{
    for (int i = 0; i < MOST; i++)
        got[i] = -1;
    for (size_t p = 0; p < t->n_pieces; p++) {
        struct dcpk_error err = DCPK_ERROR_INIT;
        const uint32_t src = t->pieces[p].src;
        struct dcpk_box from, to, whole;
        int64_t n;

        dcpk_piece_to(&t->pieces[p], &whole);
        CHECK_OK(dcpk_box_count(&whole, &n, &err), "a box");
        for (int64_t i = 0; i < n; i++) {
            const int64_t at = element_of(&whole, t->shape, i);
            struct dcpk_box one = {.rank = whole.rank};

            for (int64_t a = whole.rank - 1, rest = at; a >= 0; rest /= t->shape[a--]) {
                one.offset[a] = rest % t->shape[a];
                one.extent[a] = 1;
            }
            CHECK(dcpk_piece_clip(&t->pieces[p], &one, &from, &to), "an element of it");
            CHECK(at < MOST && got[at] == -1, "each place once");
            got[at] = (int)(100 * (int64_t)src + element_of(&from, shapes[src], 0));
        }
    }
}

static struct dcpk_hf_rule rule_of(size_t c)
{
    struct dcpk_hf_rule rule = {.mg = "x", .n_hf = cases[c].n_parts, .n_ops = cases[c].n_ops};

    memcpy(rule.ops, cases[c].ops, sizeof cases[c].ops);
    return rule;
}

static const struct dcpk_hf_sizes *sizes_of(size_t c)
{
    return cases[c].ops[0] == DCPK_HF_ROPE_HALVES ? &sizes_of_halves : &sizes;
}

/* Only q and k are in pairs where halves are turned. */
static int rank_of(size_t c, size_t part)
{
    return cases[c].rank - (cases[c].ops[0] == DCPK_HF_ROPE_HALVES && part == 2);
}

static void each_element_is_where_it_belongs(void **unused)
{
    (void)unused;
    for (size_t c = 0; c < DCPK_COUNT(cases); c++) {
        struct dcpk_error err = DCPK_ERROR_INIT;
        struct dcpk_arena *arena = dcpk_arena_new();
        struct dcpk_model_tensor parts[DCPK_HF_MAX_PARTS], whole;
        const struct dcpk_hf_rule rule = rule_of(c);
        int got[MOST];
        int64_t n = 1;

        for (size_t i = 0; i < cases[c].n_parts; i++)
            parts[i] = whole_source(arena, (uint32_t)i, cases[c].shape[i], rank_of(c, i));
        CHECK_OK(dcpk_hf_ops_join(&rule, sizes_of(c), parts, arena, &whole, &err), cases[c].label);
        CHECK_EQ_INT(whole.rank, cases[c].want_rank, cases[c].label);
        for (int a = 0; a < whole.rank; a++) {
            CHECK_EQ_INT(whole.shape[a], cases[c].want_shape[a], cases[c].label);
            n *= whole.shape[a];
        }
        show(&whole, cases[c].shape, got);
        for (int64_t i = 0; i < n; i++)
            CHECK_EQ_INT(got[i], cases[c].want[i], cases[c].label);
        dcpk_arena_free(arena);
    }
}

/* Which side of a norm has its weight less one: the map's args and its op, the run's args. */
static const struct {
    const char *label, *mg;
    bool map, has_op, run;
    int want; /* to have Megatron's */
} sums[] = {
    {"plain, plain", "decoder.final_layernorm.weight", false, false, false, 0},
    {"Llama's of a 1p run", "decoder.final_layernorm.weight", false, false, true, -1},
    {"fused", "decoder.layers.0.mlp.linear_fc1.layer_norm_weight", false, false, true, -1},
    {"of queries", "decoder.layers.0.self_attention.q_layernorm.weight", false, false, true, -1},
    {"of MTP", "mtp.layers.0.enorm.weight", false, false, true, -1},
    {"Gemma's of a 1p run", "decoder.final_layernorm.weight", true, false, true, 0},
    {"Gemma's of a plain run", "decoder.final_layernorm.weight", true, false, false, 1},
    {"a bias", "decoder.final_layernorm.bias", false, false, true, 0},
    {"a fused bias", "decoder.layers.0.mlp.linear_fc1.layer_norm_bias", false, false, true, 0},
    {"a linear layer", "decoder.layers.0.mlp.linear_fc1.weight", false, false, true, 0},
    {"the op, plain", "decoder.final_layernorm.weight", false, true, false, 1},
    {"the op, 1p", "decoder.final_layernorm.weight", false, true, true, 0},
    {"the op in a map of 1p", "decoder.final_layernorm.weight", true, true, true, -1},
    {"the op of another parameter", "x.scale", false, true, false, 1},
};

static void norms_are_as_the_run_has_them(void **unused)
{
    (void)unused;
    for (size_t i = 0; i < DCPK_COUNT(sums); i++) {
        struct dcpk_error err = DCPK_ERROR_INIT;
        struct dcpk_arena *arena = dcpk_arena_new();
        const struct dcpk_hf_rule rule = {
            .mg = sums[i].mg, .n_ops = sums[i].has_op, .ops = {DCPK_HF_ADD_ONE}};
        const struct dcpk_hf_binding binding = {.rule = &rule, .mg = sums[i].mg};
        const bool is_1p[] = {sums[i].map, sums[i].run};
        const struct dcpk_value *args[2];
        struct dcpk_hf_map map = {0};

        for (int s = 0; s < 2; s++) {
            struct dcpk_value_pair pair = {
                dcpk_value_str(
                    arena, s == 0 ? "apply_layernorm_1p" : "layernorm_zero_centered_gamma", &err),
                dcpk_value_bool(is_1p[s])};

            args[s] = dcpk_value_dict(arena, &pair, 1, &err);
            CHECK(args[s] != NULL, "memory");
        }
        map.args = args[0];
        CHECK_EQ_INT((int)dcpk_hf_ops_addend(&map, &binding, args[1]), sums[i].want, sums[i].label);
        dcpk_arena_free(arena);
    }
}

/* The parts of a whole that is stored as one tensor, put together again, are that tensor. */
static void split_is_the_inverse(void **unused)
{
    (void)unused;
    for (size_t c = 0; c < DCPK_COUNT(cases); c++) {
        struct dcpk_error err = DCPK_ERROR_INIT;
        struct dcpk_arena *arena = dcpk_arena_new();
        struct dcpk_model_tensor parts[DCPK_HF_MAX_PARTS], whole, again;
        const struct dcpk_hf_rule rule = rule_of(c);
        int got[MOST];
        int64_t n = 1;

        whole = whole_source(arena, 0, cases[c].want_shape, cases[c].want_rank);
        CHECK_OK(dcpk_hf_ops_split(&rule, sizes_of(c), &whole, arena, parts, &err), cases[c].label);
        for (size_t i = 0; i < cases[c].n_parts; i++)
            for (int a = 0; a < rank_of(c, i); a++)
                CHECK_EQ_INT(parts[i].shape[a], cases[c].shape[i][a], cases[c].label);
        CHECK_OK(dcpk_hf_ops_join(&rule, sizes_of(c), parts, arena, &again, &err), cases[c].label);
        show(&again, &cases[c].want_shape, got);
        for (int a = 0; a < whole.rank; a++)
            n *= whole.shape[a];
        for (int64_t i = 0; i < n; i++)
            CHECK_EQ_INT(got[i], i, cases[c].label);
        dcpk_arena_free(arena);
    }
}

/* One rule each that does not fit its tensors. */
static void what_does_not_fit_is_refused(void **unused)
{
    static const struct {
        const char *label, *named;
        enum dcpk_hf_op op;
        size_t n_parts;
        int rank;
        int64_t shape[3][2];
    } wrong[] = {
        {"no pairs", "no lines", DCPK_HF_DEINTERLEAVE, 1, 1, {{5}}},
        {"one axis", "no lines", DCPK_HF_TRANSPOSE, 1, 1, {{5}}},
        {"parts of two widths", "does not fit [2, 2] of 'a'", DCPK_HF_CAT, 2, 2, {{2, 2}, {2, 3}}},
        {"parts of two heights", "rows", DCPK_HF_CAT, 2, 2, {{2, 2}, {4, 2}}},
        {"too few rows of k", "part 2 has 2 rows", DCPK_HF_QKV, 3, 1, {{8}, {2}, {4}}},
        {"too many rows of q", "part 1 has 10 rows", DCPK_HF_QKV, 3, 1, {{10}, {4}, {4}}},
    };

    (void)unused;
    for (size_t c = 0; c < DCPK_COUNT(wrong); c++) {
        struct dcpk_error err = DCPK_ERROR_INIT;
        struct dcpk_arena *arena = dcpk_arena_new();
        struct dcpk_model_tensor parts[DCPK_HF_MAX_PARTS], whole;
        const struct dcpk_hf_rule rule = {.mg = "x",
                                          .hf = {"a", "b", "c"},
                                          .n_hf = wrong[c].n_parts,
                                          .ops = {wrong[c].op},
                                          .n_ops = 1};

        for (size_t i = 0; i < wrong[c].n_parts; i++)
            parts[i] = whole_source(arena, (uint32_t)i, wrong[c].shape[i], wrong[c].rank);
        CHECK_FAILS(dcpk_hf_ops_join(&rule, sizes_of(c), parts, arena, &whole, &err),
                    DCPK_EMISMATCH, wrong[c].named, wrong[c].label);
        dcpk_arena_free(arena);
    }
}

/* {*} is anything, the other captures are numbers. */
static void patterns_of_names(void **unused)
{
    static const struct {
        const char *pattern, *name;
        bool fits;
    } names[] = {
        {"{*}inv_freq", "model.layers.0.rotary_emb.inv_freq", true},
        {"{*}inv_freq", "inv_freq", true},
        {"{*}inv_freq", "inv_freqs", false},
        {"{*}.attn.bias", "h.0.attn.bias.attn.bias", true},
        {"{*}.attn.bias", "h.0.attn.c_attn.bias", false},
        {"h.{l}.bias", "h.12.bias", true},
        {"h.{l}.bias", "h.x.bias", false},
        {"h.{l}.bias", "h.12", false},
        {"a", "a", true},
        {"a", "", false},
    };

    (void)unused;
    for (size_t i = 0; i < DCPK_COUNT(names); i++)
        CHECK_EQ_INT(dcpk_hf_name_fits(names[i].pattern, names[i].name), names[i].fits,
                     names[i].name);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_element_is_where_it_belongs),
        cmocka_unit_test(norms_are_as_the_run_has_them),
        cmocka_unit_test(split_is_the_inverse),
        cmocka_unit_test(what_does_not_fit_is_refused),
        cmocka_unit_test(patterns_of_names),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
