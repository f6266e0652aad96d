/* SPDX-License-Identifier: Apache-2.0 */
/* megatron_cut.c - args -> how the model was cut over tensor, pipeline, expert and data ranks. */
#include <inttypes.h>
#include <string.h>

#include "formats/megatron/megatron_buckets.h"

#define MAX_SIZE   (INT64_C(1) << 20) /* of any parallel size or count: products fit 64 bits */
#define MAX_CHUNKS (INT64_C(1) << 16) /* of all pipeline stages: they are walked for each layer */

static bool is_set(const struct dcpk_value *attrs, const char *name)
{
    const struct dcpk_value *v = dcpk_value_get(attrs, name);

    return v != NULL && v->kind != DCPK_V_NONE;
}

static bool is_true(const struct dcpk_value *attrs, const char *name)
{
    bool b = false;

    return dcpk_value_as_bool(dcpk_value_get(attrs, name), &b) && b;
}

/* args.<name>, or `otherwise` where it is missing or None; -1 there: it must be set. */
static dcpk_status read_size(const struct dcpk_value *attrs, const char *name, int64_t least,
                             int64_t otherwise, int64_t *out, struct dcpk_error *err)
{
    int64_t v = otherwise;

    if (!is_set(attrs, name)) {
        if (otherwise < 0)
            return dcpk_fail(
                err, DCPK_EUNSUPPORTED,
                "args.%s is not set: without it the layout of the buckets is not known", name);
        *out = otherwise;
        return DCPK_OK;
    }
    if (!dcpk_value_as_int(dcpk_value_get(attrs, name), &v) || v < least || v > MAX_SIZE)
        return dcpk_fail(err, DCPK_EFORMAT, "args.%s is %" PRId64 ", no number from %" PRId64 " on",
                         name, v, least);
    *out = v;
    return DCPK_OK;
}

/* Layouts that change which rank holds what in ways that are not replayed. */
static dcpk_status check_supported(const struct dcpk_value *attrs, struct dcpk_error *err)
{
    static const struct {
        const char *name, *what;
    } unset[] = {
        {"pipeline_model_parallel_layout", "a pipeline layout of its own"},
        {"pipeline_model_parallel_split_rank", "an encoder on pipeline stages of its own"},
        {"heterogeneous_layers_config_path", "layers of different kinds"},
        {"hybrid_override_pattern", "a hybrid model"},
        {"hybrid_layer_pattern", "a hybrid model"},
        {"mtp_num_layers", "multi-token prediction"},
    };
    static const struct {
        const char *name, *what;
    } off[] = {
        {"fp8_param_gather", "FP8 weights, whose rounded masters prove nothing"},
        {"fp4_param_gather", "FP4 weights, whose rounded masters prove nothing"},
        {"overlap_param_gather_with_optimizer_step", "an optimizer for each model chunk"},
        {"standalone_embedding_stage", "a pipeline stage for the embedding alone"},
        {"moe_use_legacy_grouped_gemm", "experts in legacy GroupedMLP"},
        {"multi_latent_attention", "multi-latent attention"},
    };

    for (size_t i = 0; i < sizeof unset / sizeof unset[0]; i++)
        if (is_set(attrs, unset[i].name))
            return dcpk_fail(err, DCPK_EUNSUPPORTED,
                             "args.%s is set: buckets of a run with %s are not decoded",
                             unset[i].name, unset[i].what);
    for (size_t i = 0; i < sizeof off / sizeof off[0]; i++)
        if (is_true(attrs, off[i].name))
            return dcpk_fail(err, DCPK_EUNSUPPORTED,
                             "args.%s is true: buckets of a run with %s are not decoded",
                             off[i].name, off[i].what);
    return DCPK_OK;
}

/* Data-parallel ranks that share a bucket: all of them with context parallelism, or those of one
 * instance of the optimizer. */
static dcpk_status read_slices(const struct dcpk_value *attrs, struct dcpk_cut *cut,
                               struct dcpk_error *err)
{
    int64_t world, instances;
    const int64_t dense = cut->tp * cut->pp, expert = cut->etp * cut->ep * cut->pp;
    dcpk_status st = read_size(attrs, "world_size", 1, -1, &world, err);

    if (st == DCPK_OK)
        st = read_size(attrs, "num_distributed_optimizer_instances", 1, 1, &instances, err);
    if (st != DCPK_OK)
        return st;
    if (world % dense != 0 || world / dense % instances != 0 ||
        (cut->n_experts > 0 && (world % expert != 0 || world / expert % instances != 0)))
        return dcpk_fail(err, DCPK_EFORMAT,
                         "args: world_size %" PRId64 " is no multiple of tensor %" PRId64
                         ", pipeline %" PRId64 ", expert %" PRId64 " x %" PRId64
                         " parallel sizes and %" PRId64 " optimizer instances",
                         world, cut->tp, cut->pp, cut->ep, cut->etp, instances);
    cut->n_slices = world / dense / instances;
    cut->n_expert_slices = cut->n_experts > 0 ? world / expert / instances : 1;
    return DCPK_OK;
}

static dcpk_status read_experts(const struct dcpk_value *attrs, struct dcpk_cut *cut,
                                struct dcpk_error *err)
{
    dcpk_status st = read_size(attrs, "num_experts", 0, 0, &cut->n_experts, err);

    cut->ep = 1;
    cut->etp = cut->tp;
    if (st != DCPK_OK || cut->n_experts == 0)
        return st;
    st = read_size(attrs, "expert_model_parallel_size", 1, 1, &cut->ep, err);
    if (st == DCPK_OK)
        st = read_size(attrs, "expert_tensor_parallel_size", 1, cut->tp, &cut->etp, err);
    if (st == DCPK_OK && cut->n_experts % cut->ep != 0)
        st = dcpk_fail(err, DCPK_EFORMAT,
                       "args: %" PRId64 " experts on %" PRId64 " expert-parallel ranks",
                       cut->n_experts, cut->ep);
    return st;
}

static dcpk_status read_pipeline(const struct dcpk_value *attrs, struct dcpk_cut *cut,
                                 struct dcpk_error *err)
{
    int64_t stage, chunk;
    dcpk_status st = read_size(attrs, "pipeline_model_parallel_size", 1, -1, &cut->pp, err);

    if (st == DCPK_OK)
        st = read_size(attrs, "virtual_pipeline_model_parallel_size", 1, 1, &cut->vpp, err);
    if (st == DCPK_OK)
        st = read_size(attrs, "num_layers", 1, -1, &cut->n_layers, err);
    cut->first_layers = cut->last_layers = -1;
    if (st == DCPK_OK && is_set(attrs, "decoder_first_pipeline_num_layers"))
        st = read_size(attrs, "decoder_first_pipeline_num_layers", 0, 0, &cut->first_layers, err);
    if (st == DCPK_OK && is_set(attrs, "decoder_last_pipeline_num_layers"))
        st = read_size(attrs, "decoder_last_pipeline_num_layers", 0, 0, &cut->last_layers, err);
    if (st != DCPK_OK)
        return st;
    if (cut->pp * cut->vpp > MAX_CHUNKS)
        return dcpk_fail(err, DCPK_ERANGE,
                         "args: %" PRId64 " pipeline stages of %" PRId64 " chunks", cut->pp,
                         cut->vpp);
    cut->counts_embedding = is_true(attrs, "account_for_embedding_in_pipeline_split");
    cut->counts_loss = is_true(attrs, "account_for_loss_in_pipeline_split");
    return dcpk_cut_find_layer(cut, cut->n_layers - 1, &stage, &chunk, err);
}

dcpk_status dcpk_cut_read(const struct dcpk_value *args, struct dcpk_cut *cut,
                          struct dcpk_error *err)
{
    const struct dcpk_value *attrs = dcpk_value_attrs(args);
    const char *impl = dcpk_value_as_str(dcpk_value_get(attrs, "transformer_impl"));
    struct dcpk_cut c = {0};
    dcpk_status st;

    if (attrs == NULL)
        return dcpk_fail(err, DCPK_EUNSUPPORTED,
                         "there are no args: without them the layout of the buckets is not known");
    st = check_supported(attrs, err);
    if (st == DCPK_OK)
        st = read_size(attrs, "tensor_model_parallel_size", 1, -1, &c.tp, err);
    if (st == DCPK_OK)
        st = read_pipeline(attrs, &c, err);
    if (st == DCPK_OK)
        st = read_experts(attrs, &c, err);
    if (st == DCPK_OK)
        st = read_slices(attrs, &c, err);
    if (st != DCPK_OK)
        return st;
    c.is_tied = is_set(attrs, "untie_embeddings_and_output_weights") &&
                !is_true(attrs, "untie_embeddings_and_output_weights");
    c.is_te = impl == NULL || strcmp(impl, "local") != 0;
    c.is_grouped = c.is_te && is_true(attrs, "moe_grouped_gemm");
    *cut = c;
    return DCPK_OK;
}

/* Layers on each chunk of a stage, before the embedding and the loss take their places; -1: they do
 * not come out even. */
static int64_t chunk_layers(const struct dcpk_cut *cut, int64_t stage)
{
    const bool is_first = stage == 0, is_last = stage == cut->pp - 1;
    int64_t layers = cut->n_layers + cut->counts_embedding + cut->counts_loss, stages = cut->pp;

    if (is_first && cut->first_layers >= 0) {
        layers = cut->first_layers;
        stages = 1;
    } else if (is_last && cut->last_layers >= 0) {
        layers = cut->last_layers;
        stages = 1;
    } else {
        if (cut->first_layers >= 0) {
            layers -= cut->first_layers;
            stages--;
        }
        if (cut->last_layers >= 0) {
            layers -= cut->last_layers;
            stages--;
        }
    }
    if (layers < 0 || stages < 1 || layers % stages != 0 || layers / stages % cut->vpp != 0)
        return -1;
    return layers / stages / cut->vpp;
}

dcpk_status dcpk_cut_find_layer(const struct dcpk_cut *cut, int64_t layer, int64_t *stage,
                                int64_t *chunk, struct dcpk_error *err)
{
    int64_t first = 0;

    for (int64_t v = 0; v < cut->vpp; v++)
        for (int64_t p = 0; p < cut->pp; p++) {
            int64_t n = chunk_layers(cut, p);

            if (n >= 0)
                n -= (cut->counts_embedding && p == 0 && v == 0) +
                     (cut->counts_loss && p == cut->pp - 1 && v == cut->vpp - 1);
            if (n < 0)
                return dcpk_fail(err, DCPK_EFORMAT,
                                 "args: %" PRId64 " layers do not come out even on %" PRId64
                                 " pipeline stages of %" PRId64 " chunks",
                                 cut->n_layers, cut->pp, cut->vpp);
            if (layer < first + n) {
                *stage = p;
                *chunk = v;
                return DCPK_OK;
            }
            first += n;
        }
    return dcpk_fail(err, DCPK_EFORMAT,
                     "decoder layer %" PRId64
                     " is on no pipeline stage: args say that they hold %" PRId64,
                     layer, first);
}
