/* SPDX-License-Identifier: Apache-2.0 */
/* layout_processes.c - three steps of a GPT leave the same parameters and moments, to the bit,
 * under every layout of the processes of an MPI job as under one process alone. Started by mpirun.
 */
#include "lib/train/gpt.h"
#include "lib/train/initial.h"
#include "lib/train/optim.h"
#include "lib/train/state_hash.h"
#include "lib/train/tokens.h"
#include "tests/fsdp_case.h"
#include "tests/world_case.h"

#define N_STEPS 3
#define SEQ     8

static struct dcpk_group *alone;
static struct dcpk_math *math;
static struct fsdp_case c;

/* What a run of one of the kinds below starts from; layout and strategy are the caller's. */
static void make_config(int kind)
{
    case_config(&c.config);
    c.config.model.layers = 2;
    c.config.model.max_positions = SEQ;
    c.config.model.norm_epsilon = 1e-5;
    c.config.model.rotary_base = 10000;
    c.config.model.init_std = 0.1;
    c.config.model.has_qk_norm = c.config.model.is_tied = kind > 0;
    c.config.model.experts = kind > 0 ? 4 : 0;
    c.config.precision.virtual_slices = 4;
    c.config.precision.leaf_tokens = 2;
    c.config.precision.is_per_token_loss = true;
    c.config.precision.initial_scale = 1;
    c.config.optim.form = DCPK_ADAM_TORCH;
    c.config.optim.beta1 = 0.9;
    c.config.optim.beta2 = 0.999;
    c.config.optim.eps = 1e-8;
    c.config.optim.clip = 1;
    c.config.optim.lr = 0.01;
    c.config.optim.weight_decay = 0.1;
    c.config.optim.start_wd = c.config.optim.end_wd = 0.1;
    c.config.optim.lr_style = c.config.optim.wd_style = "constant";
    c.config.data.micro_batch = 1;
    c.config.data.global_batch = CASE_SAMPLES;
    c.config.data.train_iters = N_STEPS;
    c.config.data.seed = 5;
}

static void run_step(struct dcpk_gpt *gpt, const struct dcpk_tokens *tokens, int64_t step)
{
    int32_t read[CASE_SAMPLES][SEQ], labels[CASE_SAMPLES][SEQ];
    float mask[CASE_SAMPLES][SEQ];
    struct dcpk_gpt_batch batches[CASE_SAMPLES];
    const int64_t n = CASE_SAMPLES / c.config.layout.dp;
    struct dcpk_gpt_loss loss;
    struct dcpk_error err = DCPK_ERROR_INIT;

    for (int64_t k = 0; k < n; k++) {
        const struct dcpk_microbatch microbatch = {step * CASE_SAMPLES, k, c.mesh.at.dp,
                                                   c.config.layout.dp};
        const struct dcpk_sample sample = {read[k], labels[k], mask[k]};

        CHECK_OK(
            dcpk_tokens_read(tokens, dcpk_tokens_first(&c.config.data, &microbatch), &sample, &err),
            c.label);
        batches[k] = (struct dcpk_gpt_batch){read[k], labels[k], mask[k], 1};
    }
    CHECK_OK(dcpk_fsdp_begin(c.fsdp, n, &err), c.label);
    CHECK_OK(dcpk_gpt_step(gpt, batches, n, &loss, &err), c.label);
    CHECK_OK(dcpk_fsdp_finish(c.fsdp, 1.0 / (CASE_SAMPLES * SEQ), &err), c.label);
}

/* The hash of all parameters and moments behind the last step. */
static uint64_t run(struct dcpk_group *ranks)
{
    struct dcpk_train_state state;
    struct dcpk_gpt_options options;
    struct dcpk_optim optim;
    struct dcpk_optim_result result;
    struct dcpk_tokens *tokens;
    struct dcpk_gpt *gpt;
    struct dcpk_error err = DCPK_ERROR_INIT;
    uint64_t hash = 0;

    snprintf(c.label, sizeof c.label,
             "strategy %d tp %" PRId64 " cp %" PRId64 " ep %" PRId64 " pp %" PRId64
             " instances %" PRId64 " experts %" PRId64 ", rank %d of %d",
             (int)c.config.fsdp.strategy, c.config.layout.tp, c.config.layout.cp,
             c.config.layout.ep, c.config.layout.pp, c.config.layout.instances,
             c.config.model.experts, ranks->rank, ranks->n_ranks);
    CHECK_OK(case_begin(&c, ranks, math, &err), c.label);
    state = (struct dcpk_train_state){.config = &c.config,
                                      .params = &c.params,
                                      .shards = dcpk_fsdp_shards(c.fsdp),
                                      .mesh = &c.mesh,
                                      .math = math};
    options = (struct dcpk_gpt_options){
        &c.config, &c.mesh, &c.params, &c.account, dcpk_fsdp_weights(c.fsdp), NULL};
    CHECK_OK(dcpk_gpt_new(&options, &gpt, &err), c.label);
    CHECK_OK(dcpk_tokens_open(&c.config, &tokens, &err), c.label);
    CHECK_OK(dcpk_optim_init(&c.config, &optim, &err), c.label);
    CHECK_OK(dcpk_initial_fill(&state, &err), c.label);
    CHECK_OK(dcpk_fsdp_install(c.fsdp, &err), c.label);
    for (int64_t step = 0; step < N_STEPS; step++) {
        run_step(gpt, tokens, step);
        CHECK_OK(dcpk_optim_step(&optim, &state, &result, &err), c.label);
        CHECK_OK(dcpk_fsdp_install(c.fsdp, &err), c.label);
    }
    CHECK_OK(dcpk_state_hash(&state, &hash, &err), c.label);
    dcpk_tokens_close(tokens);
    dcpk_gpt_free(gpt);
    case_end(&c);
    return hash;
}

static const struct {
    struct dcpk_grid grid;
    bool is_outer_sharded;
} layouts[] = {
    {{.tp = 1, .cp = 1, .ep = 1, .pp = 1, .dp = 1, .instances = 1}, false},
    {{.tp = 1, .cp = 1, .ep = 1, .pp = 1, .dp = 2, .instances = 1}, false},
    {{.tp = 2, .cp = 1, .ep = 1, .pp = 1, .dp = 1, .instances = 1}, false},
    {{.tp = 1, .cp = 2, .ep = 1, .pp = 1, .dp = 1, .instances = 1}, false},
    {{.tp = 1, .cp = 1, .ep = 1, .pp = 2, .dp = 1, .instances = 1}, false},
    {{.tp = 1, .cp = 1, .ep = 2, .pp = 1, .dp = 2, .instances = 1}, false},
    {{.tp = 1, .cp = 1, .ep = 1, .pp = 1, .dp = 4, .instances = 1}, false},
    {{.tp = 1, .cp = 1, .ep = 1, .pp = 1, .dp = 4, .instances = 2}, false},
    {{.tp = 1, .cp = 1, .ep = 1, .pp = 1, .dp = 4, .instances = 2}, true},
    {{.tp = 2, .cp = 1, .ep = 1, .pp = 1, .dp = 2, .instances = 1}, false},
    {{.tp = 2, .cp = 1, .ep = 2, .pp = 1, .dp = 2, .instances = 1}, false},
    {{.tp = 1, .cp = 1, .ep = 1, .pp = 2, .dp = 2, .instances = 1}, false},
    {{.tp = 2, .cp = 1, .ep = 1, .pp = 2, .dp = 1, .instances = 1}, false},
    {{.tp = 1, .cp = 2, .ep = 2, .pp = 1, .dp = 2, .instances = 1}, false},
    {{.tp = 1, .cp = 1, .ep = 2, .pp = 1, .dp = 4, .instances = 2}, false},
    {{.tp = 1, .cp = 1, .ep = 2, .pp = 1, .dp = 4, .instances = 2}, true},
};

static void try_layout(int kind, size_t i, uint64_t want)
{
    for (int s = DCPK_NO_SHARD; s <= DCPK_OPTIM_GRADS_PARAMS; s++) {
        uint64_t got;

        if (layouts[i].is_outer_sharded && s != DCPK_OPTIM_GRADS_PARAMS)
            continue;
        make_config(kind);
        c.config.layout = layouts[i].grid;
        c.config.fsdp.is_outer_sharded = layouts[i].is_outer_sharded;
        c.config.fsdp.strategy = (enum dcpk_strategy)s;
        c.config.fsdp.unit_elems = s * 1000;
        got = run(world);
        CHECK(got == want, c.label);
    }
}

static void layouts_leave_the_same_state(void **state)
{
    (void)state;
    for (int kind = 0; kind < 2; kind++) {
        uint64_t want;

        make_config(kind);
        want = run(alone);
        make_config(kind);
        c.config.data.seed++;
        CHECK(run(alone) != want, "another seed leaves another state");
        for (size_t i = 0; i < sizeof layouts / sizeof layouts[0]; i++) {
            const struct dcpk_grid *l = &layouts[i].grid;

            if (l->tp * l->cp * l->pp * l->dp == world->n_ranks && (kind == 1 || l->ep == 1))
                try_layout(kind, i, want);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(layouts_leave_the_same_state)};
    struct dcpk_error err = DCPK_ERROR_INIT;
    const int exit_with = world_join();
    int n_failed;

    if (exit_with != 0)
        return exit_with;
    if (dcpk_collectives_alone.world(NULL, 0, &alone, &err) ||
        dcpk_math_open(dcpk_math_ops[0], 0, &math, &err)) {
        fprintf(stderr, "%s\n", err.text);
        return 4;
    }
    n_failed = cmocka_run_group_tests(tests, NULL, NULL);
    if (n_failed > 0)
        return n_failed; /* the launcher ends the others */
    math->device->ops->close(math->device);
    alone->by->free(alone);
    world_leave();
    return 0;
}
