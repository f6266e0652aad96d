/* SPDX-License-Identifier: Apache-2.0 */
/* test_run_mesh.c - each rank of a mesh is in exactly the groups that the formulas of run_mesh.h
 * give, tried coordinate by coordinate. */
#include "lib/train/run_mesh.h"

#include <stdio.h>

#include "lib/base/alloc.h"
#include "tests/check.h"

#define MAX_RANKS 128

/* A group that only knows its colour. */
struct fake_group {
    struct dcpk_group base;
    int colour;
};

static dcpk_status fake_split(struct dcpk_group *of, int colour, struct dcpk_group **group,
                              struct dcpk_error *err)
{
    struct fake_group *made = dcpk_alloc(sizeof *made, err);

    if (made == NULL)
        return err->status;
    made->base = *of;
    made->colour = colour;
    *group = &made->base;
    return DCPK_OK;
}

static void fake_free(struct dcpk_group *group)
{
    dcpk_free(group);
}

static const struct dcpk_collectives fake = {.split = fake_split, .free = fake_free};

/* Where a rank is by the formulas. */
struct place {
    int64_t tp, cp, dp, pp, ep, xdp;
};

static void find_places(const struct dcpk_grid *l, struct place *places)
{
    const int64_t x = l->cp * l->dp / l->ep;

    for (int64_t pp = 0; pp < l->pp; pp++)
        for (int64_t tp = 0; tp < l->tp; tp++) {
            for (int64_t dp = 0; dp < l->dp; dp++)
                for (int64_t cp = 0; cp < l->cp; cp++) {
                    const int64_t rank = l->is_tp_pp_dp
                                             ? tp + l->tp * (cp + l->cp * (pp + l->pp * dp))
                                             : tp + l->tp * (cp + l->cp * (dp + l->dp * pp));

                    places[rank].tp = tp;
                    places[rank].cp = cp;
                    places[rank].dp = dp;
                    places[rank].pp = pp;
                }
            for (int64_t xdp = 0; xdp < x; xdp++)
                for (int64_t ep = 0; ep < l->ep; ep++) {
                    const int64_t rank = l->is_tp_pp_dp
                                             ? tp + l->tp * (ep + l->ep * (pp + l->pp * xdp))
                                             : tp + l->tp * (ep + l->ep * (xdp + x * pp));

                    places[rank].ep = ep;
                    places[rank].xdp = xdp;
                }
        }
}

static bool are_together(const struct dcpk_grid *l, enum dcpk_train_group g, const struct place *a,
                         const struct place *b)
{
    const bool tp = a->tp == b->tp, cp = a->cp == b->cp, dp = a->dp == b->dp, pp = a->pp == b->pp;
    const bool ep = a->ep == b->ep, xdp = a->xdp == b->xdp;
    const int64_t n = l->cp * l->dp / l->instances;
    const int64_t n_expert = n / l->ep; /* ranks of one expert in an instance */
    const int64_t at = a->cp + l->cp * a->dp, bt = b->cp + l->cp * b->dp;
    const bool inner = a->xdp / n_expert == b->xdp / n_expert;
    const bool is_end = (a->pp == 0 || a->pp == l->pp - 1) && (b->pp == 0 || b->pp == l->pp - 1);
    const bool wanted[DCPK_N_GROUPS] = {
        [DCPK_G_WORLD] = true,
        [DCPK_G_TP] = cp && dp && pp,
        [DCPK_G_CP] = tp && dp && pp,
        [DCPK_G_PP] = tp && cp && dp,
        [DCPK_G_DP] = tp && cp && pp,
        [DCPK_G_DP_CP] = tp && pp,
        [DCPK_G_INNER] = tp && pp && at / n == bt / n,
        [DCPK_G_OUTER] = tp && pp && at % n == bt % n,
        [DCPK_G_EP] = tp && xdp && pp,
        [DCPK_G_EXPERT_DP] = tp && ep && pp,
        [DCPK_G_EXPERT_INNER] = tp && ep && pp && inner,
        [DCPK_G_EMBEDDING] = tp && cp && dp && (pp || is_end),
        [DCPK_G_MODEL] = cp && dp,
        [DCPK_G_GATHER] = tp && pp && at / n == bt / n,
        [DCPK_G_EXPERT_GATHER] = tp && ep && pp && inner,
    };

    if (g == DCPK_G_OUTER) /* dense parameters and experts have the same outer ranks */
        CHECK_EQ_INT(wanted[g], tp && ep && pp && a->xdp % n_expert == b->xdp % n_expert, "outer");
    return wanted[g];
}

static void check_mesh(const struct dcpk_train_mesh *mesh, const struct place *place,
                       const char *label)
{
    CHECK_EQ_INT(mesh->at.tp, place->tp, label);
    CHECK_EQ_INT(mesh->at.cp, place->cp, label);
    CHECK_EQ_INT(mesh->at.dp, place->dp, label);
    CHECK_EQ_INT(mesh->at.pp, place->pp, label);
    CHECK_EQ_INT(mesh->at.ep, place->ep, label);
    CHECK_EQ_INT(mesh->at.edp, place->xdp, label);
}

static void try_layout(const struct dcpk_grid *l)
{
    static struct dcpk_train_mesh meshes[MAX_RANKS];
    const int n = (int)(l->tp * l->cp * l->dp * l->pp);
    struct place places[MAX_RANKS] = {{0}};
    struct dcpk_group worlds[MAX_RANKS];
    struct dcpk_error err = DCPK_ERROR_INIT;
    char label[128];

    snprintf(label, sizeof label,
             "tp %" PRId64 " cp %" PRId64 " dp %" PRId64 " pp %" PRId64 " ep %" PRId64
             " instances %" PRId64 " order %d",
             l->tp, l->cp, l->dp, l->pp, l->ep, l->instances, l->is_tp_pp_dp);
    find_places(l, places);
    for (int r = 0; r < n; r++) {
        worlds[r] = (struct dcpk_group){&fake, r, n, 0, NULL};
        CHECK_OK(dcpk_train_mesh_init(l, &worlds[r], &meshes[r], &err), label);
        check_mesh(&meshes[r], &places[r], label);
    }
    for (int g = DCPK_G_WORLD + 1; g < DCPK_N_GROUPS; g++)
        for (int a = 0; a < n; a++)
            for (int b = 0; b < n; b++) {
                const struct fake_group *x = (struct fake_group *)meshes[a].group[g];
                const struct fake_group *y = (struct fake_group *)meshes[b].group[g];

                CHECK_EQ_INT(x->colour == y->colour,
                             are_together(l, (enum dcpk_train_group)g, &places[a], &places[b]),
                             label);
            }
    for (int r = 0; r < n; r++)
        dcpk_train_mesh_release(&meshes[r]);
}

static void groups_are_those_of_the_formulas(void **state)
{
    (void)state;
    for (int64_t code = 0; code < 3 * 2 * 3 * 3 * 3 * 2 * 2; code++) {
        struct dcpk_grid l = {.tp = 1 + code % 3,
                              .cp = 1 + code / 3 % 2,
                              .dp = INT64_C(1) << (code / 6 % 3),
                              .pp = 1 + code / 18 % 3,
                              .ep = INT64_C(1) << (code / 54 % 3),
                              .instances = 1 + code / 162 % 2,
                              .is_tp_pp_dp = code / 324 % 2 == 1};

        if (l.cp * l.dp % (l.ep * l.instances) != 0 || (l.is_tp_pp_dp && l.pp > 1 && l.ep != l.cp))
            continue;
        try_layout(&l);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(groups_are_those_of_the_formulas),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
