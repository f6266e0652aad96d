/* SPDX-License-Identifier: Apache-2.0 */
/* test_memory_index.c - the shards of ranks become tensors and parts, each box once. */
#include "lib/train/memory_checkpoint.h"

#include "lib/base/order.h"
#include "tests/check.h"

static const int64_t shape[] = {8}, first[] = {0, 4}, second[] = {4, 4}, strides[] = {4};
static const int64_t longer[] = {9};

static struct dcpk_shard shard_of(const char *name, const int64_t *span)
{
    return (struct dcpk_shard){.name = name,
                               .dtype = DCPK_F32,
                               .rank = 1,
                               .shape = shape,
                               .span = span,
                               .stride_bytes = strides};
}

static void each_box_is_a_part_once(void **state)
{
    const struct dcpk_shard shards[] = {shard_of("master.a", first), shard_of("exp_avg.a.b", first),
                                        shard_of("master.a", second), shard_of("master.a", first)};
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_arena *arena = dcpk_arena_new();
    struct dcpk_memory_index index = {.n_ranks = 0};

    (void)state;
    CHECK_OK(dcpk_memory_index_gather(NULL, shards, 4, arena, &index, &err), "gather");
    CHECK_EQ_INT(index.n_tensors, 2, "tensors");
    CHECK_EQ_STR(index.tensors[1].param, "a.b", "name");
    CHECK_EQ_INT(index.tensors[1].role, DCPK_EXP_AVG, "role");
    CHECK_EQ_INT(index.tensors[0].n_parts, 2, "parts of the first");
    CHECK_EQ_INT(index.n_parts, 3, "parts");
    CHECK_EQ_INT(index.parts[2].tensor, 0, "the third is the first tensor's");
    CHECK_EQ_INT(index.parts[2].offset_bytes, 128, "each begins at a multiple of 64");
    CHECK_EQ_INT(index.owned_bytes[0], 192, "bytes of the rank");
    CHECK_EQ_INT(dcpk_memory_bytes(shards, 4), 256, "the most that it saves");
    dcpk_memory_index_release(&index);
    dcpk_arena_free(arena);
}

static void shards_that_disagree_are_refused(void **state)
{
    struct dcpk_shard other = shard_of("exp_avg_sq.a", first), half = other, no_role = other;
    const struct {
        const char *label, *says;
        const struct dcpk_shard *shard;
        dcpk_status status;
    } cases[] = {
        {"shape", "ranks differ in the shape or dtype of 'a' (exp_avg_sq)", &other, DCPK_EMISMATCH},
        {"dtype", "'a' (exp_avg_sq)", &half, DCPK_EMISMATCH},
        {"role", "damaged list", &no_role, DCPK_EIO}};
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_arena *arena = dcpk_arena_new();

    (void)state;
    other.shape = longer;
    half.dtype = DCPK_F16;
    no_role.name = "a";
    for (size_t i = 0; i < DCPK_COUNT(cases); i++) {
        const struct dcpk_shard shards[] = {shard_of("exp_avg_sq.a", first), *cases[i].shard};
        struct dcpk_memory_index index = {.n_ranks = 0};

        dcpk_error_clear(&err);
        CHECK_FAILS(dcpk_memory_index_gather(NULL, shards, 2, arena, &index, &err), cases[i].status,
                    cases[i].says, cases[i].label);
        dcpk_memory_index_release(&index);
    }
    dcpk_arena_free(arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_box_is_a_part_once),
        cmocka_unit_test(shards_that_disagree_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
