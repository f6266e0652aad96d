/* SPDX-License-Identifier: Apache-2.0 */
/* fsdp_layout.h - where Megatron-FSDP's flat buffers put every parameter, and which rows its ranks
 * hold. */
#ifndef DCPK_LIB_PLACE_FSDP_LAYOUT_H
#define DCPK_LIB_PLACE_FSDP_LAYOUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/arena.h"
#include "lib/base/error.h"
#include "lib/tensor/box.h"

/* A parameter as one rank of its tensor- and expert-parallel group sees it. Everything is
 * borrowed. */
struct dcpk_fsdp_param {
    const char *name; /* for messages */
    const int64_t *shape;
    int rank; /* at least 1 */
    /* Parameters of one number share buffers: same dtype, unit, experts or not, trained or not. */
    uint64_t group;
    bool is_in_unit;  /* the group is (part of) an FSDP unit, whose buffer is never cut */
    int64_t n_shards; /* ranks that share the buffer out; the same in all of a group, >= 1 */
};

/* The place of an item. Units: elements, counted from the start of the bucket. */
struct dcpk_fsdp_place {
    size_t bucket; /* a number of its own for each bucket */
    int64_t first;
    int64_t factor;       /* chunk_size_factor of the bucket */
    int64_t bucket_elems; /* padded; each of n_shards ranks holds an equal slice */
};

/*
 * Lay out all parameters, given in the order in which modules register them.
 * bucket_elems: parameters outside units start a new bucket when the last one has so many elements;
 * 0: never. places: n of them, the caller's. Source: param_and_grad_buffer.py _get_parameter_groups
 * and build_data_parallel_buffer_index, the same from core 0.14 to main
 * (formats/fsdp_dtensor/FORMAT.md 8.2, 8.3). O(n log n), and O(m^2) in the m parameters of a bucket
 * that are not multiples of its factor. Errors: DCPK_ERANGE when a size passes 2^63;
 * DCPK_EUNSUPPORTED for a scalar; DCPK_ENOMEM.
 */
dcpk_status dcpk_fsdp_layout(const struct dcpk_fsdp_param *params, size_t n, int64_t bucket_elems,
                             struct dcpk_fsdp_place *places, struct dcpk_error *err);

/* Ranks *first .. *end - 1 hold elements of the parameter; none where it has no elements. */
void dcpk_fsdp_holders(const struct dcpk_fsdp_param *param, const struct dcpk_fsdp_place *place,
                       int64_t *first, int64_t *end);

/*
 * Checks that no slice ends inside a row. Errors: DCPK_EUNSUPPORTED "fsdp-layout: row of <name>
 * would be cut" (formats/fsdp_dtensor/FORMAT.md 8.3): Megatron-FSDP itself fails then.
 */
dcpk_status dcpk_fsdp_check_rows(const struct dcpk_fsdp_param *param,
                                 const struct dcpk_fsdp_place *place, struct dcpk_error *err);

/*
 * The shard of rank r < n_shards: `box` is its rows of the parameter (no rows: it holds none),
 * which lie row-major in the rank's slice of the flat buffer from its element *first on. Errors: as
 * dcpk_fsdp_check_rows.
 */
dcpk_status dcpk_fsdp_shard(const struct dcpk_fsdp_param *param,
                            const struct dcpk_fsdp_place *place, int64_t r, struct dcpk_box *box,
                            int64_t *first, struct dcpk_error *err);

#endif
