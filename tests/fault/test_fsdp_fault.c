/* SPDX-License-Identifier: Apache-2.0 */
/* test_fsdp_fault.c - each allocation of an FSDP run fails in turn: an error, and no memory lost.
 */
#include "tests/every_alloc.h"
#include "tests/fsdp_case.h"

static struct dcpk_group *world;
static struct dcpk_math *math;
static struct fsdp_case c;

/* A whole step of a rank that is alone. */
static dcpk_status use(struct dcpk_error *err)
{
    dcpk_status st;

    st = case_begin(&c, world, math, err);
    if (st == DCPK_OK)
        st = dcpk_fsdp_install(c.fsdp, err);
    if (st == DCPK_OK)
        st = dcpk_fsdp_begin(c.fsdp, 1, err);
    for (int pass = 0; pass < 2 && st == DCPK_OK; pass++) {
        const enum dcpk_train_pass which = pass == 0 ? DCPK_FORWARD : DCPK_BACKWARD;
        struct dcpk_weights *w = dcpk_fsdp_weights(c.fsdp);

        st = w->ops->enter(w, -1, which, err);
        for (int64_t u = 0; u < c.params.n_units && st == DCPK_OK; u++) {
            st = w->ops->enter(w, u, which, err);
            if (st == DCPK_OK)
                st = w->ops->leave(w, u, which, err);
        }
        if (st == DCPK_OK)
            st = w->ops->leave(w, -1, which, err);
    }
    if (st == DCPK_OK)
        st = dcpk_fsdp_finish(c.fsdp, 1, err);
    case_end(&c);
    return st;
}

static void run_of_each_strategy(void **state)
{
    (void)state;
    for (int s = DCPK_NO_SHARD; s <= DCPK_OPTIM_GRADS_PARAMS; s++) {
        case_config(&c.config);
        c.config.fsdp.strategy = (enum dcpk_strategy)s;
        c.config.model.layers = 2;
        snprintf(c.label, sizeof c.label, "strategy %d", s);
        every_alloc_fails(use, 20);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(run_of_each_strategy)};
    struct dcpk_error err = DCPK_ERROR_INIT;
    int n_failed;

    if (dcpk_collectives_alone.world(NULL, 0, &world, &err) ||
        dcpk_math_open(dcpk_math_ops[0], 0, &math, &err))
        return 4;
    n_failed = cmocka_run_group_tests(tests, NULL, NULL);
    math->device->ops->close(math->device);
    world->by->free(world);
    return n_failed;
}
