/* SPDX-License-Identifier: Apache-2.0 */
/* test_memory_index.c - the list of shards of a rank is read back; one that is damaged is refused,
 * before it is more than was made room for. */
#include "lib/train/memory_index.h"

#include "lib/base/cursor.h"
#include "tests/check.h"

#define N_SHARDS 64

/* Places in the text of one shard with a name of one letter: numbers behind it. */
enum { AT_ROLE = 8 + 8 + 1, AT_DTYPE = AT_ROLE + 8, AT_RANK = AT_DTYPE + 8 };

static struct dcpk_memory_shard shard_of(const char *name)
{
    return (struct dcpk_memory_shard){.param = name,
                                      .role = DCPK_MASTER,
                                      .dtype = DCPK_F32,
                                      .rank = 1,
                                      .shape = {8},
                                      .box = {.rank = 1, .offset = {4}, .extent = {4}}};
}

static dcpk_status read_text(const struct dcpk_bytes *text, struct dcpk_memory_index *index,
                             struct dcpk_arena *arena, struct dcpk_error *err)
{
    return dcpk_memory_index_read(text->data, text->n_bytes, 1, arena, index, err);
}

static void a_list_comes_back(void **state)
{
    const struct dcpk_memory_shard shards[] = {shard_of("a"), shard_of("b")};
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_arena *arena = dcpk_arena_new(0, &err);
    struct dcpk_memory_index index;
    struct dcpk_bytes text = {0};

    (void)state;
    CHECK_OK(dcpk_memory_index_gather(NULL, shards, 2, &text, &err), "gather");
    CHECK_OK(read_text(&text, &index, arena, &err), "read");
    CHECK_EQ_INT(index.n_tensors, 2, "tensors");
    CHECK_EQ_INT(index.n_parts, 2, "parts");
    CHECK_EQ_STR(index.tensors[1].param, "b", "name");
    CHECK_EQ_INT(index.owned_bytes[0], 128, "each begins at a multiple of 64");
    dcpk_bytes_release(&text);
    dcpk_arena_free(arena);
}

static void a_damaged_number_is_refused(void **state)
{
    static const struct {
        const char *label;
        size_t at;
        uint64_t number;
    } cases[] = {
        {"no role", AT_ROLE, DCPK_N_ROLES},
        {"no dtype", AT_DTYPE, DCPK_DTYPE_NONE},
        {"a dtype past the last", AT_DTYPE, DCPK_N_DTYPES},
        {"a scalar", AT_RANK, 0},
        {"too many axes", AT_RANK, 3},
    };
    const struct dcpk_memory_shard shard = shard_of("a");
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_arena *arena = dcpk_arena_new(0, &err);
    struct dcpk_memory_index index;

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct dcpk_bytes text = {0};

        CHECK_OK(dcpk_memory_index_gather(NULL, &shard, 1, &text, &err), "gather");
        dcpk_store_u64le(text.data + cases[i].at, cases[i].number);
        CHECK_FAILS(read_text(&text, &index, arena, &err), DCPK_EFORMAT, "damaged", cases[i].label);
        dcpk_bytes_release(&text);
    }
    dcpk_arena_free(arena);
}

/* Scalars are shorter than the shortest shard that there is room for. */
static void scalars_do_not_pass_the_room(void **state)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_arena *arena = dcpk_arena_new(0, &err);
    struct dcpk_memory_index index;
    struct dcpk_bytes text = {0};

    (void)state;
    dcpk_bytes_u64(&text, N_SHARDS);
    for (uint8_t i = 0; i < N_SHARDS; i++) {
        dcpk_bytes_u64(&text, 1);
        dcpk_bytes_u8(&text, (uint8_t)('0' + i));
        dcpk_bytes_u64(&text, DCPK_MASTER);
        dcpk_bytes_u64(&text, DCPK_F32);
        dcpk_bytes_u64(&text, 0);
    }
    dcpk_bytes_u64(&text, 0); /* time */
    CHECK_OK(dcpk_bytes_status(&text, &err), "text");
    CHECK_FAILS(read_text(&text, &index, arena, &err), DCPK_EFORMAT, "damaged", "scalars");
    dcpk_bytes_release(&text);
    dcpk_arena_free(arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_list_comes_back),
        cmocka_unit_test(a_damaged_number_is_refused),
        cmocka_unit_test(scalars_do_not_pass_the_room),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
