/* SPDX-License-Identifier: Apache-2.0 */
/* buffer_processes.c - user buffers of FSDP over the processes of an MPI job: after registration
 * all that its groups move lies in memory that was registered with the group, in every strategy and
 * layout; bits and counted bytes are those without. Started by mpirun. */
#include "lib/train/footprint.h"
#include "lib/train/train.h"
#include "tests/buffer_case.h"
#include "tests/fsdp_case.h"
#include "tests/world_case.h"

static struct dcpk_math *math;
static struct fsdp_case c;

/* ---- collectives that watch those of MPI ---- */

static size_t n_moved; /* pieces of registered memory */
static bool is_over;   /* registration */

/* A group with registrations moves nothing else, once all are made. */
static void watch(const struct dcpk_group *group, const void *at, size_t n_bytes)
{
    const uint8_t *first = at;
    bool has_some = false;

    for (size_t i = 0; i < n_buffer_known; i++) {
        if (buffer_known[i].group != group)
            continue;
        has_some = true;
        if (first >= buffer_known[i].at &&
            first + n_bytes <= buffer_known[i].at + buffer_known[i].n_bytes) {
            n_moved++;
            return;
        }
    }
    CHECK(!has_some || !is_over, c.label);
}

static dcpk_status watch_gather(struct dcpk_group *group, const void *mine, size_t n_bytes,
                                void *all, uint64_t *ticket, struct dcpk_error *err)
{
    watch(group, mine, n_bytes);
    watch(group, all, n_bytes * (size_t)group->n_ranks);
    return buffer_plain->all_gather(group, mine, n_bytes, all, ticket, err);
}

static dcpk_status watch_reduce(struct dcpk_group *group, enum dcpk_reduction reduction, void *all,
                                size_t n, uint64_t *ticket, struct dcpk_error *err)
{
    if (n > 2) /* few numbers are what ranks agree on */
        watch(group, all, n * dcpk_reduction_bytes(reduction));
    return buffer_plain->all_reduce(group, reduction, all, n, ticket, err);
}

static dcpk_status watch_scatter(struct dcpk_group *group, enum dcpk_reduction reduction, void *all,
                                 size_t n, uint64_t *ticket, struct dcpk_error *err)
{
    watch(group, all, n * (size_t)group->n_ranks * dcpk_reduction_bytes(reduction));
    return buffer_plain->reduce_scatter(group, reduction, all, n, ticket, err);
}

static struct dcpk_user_buffers *make_buffers(struct fsdp_case *of)
{
    static struct dcpk_train_job job;
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_user_buffers *made;

    job = (struct dcpk_train_job){.config = &of->config, .world = world, .math = math};
    math->device->gpu_major = 9;
    CHECK_OK(dcpk_user_buffers_new(&job, true, &made, &err), of->label);
    CHECK((made != NULL) == (world->n_ranks > 1), "there are some where ranks send");
    return made;
}

/* ---- FSDP ---- */

/* Three steps: buffers are registered after the first, or at the beginning as well. */
static void run_case(bool by_hand)
{
    struct dcpk_train_footprint want;
    struct dcpk_error err = DCPK_ERROR_INIT;

    c.config.fsdp.has_user_buffers = true;
    c.config.fsdp.registers_by_hand = by_hand;
    snprintf(c.label, sizeof c.label,
             "strategy %d, mode %d, tp %d cp %d ep %d pp %d instances %d, rank %d of %d",
             (int)c.config.fsdp.strategy, (int)c.config.fsdp.mode, (int)c.config.layout.tp,
             (int)c.config.layout.cp, (int)c.config.layout.ep, (int)c.config.layout.pp,
             (int)c.config.layout.instances, world->rank, world->n_ranks);
    n_buffer_windows = 0;
    is_over = false;
    CHECK_OK(case_begin(&c, world, math, &err), c.label);
    case_initialise(&c);
    CHECK_OK(dcpk_user_buffers_register(c.buffers, 0, &err), c.label);
    CHECK(n_buffer_windows == 0 || !by_hand, c.label);
    CHECK_OK(dcpk_fsdp_install(c.fsdp, &err), c.label);
    case_step(&c, 0, 0.25);
    CHECK_OK(dcpk_fsdp_settle(c.fsdp, &err), c.label);
    CHECK_OK(dcpk_user_buffers_register(c.buffers, 1, &err), c.label);
    n_moved = 0;
    is_over = true;
    case_step(&c, 1, 0.25);
    case_step(&c, 2, 0.25);
    if (c.config.layout.cp * c.config.layout.dp > 1)
        CHECK(n_buffer_windows > 0 && n_moved > 0, c.label);
    dcpk_fsdp_footprint(c.fsdp, DCPK_OF_THIS_RUN, case_microbatches(&c), &want);
    for (int t = 0; t < DCPK_N_TAGS; t++)
        CHECK_EQ_INT(c.account.most[t], want.held[t], c.label);
    case_end(&c);
    CHECK_EQ_INT(n_buffer_known, 0, c.label);
}

static void run_strategies(const struct dcpk_grid *layout)
{
    for (int s = DCPK_NO_SHARD; s <= DCPK_OPTIM_GRADS_PARAMS; s++) {
        case_config(&c.config);
        c.config.layout = *layout;
        c.config.model.layers = 4;
        c.config.fsdp.strategy = (enum dcpk_strategy)s;
        c.config.fsdp.has_double_buffer = s % 2 == 1;
        c.config.fsdp.overlaps_reduce = c.config.fsdp.overlaps_gather = s >= DCPK_OPTIM;
        if (layout->ep > 1)
            c.config.model.experts = 4;
        run_case(s % 2 == 1);
    }
    c.config.fsdp.has_double_buffer = false; /* units have buffers of their own */
    run_case(true);
}

static void what_is_sent_is_registered(void **state)
{
    static const struct dcpk_grid layouts[] = {
        {.tp = 1, .cp = 1, .ep = 1, .pp = 1, .dp = 1, .instances = 1},
        {.tp = 1, .cp = 1, .ep = 1, .pp = 1, .dp = 2, .instances = 1},
        {.tp = 1, .cp = 2, .ep = 2, .pp = 1, .dp = 1, .instances = 1},
        {.tp = 1, .cp = 1, .ep = 2, .pp = 1, .dp = 4, .instances = 1},
        {.tp = 2, .cp = 1, .ep = 1, .pp = 1, .dp = 2, .instances = 1},
        {.tp = 1, .cp = 1, .ep = 1, .pp = 2, .dp = 2, .instances = 1},
        {.tp = 1, .cp = 1, .ep = 1, .pp = 1, .dp = 4, .instances = 2},
    };

    (void)state;
    for (size_t i = 0; i < sizeof layouts / sizeof layouts[0]; i++) {
        const struct dcpk_grid *l = &layouts[i];

        if (l->tp * l->cp * l->pp * l->dp != world->n_ranks)
            continue;
        run_strategies(l);
        if (l->instances > 1) {
            c.config.fsdp.is_outer_sharded = true;
            run_case(true);
        }
    }
}

/* DDP, whose buffers stay; sums that are copied to another dtype before they are sent. */
static void so_is_what_others_send(void **state)
{
    (void)state;
    case_config(&c.config);
    c.config.layout.dp = world->n_ranks;
    c.config.fsdp.mode = DCPK_MODE_DDP;
    run_case(false);
    c.config.fsdp.has_distributed_optimizer = false;
    run_case(false);
    case_config(&c.config);
    c.config.layout.dp = world->n_ranks;
    c.config.fsdp.strategy = DCPK_OPTIM;
    c.config.precision.is_exact = false;
    c.config.precision.comm = DCPK_BF16;
    run_case(true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_sent_is_registered),
        cmocka_unit_test(so_is_what_others_send),
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
    buffer_case_begin(world);
    buffer_collectives.all_gather = watch_gather;
    buffer_collectives.all_reduce = watch_reduce;
    buffer_collectives.reduce_scatter = watch_scatter;
    c.make_buffers = make_buffers;
    n_failed = cmocka_run_group_tests(tests, NULL, NULL);
    if (n_failed > 0)
        return n_failed; /* the launcher ends the others */
    math->device->ops->close(math->device);
    world_leave();
    return 0;
}
