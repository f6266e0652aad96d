/* SPDX-License-Identifier: Apache-2.0 */
/* test_exec_fault.c - the n-th allocation fails, n = 1, 2, ... until the run passes: an error each
 * time, nothing kept. */
#include "lib/base/digest.h"
#include "lib/exec/exec.h"
#include "lib/tensor/piece.h"
#include "tests/fake_ckpt.h"
#include "tests/unit/scratch.h"
#include "tests/write_all.h"

enum { N_PIECES = 40 };

static struct fake fake;

/* A stacked tensor of many pieces out of order, a large one for slabs, two payloads. */
static dcpk_status make_output(struct dcpk_checkpoint *ckpt, struct dcpk_output **result,
                               struct dcpk_error *err)
{
    static const char *const stacked[] = {"stacked"}, *const large[] = {"large"};
    static const int64_t stacked_shape[] = {N_PIECES, 6}, large_shape[] = {300, 1000};
    struct dcpk_out_tensor tensor = {
        .keys = stacked, .n_keys = 1, .dtype = DCPK_F32, .rank = 2, .shape = stacked_shape};
    struct dcpk_piece *pieces;
    struct dcpk_output *out;
    struct dcpk_box from, to;
    uint32_t payload;
    dcpk_status st;

    if (dcpk_output_new(ckpt, &fake_format, &out, err) != DCPK_OK)
        return err->status;
    *result = out;
    pieces = dcpk_arena_array(out->arena, N_PIECES + 1, sizeof *pieces, err);
    if (pieces == NULL)
        return err->status;
    for (int64_t i = 0; i < N_PIECES; i++) {
        dcpk_box_whole(fake.shapes[0], 1, &from);
        to = (struct dcpk_box){.rank = 2, .offset = {N_PIECES - 1 - i, 0}, .extent = {1, 6}};
        if (dcpk_piece_make(out->arena, 0, &from, &to, &pieces[i], err) != DCPK_OK)
            return err->status;
    }
    dcpk_box_whole(large_shape, 2, &to);
    st = dcpk_piece_make(out->arena, 1, &to, &to, &pieces[N_PIECES], err);
    tensor.pieces = pieces;
    tensor.n_pieces = N_PIECES;
    if (st == DCPK_OK)
        st = dcpk_output_add_tensor(out, &tensor, err);
    tensor.keys = large;
    tensor.shape = large_shape;
    tensor.pieces = pieces + N_PIECES;
    tensor.n_pieces = 1;
    if (st == DCPK_OK)
        st = dcpk_output_add_tensor(out, &tensor, err);
    for (int i = 0; i < 2 && st == DCPK_OK; i++)
        st = dcpk_output_add_payload(out, NULL, i == 0 ? NULL : &ckpt->objects[0], &payload, err);
    return st == DCPK_OK ? dcpk_plan_build(out, err) : st;
}

static dcpk_status convert(struct dcpk_exec *exec, struct dcpk_output *out, struct dcpk_error *err)
{
    struct dcpk_folder *folder = NULL;
    dcpk_status st = dcpk_folder_begin(scratch("out"), DCPK_FOLDER_REPLACE, &folder, err);

    if (st == DCPK_OK)
        st = write_all(exec, out, folder, NULL, err);
    if (st == DCPK_OK)
        st = dcpk_folder_publish(folder, err);
    if (st != DCPK_OK)
        dcpk_folder_abandon(folder);
    return st;
}

static dcpk_status prove(struct dcpk_exec *exec, const struct dcpk_output *out,
                         struct dcpk_error *err)
{
    struct dcpk_compare results[2];
    struct dcpk_hash hashes[2];
    struct dcpk_object_hash objects[1];
    struct dcpk_view views[2];
    dcpk_status st;

    for (size_t t = 0; t < 2; t++)
        views[t] = (struct dcpk_view){.dtype = out->tensors[t].dtype,
                                      .rank = out->tensors[t].rank,
                                      .shape = out->tensors[t].shape,
                                      .pieces = out->tensors[t].pieces,
                                      .n_pieces = out->tensors[t].n_pieces};
    st = dcpk_exec_hash(exec, views, 2, hashes, NULL, err);
    if (st == DCPK_OK)
        st = dcpk_exec_compare(&(struct dcpk_view_pairs){exec, exec, views, views, 2, NULL, 0},
                               results, NULL, err);
    if (st == DCPK_OK && !(results[0].equal && results[1].equal))
        st = dcpk_fail(err, DCPK_EMISMATCH, "not equal to itself");
    if (st == DCPK_OK)
        st = dcpk_exec_hash_objects(exec, objects, err);
    return st == DCPK_OK ? dcpk_exec_check_items(exec, NULL, err) : st;
}

static dcpk_status run(struct dcpk_checkpoint *ckpt, struct dcpk_error *err)
{
    const struct dcpk_env env = {
        .kernels = dcpk_host_kernel_sets[0], .n_threads = 2, .memory_bytes = 16 << 20};
    struct dcpk_output *out = NULL;
    struct dcpk_exec *exec = NULL;
    dcpk_status st = make_output(ckpt, &out, err);

    if (st == DCPK_OK)
        st = dcpk_exec_new(ckpt, &env, &exec, err);
    if (st == DCPK_OK)
        st = convert(exec, out, err);
    if (st == DCPK_OK)
        st = prove(exec, out, err);
    dcpk_exec_free(exec);
    dcpk_output_free(out);
    return st;
}

static void test_allocations(void **state)
{
    static const int64_t small[] = {6}, large[] = {300, 1000};
    struct dcpk_checkpoint *ckpt;
    dcpk_status st = DCPK_ENOMEM;
    uint64_t seed = 11;

    (void)state;
    fake_add(&fake, DCPK_F32, 1, small, 0, &seed);
    fake_add(&fake, DCPK_BF16, 2, large, 30, &seed);
    fake_add_object(&fake, "object", 5000);
    ckpt = fake_open(&fake, "open");
    for (uint64_t nth = 1; st != DCPK_OK; nth++) {
        struct dcpk_error err = DCPK_ERROR_INIT;
        char label[64];

        snprintf(label, sizeof label, "allocation %" PRIu64 " fails", nth);
        dcpk_alloc_fail_nth(nth);
        st = run(ckpt, &err);
        dcpk_alloc_fail_nth(0);
        CHECK(st == DCPK_OK || st == DCPK_ENOMEM, label);
        CHECK_EQ_INT(st, err.status, label);
        CHECK((st == DCPK_OK) == (err.text[0] == '\0'), label);
        CHECK(st == DCPK_OK || nth > 1 || !scratch_has("out"), label);
        CHECK(!scratch_has("out.dcpkit-partial"), label);
        CHECK(nth < 2000, label);
        if (st == DCPK_OK)
            CHECK(nth > 50, label); /* it did fail before */
    }
    dcpk_checkpoint_close(ckpt);
    fake_release(&fake);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_allocations, scratch_setup, scratch_teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
