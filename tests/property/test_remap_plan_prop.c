/* SPDX-License-Identifier: Apache-2.0 */
/* test_remap_plan_prop.c - plans of random layouts, their tiles run in one process: every target
 * byte is what the owner of its element has, and is written once. */
#include "lib/plan/remap_tiles.h"
#include "tests/remap_case.h"

/* c->kept counts how often each byte of the targets was written. */
static void count_tile(const struct remap_case *c, int holder, const struct dcpk_tile *tile,
                       const char *label)
{
    const uint64_t n = tile->n_elems * dcpk_dtype_bytes((enum dcpk_dtype)tile->to);

    for (uint64_t r = 0; r < tile->n_rows; r++) {
        const uint64_t at = tile->dst + r * (uint64_t)tile->dst_stride_bytes -
                            (uint64_t)(uintptr_t)c->sides[1].memory[holder];

        CHECK(at + n <= CASE_BYTES, label);
        for (uint64_t i = 0; i < n; i++)
            c->kept[holder][at + i]++;
    }
}

static void run_list(const struct dcpk_tile_list *list, struct dcpk_device *device, uint64_t *sums,
                     const char *label)
{
    const struct dcpk_tiles tiles = {list->tiles, list->words, list->n, DCPK_PACE_MEMORY};
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_table *table;

    CHECK_OK(device->ops->load(device, &tiles, &table, &err), label);
    CHECK_OK(device->ops->run(device, 0, table, list->words == NULL ? NULL : sums, &err), label);
    device->ops->unload(device, table);
}

static void check_shapes(const struct dcpk_tile_list *list, size_t tile_bytes, const char *label)
{
    for (size_t i = 0; i < list->n; i++) {
        const struct dcpk_tile *t = &list->tiles[i];
        const size_t n_bytes = t->n_elems * t->n_rows * dcpk_dtype_bytes((enum dcpk_dtype)t->to);

        CHECK(n_bytes <= tile_bytes || t->n_elems == 1, label);
    }
}

/* Move all of the plan, each move by itself. Returns the sum of what all moves stored. */
static void run_plan(struct remap_case *c, const struct dcpk_remap_plan *plan,
                     struct dcpk_device *device, size_t tile_bytes, const char *label)
{
    uint64_t stored[CASE_TENSORS] = {0}, landed[CASE_TENSORS] = {0};
    struct dcpk_error err = DCPK_ERROR_INIT;
    const bool has_words = c->seed % 2;

    for (size_t i = 0; i < plan->n_moves; i++) {
        const struct dcpk_move *m = &plan->moves[i];
        const struct dcpk_shard *s = &plan->input.sources[m->source];
        const struct dcpk_shard *t = &plan->input.targets[m->target];
        struct dcpk_tile_list move = {0}, read = {0};
        struct dcpk_tile_box box = {
            .shape = t->shape, .sum = plan->target_tensor[m->target], .has_words = has_words};

        dcpk_move_box(plan, m, &box.box);
        box.src = (struct dcpk_tile_side){dcpk_shard_address(s, box.box.offset), s->stride_bytes,
                                          s->dtype};
        box.dst = (struct dcpk_tile_side){dcpk_shard_address(t, box.box.offset), t->stride_bytes,
                                          t->dtype};
        CHECK_OK(dcpk_tile_list_add(&move, &box, tile_bytes, &err), label);
        check_shapes(&move, tile_bytes, label);
        for (size_t k = 0; k < move.n; k++)
            count_tile(c, t->holder, &move.tiles[k], label);
        run_list(&move, device, stored, label);
        box.src = box.dst;
        box.dst.at = 0;
        CHECK_OK(dcpk_tile_list_add(&read, &box, tile_bytes, &err), label);
        run_list(&read, device, landed, label);
        dcpk_tile_list_release(&move);
        dcpk_tile_list_release(&read);
    }
    CHECK(memcmp(stored, landed, sizeof stored) == 0, label);
}

/* Every wanted byte once, no other one. */
static void check_written(const struct remap_case *c, const char *label)
{
    for (int r = 0; r < c->n_ranks; r++) {
        memset(c->want[r], 0, CASE_BYTES);
        for (size_t i = 0; i < c->sides[1].n; i++) {
            const struct dcpk_shard *s = &c->sides[1].shards[i];
            int64_t index[5] = {0};
            int a;

            if (s->holder != r || case_is_empty(s))
                continue;
            do {
                uint64_t at = s->at - (uint64_t)(uintptr_t)c->sides[1].memory[r];

                for (a = 0; a < s->rank; a++)
                    at += (uint64_t)(index[a] * s->stride_bytes[a]);
                for (size_t b = 0; b < dcpk_dtype_bytes(s->dtype); b++)
                    c->want[r][at + b]++;
                for (a = s->rank - 1; a >= 0 && ++index[a] == s->span[s->rank + a]; a--)
                    index[a] = 0;
            } while (a >= 0);
        }
        CHECK(memcmp(c->kept[r], c->want[r], CASE_BYTES) == 0, label);
    }
}

/* What the totals must be, from the moves. */
static void check_totals(const struct dcpk_remap_plan *plan, const char *label)
{
    uint64_t in = 0, out = 0, wanted = 0, got = 0, n_moves = 0;

    for (int r = 0; r < plan->input.n_ranks; r++) {
        in += plan->totals[r].in_bytes;
        out += plan->totals[r].out_bytes;
        got += plan->totals[r].in_bytes + plan->totals[r].local_bytes + plan->totals[r].kept_bytes;
        n_moves += plan->totals[r].n_moves;
    }
    for (size_t i = 0; i < plan->input.n_targets; i++) {
        const struct dcpk_shard *t = &plan->input.targets[i];
        const struct dcpk_remap_tensor *tensor = &plan->tensors[plan->target_tensor[i]];
        uint64_t n = dcpk_min_size(dcpk_dtype_bytes(t->dtype), dcpk_dtype_bytes(tensor->from));

        for (int a = 0; a < t->rank; a++)
            n *= (uint64_t)t->span[t->rank + a];
        wanted += n;
    }
    CHECK(in == out && got == wanted && n_moves <= plan->n_moves, label);
}

static void check_units(const struct dcpk_remap_plan *plan, const char *label)
{
    for (size_t u = 0; u < plan->n_units; u++) {
        CHECK(plan->units[u].first_tensor < plan->units[u + 1].first_tensor, label);
        for (size_t i = plan->units[u].first_move; i < plan->units[u + 1].first_move; i++) {
            const uint32_t tensor = plan->target_tensor[plan->moves[i].target];

            CHECK(tensor >= plan->units[u].first_tensor && tensor < plan->units[u + 1].first_tensor,
                  label);
        }
    }
}

static void layouts_become_layouts(void **state)
{
    static const size_t tile_bytes[] = {16, 64, 1024, DCPK_TILE_BYTES};
    const struct dcpk_device_options options = {0};
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct remap_case *c = the_case;
    struct dcpk_device *device;

    (void)state;
    CHECK_OK(dcpk_devices[0]->open(&options, &device, &err), "open");
    for (uint64_t seed = 1; seed <= 150; seed++) {
        struct dcpk_remap_plan *plan, *again;
        struct dcpk_remap_input input;
        char label[32];

        snprintf(label, sizeof label, "seed %" PRIu64, seed);
        case_make(c, seed, 1 + (int)(seed % CASE_RANKS));
        input = (struct dcpk_remap_input){.sources = c->sides[0].shards,
                                          .targets = c->sides[1].shards,
                                          .n_sources = c->sides[0].n,
                                          .n_targets = c->sides[1].n,
                                          .n_ranks = c->n_ranks,
                                          .unit_bytes = seed % 3 == 0 ? 1000 * (seed % 7) : 0};
        CHECK_OK(dcpk_remap_plan_new(&input, &plan, &err), label);
        CHECK_OK(dcpk_remap_plan_new(&input, &again, &err), label);
        CHECK(plan->digest == again->digest, label);
        for (int r = 0; r < c->n_ranks; r++) {
            CHECK_OK(dcpk_remap_check_memory(plan, r, &err), label);
            memset(c->kept[r], 0, CASE_BYTES);
        }
        check_totals(plan, label);
        check_units(plan, label);
        run_plan(c, plan, device, tile_bytes[seed / 2 % 4], label);
        case_check(c, label);
        check_written(c, label);
        dcpk_remap_plan_free(plan);
        dcpk_remap_plan_free(again);
        case_release(c);
    }
    device->ops->close(device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(layouts_become_layouts)};

    return cmocka_run_group_tests(tests, case_begin_tests, case_end_tests);
}
