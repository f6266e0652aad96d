/* SPDX-License-Identifier: Apache-2.0 */
/* apart_processes.c - a rank that fails inside a step, where others wait for it, comes back by
 * itself and ends its process, upon which the launcher ends the others. Started by mpirun. */
#include <stdlib.h>
#include <unistd.h>

#include "tests/train/run_case.h"
#include "tests/world_case.h"

#define FLAGS                                                                                      \
    "--num-layers 2 --hidden-size 32 --num-attention-heads 4 --ffn-hidden-size 48 --swiglu "       \
    "--normalization RMSNorm --position-embedding-type rope --disable-bias-linear "                \
    "--untie-embeddings-and-output-weights --vocab-size 128 --seq-length 16 "                      \
    "--transformer-impl local --attention-dropout 0 --hidden-dropout 0 --micro-batch-size 1 "      \
    "--global-batch-size 8 --train-iters 20 --lr 1e-2 --min-lr 1e-3 --lr-decay-style cosine "      \
    "--use-megatron-fsdp --ckpt-format fsdp_dtensor "

static const struct dcpk_collectives *whole;
static struct dcpk_collectives failing; /* of the last rank: no memory to reduce gradients */
static struct run_case run;

static dcpk_status fail_scatter(struct dcpk_group *group, enum dcpk_reduction reduction, void *all,
                                size_t n, uint64_t *ticket, struct dcpk_error *err)
{
    (void)group;
    (void)reduction;
    (void)all;
    (void)n;
    (void)ticket;
    return dcpk_fail(err, DCPK_ENOMEM, "no memory for a request");
}

static dcpk_status split(struct dcpk_group *of, int colour, struct dcpk_group **group,
                         struct dcpk_error *err)
{
    const dcpk_status st = whole->split(of, colour, group, err);

    if (st == DCPK_OK)
        (*group)->by = &failing;
    return st;
}

int main(void)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    const int exit_with = world_join();
    struct run_place place = {.world = world};
    dcpk_status st;

    if (exit_with != 0)
        return exit_with;
    whole = world->by;
    failing = *whole;
    failing.split = split;
    failing.reduce_scatter = fail_scatter;
    if (world->rank == world->n_ranks - 1)
        world->by = &failing;
    world->timeout_ms = 0; /* as the program has it */
    run.apart_ms = 100;
    st = run_case_try(&place, FLAGS, "", &run, &err);
    fprintf(stderr, "rank %d came back: %s\n", world->rank, err.text);
    _exit(st == DCPK_ENOMEM ? 3 : 1); /* with MPI_Finalize it would wait */
}
