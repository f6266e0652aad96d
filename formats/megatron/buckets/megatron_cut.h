/* SPDX-License-Identifier: Apache-2.0 */
/* megatron_cut.h - how the model was cut over ranks, by args. */
#ifndef DCPK_FORMATS_MEGATRON_BUCKETS_MEGATRON_CUT_H
#define DCPK_FORMATS_MEGATRON_BUCKETS_MEGATRON_CUT_H

#include "formats/megatron/megatron.h"
#include "lib/model/parts.h"
#include "lib/model/registered.h"

/* ---- blocks of a weight, read off the chunks that it is stored in ---- */

/*
 * A parameter is made of parts, rows of it one after the other, each cut into as many blocks as
 * there are ranks: a rank holds its block of every part in that order (dcpk_rows_of_rank). Most
 * have one part; a gated fc1 has the gate and the up rows (formats/torch_dist/FORMAT.md 4.4),
 * parts.h has the others.
 */
struct dcpk_blocks {
    int axis;        /* that is cut, -1: every rank holds all of it */
    int64_t n_ranks; /* that hold different blocks; 1 when axis is -1 */
    int n_parts;
    struct dcpk_rows part[DCPK_MAX_PARTS]; /* on that axis, which may be that of columns */
};

/*
 * Read them off the chunks that a weight is stored in: Megatron stores each rank's block of a part
 * as a chunk. n_lead: stacked axes (layers, experts) in front of the parameter's own. tp: the size
 * of the group that may cut it. Errors: DCPK_EUNSUPPORTED for chunks that are not such blocks.
 */
dcpk_status dcpk_blocks_find(const struct dcpk_checkpoint *ckpt, const struct dcpk_tensor *stored,
                             int n_lead, int64_t tp, struct dcpk_blocks *blocks,
                             struct dcpk_error *err);
/* Put the rows of `part` after those of `blocks`. Errors: DCPK_EUNSUPPORTED when they are not cut
 * alike. */
dcpk_status dcpk_blocks_append(struct dcpk_blocks *blocks, const struct dcpk_blocks *part,
                               struct dcpk_error *err);
/* Rank r's block of a part, in a parameter of that shape. */
void dcpk_blocks_box(const struct dcpk_blocks *blocks, const int64_t *shape, int rank, int64_t r,
                     int part, struct dcpk_box *box);

/*
 * When a bucket of the first model chunk is closed; in all others there is one a buffer
 * (MC/distributed/distributed_data_parallel.py@0.7.0 to main, MT/training.py get_model).
 */
struct dcpk_bucketing {
    int64_t n_elems;   /* it has so many at least; 0: never */
    int64_t n_buckets; /* not 0: the elements of the rank's parameters by this number, instead */
};

/*
 * A model chunk is called by its place in the order in which layers run through them: chunk * pp +
 * stage. Sizes are at least 1.
 */
struct dcpk_cut {
    int64_t tp, pp, vpp;               /* vpp: model chunks on each pipeline stage */
    int64_t ep, etp;                   /* of routed experts */
    int64_t n_slices, n_expert_slices; /* data-parallel ranks that share a bucket */
    int64_t n_layers, n_experts;       /* n_experts: 0 in a dense model */
    const int64_t *layer_ends;         /* of chunk c: decoder layers on chunks 0 to c */
    int64_t norm_chunk, mtp_chunk;     /* with the decoder's final norm; multi-token prediction */
    struct dcpk_bucketing bucketing;
    bool pads_for_bandwidth; /* buckets end at a multiple of 2^16 as well */
    bool has_mtp;
    bool is_tied;  /* the output layer's weight is the embedding's */
    unsigned spec; /* enum dcpk_spec, as far as args show it */
};

/* Ranks that share the tensors of experts, or of the others. */
static inline int64_t dcpk_cut_tp(const struct dcpk_cut *cut, bool is_expert)
{
    return is_expert ? cut->etp : cut->tp;
}

static inline int64_t dcpk_cut_ep(const struct dcpk_cut *cut, bool is_expert)
{
    return is_expert ? cut->ep : 1;
}

/*
 * Read args (an argparse.Namespace). The data of cut is in `arena`. Errors: DCPK_EUNSUPPORTED for a
 * layout that cannot be replayed, or when args lack a fact, naming it; DCPK_EFORMAT for numbers
 * that do not fit together.
 */
dcpk_status dcpk_cut_read(const struct dcpk_value *args, struct dcpk_arena *arena,
                          struct dcpk_cut *cut, struct dcpk_error *err);

/* The same without the buckets, which may then be of any kind; n_slices, n_expert_slices, bucketing
 * and pads_for_bandwidth are not set. */
dcpk_status dcpk_cut_read_ranks(const struct dcpk_value *args, struct dcpk_arena *arena,
                                struct dcpk_cut *cut, struct dcpk_error *err);

/* The order of registration (enum dcpk_spec) of a run with these attributes of args; impl: "local"
 * or "te", whatever they say; NULL: as they say. */
unsigned dcpk_cut_spec(const struct dcpk_value *attrs, const char *impl);

/*
 * The model chunk that holds a parameter. Chunk 0 of all stages holds the first layers, chunk 1 the
 * next (MC/transformer/transformer_layer.py@0.19.0 get_transformer_layer_offset). Errors:
 * DCPK_EFORMAT for a layer or expert past those of args.
 */
dcpk_status dcpk_cut_find(const struct dcpk_cut *cut, const struct dcpk_registered *reg,
                          int64_t *chunk, struct dcpk_error *err);

#endif
