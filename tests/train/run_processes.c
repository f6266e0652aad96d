/* SPDX-License-Identifier: Apache-2.0 */
/* run_processes.c - A1 and A2: runs of the training loop over the processes of an MPI job log what
 * a run of one process logs, to the bit, in every layout, strategy and schedule; what they send and
 * hold is what the formulas give. Started by mpirun. */
#include <stdlib.h>

#include "lib/base/order.h"
#include "tests/buffer_case.h"
#include "tests/train/run_case.h"
#include "tests/world_case.h"

/* Whatever 8 ranks cut divides: heads and groups, slices, layers, experts, halves of samples. */
#define MODEL                                                                                      \
    "--num-layers 2 --hidden-size 32 --num-attention-heads 8 --group-query-attention "             \
    "--num-query-groups 4 --ffn-hidden-size 48 --swiglu --normalization RMSNorm "                  \
    "--position-embedding-type rope --disable-bias-linear --vocab-size 128 "                       \
    "--make-vocab-size-divisible-by 16 --seq-length 16 --transformer-impl local "                  \
    "--attention-dropout 0 --hidden-dropout 0 --global-batch-size 8 --train-iters 20 --lr 1e-2 "   \
    "--min-lr 1e-3 --lr-decay-style cosine --lr-warmup-iters 4 --leaf-tokens 4 "
#define DENSE MODEL "--untie-embeddings-and-output-weights "
#define MOE                                                                                        \
    MODEL "--qk-layernorm --num-experts 4 --moe-layer-freq [0,1] --moe-ffn-hidden-size 16 "        \
          "--moe-router-score-function sigmoid --moe-router-enable-expert-bias "                   \
          "--moe-router-bias-update-rate 0.05 --moe-shared-expert-intermediate-size 16 "           \
          "--mtp-num-layers 1 "
#define ONE    "--micro-batch-size 1 "
#define ZERO_3 ONE "--use-megatron-fsdp --ckpt-format fsdp_dtensor "
#define ZERO_0 ZERO_3 "--data-parallel-sharding-strategy no_shard "
#define ZERO_1 ZERO_3 "--data-parallel-sharding-strategy optim "
#define ZERO_2 ZERO_3 "--data-parallel-sharding-strategy optim_grads "
#define HSDP   "--num-distributed-optimizer-instances 2 "
#define WINDOW "--suggested-communication-unit-size 20000 "

static struct run_case alone, among;

/* A row for `ranks` ranks (0: any). */
struct layout_row {
    int ranks;
    const char *flags;
};

static void check_rows(const char *model, const char *base, const struct layout_row *rows, size_t n)
{
    run_case_flags(NULL, model, base, &alone);
    CHECK_EQ_INT(alone.n, 20, "steps");
    for (size_t i = 0; i < n; i++) {
        if (rows[i].ranks != 0 && rows[i].ranks != world->n_ranks)
            continue;
        run_case_flags(world, model, rows[i].flags, &among);
        run_case_check_same(&alone, &among, 0, rows[i].flags);
    }
}

/* ---- A1 ---- */

static void A1_layouts_of_a_dense_model(void **state)
{
    static const struct layout_row rows[] = {
        {0, ONE}, /* DDP: DP 1, 2, 4, 8 */
        {0, ONE "--use-distributed-optimizer "},
        {0, ZERO_0},
        {0, ZERO_1},
        {0, ZERO_2},
        {0, ZERO_3},
        {1, ZERO_3 "--micro-batch-size 8 "},
        {2, ZERO_3 "--micro-batch-size 2 "},
        {4, ZERO_2 "--micro-batch-size 2 "},
        {2, ZERO_3 HSDP},
        {4, ZERO_3 HSDP},
        {4, ZERO_1 HSDP},
        {8, ZERO_2 HSDP},
        {4, ZERO_3 HSDP "--outer-dp-sharding-strategy optim "},
        {8, ZERO_3 "--num-distributed-optimizer-instances 4 --outer-dp-sharding-strategy optim "},
        {2, ONE "--tensor-model-parallel-size 2 "},
        {2, ZERO_3 "--context-parallel-size 2 "},
        {2, ZERO_3 "--pipeline-model-parallel-size 2 "},
        {4, ZERO_3 "--tensor-model-parallel-size 2 "},
        {4, ONE "--use-distributed-optimizer --tensor-model-parallel-size 4 "},
        {4, ONE "--pipeline-model-parallel-size 2 --tensor-model-parallel-size 2 "},
        {4, ZERO_2 "--context-parallel-size 2 "},
        {8, ONE "--pipeline-model-parallel-size 2 --tensor-model-parallel-size 2 "
                "--use-distributed-optimizer --use-tp-pp-dp-mapping "},
        {8, ZERO_3 "--pipeline-model-parallel-size 2 --context-parallel-size 2 "},
        {8, ZERO_3 "--tensor-model-parallel-size 2 --context-parallel-size 2 "},
    };

    (void)state;
    check_rows(DENSE, ONE, rows, DCPK_COUNT(rows));
    CHECK(alone.steps[19].loss.value < alone.steps[0].loss.value - 0.5, "it learns");
}

/* Tied embeddings, q and k norms, routers' biases, shared experts, a token ahead. */
static void A1_layouts_of_experts(void **state)
{
    static const struct layout_row rows[] = {
        {0, ZERO_3},
        {0, ONE "--use-distributed-optimizer "},
        {0, ZERO_3 "--recompute-granularity full "}, /* counts a token's choice once */
        {2, ZERO_3 "--expert-model-parallel-size 2 "},
        {2, ZERO_2 "--pipeline-model-parallel-size 2 "},
        {4, ZERO_3 "--expert-model-parallel-size 4 --micro-batch-size 2 "},
        {4, ONE "--expert-model-parallel-size 2 --tensor-model-parallel-size 2 "},
        {4, ZERO_1 "--expert-model-parallel-size 2 --pipeline-model-parallel-size 2 "},
        {4, ZERO_3 "--context-parallel-size 2 --expert-model-parallel-size 4 "},
        {4, ZERO_3 HSDP "--expert-model-parallel-size 2 "},
        {8, ZERO_3 HSDP "--expert-model-parallel-size 2 "}, /* experts: 2 inner, 2 outer ranks */
        {8, ZERO_3 HSDP "--expert-model-parallel-size 2 --outer-dp-sharding-strategy optim "},
        {8, ZERO_3 "--tensor-model-parallel-size 2 --expert-model-parallel-size 2 "},
        {8, ONE "--pipeline-model-parallel-size 2 --expert-model-parallel-size 4 "},
    };

    (void)state;
    check_rows(MOE, ONE, rows, DCPK_COUNT(rows));
}

static void A1_layouts_in_bf16(void **state)
{
    static const struct layout_row rows[] = {
        {0, ZERO_3},
        {2, ONE "--tensor-model-parallel-size 2 "},
        {2, ZERO_3 "--context-parallel-size 2 --expert-model-parallel-size 2 "},
        {4, ZERO_3 "--expert-model-parallel-size 2 --pipeline-model-parallel-size 2 "},
        {8, ZERO_2 "--tensor-model-parallel-size 2 --expert-model-parallel-size 4 "},
    };

    (void)state;
    check_rows(MOE "--bf16 --calculate-per-token-loss ", ONE, rows, DCPK_COUNT(rows));
}

static void A1_layouts_in_fp16(void **state)
{
    static const struct layout_row rows[] = {
        {0, ZERO_3},
        {2, ONE "--tensor-model-parallel-size 2 "},
        {4, ZERO_1 "--expert-model-parallel-size 2 --pipeline-model-parallel-size 2 "},
        {8, ZERO_3 "--context-parallel-size 2 --expert-model-parallel-size 2 "},
    };

    (void)state;
    if (world->n_ranks == 4 && getenv("DCPK_ALL_LAYOUTS") == NULL)
        return;
    check_rows(MOE "--fp16 --initial-loss-scale 33554432 --loss-scale-window 4 ", ONE, rows,
               DCPK_COUNT(rows));
    CHECK(alone.steps[0].is_skipped && !alone.steps[19].is_skipped, "overflows, then none");
}

/* Other units of sums have other bits, again the same in every layout; noise of losses, too. */
static void A1_layouts_with_other_sums(void **state)
{
    static const struct layout_row rows[] = {
        {0, ZERO_3},
        {2, ONE "--tensor-model-parallel-size 2 "},
        {4, ONE "--tensor-model-parallel-size 4 "},
        {4, ZERO_3 "--context-parallel-size 4 "},
        {8, ZERO_3 HSDP "--tensor-model-parallel-size 2 "},
    };

    (void)state;
    check_rows(DENSE "--exact-lsb 40 --virtual-slices 4 --leaf-tokens 2 --noise-floor "
                     "--weight-decay-incr-style cosine --start-weight-decay 0 "
                     "--end-weight-decay 0.1 --clip-grad 0 ",
               ONE, rows, DCPK_COUNT(rows));
    for (size_t i = 0; i < alone.n; i++)
        CHECK(alone.steps[i].loss_noise.is_there &&
                  alone.steps[i].loss_noise.value == among.steps[i].loss_noise.value,
              "noise");
}

/* ---- A2 ---- */

static void A2_schedules_change_no_bit(void **state)
{
    static const struct layout_row rows[] = {
        {0, ZERO_1 "--overlap-grad-reduce "},
        {0, ZERO_1 "--overlap-param-gather "},
        {0, ZERO_1 "--overlap-grad-reduce --overlap-param-gather "},
        {0, ZERO_0 "--overlap-grad-reduce "},
        {0, ZERO_3 "--no-overlap-grad-reduce --no-overlap-param-gather "},
        {0, ZERO_3 "--fsdp-double-buffer "},
        {0, ZERO_3 "--megatron-fsdp-max-pool-double-buffer "},
        {0, ZERO_3 WINDOW "--fsdp-double-buffer "},
        {0, ZERO_3 "--use-nccl-ub "},
        {0, ZERO_3 "--use-nccl-ub --disable-symmetric-registration "},
        {0, ZERO_3 "--use-nccl-ub --fsdp-manual-registration "},
        {0, ZERO_3 "--init-model-with-meta-device "},
        {0, ZERO_3 "--recompute-granularity full "},
        {0, ZERO_3 "--recompute-granularity full --fsdp-double-buffer " WINDOW},
        {0, ZERO_3 "--suggested-communication-unit-size 1 "},
        {0, ZERO_3 "--suggested-communication-unit-size 9000 "},
        {0, ZERO_3 WINDOW},
        {0, ZERO_2 WINDOW},
        {0, ZERO_3 "--suggested-communication-unit-size 1000000 "},
        {0, ZERO_3 "--ddp-bucket-size 3000 "},
        {0, ZERO_2 "--ddp-bucket-size 1 "},
        {0, ZERO_3 "--fine-grained-param-gather "},
        {0, ZERO_3 "--gradient-reduce-div-fusion --create-all-gather-group "},
        {0, ZERO_3 "--keep-fp8-transpose-cache --check-for-nan-in-loss-and-grad "},
        {0, ZERO_3 "--average-in-collective "},
        {0, ZERO_3 "--reuse-grad-buf-for-mxfp8-param-ag "},
        {2, ZERO_1 "--check-weight-hash-across-dp-replicas-interval 3 "},
    };

    (void)state;
    if (world->n_ranks > 2 && getenv("DCPK_ALL_LAYOUTS") == NULL)
        return; /* CI sets it */
    check_rows(DENSE, ONE, rows, DCPK_COUNT(rows));
}

static size_t n_first_windows; /* when the first step was logged */

static void count_windows(void)
{
    n_first_windows = n_buffer_windows;
}

/* Registered after the first iteration, or by DDP before it; undone when the run ends. */
static void A2_user_buffers_change_no_bit(void **state)
{
    static const char *const rows[] = {ONE "--use-distributed-optimizer ", ZERO_0, ZERO_1, ZERO_2,
                                       ZERO_3};
    const struct dcpk_collectives *plain = world->by;

    (void)state;
    run_case_flags(NULL, DENSE "--exit-at 4 ", ONE, &alone);
    among.gpu_major = 9;
    among.between = count_windows;
    for (size_t i = 0; i < DCPK_COUNT(rows); i++) {
        buffer_case_begin(world);
        run_case_flags(world, DENSE "--exit-at 4 --use-nccl-ub ", rows[i], &among);
        world->by = plain;
        run_case_check_same(&alone, &among, 0, rows[i]);
        CHECK((n_buffer_windows > 0) == (world->n_ranks > 1), rows[i]);
        CHECK_EQ_INT(n_first_windows, i == 0 ? n_buffer_windows : 0, rows[i]);
        CHECK_EQ_INT(n_buffer_known, 0, rows[i]);
    }
    among.gpu_major = 0;
    among.between = NULL;
}

/* What Megatron would hold and send, where sums are floats as Megatron's are. What this loop holds
 * is compared in every run of these tests (run_case.h). */
static void A2_bytes_are_those_of_the_formulas(void **state)
{
    static const struct {
        const char *flags;
        bool has_copy; /* of gradients for the optimizer, in the dtype of the main parameters */
    } rows[] = {
        {ZERO_0, false},
        {ZERO_1, false},
        {ZERO_2, false},
        {ZERO_3, false},
        {ZERO_3 "--fsdp-double-buffer ", false},
        {ZERO_3 "--ddp-bucket-size 3000 ", false},
        {ZERO_3 "--bf16 ", false},
        {ZERO_1 "--bf16 ", false},
        {ZERO_2 "--bf16 --megatron-fsdp-grad-comm-dtype bf16 ", false},
        {ZERO_3 "--bf16 --megatron-fsdp-grad-comm-dtype bf16 ", false},
        {ZERO_3 "--bf16 --megatron-fsdp-main-grads-dtype bf16 ", true},
        {ZERO_0 HSDP, false},
        {ZERO_1 HSDP, false},
        {ZERO_2 HSDP, false},
        {ZERO_3 HSDP, false},
        {ZERO_3 HSDP "--num-experts 4 ", false},
        {ZERO_3 HSDP "--bf16 --megatron-fsdp-main-grads-dtype bf16 ", true},
        {ZERO_3 HSDP "--outer-dp-sharding-strategy optim ", false},
        {ZERO_3 "--pipeline-model-parallel-size 2 --no-untie-embeddings-and-output-weights ",
         false},
        {ONE "--use-distributed-optimizer --pipeline-model-parallel-size 2 "
             "--no-untie-embeddings-and-output-weights ",
         false},
        /* of 4 ranks and more */
        {ZERO_3 HSDP "--num-experts 4 --expert-model-parallel-size 2 ", false},
        {ZERO_3 HSDP "--num-experts 4 --expert-model-parallel-size 2 "
                     "--outer-dp-sharding-strategy optim ",
         false},
    };
    const size_t n = DCPK_COUNT(rows) - (world->n_ranks < 4 ? 2 : 0);

    (void)state;
    for (size_t i = 0; i < n; i++) {
        const char *label = rows[i].flags;
        const struct dcpk_train_measured *m = &among.measured;
        uint64_t grads = 0;

        run_case_flags(world, DENSE "--reduce native --exit-at 2 ", label, &among);
        grads = among.megatron.held[DCPK_TAG_GRADS] + among.n_flag_bytes;
        if (rows[i].has_copy)
            grads += m->held[DCPK_TAG_MAIN];
        CHECK_EQ_INT(m->held[DCPK_TAG_WEIGHTS], among.megatron.held[DCPK_TAG_WEIGHTS], label);
        CHECK_EQ_INT(m->held[DCPK_TAG_MAIN], among.megatron.held[DCPK_TAG_MAIN], label);
        CHECK_EQ_INT(m->held[DCPK_TAG_GRADS], grads, label);
        CHECK_EQ_INT(m->held[DCPK_TAG_ADAM], among.megatron.held[DCPK_TAG_ADAM], label);
        for (int a = 0; a < DCPK_FSDP_N_ACTIONS; a++)
            CHECK_EQ_INT(m->sent.n_bytes[a], among.megatron.sent.n_bytes[a], label);
    }
}

/* What was gathered to compute a layer again serves its backward pass. */
static void A2_recomputation_gathers_no_more(void **state)
{
    static struct run_case again;

    (void)state;
    run_case_flags(world, DENSE "--exit-at 2 ", ZERO_3, &among);
    run_case_flags(world, DENSE "--exit-at 2 ", ZERO_3 "--recompute-granularity full ", &again);
    CHECK_EQ_INT(again.measured.sent.n_calls[DCPK_FSDP_GATHER],
                 among.measured.sent.n_calls[DCPK_FSDP_GATHER], "gathers");
    CHECK(again.measured.held[DCPK_TAG_ACT] < among.measured.held[DCPK_TAG_ACT], "activations");
}

/* S1-11: gradients in bf16 are half of those in fp32; S1-10: shards alone are ever initialised. */
static void A2_bytes_of_options(void **state)
{
    static struct run_case other;

    (void)state;
    run_case_flags(world, DENSE "--exit-at 2 --reduce native --bf16 ", ZERO_3, &among);
    run_case_flags(world, DENSE "--exit-at 2 --reduce native --bf16 ",
                   ZERO_3 "--megatron-fsdp-grad-comm-dtype bf16 ", &other);
    CHECK_EQ_INT(2 * other.measured.sent.n_bytes[DCPK_FSDP_REDUCE],
                 among.measured.sent.n_bytes[DCPK_FSDP_REDUCE], "half");
    run_case_flags(world, DENSE "--exit-at 2 --reduce native --bf16 ",
                   ZERO_3 "--init-model-with-meta-device ", &other);
    for (int tag = 0; tag < DCPK_N_TAGS; tag++)
        CHECK_EQ_INT(other.measured.held[tag], among.measured.held[tag], "meta device");
}

/* S1-15: a unit of another size does not fit the double buffer and has memory of its own; with the
 * pool of the longest unit none has. */
static void A2_units_that_do_not_fit(void **state)
{
    static struct run_case longest;
    const char *const model = MOE "--exit-at 2 ";

    (void)state;
    run_case_flags(world, model, ZERO_3 "--fsdp-double-buffer ", &among);
    run_case_flags(world, model, ZERO_3 "--megatron-fsdp-max-pool-double-buffer ", &longest);
    CHECK(among.measured.held[DCPK_TAG_GATHER] > longest.measured.held[DCPK_TAG_GATHER],
          "the dense layer's weights beside the two buffers");
}

static struct run_case inner, inner_again;

static void run_between(void)
{
    run_case_flags(NULL, DENSE "--exit-at 4 ", ONE, &inner);
}

/* S0-15: meshes are objects: a run in the middle of another one disturbs neither. */
static void two_meshes_in_one_process(void **state)
{
    (void)state;
    run_case_flags(NULL, DENSE "--exit-at 4 ", ONE, &inner_again);
    run_case_flags(world, MOE "--exit-at 4 ", ZERO_3, &alone);
    among.between = run_between;
    run_case_flags(world, MOE "--exit-at 4 ", ZERO_3, &among);
    among.between = NULL;
    run_case_check_same(&alone, &among, 0, "outer");
    run_case_check_same(&inner_again, &inner, 0, "inner");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(A1_layouts_of_a_dense_model),
        cmocka_unit_test(A1_layouts_of_experts),
        cmocka_unit_test(A1_layouts_in_bf16),
        cmocka_unit_test(A1_layouts_in_fp16),
        cmocka_unit_test(A1_layouts_with_other_sums),
        cmocka_unit_test(A2_schedules_change_no_bit),
        cmocka_unit_test(A2_user_buffers_change_no_bit),
        cmocka_unit_test(A2_bytes_are_those_of_the_formulas),
        cmocka_unit_test(A2_recomputation_gathers_no_more),
        cmocka_unit_test(A2_bytes_of_options),
        cmocka_unit_test(A2_units_that_do_not_fit),
        cmocka_unit_test(two_meshes_in_one_process),
    };
    const int exit_with = world_join();
    int n_failed;

    if (exit_with != 0)
        return exit_with;
    n_failed = cmocka_run_group_tests(tests, NULL, NULL);
    if (n_failed > 0)
        return n_failed; /* the launcher ends the others */
    world_leave();
    return 0;
}
