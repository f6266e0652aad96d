/* SPDX-License-Identifier: Apache-2.0 */
/* test_a1_a3_one_process.c - of A1 and A3 what one process can show: micro batches and strategies
 * change no bit, a resumed run is the uninterrupted one; and the mock data is learnt. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "lib/io/remove.h"
#include "tests/train/run_case.h"

#define MODEL                                                                                      \
    "--num-layers 2 --hidden-size 32 --num-attention-heads 4 --group-query-attention "             \
    "--num-query-groups 2 --ffn-hidden-size 48 --swiglu --normalization RMSNorm "                  \
    "--position-embedding-type rope --untie-embeddings-and-output-weights --disable-bias-linear "  \
    "--vocab-size 128 --seq-length 16 --max-position-embeddings 16 --transformer-impl local "      \
    "--attention-dropout 0 --hidden-dropout 0 --global-batch-size 8 --train-iters 30 --lr 1e-2 "   \
    "--min-lr 1e-3 --lr-decay-style cosine --clip-grad 1.0 --seed 1234 "
#define EXPERTS                                                                                    \
    "--num-experts 4 --moe-router-score-function sigmoid --moe-router-enable-expert-bias "         \
    "--moe-router-bias-update-rate 0.05 "
#define FSDP "--use-megatron-fsdp --ckpt-format fsdp_dtensor "

static void learns_and_changes_no_bit(void **state)
{
    static const char *const others[] = {
        "--micro-batch-size 2 --data-parallel-sharding-strategy no_shard",
        "--micro-batch-size 4 --data-parallel-sharding-strategy optim",
        "--micro-batch-size 1 --data-parallel-sharding-strategy optim_grads " FSDP,
        "--micro-batch-size 8 --data-parallel-sharding-strategy optim_grads_params " FSDP,
    };
    static struct run_case first, other;

    (void)state;
    run_case_flags(NULL, MODEL, "--micro-batch-size 1", &first);
    print_message("loss %.4f to %.4f\n", first.steps[0].loss.value, first.steps[29].loss.value);
    CHECK(first.steps[29].loss.value < first.steps[0].loss.value - 0.5, "it learns");
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        run_case_flags(NULL, MODEL, others[i], &other);
        run_case_check_same(&first, &other, 0, others[i]);
    }
}

/* Experts: with biases of routers, which are buffers. */
static void resumes_where_it_stopped(void **state)
{
    static const char *const kinds[] = {"--ckpt-format torch_dist", "--ckpt-format zarr", FSDP,
                                        "--ckpt-format torch_dist " EXPERTS, FSDP EXPERTS};
    static struct run_case whole, part;

    (void)state;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        char folder[] = "/tmp/dcpk_a3_XXXXXX", run[64], more[512];
        struct dcpk_error err = DCPK_ERROR_INIT;
        int fd;

        CHECK(mkdtemp(folder) != NULL, folder);
        snprintf(run, sizeof run, "%s/run", folder);
        snprintf(more, sizeof more, "%s --micro-batch-size 2 --exit-at 20", kinds[i]);
        run_case_flags(NULL, MODEL, more, &whole);
        snprintf(more, sizeof more,
                 "%s --micro-batch-size 2 --exit-at 10 --dist-ckpt-optim-fully-reshardable "
                 "--save %s",
                 kinds[i], run);
        run_case_flags(NULL, MODEL, more, &part);
        snprintf(more, sizeof more, "%s --micro-batch-size 2 --exit-at 20 --load %s", kinds[i],
                 run);
        run_case_flags(NULL, MODEL, more, &part);
        run_case_check_same(&whole, &part, 10, kinds[i]);
        fd = open(folder, O_RDONLY | O_DIRECTORY);
        CHECK(fd >= 0, folder);
        CHECK_OK(dcpk_remove_at(fd, "run", run, &err), run);
        close(fd);
        rmdir(folder);
    }
}

/* The rate of a router's bias changes what is chosen, and the biases themselves. */
static void biases_of_routers_move(void **state)
{
    static const char still[] =
        "--micro-batch-size 1 --num-experts 4 --moe-router-score-function sigmoid";
    static const char slow[] =
        "--micro-batch-size 1 --num-experts 4 --moe-router-score-function sigmoid "
        "--moe-router-enable-expert-bias --moe-router-bias-update-rate 0";
    static struct run_case none, zero, moved;

    (void)state;
    run_case_flags(NULL, MODEL, still, &none);
    run_case_flags(NULL, MODEL, slow, &zero);
    run_case_flags(NULL, MODEL EXPERTS, "--micro-batch-size 1", &moved);
    for (size_t i = 0; i < none.n; i++)
        CHECK(none.steps[i].loss.value == zero.steps[i].loss.value, "a bias of 0 chooses nothing");
    CHECK(moved.steps[0].loss.value == zero.steps[0].loss.value, "biases begin at 0");
    CHECK(moved.steps[0].state_hash != zero.steps[0].state_hash, "the first step moves them");
    CHECK(moved.steps[29].loss.value != zero.steps[29].loss.value, "they change the choice");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(learns_and_changes_no_bit),
        cmocka_unit_test(resumes_where_it_stopped),
        cmocka_unit_test(biases_of_routers_move),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
