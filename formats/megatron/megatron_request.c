/* SPDX-License-Identifier: Apache-2.0 */
/* megatron_request.c - the tensors and extra states that loaders of 3D-parallel checkpoints ask for
 * (formats/torch_dist/FORMAT.md 4, 5 and 7). */
#include <inttypes.h>
#include <string.h>

#include "formats/megatron/megatron.h"
#include "formats/megatron/megatron_slots.h"
#include "lib/base/order.h"
#include "lib/base/text.h"

#define MAX_RANK (DCPK_MAX_STACKED + DCPK_EXPECTED_RANK)

/* A walk over the model's parameters. */
struct asking {
    const struct dcpk_loading *loading;
    struct dcpk_optimizer_asked optimizer;
    const struct dcpk_expected_layer *layer;
    bool is_stacked; /* the layers of the decoder are one */
    unsigned kinds;  /* of slots */
    struct dcpk_bytes key, other;
};

/* --- keys --- */

/* A parameter by its key: `head` and `tail` after the layer's, then `part`. */
struct spelling {
    const struct dcpk_expected_param *param;
    const char *head, *tail, *part;
    const char *other; /* head of a key that will do as well; NULL: none */
    uint32_t loaders;
};

/*
 * Hybrid stacks and Gated DeltaNet have no local spec of their own: a run brings one, whose norms
 * keep their names or get fused ones by a map of keys (lib/model/request.h, `other`).
 */
static const struct loose_norm {
    const char *te, *local, *other;
    bool of_hybrid; /* else in every model */
} loose_norms[] = {
    {"self_attention.in_proj.layer_norm_", "self_attention.in_proj.layer_norm_",
     "self_attention.linear_qkv.layer_norm_", false},
    {"self_attention.linear_qkv.layer_norm_", "self_attention.linear_qkv.layer_norm_",
     "input_layernorm.", true},
    {"mlp.linear_fc1.layer_norm_", "mlp.linear_fc1.layer_norm_", "pre_mlp_layernorm.", true},
    {"pre_mlp_layernorm.", "mlp.linear_fc1.layer_norm_", "pre_mlp_layernorm.", true},
};

/* True if this layer's key stands for all layers. */
static bool is_stacked(const struct asking *a)
{
    return a->is_stacked && a->layer->section == DCPK_DECODER_LAYERS;
}

static void request_put_head(struct asking *a)
{
    const struct dcpk_expected_layer *layer = a->layer;

    if (layer->section != DCPK_DECODER_LAYERS && layer->section != DCPK_MTP_LAYERS)
        return;
    if (layer->section == DCPK_DECODER_LAYERS)
        dcpk_bytes_text(&a->key, "decoder.layers.");
    else
        dcpk_bytes_text(&a->key, "mtp.layers.");
    if (!is_stacked(a)) {
        dcpk_key_number(&a->key, layer->number);
        dcpk_bytes_text(&a->key, ".");
    }
    if (layer->section == DCPK_MTP_LAYERS && !layer->is_wrapper && layer->inner < 0)
        dcpk_bytes_text(&a->key, "transformer_layer.");
    if (layer->section != DCPK_MTP_LAYERS || layer->is_wrapper || layer->inner < 0)
        return;
    dcpk_bytes_text(&a->key, "mtp_model_layer.layers.");
    dcpk_key_number(&a->key, layer->inner);
    dcpk_bytes_text(&a->key, ".");
}

static bool param_is_expert(const struct dcpk_expected_param *p)
{
    return (p->flags & DCPK_EXPECTED_EXPERT) != 0;
}

static void request_put_name(struct asking *a, const struct spelling *s)
{
    request_put_head(a);
    if (s->other != NULL) {
        a->other.n_bytes = 0;
        dcpk_bytes_put(&a->other, a->key.data, a->key.n_bytes);
        dcpk_bytes_text(&a->other, s->other);
        dcpk_bytes_text(&a->other, s->tail);
    }
    if (param_is_expert(s->param))
        dcpk_bytes_text(&a->key, "mlp.experts.experts.");
    dcpk_bytes_text(&a->key, s->head);
    dcpk_bytes_text(&a->key, s->tail);
    if (s->part == NULL)
        return;
    dcpk_bytes_text(&a->key, ".");
    dcpk_bytes_text(&a->key, s->part);
}

/* --- tensors --- */

/* "optimizer.state.<state>." of the optimizer that has the parameter. */
static void request_put_state(struct asking *a, const struct dcpk_expected_param *p,
                              const char *state)
{
    if (a->optimizer.has_prefix)
        dcpk_bytes_text(&a->key, param_is_expert(p) ? "chained_1." : "chained_0.");
    dcpk_bytes_text(&a->key, "optimizer.state.");
    dcpk_bytes_text(&a->key, state);
    dcpk_bytes_text(&a->key, ".");
}

/* Hand over the key that stands in a->key; request: all but the keys. */
static dcpk_status request_put(struct asking *a, const struct spelling *s,
                               struct dcpk_request request, struct dcpk_error *err)
{
    request.loaders &= a->loading->loaders;
    request.key = (const char *)a->key.data;
    request.key_bytes = a->key.n_bytes;
    if (s->other != NULL)
        request.other = (const char *)a->other.data;
    request.other_bytes = a->other.n_bytes;
    if (dcpk_bytes_status(&a->key, err) || dcpk_bytes_status(&a->other, err))
        return err->status;
    if (request.loaders == 0)
        return DCPK_OK;
    return a->loading->take(a->loading->context, &request, err);
}

/* Masters and moments by what the optimizer is; NULL after the last. */
static const char *const *states_of(const struct asking *a)
{
    static const char *const reshardable[] = {"param", "exp_avg", "exp_avg_sq", NULL};
    static const char *const plain[] = {"fp32_param", "exp_avg", "exp_avg_sq", NULL};
    static const char *const of_fp32[] = {"exp_avg", "exp_avg_sq", NULL};
    static const char *const of_sgd[] = {"fp32_param", "momentum_buffer", NULL};
    static const char *const none[] = {NULL};

    if (strcmp(a->loading->model->optimizer, "sgd") == 0)
        return a->optimizer.kind == DCPK_OPTIMIZER_WHOLE ? of_sgd : none;
    switch (a->optimizer.kind) {
    case DCPK_OPTIMIZER_RESHARDABLE:
        return reshardable;
    case DCPK_OPTIMIZER_FLATTENED:
        return plain;
    case DCPK_OPTIMIZER_WHOLE:
        return a->loading->model->is_fp32 ? of_fp32 : plain;
    case DCPK_OPTIMIZER_NONE:
    case DCPK_OPTIMIZER_BUCKETS:
    case DCPK_OPTIMIZER_GATHERED:
    case DCPK_OPTIMIZER_UNREADABLE:
        break;
    }
    return none;
}

/* The weight of this shape and the optimizer's state of it. */
static dcpk_status ask_tensors(struct asking *a, const struct spelling *s, const int64_t *shape,
                               int rank, struct dcpk_error *err)
{
    const bool is_trained = (s->param->flags & DCPK_EXPECTED_BUFFER) == 0;
    struct dcpk_request request = {.purpose = DCPK_FOR_WEIGHTS,
                                   .loaders = s->loaders,
                                   .is_tensor = true,
                                   .may_differ = (s->param->flags & DCPK_EXPECTED_VOCAB) != 0,
                                   .rank = rank,
                                   .shape = shape};

    a->key.n_bytes = 0;
    request_put_name(a, s);
    if (request_put(a, s, request, err) != DCPK_OK)
        return err->status;
    request.loaders &= a->optimizer.loaders;
    /* Flattened state is cut as its run was (formats/torch_dist/FORMAT.md 5.2): any blocks. */
    if (a->optimizer.kind == DCPK_OPTIMIZER_FLATTENED)
        request.rank = -1;
    for (const char *const *state = states_of(a); is_trained && *state != NULL; state++) {
        const bool is_master = dcpk_ends_with(*state, "param");

        request.purpose = is_master ? DCPK_FOR_MASTERS : DCPK_FOR_MOMENTS;
        a->key.n_bytes = 0;
        request_put_state(a, s->param, *state);
        request_put_name(a, s);
        if (request_put(a, s, request, err) != DCPK_OK)
            return err->status;
    }
    return DCPK_OK;
}

/* One parameter under one name: stacked axes before its own, parts of rows in keys of their own. */
static dcpk_status ask_spelled(struct asking *a, struct spelling *s, struct dcpk_error *err)
{
    const struct dcpk_expected *m = a->loading->model;
    const struct dcpk_expected_param *p = s->param;
    int64_t shape[MAX_RANK];
    int n_axes = 0;

    if (is_stacked(a))
        shape[n_axes++] = m->n_decoder_layers;
    if (param_is_expert(p))
        shape[n_axes++] = m->n_experts;
    memcpy(shape + n_axes, p->shape, (size_t)p->rank * sizeof *shape);
    if (!dcpk_slots_are_apart(&p->parts))
        return ask_tensors(a, s, shape, n_axes + p->rank, err);
    for (size_t i = 0; i < p->parts.n; i++) {
        s->part = p->parts.list[i].name;
        shape[n_axes] = p->parts.list[i].rows[0].n_rows;
        if (ask_tensors(a, s, shape, n_axes + p->rank, err))
            return err->status;
    }
    return DCPK_OK;
}

/* Mamba's convolution keeps the name of the module that it was (megatron_slots.c). */
static const char *stored_module_name(const char *te)
{
    if (strcmp(te, "mixer.conv1d_weight") == 0)
        return "mixer.conv1d.weight";
    return strcmp(te, "mixer.conv1d_bias") == 0 ? "mixer.conv1d.bias" : te;
}

/* The local key of a parameter inside a layer; head "": the same as Transformer Engine's. */
static void find_local(const struct asking *a, const char *te, struct spelling *s)
{
    for (size_t i = 0; i < DCPK_COUNT(loose_norms); i++) {
        const struct loose_norm *norm = &loose_norms[i];

        if (!dcpk_starts_with(te, norm->te) || (norm->of_hybrid && !a->loading->model->is_hybrid))
            continue;
        s->head = norm->local;
        s->other = norm->other;
        s->tail = te + strlen(norm->te);
        return;
    }
    s->head = dcpk_slots_local(a->kinds, te, &s->tail);
}

static dcpk_status ask_param(struct asking *a, const struct dcpk_expected_param *p,
                             struct dcpk_error *err)
{
    const char *te = stored_module_name(p->te);
    const bool in_layer =
        a->layer->section != DCPK_EMBEDDING && !a->layer->is_wrapper && !param_is_expert(p);
    struct spelling s = {.param = p, .head = "", .tail = te, .loaders = DCPK_ALL_LOADERS};
    struct spelling local = s;

    if (in_layer)
        find_local(a, te, &local);
    if (*local.head == '\0')
        return ask_spelled(a, &s, err);
    s.loaders = dcpk_loaders_with_impl(DCPK_LOADER_TE);
    if ((a->loading->loaders & s.loaders) != 0 && ask_spelled(a, &s, err))
        return err->status;
    local.loaders = dcpk_loaders_with_impl(DCPK_LOADER_LOCAL);
    if ((a->loading->loaders & local.loaders) == 0)
        return DCPK_OK;
    return ask_spelled(a, &local, err);
}

/* --- extra states --- */

static void put_numbers(struct dcpk_bytes *key, const int64_t *numbers, int n)
{
    for (int i = 0; i < n; i++) {
        if (i > 0)
            dcpk_bytes_text(key, ".");
        dcpk_key_number(key, numbers[i]);
    }
}

/* One object a layer and expert:
 * "<module>._extra_state/shard_<layer>.<expert>_<layers>.<experts>". */
static dcpk_status ask_shard(struct asking *a, uint32_t loaders, const int64_t *at,
                             const int64_t *of, int n_axes, struct dcpk_error *err)
{
    dcpk_bytes_text(&a->key, "._extra_state/shard_");
    if (n_axes == 0) {
        dcpk_bytes_text(&a->key, "0_1");
    } else {
        put_numbers(&a->key, at, n_axes);
        dcpk_bytes_text(&a->key, "_");
        put_numbers(&a->key, of, n_axes);
    }
    return dcpk_request_object(a->loading, DCPK_FOR_EXTRA, loaders, &a->key, err);
}

/* Main leaves out those of Transformer Engine that are empty, under the option
 * ckpt_drop_redundant_extra_state. */
static uint32_t asking_extra(const struct asking *a, const struct dcpk_expected_module *module)
{
    uint32_t loaders = DCPK_ALL_LOADERS;

    if ((module->flags & DCPK_EXPECTED_TE_ONLY) != 0)
        loaders = dcpk_loaders_with_impl(DCPK_LOADER_TE);
    if ((module->flags & DCPK_EXPECTED_OLD_MTP) != 0) {
        if (a->layer->section != DCPK_MTP_LAYERS)
            return 0;
        loaders &= dcpk_loaders_of(DCPK_CORE_0_15, DCPK_CORE_0_16);
    }
    if (dcpk_value_is_true(a->loading->attrs, "ckpt_drop_redundant_extra_state"))
        loaders &= ~(dcpk_loaders_with_impl(DCPK_LOADER_TE) &
                     dcpk_loaders_of(DCPK_MAIN_2026_08_22, DCPK_MAIN));
    return loaders;
}

static dcpk_status ask_extra(struct asking *a, const struct dcpk_expected_module *module,
                             struct dcpk_error *err)
{
    const struct dcpk_expected *m = a->loading->model;
    const bool of_experts = (module->flags & DCPK_EXPECTED_EXPERT) != 0, stacked = is_stacked(a);
    const int64_t n_layers = stacked ? m->n_decoder_layers : 1;
    const int64_t n_experts = of_experts ? m->n_experts : 1;
    const int64_t of[] = {n_layers, n_experts};
    const uint32_t loaders = asking_extra(a, module);

    for (int64_t l = 0; l < n_layers; l++)
        for (int64_t e = 0; e < n_experts; e++) {
            const int64_t at[] = {l, e};

            a->key.n_bytes = 0;
            request_put_head(a);
            if (of_experts)
                dcpk_bytes_text(&a->key, "mlp.experts.experts.");
            dcpk_bytes_text(&a->key, module->te);
            if (ask_shard(a, loaders, at + !stacked, of + !stacked, stacked + of_experts, err))
                return err->status;
        }
    return DCPK_OK;
}

/* --- all of it --- */

/* True if the layers of the decoder stand for each other. By args they do where they are
 * stacked. */
static bool find_stacked(const struct dcpk_loading *loading)
{
    const struct dcpk_value *content = dcpk_value_get(loading->common, "content_metadata");

    return loading->model->is_stacked && !dcpk_value_is_true(content, "non_homogeneous_layers");
}

static unsigned expected_kinds(const struct dcpk_expected *m)
{
    unsigned kinds = 0;

    if (m->is_mla)
        kinds |= DCPK_SLOTS_MLA;
    if (m->is_hybrid)
        kinds |= DCPK_SLOTS_HYBRID;
    return kinds == 0 ? DCPK_SLOTS_DECODER : kinds;
}

static dcpk_status ask_layer(struct asking *a, struct dcpk_error *err)
{
    const struct dcpk_expected_kind *kind = a->layer->kind;

    for (size_t i = 0; i < kind->n_params; i++)
        if (ask_param(a, &kind->params[i], err))
            return err->status;
    for (size_t i = 0; i < kind->n_modules; i++)
        if (ask_extra(a, &kind->modules[i], err))
            return err->status;
    return DCPK_OK;
}

/* The parameters of all layers, of stacked ones once. */
static dcpk_status ask_layers(struct asking *a, struct dcpk_error *err)
{
    const struct dcpk_expected *m = a->loading->model;

    for (size_t i = 0; i < m->n_layers; i++) {
        a->layer = &m->layers[i];
        if ((!is_stacked(a) || a->layer->number == 0) && ask_layer(a, err))
            return err->status;
    }
    return DCPK_OK;
}

dcpk_status dcpk_megatron_request(const struct dcpk_loading *loading, struct dcpk_error *err)
{
    const struct dcpk_expected *m = loading->model;
    struct asking a = {
        .loading = loading, .is_stacked = find_stacked(loading), .kinds = expected_kinds(m)};

    dcpk_optimizer_asked_find(loading, &a.optimizer);
    (void)ask_layers(&a, err);
    dcpk_bytes_release(&a.key);
    dcpk_bytes_release(&a.other);
    if (err->status != DCPK_OK)
        return err->status;
    if (dcpk_value_as_str(dcpk_value_get(loading->attrs, "experimental_attention_variant")) !=
            NULL &&
        dcpk_request_fault(
            loading, DCPK_FOR_WEIGHTS, dcpk_loaders_of(DCPK_CORE_0_15, DCPK_CORE_0_15),
            "args.experimental_attention_variant", "is set: core 0.15 has no such attention", err))
        return err->status;
    if (m->is_sparse &&
        dcpk_request_fault(
            loading, DCPK_FOR_WEIGHTS, dcpk_loaders_of(DCPK_CORE_0_16, DCPK_CORE_0_18),
            "args.experimental_attention_variant",
            "is dsa: no table has the names that core 0.16 to 0.18 ask for of it", err))
        return err->status;
    if (m->is_mla_fused &&
        dcpk_request_fault(loading, DCPK_FOR_WEIGHTS, dcpk_loaders_of(DCPK_CORE_0_17, DCPK_MAIN),
                           "args.mla_down_proj_fusion",
                           "is set: no table has the names that loaders ask for of the fused "
                           "projection",
                           err))
        return err->status;
    return dcpk_megatron_request_state(loading, &a.optimizer, err);
}
