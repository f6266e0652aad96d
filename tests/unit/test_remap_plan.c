/* SPDX-License-Identifier: Apache-2.0 */
/* test_remap_plan.c - plans of small layouts: who sends what, and what is refused. */
#include <stdio.h>

#include "lib/base/order.h"
#include "lib/plan/remap_plan.h"
#include "tests/check.h"

#define MOST 8

/* Rows [low, high) of a tensor of 8 rows of 4 f32, dense, on one rank; at: NULL ends a list. */
struct rows {
    const char *name;
    int holder;
    int64_t low, high;
    uint64_t at;
};

struct side {
    struct dcpk_shard shards[MOST];
    int64_t spans[MOST][4];
    size_t n;
};

static const int64_t shape[] = {8, 4}, strides[] = {16, 4};
static struct side sources, targets;

static void make_side(const struct rows *rows, struct side *side)
{
    for (side->n = 0; side->n < MOST && rows[side->n].name != NULL; side->n++) {
        const struct rows *r = &rows[side->n];
        int64_t *span = side->spans[side->n];

        span[0] = r->low;
        span[1] = 0;
        span[2] = r->high - r->low;
        span[3] = 4;
        side->shards[side->n] =
            (struct dcpk_shard){r->name, DCPK_F32, 2, r->holder, shape, span, strides, r->at, 0};
    }
}

static struct dcpk_remap_input make_input(const struct rows *from, const struct rows *to)
{
    make_side(from, &sources);
    make_side(to, &targets);
    return (struct dcpk_remap_input){.sources = sources.shards,
                                     .targets = targets.shards,
                                     .n_sources = sources.n,
                                     .n_targets = targets.n,
                                     .n_ranks = 4};
}

static const struct {
    const char *label;
    struct rows from[MOST], to[MOST];
    const char *want; /* "holder>holder[rows]" of each move, = where it is kept */
} layouts[] = {
    {"halves to quarters",
     {{"w", 0, 0, 4, 4096}, {"w", 1, 4, 8, 4096}},
     {{"w", 0, 0, 2, 8192}, {"w", 1, 2, 4, 8192}, {"w", 2, 4, 6, 8192}, {"w", 3, 6, 8, 8192}},
     "0>0[0:2] 0>1[2:4] 1>2[4:6] 1>3[6:8] "},
    {"what is there stays",
     {{"w", 0, 0, 4, 4096}, {"w", 1, 4, 8, 4096}},
     {{"w", 0, 0, 6, 4096}, {"w", 1, 4, 8, 8192}},
     "0=0[0:4] 1>0[4:6] 1>1[4:8] "},
    {"one's own replica, then the one with the fewest bytes to send",
     {{"w", 0, 0, 8, 4096}, {"w", 1, 0, 8, 4096}},
     {{"w", 0, 0, 8, 8192}, {"w", 2, 0, 8, 8192}, {"w", 3, 0, 8, 8192}},
     "0>0[0:8] 0>2[0:8] 1>3[0:8] "},
    {"tensors take turns",
     {{"a", 0, 0, 8, 4096}, {"b", 0, 0, 8, 8192}},
     {{"a", 1, 0, 8, 4096}, {"b", 2, 0, 8, 8192}},
     "0>1[0:8] 0>2[0:8] "},
    {"sources that overlap in part",
     {{"w", 0, 0, 5, 4096}, {"w", 1, 3, 8, 4096}},
     {{"w", 2, 0, 8, 4096}},
     "0>2[0:5] 1>2[5:8] "},
    {"an empty target, an unwanted source",
     {{"v", 0, 0, 8, 4096}, {"w", 0, 0, 8, 8192}},
     {{"w", 1, 3, 3, 0}, {"w", 2, 1, 2, 4096}},
     "0>2[1:2] "},
};

static void print_moves(const struct dcpk_remap_plan *plan, char *text, size_t n)
{
    size_t at = 0;

    text[0] = '\0';
    for (size_t i = 0; i < plan->n_moves; i++) {
        const struct dcpk_move *m = &plan->moves[i];
        struct dcpk_box box;

        dcpk_move_box(plan, m, &box);
        at += (size_t)snprintf(
            text + at, n - at, "%d%c%d[%" PRId64 ":%" PRId64 "] ",
            plan->input.sources[m->source].holder, dcpk_move_is_kept(plan, m) ? '=' : '>',
            plan->input.targets[m->target].holder, box.offset[0], box.offset[0] + box.extent[0]);
    }
}

static void moves_are_those(void **state)
{
    (void)state;
    for (size_t i = 0; i < DCPK_COUNT(layouts); i++) {
        struct dcpk_remap_input input = make_input(layouts[i].from, layouts[i].to);
        struct dcpk_error err = DCPK_ERROR_INIT;
        struct dcpk_remap_plan *plan;
        char text[512];

        CHECK_OK(dcpk_remap_plan_new(&input, &plan, &err), layouts[i].label);
        print_moves(plan, text, sizeof text);
        CHECK_EQ_STR(text, layouts[i].want, layouts[i].label);
        for (int r = 0; r < 4; r++)
            CHECK_OK(dcpk_remap_check_memory(plan, r, &err), layouts[i].label);
        dcpk_remap_plan_free(plan);
    }
}

/* Ranks that reach each other come before those that do not. */
static void near_ranks_are_preferred(void **state)
{
    const struct rows from[] = {{"w", 0, 0, 8, 4096}, {"w", 1, 0, 8, 4096}, {NULL, 0, 0, 0, 0}};
    const struct rows to[] = {{"w", 2, 0, 8, 4096}, {"w", 3, 0, 8, 4096}, {NULL, 0, 0, 0, 0}};
    struct dcpk_remap_input input = make_input(from, to);
    struct dcpk_error err = DCPK_ERROR_INIT;
    uint8_t reaches[16] = {0};
    struct dcpk_remap_plan *plan;
    char text[512];

    (void)state;
    reaches[1 * 4 + 2] = reaches[1 * 4 + 3] = 1;
    input.reaches = reaches;
    input.link_bytes_a_second = 1000;
    CHECK_OK(dcpk_remap_plan_new(&input, &plan, &err), "near");
    print_moves(plan, text, sizeof text);
    CHECK_EQ_STR(text, "1>2[0:8] 1>3[0:8] ", "near");
    CHECK_EQ_INT(plan->totals[1].out_bytes, 256, "two tensors of 128 bytes");
    CHECK_EQ_INT(plan->totals[1].n_moves, 2, "both are rank 1's");
    CHECK_EQ_INT(plan->totals[2].in_bytes, 128, "one");
    CHECK(plan->seconds > 0.2559 && plan->seconds < 0.2561, "256 bytes at 1000 a second");
    dcpk_remap_plan_free(plan);
}

/* A widening cast is the target's work, any other one the source's. */
static void casts_have_movers(void **state)
{
    const struct rows from[] = {{"w", 0, 0, 8, 4096}, {NULL, 0, 0, 0, 0}};
    const struct rows to[] = {{"w", 1, 0, 8, 4096}, {NULL, 0, 0, 0, 0}};
    struct dcpk_remap_input input = make_input(from, to);
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_remap_plan *plan;

    (void)state;
    sources.shards[0].dtype = DCPK_BF16;
    CHECK_OK(dcpk_remap_plan_new(&input, &plan, &err), "widens");
    CHECK_EQ_INT(dcpk_move_mover(plan, &plan->moves[0]), 1, "widens");
    CHECK_EQ_INT(plan->totals[0].out_bytes, 64, "bf16 crosses");
    dcpk_remap_plan_free(plan);
    targets.shards[0].dtype = DCPK_F8_E5M2;
    CHECK_OK(dcpk_remap_plan_new(&input, &plan, &err), "narrows");
    CHECK_EQ_INT(dcpk_move_mover(plan, &plan->moves[0]), 0, "narrows");
    CHECK_EQ_INT(plan->totals[0].out_bytes, 32, "f8 crosses");
    dcpk_remap_plan_free(plan);
    targets.shards[0].dtype = DCPK_I32;
    CHECK_FAILS(dcpk_remap_plan_new(&input, &plan, &err), DCPK_EUNSUPPORTED,
                "'w' cannot be cast from bfloat16 to int32", "no float");
}

static const struct {
    const char *label;
    struct rows from[MOST], to[MOST];
    const char *message;
} refused[] = {
    {"a gap",
     {{"w", 0, 0, 3, 4096}, {"w", 1, 4, 8, 4096}},
     {{"w", 2, 2, 6, 4096}},
     "rank 2: 'w' [2:6, 0:4] wants [3:4, 0:4], which no source holds"},
    {"no source",
     {{"v", 0, 0, 8, 4096}},
     {{"w", 3, 0, 8, 4096}},
     "rank 3: 'w' [0:8, 0:4] wants [0:8, 0:4], which no source holds"},
    {"outside",
     {{"w", 1, 4, 9, 4096}},
     {{"w", 3, 0, 8, 4096}},
     "rank 1: 'w' [4:9, 0:4] lies outside its tensor [8, 4]"},
};

static void gaps_are_named(void **state)
{
    (void)state;
    for (size_t i = 0; i < DCPK_COUNT(refused); i++) {
        struct dcpk_remap_input input = make_input(refused[i].from, refused[i].to);
        struct dcpk_error err = DCPK_ERROR_INIT;
        struct dcpk_remap_plan *plan;

        CHECK_FAILS(dcpk_remap_plan_new(&input, &plan, &err), DCPK_EMISMATCH, refused[i].message,
                    refused[i].label);
    }
}

static void shards_that_disagree_are_named(void **state)
{
    static const int64_t other[] = {8, 5};
    const struct rows from[] = {{"w", 0, 0, 8, 4096}, {"w", 1, 0, 8, 4096}, {NULL, 0, 0, 0, 0}};
    const struct rows to[] = {{"w", 2, 0, 8, 4096}, {NULL, 0, 0, 0, 0}};
    struct dcpk_remap_input input = make_input(from, to);
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_remap_plan *plan;

    (void)state;
    sources.shards[1].shape = other;
    CHECK_FAILS(dcpk_remap_plan_new(&input, &plan, &err), DCPK_EMISMATCH,
                "rank 1: 'w' [0:8, 0:4] belongs to a tensor [8, 5], others to [8, 4]", "shape");
    sources.shards[1].shape = shape;
    sources.shards[1].dtype = DCPK_BF16;
    CHECK_FAILS(dcpk_remap_plan_new(&input, &plan, &err), DCPK_EMISMATCH,
                "is bfloat16, others of the tensor on this side are float32", "dtype");
    sources.shards[1].rank = DCPK_MAX_RANK + 1;
    CHECK_FAILS(dcpk_remap_plan_new(&input, &plan, &err), DCPK_EUNSUPPORTED, "the limit is 16",
                "rank");
}

/* Two shards of rank 0, the second one a target, of 2 columns or rows each. */
static const struct {
    const char *label;
    int64_t span[4], stride[2]; /* of the second */
    uint64_t at;
    bool first_is_target;
    const char *message; /* NULL: they are apart */
    dcpk_status status;
} memories[] = {
    {"behind", .span = {0, 0, 8, 2}, .stride = {16, 4}, .at = 4096 + 128, .first_is_target = true},
    {"interleaved", .span = {0, 2, 8, 2}, .stride = {16, 4}, .at = 4096 + 8,
     .first_is_target = true},
    {"the same columns", .span = {0, 2, 8, 2}, .stride = {16, 4}, .at = 4096 + 4,
     .first_is_target = true, .message = "overlaps", .status = DCPK_EMISMATCH},
    {"below the last row", .span = {0, 2, 2, 2}, .stride = {16, 4}, .at = 4096 + 8 * 16,
     .first_is_target = true},
    {"other strides", .span = {0, 2, 2, 2}, .stride = {24, 4}, .at = 4096 + 8,
     .first_is_target = true, .message = "different strides", .status = DCPK_EUNSUPPORTED},
    {"on a source", .span = {0, 2, 8, 2}, .stride = {16, 4}, .at = 4096 + 4,
     .message = "the source of rank 0: 'w'", .status = DCPK_EMISMATCH},
    {"the source's place", .span = {0, 0, 8, 2}, .stride = {16, 4}, .at = 4096},
    {"on itself", .span = {0, 0, 8, 2}, .stride = {4, 4}, .at = 8192, .first_is_target = true,
     .message = "overlaps with itself", .status = DCPK_EMISMATCH},
};

static void memory_is_checked(void **state)
{
    static const int64_t first[] = {0, 0, 8, 2}, whole[] = {0, 0, 8, 4};

    (void)state;
    for (size_t i = 0; i < DCPK_COUNT(memories); i++) {
        const struct dcpk_shard a = {"w", DCPK_F32, 2, 0, shape, first, strides, 4096, 0};
        const struct dcpk_shard b = {
            "w", DCPK_F32, 2, 0, shape, memories[i].span, memories[i].stride, memories[i].at, 0};
        const struct dcpk_shard far = {"w", DCPK_F32, 2, 1, shape, whole, strides, 4096, 0};
        const struct dcpk_shard both[] = {a, b}, with_a[] = {a, far};
        const struct dcpk_remap_input input = {.sources =
                                                   memories[i].first_is_target ? &far : with_a,
                                               .n_sources = memories[i].first_is_target ? 1 : 2,
                                               .targets = memories[i].first_is_target ? both : &b,
                                               .n_targets = memories[i].first_is_target ? 2 : 1,
                                               .n_ranks = 2};
        struct dcpk_error err = DCPK_ERROR_INIT;
        struct dcpk_remap_plan *plan;

        CHECK_OK(dcpk_remap_plan_new(&input, &plan, &err), memories[i].label);
        if (memories[i].message == NULL)
            CHECK_OK(dcpk_remap_check_memory(plan, 0, &err), memories[i].label);
        else
            CHECK_FAILS(dcpk_remap_check_memory(plan, 0, &err), memories[i].status,
                        memories[i].message, memories[i].label);
        CHECK_OK(dcpk_remap_check_memory(plan, 1, &err), memories[i].label);
        dcpk_remap_plan_free(plan);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(moves_are_those),
        cmocka_unit_test(near_ranks_are_preferred),
        cmocka_unit_test(casts_have_movers),
        cmocka_unit_test(gaps_are_named),
        cmocka_unit_test(shards_that_disagree_are_named),
        cmocka_unit_test(memory_is_checked),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
