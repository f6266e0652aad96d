/* SPDX-License-Identifier: Apache-2.0 */
/* megatron_cut.c - args -> how the model was cut over tensor, pipeline, expert and data ranks. */
#include "formats/megatron/buckets/megatron_cut.h"

#include <inttypes.h>
#include <string.h>

#include "lib/base/alloc.h"
#include "lib/base/order.h"
#include "lib/place/pipeline.h"

/* ---- blocks of a weight, read off the chunks that it is stored in ---- */

/* The part of a chunk after the stacked axes: (offset, extent) on the one axis that is cut. */
struct cut_seen {
    int axis;         /* that is cut, -1: none so far */
    int64_t n_blocks; /* on it */
};

/* Checks that every chunk is on one regular grid along one axis. */
static dcpk_status see_chunk(const struct dcpk_tensor *stored, int n_lead, const int64_t *span,
                             struct cut_seen *seen, struct dcpk_error *err)
{
    const int64_t *offset = span, *extent = span + stored->rank;
    struct dcpk_box box;
    char text[256];

    for (int a = n_lead; a < stored->rank; a++) {
        if (extent[a] == stored->shape[a])
            continue;
        if (seen->axis < 0 && extent[a] > 0 && stored->shape[a] % extent[a] == 0) {
            seen->axis = a;
            seen->n_blocks = stored->shape[a] / extent[a];
        }
        if (seen->axis == a && extent[a] * seen->n_blocks == stored->shape[a] &&
            offset[a] % extent[a] == 0)
            continue;
        dcpk_box_unpack(span, stored->rank, &box);
        return dcpk_fail(
            err, DCPK_EUNSUPPORTED,
            "'%s': the chunk %s is not a block of tensor parallelism: the parts that ranks "
            "held are not known",
            stored->key, dcpk_box_format(&box, text, sizeof text));
    }
    return DCPK_OK;
}

/* A cut axis must be cut in every chunk; whole ones next to it would be two layouts in one
 * tensor. */
static bool is_cut_everywhere(const struct dcpk_checkpoint *ckpt, const struct dcpk_tensor *stored,
                              const struct cut_seen *seen)
{
    for (size_t c = stored->first_chunk; c < stored->first_chunk + stored->n_chunks; c++)
        if (ckpt->chunks[c].span[stored->rank + seen->axis] * seen->n_blocks !=
            stored->shape[seen->axis])
            return false;
    return true;
}

dcpk_status dcpk_blocks_find(const struct dcpk_checkpoint *ckpt, const struct dcpk_tensor *stored,
                             int n_lead, int64_t tp, struct dcpk_blocks *blocks,
                             struct dcpk_error *err)
{
    struct cut_seen seen = {-1, 1};
    bool is_gated;

    for (size_t c = stored->first_chunk; c < stored->first_chunk + stored->n_chunks; c++) {
        if (see_chunk(stored, n_lead, ckpt->chunks[c].span, &seen, err))
            return err->status;
    }
    if (seen.axis >= 0 && !is_cut_everywhere(ckpt, stored, &seen))
        return dcpk_fail(err, DCPK_EUNSUPPORTED,
                         "'%s': some of its chunks are cut by tensor parallelism and some are not",
                         stored->key);
    *blocks = (struct dcpk_blocks){.axis = -1, .n_ranks = 1, .n_parts = 1};
    if (seen.axis < 0)
        return DCPK_OK;
    /*
     * Gate and up halves are stored apart: twice as many blocks, on axis 0
     * (formats/torch_dist/FORMAT.md 4.4).
     */
    is_gated = seen.n_blocks == 2 * tp && seen.axis == n_lead;
    if (seen.n_blocks != tp && !is_gated)
        return dcpk_fail(err, DCPK_EUNSUPPORTED,
                         "'%s' is stored in %" PRId64 " blocks; expected 1, %" PRId64
                         " (tensor-parallel ranks) or twice as many (gate and up rows)",
                         stored->key, seen.n_blocks, tp);
    blocks->axis = seen.axis - n_lead;
    blocks->n_ranks = tp;
    blocks->n_parts = 1 + is_gated;
    blocks->part[0].n_rows = blocks->part[1].n_rows = stored->shape[seen.axis] / blocks->n_parts;
    blocks->part[1].row = blocks->part[0].n_rows;
    return DCPK_OK;
}

dcpk_status dcpk_blocks_append(struct dcpk_blocks *blocks, const struct dcpk_blocks *part,
                               struct dcpk_error *err)
{
    const struct dcpk_rows last = blocks->part[blocks->n_parts - 1];

    if (blocks->axis > 0 || part->axis != blocks->axis || part->n_ranks != blocks->n_ranks ||
        blocks->n_parts + part->n_parts > DCPK_MAX_PARTS)
        return dcpk_fail(err, DCPK_EUNSUPPORTED,
                         "its parts are not cut alike by tensor parallelism");
    if (blocks->axis < 0) /* the parameter as it is */
        return DCPK_OK;
    for (int i = 0; i < part->n_parts; i++) {
        blocks->part[blocks->n_parts] = part->part[i];
        blocks->part[blocks->n_parts++].row += last.row + last.n_rows;
    }
    return DCPK_OK;
}

void dcpk_blocks_box(const struct dcpk_blocks *blocks, const int64_t *shape, int rank, int64_t r,
                     int part, struct dcpk_box *box)
{
    const struct dcpk_rows held = dcpk_rows_of_rank(blocks->part[part], blocks->n_ranks, r);

    dcpk_box_whole(shape, rank, box);
    if (blocks->axis < 0)
        return;
    box->offset[blocks->axis] = held.row;
    box->extent[blocks->axis] = held.n_rows;
}

/* ---- the cut of a run, by args ---- */

#define MAX_SIZE   (INT64_C(1) << 20) /* of any parallel size or count: products fit 64 bits */
#define MAX_CHUNKS (INT64_C(1) << 16) /* of all pipeline stages: they are walked for each layer */

static bool cut_is_set(const struct dcpk_value *attrs, const char *name)
{
    const struct dcpk_value *v = dcpk_value_get(attrs, name);

    return !dcpk_value_is_none(v);
}

/* args.<name>, or `by_default` where it is missing or None; -1 there: it must be set. */
static dcpk_status read_size(const struct dcpk_value *attrs, const char *name, int64_t least,
                             int64_t by_default, int64_t *out, struct dcpk_error *err)
{
    int64_t v = by_default;

    if (!cut_is_set(attrs, name)) {
        if (by_default < 0)
            return dcpk_fail(err, DCPK_EUNSUPPORTED,
                             "args.%s is not set, and the layout of the ranks depends on it", name);
        *out = by_default;
        return DCPK_OK;
    }
    if (!dcpk_value_as_int(dcpk_value_get(attrs, name), &v) || v < least || v > MAX_SIZE)
        return dcpk_fail(err, DCPK_EFORMAT, "args.%s is %" PRId64 ", no number from %" PRId64 " on",
                         name, v, least);
    *out = v;
    return DCPK_OK;
}

/* Layouts that change the shards of ranks in ways that are not replayed. */
static const struct unsupported {
    const char *name, *what;
} of_ranks[] =
    {
        {"pipeline_model_parallel_split_rank", "an encoder on pipeline stages of its own"},
        {"standalone_embedding_stage", "a pipeline stage for the embedding alone"},
        {"moe_extended_tp", "experts cut over tensor and expert parallel ranks alike"},
},
  of_buckets[] = {
      {"heterogeneous_layers_config_path", "layers of different kinds"},
      {"fp8_param_gather", "FP8 weights, whose rounded masters prove nothing"},
      {"fp4_param_gather", "FP4 weights, whose rounded masters prove nothing"},
      {"overlap_param_gather_with_optimizer_step", "an optimizer for each model chunk"},
      {"moe_use_legacy_grouped_gemm", "experts in legacy GroupedMLP"},
      {"mla_down_proj_fusion", "MLA's down-projections in one parameter"},
};

static dcpk_status check_supported(const struct dcpk_value *attrs, const struct unsupported *list,
                                   size_t n, struct dcpk_error *err)
{
    for (size_t i = 0; i < n; i++) {
        const struct dcpk_value *v = dcpk_value_get(attrs, list[i].name);
        bool is_on = cut_is_set(attrs, list[i].name);

        (void)dcpk_value_as_bool(v, &is_on);
        if (is_on)
            return dcpk_fail(err, DCPK_EUNSUPPORTED,
                             "args.%s is set: the shards of a run with %s are not decoded",
                             list[i].name, list[i].what);
    }
    return DCPK_OK;
}

/* Data-parallel ranks that share a bucket: all of them with context parallelism, or those of one
 * instance of the optimizer. */
static dcpk_status cut_read_slices(const struct dcpk_value *attrs, struct dcpk_cut *cut,
                                   struct dcpk_error *err)
{
    int64_t world, instances;
    const int64_t dense = cut->tp * cut->pp, expert = cut->etp * cut->ep * cut->pp;

    if (read_size(attrs, "world_size", 1, -1, &world, err) ||
        read_size(attrs, "num_distributed_optimizer_instances", 1, 1, &instances, err))
        return err->status;
    if (world % dense != 0 || world / dense % instances != 0 ||
        (cut->n_experts > 0 && (world % expert != 0 || world / expert % instances != 0)))
        return dcpk_fail(err, DCPK_EFORMAT,
                         "args: world_size %" PRId64 " is not a multiple of tensor %" PRId64
                         ", pipeline %" PRId64 ", expert %" PRId64 " x %" PRId64
                         " parallel sizes and %" PRId64 " optimizer instances",
                         world, cut->tp, cut->pp, cut->ep, cut->etp, instances);
    cut->n_slices = world / dense / instances;
    cut->n_expert_slices = 1;
    if (cut->n_experts > 0)
        cut->n_expert_slices = world / expert / instances;
    return DCPK_OK;
}

/*
 * args.ddp_bucket_size, or what Megatron makes of None (MC/distributed/
 * distributed_data_parallel.py@0.7.0 to main; core 0.6 records its buckets).
 */
static dcpk_status read_bucketing(const struct dcpk_value *attrs, struct dcpk_cut *cut,
                                  struct dcpk_error *err)
{
    int64_t world;

    if (read_size(attrs, "world_size", 1, -1, &world, err))
        return err->status;
    if (!dcpk_value_is_true(attrs, "overlap_grad_reduce"))
        return DCPK_OK;
    cut->bucketing.n_elems = dcpk_grid_bucket_elems(world / (cut->tp * cut->pp));
    if (cut_is_set(attrs, "ddp_num_buckets"))
        return read_size(attrs, "ddp_num_buckets", 1, 0, &cut->bucketing.n_buckets, err);
    if (cut_is_set(attrs, "ddp_bucket_size") &&
        (!dcpk_value_as_int(dcpk_value_get(attrs, "ddp_bucket_size"), &cut->bucketing.n_elems) ||
         cut->bucketing.n_elems < 1))
        return dcpk_fail(err, DCPK_EFORMAT, "args.ddp_bucket_size is %" PRId64,
                         cut->bucketing.n_elems);
    return DCPK_OK;
}

static dcpk_status read_experts(const struct dcpk_value *attrs, struct dcpk_cut *cut,
                                struct dcpk_error *err)
{
    if (read_size(attrs, "num_experts", 0, 0, &cut->n_experts, err))
        return err->status;
    cut->ep = 1;
    cut->etp = cut->tp;
    if (cut->n_experts == 0)
        return DCPK_OK;
    if (read_size(attrs, "expert_model_parallel_size", 1, 1, &cut->ep, err) ||
        read_size(attrs, "expert_tensor_parallel_size", 1, cut->tp, &cut->etp, err))
        return err->status;
    if (cut->n_experts % cut->ep != 0)
        return dcpk_fail(err, DCPK_EFORMAT,
                         "args: %" PRId64 " experts on %" PRId64 " expert-parallel ranks",
                         cut->n_experts, cut->ep);
    return DCPK_OK;
}

/* --- layers on model chunks --- */

/* The number of layers of each chunk; first becomes ends when all are there. */
struct chunks {
    int64_t *layers;
    size_t n;
};

/* The same number on each stage, except for the ends. */
static dcpk_status fill_evenly(const struct dcpk_value *attrs, const struct dcpk_cut *cut,
                               struct chunks *chunks, struct dcpk_error *err)
{
    struct dcpk_grid grid = {.pp = cut->pp, .vpp = cut->vpp};
    struct dcpk_error why = DCPK_ERROR_INIT;
    unsigned flags = 0;

    if (dcpk_value_is_true(attrs, "account_for_embedding_in_pipeline_split"))
        flags |= DCPK_COUNTS_EMBEDDING;
    if (dcpk_value_is_true(attrs, "account_for_loss_in_pipeline_split"))
        flags |= DCPK_COUNTS_LOSS;
    if (read_size(attrs, "decoder_first_pipeline_num_layers", 1, 0, &grid.first, err) ||
        read_size(attrs, "decoder_last_pipeline_num_layers", 1, 0, &grid.last, err))
        return err->status;
    if (dcpk_grid_check_stages(&grid, cut->n_layers, flags, &why) != DCPK_OK)
        return dcpk_fail(err, DCPK_EFORMAT,
                         "args: %" PRId64 " layers cannot be cut evenly into %" PRId64
                         " pipeline stages of %" PRId64 " chunks",
                         cut->n_layers, cut->pp, cut->vpp);
    for (size_t c = 0; c < chunks->n; c++)
        chunks->layers[c] = dcpk_grid_chunk_layers(&grid, cut->n_layers, flags, (int64_t)c);
    return DCPK_OK;
}

/* args.<name>, when it is a text. */
static const char *read_text(const struct dcpk_value *attrs, const char *name)
{
    return dcpk_value_as_str(dcpk_value_get(attrs, name));
}

/* Chunks of a layout that was written out. */
static dcpk_status fill_from_text(const char *text, const char *kinds, struct dcpk_cut *cut,
                                  struct chunks *chunks, struct dcpk_error *err)
{
    const int64_t n_parts = dcpk_pipeline_parts(text);
    struct dcpk_pipeline pipeline = {chunks->layers, cut->mtp_chunk};

    if (n_parts != (int64_t)chunks->n)
        return dcpk_fail(err, DCPK_EFORMAT,
                         "args: the layout of the pipeline has %" PRId64 " parts for %" PRId64
                         " stages of %" PRId64 " chunks",
                         n_parts, cut->pp, cut->vpp);
    if (dcpk_pipeline_count(text, kinds, &pipeline, err))
        return dcpk_context(err, "args");
    cut->mtp_chunk = pipeline.mtp;
    return DCPK_OK;
}

static dcpk_status cut_fill_chunks(const struct dcpk_value *attrs, struct dcpk_arena *arena,
                                   struct dcpk_cut *cut, struct chunks *chunks,
                                   struct dcpk_error *err)
{
    const char *layout = read_text(attrs, "pipeline_model_parallel_layout");
    const char *hybrid = read_text(attrs, "hybrid_layer_pattern");

    if (layout != NULL) {
        layout = dcpk_pipeline_unroll(arena, layout, err);
        if (layout == NULL)
            return dcpk_context(err, "args");
        return fill_from_text(layout, "t", cut, chunks, err);
    }
    if (cut_is_set(attrs, "pipeline_model_parallel_layout"))
        return dcpk_fail(err, DCPK_EUNSUPPORTED,
                         "args.pipeline_model_parallel_layout is not text: what it says of the "
                         "buckets is not known");
    if (hybrid != NULL && memchr(hybrid, '|', strcspn(hybrid, "/")) != NULL)
        return fill_from_text(hybrid, NULL, cut, chunks, err);
    return fill_evenly(attrs, cut, chunks, err);
}

/* Model chunks, and what each of them holds. */
static dcpk_status read_chunks(const struct dcpk_value *attrs, struct dcpk_arena *arena,
                               struct dcpk_cut *cut, struct dcpk_error *err)
{
    struct chunks chunks = {.n = (size_t)(cut->pp * cut->vpp)};
    int64_t end = 0;

    chunks.layers = dcpk_arena_array(arena, chunks.n, sizeof *chunks.layers, err);
    if (chunks.layers == NULL)
        return err->status;
    cut->has_mtp = cut_is_set(attrs, "mtp_num_layers");
    cut->norm_chunk = cut->mtp_chunk = (int64_t)chunks.n - 1;
    if (cut_fill_chunks(attrs, arena, cut, &chunks, err))
        return err->status;
    for (size_t c = 0; c < chunks.n; c++) {
        /* With multi-token prediction the norm is where the decoder ends
         * (MC/transformer/transformer_block.py@0.19.0 has_final_layernorm_in_this_stage). */
        if (chunks.layers[c] > 0 && cut->has_mtp)
            cut->norm_chunk = (int64_t)c;
        end += chunks.layers[c];
        chunks.layers[c] = end;
    }
    if (end != cut->n_layers)
        return dcpk_fail(err, DCPK_EFORMAT,
                         "args: %" PRId64 " layers, the pipeline's stages hold %" PRId64,
                         cut->n_layers, end);
    cut->layer_ends = chunks.layers;
    return DCPK_OK;
}

static dcpk_status read_pipeline(const struct dcpk_value *attrs, struct dcpk_arena *arena,
                                 struct dcpk_cut *cut, struct dcpk_error *err)
{
    if (read_size(attrs, "pipeline_model_parallel_size", 1, -1, &cut->pp, err) ||
        read_size(attrs, "virtual_pipeline_model_parallel_size", 1, 1, &cut->vpp, err) ||
        read_size(attrs, "num_layers", 1, -1, &cut->n_layers, err))
        return err->status;
    if (cut->pp * cut->vpp > MAX_CHUNKS)
        return dcpk_fail(err, DCPK_ERANGE,
                         "args: %" PRId64 " pipeline stages of %" PRId64 " chunks", cut->pp,
                         cut->vpp);
    return read_chunks(attrs, arena, cut, err);
}

unsigned dcpk_cut_spec(const struct dcpk_value *attrs, const char *impl)
{
    if (impl == NULL)
        impl = read_text(attrs, "transformer_impl");
    if (impl != NULL && strcmp(impl, "local") == 0)
        return 0;
    if (dcpk_value_is_true(attrs, "moe_grouped_gemm"))
        return DCPK_SPEC_TE | DCPK_SPEC_GROUPED;
    return DCPK_SPEC_TE;
}

dcpk_status dcpk_cut_read_ranks(const struct dcpk_value *args, struct dcpk_arena *arena,
                                struct dcpk_cut *cut, struct dcpk_error *err)
{
    const struct dcpk_value *attrs = dcpk_value_attrs(args);
    struct dcpk_cut c = {0};

    if (attrs == NULL)
        return dcpk_fail_fix(
            err, DCPK_EUNSUPPORTED, DCPK_FIX_ARGS,
            "there are no args: without them the layout of the ranks is not known");
    if (check_supported(attrs, of_ranks, DCPK_COUNT(of_ranks), err) ||
        read_size(attrs, "tensor_model_parallel_size", 1, -1, &c.tp, err) ||
        read_pipeline(attrs, arena, &c, err) || read_experts(attrs, &c, err))
        return err->status;
    c.is_tied = cut_is_set(attrs, "untie_embeddings_and_output_weights") &&
                !dcpk_value_is_true(attrs, "untie_embeddings_and_output_weights");
    c.spec = dcpk_cut_spec(attrs, NULL); /* replay tries others too */
    *cut = c;
    return DCPK_OK;
}

dcpk_status dcpk_cut_read(const struct dcpk_value *args, struct dcpk_arena *arena,
                          struct dcpk_cut *cut, struct dcpk_error *err)
{
    const struct dcpk_value *attrs = dcpk_value_attrs(args);
    struct dcpk_cut c = {0};

    if (check_supported(attrs, of_buckets, DCPK_COUNT(of_buckets), err) ||
        dcpk_cut_read_ranks(args, arena, &c, err) || cut_read_slices(attrs, &c, err) ||
        read_bucketing(attrs, &c, err))
        return err->status;
    c.pads_for_bandwidth = dcpk_value_is_true(attrs, "ddp_pad_buckets_for_high_nccl_busbw");
    *cut = c;
    return DCPK_OK;
}

dcpk_status dcpk_cut_find(const struct dcpk_cut *cut, const struct dcpk_registered *reg,
                          int64_t *chunk, struct dcpk_error *err)
{
    if (reg->expert >= cut->n_experts ||
        (reg->section == DCPK_DECODER_LAYERS && reg->layer >= cut->n_layers))
        return dcpk_fail(err, DCPK_EFORMAT,
                         "args say that there are %" PRId64 " layers and %" PRId64 " experts",
                         cut->n_layers, cut->n_experts);
    switch (reg->section) {
    case DCPK_DECODER_LAYERS:
        for (*chunk = 0; cut->layer_ends[*chunk] <= reg->layer; (*chunk)++)
            ;
        break;
    case DCPK_FINAL_NORM:
        *chunk = cut->norm_chunk;
        break;
    case DCPK_MTP_LAYERS:
        *chunk = cut->mtp_chunk;
        break;
    case DCPK_OUTPUT_LAYER:
        *chunk = cut->pp * cut->vpp - 1;
        break;
    case DCPK_EMBEDDING:
    case DCPK_NO_SECTION:
        *chunk = 0;
    }
    return DCPK_OK;
}
