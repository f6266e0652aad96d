/* SPDX-License-Identifier: Apache-2.0 */
/* fsdp_replicas.c - checks that data-parallel ranks keep the same weights. */
/*
 *   rank r    h(r) = the first 8 bytes of XXH3-128 over the weights that it keeps
 *   gather    h(0) h(1) ... h(D - 1)
 *   rank r    fails where h(r) is not h(0)
 *
 * Dense weights over all data-parallel ranks, then those of experts over the ranks that have them.
 */
#include "lib/base/alloc.h"
#include "lib/base/cursor.h"
#include "lib/base/digest.h"
#include "lib/train/fsdp_priv.h"
#include "lib/train/totals.h"

static dcpk_status replica_add(struct dcpk_fsdp *f, const struct dcpk_fsdp_bucket *b,
                               struct dcpk_hasher *hasher, struct dcpk_error *err)
{
    const size_t n_bytes = (size_t)b->n_weights * f->compute_bytes;
    uint8_t *host = dcpk_alloc(n_bytes, err);
    dcpk_status st = err->status;

    if (host == NULL)
        return st;
    f->math->ops->copy(f->math, host, b->weights, n_bytes);
    st = f->math->ops->wait(f->math, err);
    if (st == DCPK_OK)
        dcpk_hasher_update(hasher, host, n_bytes);
    dcpk_free(host);
    return st;
}

/* Of this rank's weights, of experts or of the rest. */
static dcpk_status replica_hash(struct dcpk_fsdp *f, bool is_expert, uint64_t *hash,
                                struct dcpk_error *err)
{
    struct dcpk_hasher *hasher = NULL;
    struct dcpk_hash made;
    dcpk_status st = dcpk_hasher_new(&hasher, err);

    if (st != DCPK_OK)
        return st;
    dcpk_hasher_reset(hasher);
    for (size_t i = 0; st == DCPK_OK && i < f->n_buckets; i++)
        if (f->buckets[i].is_expert == is_expert)
            st = replica_add(f, &f->buckets[i], hasher, err);
    dcpk_hasher_digest(hasher, &made);
    *hash = dcpk_load_u64le(made.digest);
    dcpk_hasher_free(hasher);
    return st;
}

/* What this rank compares: memory of the math for a hash of each rank, and its own hashes. */
struct replicas {
    uint64_t *room;
    uint64_t dense, expert;
};

static dcpk_status replicas_hash(struct dcpk_fsdp *f, struct replicas *r, struct dcpk_error *err)
{
    const size_t n = (size_t)f->options.mesh->group[DCPK_G_WORLD]->n_ranks;
    void *room;

    if (f->math->ops->alloc(f->math, n * sizeof *r->room, &room, err))
        return err->status;
    r->room = room;
    for (size_t i = 0; i < f->n_buckets; i++)
        if (dcpk_fsdp_bucket_ready(f, i, DCPK_FORWARD, err))
            return err->status;
    if (replica_hash(f, false, &r->dense, err) || replica_hash(f, true, &r->expert, err))
        return err->status;
    return DCPK_OK;
}

/* Collective over the group. Fails on ranks whose hash is not that of the first. */
static dcpk_status replicas_compare(struct dcpk_fsdp *f, enum dcpk_train_group of, uint64_t mine,
                                    uint64_t *room, struct dcpk_error *err)
{
    const struct dcpk_train_mesh *mesh = f->options.mesh;
    struct dcpk_group *group = mesh->group[of];
    uint64_t first;

    f->math->ops->copy(f->math, room + group->rank, &mine, sizeof mine);
    if (f->math->ops->wait(f->math, err) ||
        group->by->all_gather(group, room + group->rank, sizeof mine, room, NULL, err))
        return err->status;
    f->math->ops->copy(f->math, &first, room, sizeof first);
    if (f->math->ops->wait(f->math, err) != DCPK_OK)
        return err->status;
    if (mine != first)
        return dcpk_fail(err, DCPK_EMISMATCH,
                         "Parameter hashes not matching across DP replicas: weights of rank %d are "
                         "not those of its group's first rank",
                         mesh->group[DCPK_G_WORLD]->rank);
    return DCPK_OK;
}

dcpk_status dcpk_fsdp_check_replicas(struct dcpk_fsdp *f, struct dcpk_error *err)
{
    struct dcpk_group *world = f->options.mesh->group[DCPK_G_WORLD];
    struct dcpk_error of_experts = DCPK_ERROR_INIT;
    struct replicas r = {.room = NULL};
    dcpk_status st;

    if (dcpk_fsdp_cuts_weights(f))
        return DCPK_OK; /* there are no copies */
    /* No rank gathers before all have hashed: none waits for one that has failed. */
    st = dcpk_totals_agree(world, f->math, replicas_hash(f, &r, err), NULL, 0, err);
    if (st != DCPK_OK)
        goto out;
    st = replicas_compare(f, DCPK_G_DP_CP, r.dense, r.room, err);
    /* Where the dense ones differ, other ranks still compare experts. */
    if (replicas_compare(f, DCPK_G_EXPERT_DP, r.expert, r.room, &of_experts) && st == DCPK_OK) {
        *err = of_experts;
        st = err->status;
    }
    st = dcpk_totals_agree(world, f->math, st, NULL, 0, err);
out:
    f->math->ops->free(f->math, r.room);
    return st;
}
