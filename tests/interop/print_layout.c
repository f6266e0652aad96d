/* SPDX-License-Identifier: Apache-2.0 */
/* print_layout.c - flat-buffer layouts of models read from stdin, for fsdp_layout.py to compare. */
/*
 * In: "model N BUCKET SHARDS EXPERT_SHARDS", then N lines "UNIT EXPERT RANK EXTENT..." in order of
 * registration, UNIT -1 outside units. Out: a line "BUCKET FACTOR SIZE FIRST" a parameter.
 */
#include <inttypes.h>
#include <stdio.h>

#include "lib/base/alloc.h"
#include "lib/place/fsdp_layout.h"

struct shape {
    int64_t extent[4];
};

static bool read_param(const int64_t *n_shards, struct shape *shape, struct dcpk_fsdp_param *param)
{
    int64_t unit;
    int expert, rank;

    if (scanf("%" SCNd64 " %d %d", &unit, &expert, &rank) != 3 || rank < 1 || rank > 4)
        return false;
    for (int a = 0; a < rank; a++)
        if (scanf("%" SCNd64, &shape->extent[a]) != 1)
            return false;
    *param = (struct dcpk_fsdp_param){
        .name = "a parameter",
        .shape = shape->extent,
        .rank = rank,
        .group = (uint64_t)(unit + 1) * 2 + (expert != 0),
        .is_in_unit = unit >= 0,
        .n_shards = n_shards[expert != 0],
    };
    return true;
}

static int print_model(size_t n, int64_t bucket_elems, const int64_t *n_shards)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct shape *shapes = dcpk_alloc_array(n, sizeof *shapes, &err);
    struct dcpk_fsdp_param *params = dcpk_alloc_array(n, sizeof *params, &err);
    struct dcpk_fsdp_place *places = dcpk_alloc_array(n, sizeof *places, &err);
    bool good = shapes != NULL && params != NULL && places != NULL;

    for (size_t i = 0; good && i < n; i++)
        good = read_param(n_shards, &shapes[i], &params[i]);
    if (good && dcpk_fsdp_layout(params, n, bucket_elems, places, &err) != DCPK_OK) {
        fprintf(stderr, "print_layout: %s\n", err.text);
        good = false;
    }
    for (size_t i = 0; good && i < n; i++)
        printf("%zu %" PRId64 " %" PRId64 " %" PRId64 "\n", places[i].bucket, places[i].factor,
               places[i].bucket_elems, places[i].first);
    dcpk_free(places);
    dcpk_free(params);
    dcpk_free(shapes);
    return good ? 0 : 1;
}

int main(void)
{
    int64_t bucket_elems, n_shards[2];
    size_t n;
    int failed = 0;

    while (failed == 0 && scanf(" model %zu %" SCNd64 " %" SCNd64 " %" SCNd64, &n, &bucket_elems,
                                &n_shards[0], &n_shards[1]) == 4)
        failed = print_model(n, bucket_elems, n_shards);
    return failed;
}
