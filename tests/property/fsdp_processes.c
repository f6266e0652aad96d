/* SPDX-License-Identifier: Apache-2.0 */
/* fsdp_processes.c - FSDP over the processes of an MPI job: all strategies, layouts and schedules
 * give the same bits; bytes sent and held are those of the formulas. Started by mpirun. */
#include <inttypes.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/train/footprint.h"
#include "tests/fsdp_case.h"
#include "tests/world_case.h"

static struct dcpk_math *math;
static struct fsdp_case c;

static const char *const strategies[] = {"no_shard", "optim", "optim_grads", "optim_grads_params"};

/* Two steps; traffic and memory are what was predicted. */
static void run_case(void)
{
    const struct dcpk_fsdp_traffic *traffic;
    struct dcpk_train_footprint want;
    struct dcpk_fsdp_traffic begun;
    struct dcpk_error err = DCPK_ERROR_INIT;

    snprintf(c.label, sizeof c.label,
             "%s, mode %d, tp %" PRId64 " cp %" PRId64 " ep %" PRId64 " pp %" PRId64
             " instances %" PRId64 " unit %" PRId64 " bucket %" PRId64 ", rank %d of %d",
             strategies[c.config.fsdp.strategy], (int)c.config.fsdp.mode, c.config.layout.tp,
             c.config.layout.cp, c.config.layout.ep, c.config.layout.pp, c.config.layout.instances,
             c.config.fsdp.unit_elems, c.config.fsdp.bucket_elems, world->rank, world->n_ranks);
    CHECK_OK(case_begin(&c, world, math, &err), c.label);
    case_initialise(&c);
    CHECK_OK(dcpk_fsdp_install(c.fsdp, &err), c.label);
    traffic = dcpk_fsdp_traffic(c.fsdp);
    case_step(&c, 0, 0.25);
    begun = *traffic;
    case_step(&c, 1, 0.25);
    dcpk_fsdp_footprint(c.fsdp, DCPK_OF_THIS_RUN, case_microbatches(&c), &want);
    for (int a = 0; a < DCPK_FSDP_N_ACTIONS; a++) {
        if (a == DCPK_FSDP_READY || a == DCPK_FSDP_RELEASE || a == DCPK_FSDP_REDUCED)
            continue;
        CHECK_EQ_INT(traffic->n_bytes[a] - begun.n_bytes[a], want.sent.n_bytes[a], c.label);
        CHECK_EQ_INT(traffic->n_calls[a] - begun.n_calls[a], want.sent.n_calls[a], c.label);
    }
    for (int t = 0; t < DCPK_N_TAGS; t++)
        CHECK_EQ_INT(c.account.most[t], want.held[t], c.label);
    case_end(&c);
}

/* The i-th of some variations of schedules, which may not change a bit. */
static void run_schedule(int i)
{
    const struct dcpk_train_fsdp plain = c.config.fsdp;
    static const int64_t unit_elems[] = {0, 1, 3000, 8000, 0};
    static const int64_t bucket_elems[] = {-1, 500, 0};

    c.config.fsdp.unit_elems = unit_elems[i];
    c.config.fsdp.bucket_elems = bucket_elems[i % 3];
    c.config.fsdp.overlaps_reduce = i % 2 == 1;
    c.config.fsdp.overlaps_gather = i >= 2;
    c.config.fsdp.has_double_buffer = i == 2 || i == 4;
    c.config.fsdp.has_max_pool = i == 3;
    c.config.fsdp.recomputes = i == 1;
    run_case();
    c.config.fsdp = plain;
}

static void run_schedules(void)
{
    for (int i = 0; i < 5; i++)
        run_schedule(i);
}

static void strategies_give_the_same_bits(void **state)
{
    const int64_t n = world->n_ranks;

    (void)state;
    for (int s = DCPK_NO_SHARD; s <= DCPK_OPTIM_GRADS_PARAMS; s++) {
        case_config(&c.config);
        c.config.layout.dp = n;
        c.config.fsdp.strategy = (enum dcpk_strategy)s;
        run_schedules();
    }
    case_config(&c.config);
    c.config.layout.dp = n;
    c.config.fsdp.mode = DCPK_MODE_DDP;
    run_schedules();
    c.config.fsdp.has_distributed_optimizer = false;
    run_case();
}

static void layouts_give_the_same_bits(void **state)
{
    static const struct dcpk_grid layouts[] = {
        {.tp = 1, .cp = 1, .ep = 1, .pp = 1, .dp = 2, .instances = 2},
        {.tp = 2, .cp = 1, .ep = 1, .pp = 1, .dp = 1, .instances = 1},
        {.tp = 1, .cp = 1, .ep = 1, .pp = 2, .dp = 1, .instances = 1},
        {.tp = 1, .cp = 2, .ep = 2, .pp = 1, .dp = 1, .instances = 1},
        {.tp = 1, .cp = 1, .ep = 1, .pp = 1, .dp = 4, .instances = 2},
        {.tp = 2, .cp = 1, .ep = 2, .pp = 1, .dp = 2, .instances = 1},
        {.tp = 1, .cp = 2, .ep = 2, .pp = 1, .dp = 2, .instances = 1},
        {.tp = 1, .cp = 1, .ep = 1, .pp = 2, .dp = 2, .instances = 2},
        {.tp = 1, .cp = 1, .ep = 2, .pp = 2, .dp = 2, .instances = 1},
        {.tp = 1, .cp = 2, .ep = 2, .pp = 1, .dp = 2, .instances = 2},
    };

    (void)state;
    for (size_t i = 0; i < sizeof layouts / sizeof layouts[0]; i++) {
        const struct dcpk_grid *l = &layouts[i];

        if (l->tp * l->cp * l->pp * l->dp != world->n_ranks)
            continue;
        for (int s = DCPK_NO_SHARD; s <= DCPK_OPTIM_GRADS_PARAMS; s++) {
            case_config(&c.config);
            c.config.layout = *l;
            c.config.fsdp.strategy = (enum dcpk_strategy)s;
            c.config.model.layers = 2;
            c.config.model.experts = 4;
            c.config.model.has_expert_bias = c.config.model.has_qk_norm = true;
            c.config.model.is_tied = true;
            run_schedule((int)(i + (size_t)s) % 4);
        }
        if (l->instances > 1) {
            c.config.fsdp.is_outer_sharded = true;
            run_schedule((int)(i + 1) % 4);
        }
    }
}

/* Floats: what is sent and held; sums of one rank are exact where a gradient is a bf16 number. */
static void native_sums_are_counted(void **state)
{
    static const enum dcpk_dtype dtypes[][2] = {
        {DCPK_F32, DCPK_F32}, {DCPK_F32, DCPK_BF16}, {DCPK_BF16, DCPK_F32}, {DCPK_BF16, DCPK_BF16}};

    (void)state;
    for (int s = DCPK_NO_SHARD; s <= DCPK_OPTIM_GRADS_PARAMS; s++)
        for (int d = 0; d < 4; d++) {
            case_config(&c.config);
            c.config.layout.dp = world->n_ranks;
            c.config.fsdp.strategy = (enum dcpk_strategy)s;
            c.config.precision.is_exact = false;
            c.config.precision.main_grads = dtypes[d][0];
            c.config.precision.comm = dtypes[d][1];
            c.config.fsdp.overlaps_reduce = d % 2 == 1;
            c.config.fsdp.unit_elems = d * 1000;
            run_case();
        }
}

static void native_sums_are_near(void **state)
{
    const struct dcpk_train_shards *shards;
    struct dcpk_error err = DCPK_ERROR_INIT;

    (void)state;
    for (int s = DCPK_NO_SHARD; s <= DCPK_OPTIM_GRADS_PARAMS; s++) {
        const int64_t n = CASE_SAMPLES / world->n_ranks;

        case_config(&c.config);
        c.config.layout.dp = world->n_ranks;
        c.config.fsdp.strategy = (enum dcpk_strategy)s;
        c.config.precision.is_exact = false;
        snprintf(c.label, sizeof c.label, "native %s", strategies[s]);
        CHECK_OK(case_begin(&c, world, math, &err), c.label);
        case_initialise(&c);
        CHECK_OK(dcpk_fsdp_install(c.fsdp, &err), c.label);
        CHECK_OK(dcpk_fsdp_begin(c.fsdp, n, &err), c.label);
        for (int64_t k = 0; k < n; k++)
            case_pass(&c, k, DCPK_BACKWARD, 0, 0.25);
        CHECK_OK(dcpk_fsdp_finish(c.fsdp, 0.25, &err), c.label);
        shards = dcpk_fsdp_shards(c.fsdp);
        for (size_t i = 0; i < shards->n; i++) {
            const struct dcpk_train_shard *shard = &shards->list[i];
            const struct dcpk_train_param *p = &c.params.list[shard->param];

            for (int64_t e = 0; e < shard->n_elems; e++)
                CHECK(fabsf(shard->grad[e] - case_sum(&c.config, p, shard->row + e / p->shape[1],
                                                      e % p->shape[1], 0.25)) < 1e-5f,
                      c.label);
        }
        case_end(&c);
    }
}

/* The model of the specification's layout examples: h = 64, 4 heads, V = 256, f = 96, 4 layers. */
static void megatron_config(void)
{
    case_config(&c.config);
    c.config.layout.dp = world->n_ranks;
    c.config.model.layers = 4;
    c.config.model.hidden = 64;
    c.config.model.ffn = 96;
    c.config.model.groups = 4;
    c.config.model.head_dim = 16;
    c.config.model.padded_vocab = c.config.model.vocab_size = 256;
}

static void sizes_are_those_of_megatron(void **state)
{
    static const struct {
        int n_ranks;
        enum dcpk_param_kind kind;
        int64_t cut[5];
    } cases[] = {
        {2, DCPK_P_FC2, {0, 64, 64}},
        {2, DCPK_P_PROJ, {0, 64, 64}},
        {2, DCPK_P_QKV, {0, 111, 192}},
        {2, DCPK_P_FC1, {0, 0, 192}},
        {2, DCPK_P_INPUT_NORM, {0, 64, 64}},
        {2, DCPK_P_EMBEDDING, {0, 256, 256}},
        {2, DCPK_P_OUTPUT, {0, 1, 256}},
        {2, DCPK_P_FINAL_NORM, {0, 0, 64}},
        {4, DCPK_P_FC2, {0, 64, 64, 64, 64}},
        {4, DCPK_P_PROJ, {0, 42, 64, 64, 64}},
        {4, DCPK_P_QKV, {0, 0, 114, 192, 192}},
        {4, DCPK_P_FC1, {0, 0, 0, 60, 192}},
        {4, DCPK_P_MLP_NORM, {0, 0, 64, 64, 64}},
        {4, DCPK_P_EMBEDDING, {0, 129, 256, 256, 256}},
        {4, DCPK_P_OUTPUT, {0, 0, 2, 131, 256}},
        {4, DCPK_P_FINAL_NORM, {0, 0, 0, 0, 64}},
    };
    const struct dcpk_train_shards *shards;
    struct dcpk_train_footprint foot;
    struct dcpk_error err = DCPK_ERROR_INIT;
    const int r = world->rank;

    (void)state;
    megatron_config();
    snprintf(c.label, sizeof c.label, "Megatron's sizes");
    CHECK_OK(case_begin(&c, world, math, &err), c.label);
    shards = dcpk_fsdp_shards(c.fsdp);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        int64_t first = 0, n_rows = 0;

        if (cases[i].n_ranks != world->n_ranks)
            continue;
        for (size_t s = 0; s < shards->n; s++)
            if (c.params.list[shards->list[s].param].kind == cases[i].kind) {
                first = shards->list[s].row;
                n_rows = shards->list[s].n_rows;
            }
        CHECK_EQ_INT(n_rows, cases[i].cut[r + 1] - cases[i].cut[r], c.label);
        if (n_rows > 0)
            CHECK_EQ_INT(first, cases[i].cut[r], c.label);
    }
    dcpk_fsdp_footprint(c.fsdp, DCPK_OF_THIS_RUN, 3, &foot);
    if (world->n_ranks == 2) { /* 4 units of 34944 elements, 32896 outside */
        CHECK_EQ_INT(c.account.now[DCPK_TAG_MAIN], 4 * 86336, c.label);
        CHECK_EQ_INT(c.account.now[DCPK_TAG_ADAM], 8 * (r == 1 ? 86272 : 86336), c.label);
        CHECK_EQ_INT(foot.sent.n_bytes[DCPK_FSDP_GATHER], (2 * 3 * 4 * 34944 + 32896) * 2 / 2,
                     c.label);
        CHECK_EQ_INT(foot.sent.n_bytes[DCPK_FSDP_REDUCE], 3 * (4 * 34944 + 32896) * 8 / 2, c.label);
    }
    case_end(&c);
}

/* Two units of Megatron's sizes at a time, of weights and of gradients; else all four. */
static void double_buffer_bounds_memory(void **state)
{
    struct dcpk_train_footprint foot;
    struct dcpk_error err = DCPK_ERROR_INIT;

    (void)state;
    for (int is_double = 0; is_double < 2 && world->n_ranks == 2; is_double++) {
        const uint64_t n_units = is_double ? 2 : 4;

        megatron_config();
        c.config.fsdp.has_double_buffer = is_double;
        snprintf(c.label, sizeof c.label, "double buffer %d", is_double);
        CHECK_OK(case_begin(&c, world, math, &err), c.label);
        dcpk_fsdp_footprint(c.fsdp, DCPK_OF_THIS_RUN, 1, &foot);
        CHECK_EQ_INT(foot.held[DCPK_TAG_GATHER], n_units * 34944 * 2, c.label);
        CHECK_EQ_INT(foot.held[DCPK_TAG_COMM], (n_units * 34944 + 32896) * 8, c.label);
        case_end(&c);
    }
}

/* Each row of each parameter is counted by one rank. */
static void rows_are_counted_once(void **state)
{
    static const struct dcpk_grid layouts[] = {
        {.tp = 1, .cp = 1, .ep = 1, .pp = 1, .dp = 4, .instances = 2},
        {.tp = 2, .cp = 1, .ep = 2, .pp = 1, .dp = 2, .instances = 1},
        {.tp = 1, .cp = 1, .ep = 1, .pp = 2, .dp = 2, .instances = 1},
        {.tp = 1, .cp = 1, .ep = 2, .pp = 1, .dp = 4, .instances = 2},
    };

    (void)state;
    for (size_t i = 0; world->n_ranks == 4 && i < sizeof layouts / sizeof layouts[0]; i++)
        for (int s = DCPK_NO_SHARD; s <= DCPK_OPTIM_GRADS_PARAMS; s++) {
            struct dcpk_error err = DCPK_ERROR_INIT;
            double n_counted = 0, n_wanted = 0;

            case_config(&c.config);
            c.config.layout = layouts[i];
            c.config.fsdp.strategy = (enum dcpk_strategy)s;
            c.config.model.experts = 4;
            c.config.model.layers = 2;
            c.config.model.is_tied = true;
            snprintf(c.label, sizeof c.label, "layout %zu, %s", i, strategies[s]);
            CHECK_OK(case_begin(&c, world, math, &err), c.label);
            for (size_t j = 0; j < dcpk_fsdp_shards(c.fsdp)->n; j++) {
                const struct dcpk_train_shard *shard = &dcpk_fsdp_shards(c.fsdp)->list[j];

                if (shard->is_counted)
                    n_counted += (double)shard->n_elems;
            }
            CHECK_OK(world->by->all_reduce(world, DCPK_SUM_F64, &n_counted, 1, NULL, &err),
                     c.label);
            /* a layer: norms, proj, qkv, router, 4 experts; embedding; final norm */
            n_wanted = 2 * (2 * 16 + 16 * 16 + 32 * 16 + 4 * 16 + 4 * (24 * 16 + 16 * 12));
            n_wanted += 32 * 16 + 16;
            CHECK_EQ_INT(n_counted, n_wanted, c.label);
            case_end(&c);
        }
}

/* The schedule can be read: one unit is gathered ahead, one reduction is under way. */
static void schedule_can_be_printed(void **state)
{
    static const char want[] =
        "gather 0|prefetch 1|ready 0|prefetch 2|ready 1|release 1|ready 2|release 2|"
        "prefetch 2|prefetch 1|ready 2|reduce 2|reduced 2|release 2|ready 1|reduce 1|reduced 1|"
        "release 1|reduce 0|reduced 0|";
    char got[1024] = "";
    struct dcpk_error err = DCPK_ERROR_INIT;

    (void)state;
    case_config(&c.config);
    c.config.layout.dp = world->n_ranks;
    c.config.model.layers = 2;
    c.config.fsdp.unit_elems = 2;
    snprintf(c.label, sizeof c.label, "schedule");
    CHECK_OK(case_begin(&c, world, math, &err), c.label);
    case_initialise(&c);
    CHECK_OK(dcpk_fsdp_install(c.fsdp, &err), c.label);
    CHECK_OK(dcpk_fsdp_begin(c.fsdp, 1, &err), c.label);
    case_pass(&c, 0, DCPK_FORWARD, 0, 1);
    case_pass(&c, 0, DCPK_BACKWARD, 0, 1);
    for (size_t i = 0; i < c.n_log; i++) {
        const size_t n = strlen(got);

        snprintf(got + n, sizeof got - n, "%s %zu|", dcpk_fsdp_action_names[c.log[i].action],
                 c.log[i].bucket);
    }
    CHECK_EQ_STR(got, want, c.label);
    CHECK_OK(dcpk_fsdp_finish(c.fsdp, 1, &err), c.label);
    case_end(&c);
}

/* A backward pass in which a rank that is_giver gives one number, for element 3 of row 2
 * of the embedding. */
static void pass_with(float number, bool is_giver)
{
    struct dcpk_weights *w = dcpk_fsdp_weights(c.fsdp);
    struct dcpk_error err = DCPK_ERROR_INIT;
    float row[64] = {0};

    CHECK_OK(w->ops->enter(w, -1, DCPK_BACKWARD, &err), c.label);
    for (int64_t u = 0; u < c.params.n_units; u++) {
        CHECK_OK(w->ops->enter(w, u, DCPK_BACKWARD, &err), c.label);
        CHECK_OK(w->ops->leave(w, u, DCPK_BACKWARD, &err), c.label);
    }
    row[3] = number;
    if (is_giver)
        w->ops->add(w, 0, 2, 1, row);
    CHECK_OK(w->ops->leave(w, -1, DCPK_BACKWARD, &err), c.label);
}

/* Each rank's float is finite, their sum is not: fp16 skips such a step, others fail. */
static void infinite_sum_fails_everywhere(void **state)
{
    struct dcpk_error err = DCPK_ERROR_INIT;

    (void)state;
    for (int s = DCPK_NO_SHARD; s <= DCPK_OPTIM_GRADS_PARAMS; s++) {
        case_config(&c.config);
        c.config.layout.dp = world->n_ranks;
        c.config.fsdp.strategy = (enum dcpk_strategy)s;
        c.config.fsdp.checks_nan = s % 2 == 0; /* fp16 looks in any case */
        c.config.precision.is_exact = false;
        c.config.precision.compute = DCPK_F16;
        snprintf(c.label, sizeof c.label, "infinite sum, %s", strategies[s]);
        CHECK_OK(case_begin(&c, world, math, &err), c.label);
        case_initialise(&c);
        CHECK_OK(dcpk_fsdp_install(c.fsdp, &err), c.label);
        CHECK_OK(dcpk_fsdp_begin(c.fsdp, 1, &err), c.label);
        pass_with(3e38f, true);
        if (world->n_ranks > 1)
            CHECK_FAILS(dcpk_fsdp_finish(c.fsdp, 1, &err), DCPK_ERANGE, "rank ", c.label);
        else
            CHECK_OK(dcpk_fsdp_finish(c.fsdp, 1, &err), c.label);
        CHECK(strstr(err.text, "2^") == NULL && strstr(err.text, "too large") == NULL, err.text);
        CHECK(strstr(err.text, "embedding") == NULL || strstr(err.text, "at [2, 3]") != NULL,
              err.text);
        dcpk_error_clear(&err);
        case_end(&c);
    }
}

static void bad_gradient_fails_everywhere(void **state)
{
    static const float bad[] = {NAN, INFINITY, 600000.0f}; /* 2^19 is 524288 */
    struct dcpk_error err = DCPK_ERROR_INIT;
    char text[64];

    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        const int culprit = world->n_ranks - 1;

        case_config(&c.config);
        c.config.layout.dp = world->n_ranks;
        snprintf(c.label, sizeof c.label, "bad %g", (double)bad[i]);
        CHECK_OK(case_begin(&c, world, math, &err), c.label);
        case_initialise(&c);
        CHECK_OK(dcpk_fsdp_install(c.fsdp, &err), c.label);
        CHECK_OK(dcpk_fsdp_begin(c.fsdp, 1, &err), c.label);
        pass_with(bad[i], world->rank == culprit);
        snprintf(text, sizeof text, "rank %d", culprit);
        CHECK_FAILS(dcpk_fsdp_finish(c.fsdp, 1, &err), DCPK_ERANGE, text, c.label);
        if (world->rank == culprit)
            CHECK(strstr(err.text, "'embedding.word_embeddings.weight'") != NULL &&
                      strstr(err.text, "first at [2, 3] of this rank's [32, 16]") != NULL,
                  err.text);
        case_end(&c);
    }
}

/* Collectives of the outer ranks, whose second reduction fails. */
static struct dcpk_collectives failing;
static const struct dcpk_collectives *unharmed;
static int n_reduced;

static dcpk_status fail_second(struct dcpk_group *group, enum dcpk_reduction reduction, void *all,
                               size_t n, uint64_t *ticket, struct dcpk_error *err)
{
    if (++n_reduced == 2)
        return dcpk_fail(err, DCPK_EIO, "the second reduction fails");
    return unharmed->all_reduce(group, reduction, all, n, ticket, err);
}

/* The first one is under way then: who frees waits for it where it was begun. */
static void outer_reductions_end_after_a_failure(void **state)
{
    struct dcpk_error err = DCPK_ERROR_INIT;

    (void)state;
    if (world->n_ranks % 2 != 0)
        return;
    case_config(&c.config);
    c.config.layout.dp = world->n_ranks;
    c.config.layout.instances = 2;
    snprintf(c.label, sizeof c.label, "outer failure");
    CHECK_OK(case_begin(&c, world, math, &err), c.label);
    case_initialise(&c);
    CHECK_OK(dcpk_fsdp_install(c.fsdp, &err), c.label);
    CHECK_OK(dcpk_fsdp_begin(c.fsdp, 1, &err), c.label);
    pass_with(1, true);
    unharmed = c.mesh.group[DCPK_G_OUTER]->by;
    failing = *unharmed;
    failing.all_reduce = fail_second;
    n_reduced = 0;
    c.mesh.group[DCPK_G_OUTER]->by = &failing;
    CHECK_FAILS(dcpk_fsdp_finish(c.fsdp, 1, &err), DCPK_EIO, "the second reduction", c.label);
    case_end(&c);
}

/* One rank's weight is changed: all ranks fail. */
static void replicas_are_compared(void **state)
{
    struct dcpk_error err = DCPK_ERROR_INIT;

    (void)state;
    for (int s = DCPK_NO_SHARD; s <= DCPK_OPTIM_GRADS_PARAMS; s++) {
        struct dcpk_weights *w;
        dcpk_status st;

        case_config(&c.config);
        c.config.layout.dp = world->n_ranks;
        c.config.fsdp.strategy = (enum dcpk_strategy)s;
        c.config.model.experts = 4;
        snprintf(c.label, sizeof c.label, "replicas, %s", strategies[s]);
        CHECK_OK(case_begin(&c, world, math, &err), c.label);
        case_initialise(&c);
        CHECK_OK(dcpk_fsdp_install(c.fsdp, &err), c.label);
        CHECK_OK(dcpk_fsdp_check_replicas(c.fsdp, &err), c.label);
        if (s != DCPK_OPTIM_GRADS_PARAMS && world->n_ranks > 1) {
            w = dcpk_fsdp_weights(c.fsdp);
            for (size_t i = 0; world->rank == 1 && i < c.params.n; i++)
                if (c.params.list[i].kind == (s == DCPK_OPTIM ? DCPK_P_EXPERT_FC2 : DCPK_P_PROJ))
                    memset((void *)(uintptr_t)w->ops->weight(w, i), 1, 1);
            st = dcpk_fsdp_check_replicas(c.fsdp, &err);
            CHECK_EQ_INT(st, world->rank == 1 ? DCPK_EMISMATCH : DCPK_ECANCELLED, c.label);
            dcpk_error_clear(&err);
        }
        case_end(&c);
    }
}

/* A backward pass more than begin was given would reduce twice. The child makes no call of MPI. */
static void second_reduction_is_asserted(void **state)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_group *alone;
    struct dcpk_weights *w;
    pid_t child;
    int status;

    (void)state;
    if (world->n_ranks > 1)
        return;
    CHECK_OK(dcpk_collectives_alone.world(NULL, 0, &alone, &err), "alone");
    for (int s = DCPK_NO_SHARD; s <= DCPK_OPTIM_GRADS_PARAMS; s++) {
        case_config(&c.config);
        c.config.fsdp.strategy = (enum dcpk_strategy)s;
        snprintf(c.label, sizeof c.label, "twice, %s", strategies[s]);
        CHECK_OK(case_begin(&c, alone, math, &err), c.label);
        CHECK_OK(dcpk_fsdp_install(c.fsdp, &err), c.label);
        CHECK_OK(dcpk_fsdp_begin(c.fsdp, 1, &err), c.label);
        w = dcpk_fsdp_weights(c.fsdp);
        CHECK_OK(w->ops->enter(w, 0, DCPK_BACKWARD, &err), c.label);
        CHECK_OK(w->ops->leave(w, 0, DCPK_BACKWARD, &err), c.label);
        child = fork();
        CHECK(child >= 0, c.label);
        if (child == 0) {
            signal(SIGABRT, SIG_DFL);
            (void)w->ops->enter(w, -1, DCPK_BACKWARD, &err);
            (void)w->ops->leave(w, -1, DCPK_BACKWARD, &err);
            (void)w->ops->enter(w, s == DCPK_NO_SHARD ? -1 : 0, DCPK_BACKWARD, &err);
            _exit(0);
        }
        CHECK(waitpid(child, &status, 0) == child, c.label);
        CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT, c.label);
        case_end(&c);
    }
    alone->by->free(alone);
}

static void what_does_not_fit_is_refused(void **state)
{
    struct dcpk_error err = DCPK_ERROR_INIT;

    (void)state;
    case_config(&c.config);
    c.config.layout.dp = world->n_ranks;
    c.config.layout.instances = 2;
    c.config.fsdp.is_outer_sharded = true;
    c.config.fsdp.strategy = DCPK_OPTIM;
    snprintf(c.label, sizeof c.label, "refused");
    if (world->n_ranks > 1) {
        CHECK_FAILS(case_begin(&c, world, math, &err), DCPK_EUNSUPPORTED,
                    "HFSDP is only supported with full-sharding", c.label);
        case_end(&c);
    }
    case_config(&c.config);
    c.config.layout.dp = world->n_ranks;
    c.config.precision.is_exact = false;
    c.config.precision.comm = DCPK_F16;
    CHECK_FAILS(case_begin(&c, world, math, &err), DCPK_EUNSUPPORTED, "not in float32 and float16",
                c.label);
    case_end(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(strategies_give_the_same_bits),
        cmocka_unit_test(layouts_give_the_same_bits),
        cmocka_unit_test(native_sums_are_counted),
        cmocka_unit_test(native_sums_are_near),
        cmocka_unit_test(sizes_are_those_of_megatron),
        cmocka_unit_test(double_buffer_bounds_memory),
        cmocka_unit_test(rows_are_counted_once),
        cmocka_unit_test(schedule_can_be_printed),
        cmocka_unit_test(infinite_sum_fails_everywhere),
        cmocka_unit_test(bad_gradient_fails_everywhere),
        cmocka_unit_test(outer_reductions_end_after_a_failure),
        cmocka_unit_test(replicas_are_compared),
        cmocka_unit_test(second_reduction_is_asserted),
        cmocka_unit_test(what_does_not_fit_is_refused),
    };
    struct dcpk_error err = DCPK_ERROR_INIT;
    const int exit_with = world_join();
    int n_failed;

    if (exit_with != 0)
        return exit_with;
    if (dcpk_math_open(dcpk_math_ops[0], 0, &math, &err)) {
        fprintf(stderr, "%s\n", err.text);
        return 4;
    }
    n_failed = cmocka_run_group_tests(tests, NULL, NULL);
    if (n_failed > 0)
        return n_failed; /* the launcher ends the others */
    math->device->ops->close(math->device);
    world_leave();
    return 0;
}
