/* SPDX-License-Identifier: Apache-2.0 */
/* make_priv.h - what the files of make_checkpoint share. */
#ifndef DCPK_TESTS_BENCH_MAKE_PRIV_H
#define DCPK_TESTS_BENCH_MAKE_PRIV_H

#include <stdbool.h>

#include "lib/ckpt/output.h"
#include "lib/io/sink.h"
#include "tests/bench/make_data.h"

#define N_TP      2
#define N_PP      2
#define N_RANKS   (N_TP * N_PP)
#define MAX_FILES (2 * N_RANKS)

/* Sizes of the model; is_stacked: layers under one key, on axis 0. */
struct dcpk_bench_sizes {
    int64_t layers, hidden, ffn, heads, groups, vocab;
    bool is_stacked;
};

/* What a chunk's data follows from. */
struct dcpk_recipe {
    enum dcpk_bench_kind kind;
    uint64_t key;
};

struct dcpk_blob {
    uint8_t *data;
    size_t n_bytes;
};

struct dcpk_making {
    struct dcpk_bench_sizes sizes;
    struct dcpk_checkpoint *golden;
    struct dcpk_output *out;
    bool has_common_file;        /* generation B */
    struct dcpk_recipe *recipes; /* of out->chunks */
    size_t recipes_capacity;
    struct dcpk_blob *blobs; /* of out->payloads */
    size_t blobs_capacity;
    struct dcpk_bench_data *data;
    struct dcpk_sink *sinks[MAX_FILES];
};

/* Parameters in one layer, or outside the layers. */
int64_t dcpk_bench_count_elems(const struct dcpk_bench_sizes *s, bool in_layer);

/* Add all tensors with their chunks to m->out, what their data follows from to m->recipes. */
dcpk_status dcpk_bench_describe_tensors(struct dcpk_making *m, struct dcpk_error *err);

/* Add the objects that every rank writes, copied from the golden. */
dcpk_status dcpk_bench_describe_objects(struct dcpk_making *m, struct dcpk_error *err);

/* The common state with resized args: common.pt in `folder` (B), or one more object (C). */
dcpk_status dcpk_bench_add_common(struct dcpk_making *m, struct dcpk_folder *folder,
                                  struct dcpk_error *err);

#endif
