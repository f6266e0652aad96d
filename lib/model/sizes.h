/* SPDX-License-Identifier: Apache-2.0 */
/* sizes.h - sizes that attributes of args give: of the mesh, of the model; which layers have
 * experts. */
#ifndef DCPK_LIB_MODEL_SIZES_H
#define DCPK_LIB_MODEL_SIZES_H

#include "lib/ckpt/checkpoint.h"
#include "lib/ckpt/value.h"

/*
 * The attribute that holds how many groups of queries there are: num_query_groups, unless
 * group_query_attention is there and off, or the number is absent or None: then each head is a
 * group of its own, and it is num_attention_heads. attrs: args' attributes (may be NULL). NULL:
 * neither is there. Sources: megatron/training/arguments.py@core_v0.19.0
 * core_transformer_config_from_args (the switch; the parser sets the number to 1 without it),
 * megatron/core/transformer/transformer_config.py@core_v0.19.0 (a configuration, as Megatron-Bridge
 * writes it, has the number alone; None is num_attention_heads).
 */
const struct dcpk_value *dcpk_query_groups(const struct dcpk_value *attrs);

/*
 * Checks that a vocabulary of n_rows holds all tokens that args.vocab_size gives. attrs: args'
 * attributes (may be NULL); without a number every vocabulary does. Errors: DCPK_EMISMATCH with
 * both numbers.
 */
dcpk_status dcpk_tokens_fit(const struct dcpk_value *attrs, int64_t n_rows, struct dcpk_error *err);

/* ---- layers with experts ---- */

/*
 * Read moe_layer_freq for n_layers into `layers`, which has as many: an int (every n-th layer, from
 * the first on), a list or tuple of 0 and 1, or the text of one as Megatron's parser evaluates it
 * (moe_freq_type, megatron/training/arguments.py@core_v0.19.0). freq: may be NULL.
 * Returns false, and `layers` mean nothing, for what is none of these or of another number of
 * layers.
 */
bool dcpk_moe_layers_read(const struct dcpk_value *freq, bool *layers, size_t n_layers);

/* The same of a text: "2", "[0]*1+[1]*3", "([1,0])*2". */
bool dcpk_moe_layers_parse(const char *text, bool *layers, size_t n_layers);

/*
 * True if a layer of sparse attention, counted from 0, has an indexer of its own, and does not use
 * the tokens that an earlier layer's has picked (is_dsa_skip_topk_layer of
 * megatron/core/transformer/experimental_attention_variant/dsa.py@core_v0.19.0). attrs: of args.
 */
bool dcpk_layer_has_indexer(const struct dcpk_value *attrs, int64_t layer);

/* ---- the mesh ---- */

/* Source: formats/torch_dist/FORMAT.md 6; megatron/training/arguments.py @core_v0.19.0. */
struct dcpk_layout_size {
    const char *name; /* of the attribute */
    size_t at;        /* of the int64_t in struct dcpk_grid */
};
enum { DCPK_LAYOUT_N_SIZES = 10 };
extern const struct dcpk_layout_size dcpk_layout_sizes[DCPK_LAYOUT_N_SIZES];

/* The sizes in the attributes of args (dcpk_value_attrs; may be NULL); 0: missing, or no size. */
void dcpk_layout_read(const struct dcpk_value *attrs, struct dcpk_grid *layout);
/* The field of that size. */
int64_t dcpk_layout_get(const struct dcpk_grid *layout, const struct dcpk_layout_size *size);

/*
 * Give a mesh whose ranks are not given, neither `dp` nor `world`, the data parallelism of `from`,
 * to which RNG states of ranks belong, and as many ranks as Megatron then asks for: tp * pp * cp *
 * dp, or more where expert parallelism, etp * ep * pp, has to divide them. Sizes that the mesh
 * lacks are those of `from`. A `from` without `world`, and more than 2^63 ranks, change nothing.
 */
void dcpk_layout_fit_ranks(const struct dcpk_grid *from, struct dcpk_grid *mesh);

/* An attribute of args, and the size that a mesh gives it. */
struct dcpk_layout_arg {
    const char *name;
    int64_t size;
};
enum { DCPK_LAYOUT_MAX_ARGS = DCPK_LAYOUT_N_SIZES + 6 };

/*
 * Lists the args that `mesh` gives a run (list: DCPK_LAYOUT_MAX_ARGS entries): sizes that it has,
 * and what Megatron completes from them where `attrs` (may be NULL) have it. Weights are cut by
 * tensor parallelism alone. Returns how many. Source: validate_args of
 * megatron/training/arguments.py @core_v0.19.0 and main, and resolve_tensor_parallel_weight_shards
 * of megatron/core/model_parallel_config.py.
 */
size_t dcpk_layout_args(const struct dcpk_grid *mesh, const struct dcpk_value *attrs,
                        struct dcpk_layout_arg *list);

/* True for an attribute whose size follows from a target: of a mesh, or the number of instances
 * that an optimizer is sharded in. */
bool dcpk_layout_is_arg(const char *name);

/* Attributes that cut a pipeline into stages and chunks. */
struct dcpk_stage_arg {
    const char *name;
    bool is_flag; /* false where nothing is cut; the others are None then */
};
enum { DCPK_N_STAGE_ARGS = 8 };
extern const struct dcpk_stage_arg dcpk_stage_args[DCPK_N_STAGE_ARGS];

/* The value of the attribute where it cuts nothing; NULL: `attrs` lack it, or it has that value. */
const struct dcpk_value *dcpk_stage_arg_no(const struct dcpk_stage_arg *arg,
                                           const struct dcpk_value *attrs);

#endif
