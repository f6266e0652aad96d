/* SPDX-License-Identifier: Apache-2.0 */
/* run_mesh.c - a group has the number of its first rank: ranks that compute the same number are in
 * the same group. */
#include "lib/train/run_mesh.h"

#include <string.h>

#include "lib/base/alloc.h"

/* The axes along which the ranks of a group differ; none: the group has a rule of its own. */
static const unsigned axes_of[DCPK_N_GROUPS] = {
    [DCPK_G_WORLD] = DCPK_AXIS_TP | DCPK_AXIS_CP | DCPK_AXIS_DP | DCPK_AXIS_PP,
    [DCPK_G_TP] = DCPK_AXIS_TP,
    [DCPK_G_CP] = DCPK_AXIS_CP,
    [DCPK_G_PP] = DCPK_AXIS_PP,
    [DCPK_G_DP] = DCPK_AXIS_DP,
    [DCPK_G_DP_CP] = DCPK_AXIS_DP | DCPK_AXIS_CP,
    [DCPK_G_INNER] = DCPK_AXIS_SHARD,
    [DCPK_G_OUTER] = DCPK_AXIS_INSTANCE,
    [DCPK_G_EP] = DCPK_AXIS_EP,
    [DCPK_G_EXPERT_DP] = DCPK_AXIS_EDP,
    [DCPK_G_EXPERT_INNER] = DCPK_AXIS_EXPERT_SHARD,
    [DCPK_G_MODEL] = DCPK_AXIS_TP | DCPK_AXIS_PP,
    [DCPK_G_GATHER] = DCPK_AXIS_SHARD,
    [DCPK_G_EXPERT_GATHER] = DCPK_AXIS_EXPERT_SHARD,
};

/* The first rank of a rank's group of a kind. */
static int64_t mesh_first(const struct dcpk_grid *grid, int64_t rank, const struct dcpk_coords *at,
                          enum dcpk_train_group group)
{
    if (group != DCPK_G_EMBEDDING)
        return dcpk_grid_first(grid, at, axes_of[group]);
    if (at->pp == 0 || at->pp == grid->pp - 1)
        return dcpk_grid_first(grid, at, DCPK_AXIS_PP);
    return rank;
}

dcpk_status dcpk_train_mesh_init(const struct dcpk_grid *grid, struct dcpk_group *world,
                                 struct dcpk_train_mesh *mesh, struct dcpk_error *err)
{
    *mesh = (struct dcpk_train_mesh){.rank = world->rank, .n_ranks = world->n_ranks};
    if (dcpk_grid_check_ranks(grid, world->n_ranks, err))
        return err->status;
    mesh->at = dcpk_grid_coords(grid, world->rank);
    mesh->group[DCPK_G_WORLD] = world;
    for (int g = DCPK_G_WORLD + 1; g < DCPK_N_GROUPS; g++) {
        const int64_t first = mesh_first(grid, mesh->rank, &mesh->at, (enum dcpk_train_group)g);

        if (world->by->split(world, (int)first, &mesh->group[g], err))
            return err->status;
    }
    return DCPK_OK;
}

dcpk_status dcpk_train_mesh_plan(const struct dcpk_grid *grid, int64_t rank,
                                 struct dcpk_group groups[DCPK_N_GROUPS],
                                 struct dcpk_train_mesh *mesh, struct dcpk_error *err)
{
    const int64_t n_ranks = dcpk_grid_ranks(grid);
    int64_t first[DCPK_N_GROUPS];

    *mesh = (struct dcpk_train_mesh){.rank = rank, .n_ranks = n_ranks};
    if (dcpk_grid_check_ranks(grid, n_ranks, err))
        return err->status;
    mesh->at = dcpk_grid_coords(grid, rank);
    for (int g = 0; g < DCPK_N_GROUPS; g++) {
        groups[g] = (struct dcpk_group){.rank = 0};
        mesh->group[g] = &groups[g];
        first[g] = mesh_first(grid, rank, &mesh->at, (enum dcpk_train_group)g);
    }
    for (int64_t r = 0; r < n_ranks; r++) {
        const struct dcpk_coords at = dcpk_grid_coords(grid, r);

        for (int g = 0; g < DCPK_N_GROUPS; g++) {
            if (mesh_first(grid, r, &at, (enum dcpk_train_group)g) != first[g])
                continue;
            groups[g].n_ranks++;
            groups[g].rank += r < rank;
        }
    }
    return DCPK_OK;
}

void dcpk_train_mesh_release(struct dcpk_train_mesh *mesh)
{
    for (int g = DCPK_G_WORLD + 1; g < DCPK_N_GROUPS; g++)
        if (mesh->group[g] != NULL)
            mesh->group[g]->by->free(mesh->group[g]);
    *mesh = (struct dcpk_train_mesh){0};
}

/* ---- integers added up over the ranks of a group ---- */

#define FEW_NUMBERS 32 /* so many need no memory */

static dcpk_status add_numbers(struct dcpk_group *group, struct dcpk_math *math, int64_t *numbers,
                               size_t n, struct dcpk_error *err)
{
    struct dcpk_device *device = math->device;
    const size_t n_bytes = n * sizeof *numbers;
    void *moved;
    dcpk_status st;

    if (device->ops->is_host)
        return group->by->all_reduce(group, DCPK_SUM_I64, numbers, n, NULL, err);
    if (device->ops->alloc(device, DCPK_MEMORY_PRIVATE, n_bytes, &moved, err) != DCPK_OK)
        return err->status;
    st = dcpk_math_copy(math, moved, numbers, n_bytes, err);
    if (st == DCPK_OK)
        st = group->by->all_reduce(group, DCPK_SUM_I64, moved, n, NULL, err);
    if (st == DCPK_OK)
        st = dcpk_math_copy(math, numbers, moved, n_bytes, err);
    device->ops->free(device, moved);
    return st;
}

dcpk_status dcpk_totals_agree(struct dcpk_group *group, struct dcpk_math *math, dcpk_status st,
                              int64_t *values, size_t n, struct dcpk_error *err)
{
    struct dcpk_error ours = DCPK_ERROR_INIT;
    int64_t few[FEW_NUMBERS], *numbers = few; /* and how many failed */
    dcpk_status added;

    /* Without memory for its numbers a rank leaves the others waiting, until their time is up. */
    if (n >= FEW_NUMBERS && (numbers = dcpk_alloc_array(n + 1, sizeof *numbers, err)) == NULL)
        return err->status;
    if (n > 0)
        memcpy(numbers, values, n * sizeof *numbers);
    numbers[n] = st != DCPK_OK;
    added = add_numbers(group, math, numbers, n + 1, &ours);
    if (n > 0)
        memcpy(values, numbers, n * sizeof *numbers);
    if (st == DCPK_OK && added != DCPK_OK) {
        *err = ours;
        st = added;
    } else if (st == DCPK_OK && numbers[n] > 0) {
        st = dcpk_fail(err, DCPK_ECANCELLED, "%lld other ranks failed", (long long)numbers[n]);
    }
    if (numbers != few)
        dcpk_free(numbers);
    return st;
}
