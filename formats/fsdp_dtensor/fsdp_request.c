/* SPDX-License-Identifier: Apache-2.0 */
/* fsdp_request.c - lists the requests of Megatron-FSDP's loaders, from tables by release, Adam and
 * layer spec (FORMAT.md 4, 5, 7 and 9). */
#include <inttypes.h>
#include <string.h>

#include "formats/fsdp_dtensor/fsdp_dtensor_priv.h"
#include "formats/fsdp_dtensor/fsdp_rows.h"
#include "lib/base/order.h"
#include "lib/base/text.h"
#include "lib/model/request.h"

/* Loaders from a release on, or up to one. */
#define SINCE(release) dcpk_loaders_of(release, DCPK_MAIN)
#define UP_TO(release) dcpk_loaders_of(DCPK_CORE_0_15, release)
#define TE_ADAM        dcpk_loaders_with_adam(DCPK_LOADER_TE_ADAM)
#define TORCH_ADAM     dcpk_loaders_with_adam(DCPK_LOADER_TORCH_ADAM)

/* The fields of a parameter group that a live one has: FORMAT.md 7. */
enum who { ALL, WITH_TE, WITH_TORCH, SINCE_16 };
static const struct group_field {
    const char *name;
    enum who who;
} group_fields[] = {
    {"is_expert_parallel", ALL},
    {"wd_mult", ALL},
    {"lr_mult", ALL},
    {"is_decoupled_lr", ALL},
    {"max_lr", ALL},
    {"min_lr", ALL},
    {"lr", ALL},
    {"betas", ALL},
    {"eps", ALL},
    {"weight_decay", ALL},
    {"default_config", SINCE_16},
    {"bias_correction", WITH_TE},
    {"step", WITH_TE},
    {"amsgrad", WITH_TORCH},
    {"foreach", WITH_TORCH},
    {"maximize", WITH_TORCH},
    {"capturable", WITH_TORCH},
    {"differentiable", WITH_TORCH},
    {"fused", WITH_TORCH},
    {"decoupled_weight_decay", WITH_TORCH},
};

static uint32_t fsdp_loaders_of(enum who who)
{
    switch (who) {
    case WITH_TE:
        return TE_ADAM;
    case WITH_TORCH:
        return TORCH_ADAM;
    case SINCE_16:
        return SINCE(DCPK_CORE_0_16);
    case ALL:
        break;
    }
    return DCPK_ALL_LOADERS;
}

static const char *const scheduler_fields[] = {
    "max_lr", "lr_warmup_steps", "num_steps", "lr_decay_style", "lr_decay_steps",
    "min_lr", "start_wd",        "end_wd",    "wd_incr_style",  "wd_incr_steps",
};

/* Objects of one rank; the states of trackers are those that every run makes
 * (MC/tensor_parallel/random.py). */
static const char *const rng_objects[] = {"random_rng_state", "np_rng_state"};
static const char *const rng_tensors[] = {
    "torch_rng_state",
    "cuda_rng_state",
    "rng_tracker_states.data-parallel-rng",
    "rng_tracker_states.expert-parallel-rng",
    "rng_tracker_states.model-parallel-rng",
};

/* A walk over the model's parameters. */
struct asking {
    const struct dcpk_loading *loading;
    const struct dcpk_expected_layer *layer;
    const char *model_prefix, *state_prefix, *group_prefix;
    bool is_v2; /* of Megatron-FSDP */
    struct dcpk_bytes key;
};

static dcpk_status request_put_fsdp(struct asking *a, struct dcpk_request *request,
                                    struct dcpk_error *err)
{
    request->loaders &= a->loading->loaders;
    request->key = (const char *)a->key.data;
    request->key_bytes = a->key.n_bytes;
    if (dcpk_bytes_status(&a->key, err) != DCPK_OK)
        return err->status;
    if (request->loaders == 0)
        return DCPK_OK;
    return a->loading->take(a->loading->context, request, err);
}

/* --- names --- */

/* One live name of a parameter and the loaders that use it, `rest` after its layer's head. */
struct spelling {
    const struct dcpk_expected_param *param;
    const char *rest;
    int64_t expert;        /* -1: none */
    bool is_grouped;       /* experts in grouped linears */
    const char *mtp_layer; /* "transformer_layer." or "mtp_model_layer." */
    uint32_t loaders;
};

static void fsdp_put_head(struct dcpk_bytes *key, const struct dcpk_expected_layer *layer,
                          const char *mtp_layer)
{
    if (layer->section == DCPK_DECODER_LAYERS)
        dcpk_bytes_text(key, "decoder.layers.");
    else if (layer->section == DCPK_MTP_LAYERS)
        dcpk_bytes_text(key, "mtp.layers.");
    else
        return;
    dcpk_key_number(key, layer->number);
    dcpk_bytes_text(key, ".");
    if (layer->section != DCPK_MTP_LAYERS || layer->is_wrapper)
        return;
    dcpk_bytes_text(key, mtp_layer);
    if (layer->inner < 0)
        return;
    dcpk_bytes_text(key, "layers.");
    dcpk_key_number(key, layer->inner);
    dcpk_bytes_text(key, ".");
}

/* "mlp.experts.linear_fc1.weight7" or "mlp.experts.local_experts.7.linear_fc1.weight". */
static void put_rest(struct dcpk_bytes *key, const struct spelling *s)
{
    if (s->expert < 0) {
        dcpk_bytes_text(key, s->rest);
        return;
    }
    if (s->is_grouped) {
        dcpk_bytes_text(key, "mlp.experts.");
        dcpk_bytes_text(key, s->rest);
        dcpk_key_number(key, s->expert);
        return;
    }
    dcpk_bytes_text(key, "mlp.experts.local_experts.");
    dcpk_key_number(key, s->expert);
    dcpk_bytes_text(key, ".");
    dcpk_bytes_text(key, s->rest);
}

static void fsdp_put_name(struct asking *a, const char *prefix, const struct spelling *s)
{
    a->key.n_bytes = 0;
    dcpk_bytes_text(&a->key, prefix);
    fsdp_put_head(&a->key, a->layer, s->mtp_layer);
    put_rest(&a->key, s);
}

/* --- one parameter under one name --- */

/* Loaders that keep gate and up rows in two tensors: since 0.16 all of SwiGLU, in 0.15 the dense
 * MLP's alone (5.1). */
static uint32_t splitting(const struct asking *a, const struct spelling *s)
{
    if (s->param->parts.n == 0 || *dcpk_fsdp_part_end(s->param->parts.list[0].name) == '\0' ||
        !a->loading->model->is_swiglu || a->is_v2)
        return 0;
    if (dcpk_starts_with(s->param->te, "mlp.linear_fc1."))
        return DCPK_ALL_LOADERS;
    return SINCE(DCPK_CORE_0_16);
}

/* The tensor under its prefix and name, whole or in halves; end: ".exp_avg", or "". */
static dcpk_status ask_tensor(struct asking *a, const struct spelling *s, const char *prefix,
                              const char *end, const struct dcpk_request *like,
                              struct dcpk_error *err)
{
    const uint32_t split = s->loaders & splitting(a, s), whole = s->loaders & ~split;
    const struct dcpk_split *parts = &s->param->parts;
    struct dcpk_request request = *like;
    int64_t shape[DCPK_EXPECTED_RANK];
    size_t n_bytes;

    fsdp_put_name(a, prefix, s);
    n_bytes = a->key.n_bytes;
    dcpk_bytes_text(&a->key, end);
    request.loaders = whole;
    if (whole != 0 && request_put_fsdp(a, &request, err))
        return err->status;
    request.loaders = split;
    memcpy(shape, s->param->shape, sizeof shape);
    if (request.rank > 0) /* a step is a scalar, under both names */
        request.shape = shape;
    for (size_t i = 0; i < parts->n && split != 0; i++) {
        a->key.n_bytes = n_bytes;
        dcpk_bytes_text(&a->key, dcpk_fsdp_part_end(parts->list[i].name));
        dcpk_bytes_text(&a->key, end);
        shape[0] = parts->list[i].rows[0].n_rows;
        if (request_put_fsdp(a, &request, err))
            return err->status;
    }
    return DCPK_OK;
}

static dcpk_status ask_state(struct asking *a, const struct spelling *s, struct dcpk_error *err)
{
    static const char *const moments[] = {".exp_avg", ".exp_avg_sq"};
    const bool is_sgd = strcmp(a->loading->model->optimizer, "sgd") == 0;
    struct dcpk_request request = {.purpose = DCPK_FOR_MOMENTS, .is_tensor = true};
    struct spelling torch = *s;

    if (is_sgd) /* without momentum there is none: whatever is there will do */
        return DCPK_OK;
    for (size_t i = 0; i < DCPK_COUNT(moments); i++) {
        request.rank = s->param->rank;
        request.shape = s->param->shape;
        if (ask_tensor(a, s, a->state_prefix, moments[i], &request, err))
            return err->status;
    }
    torch.loaders &= TORCH_ADAM;
    request.rank = 0;
    if (torch.loaders == 0)
        return DCPK_OK;
    return ask_tensor(a, &torch, a->state_prefix, ".step", &request, err);
}

/* Fields of the parameter's group: under the live name, of both halves together (section 5). */
static dcpk_status ask_group(struct asking *a, const struct spelling *s, struct dcpk_error *err)
{
    struct dcpk_request request = {.purpose = DCPK_FOR_GROUPS, .rank = -1};

    fsdp_put_name(a, a->group_prefix, s);
    for (size_t i = 0; i < DCPK_COUNT(group_fields); i++) {
        request.loaders = s->loaders & fsdp_loaders_of(group_fields[i].who);
        request.field = group_fields[i].name;
        if (request.loaders != 0 && request_put_fsdp(a, &request, err))
            return err->status;
    }
    return DCPK_OK;
}

static dcpk_status fsdp_ask_spelled(struct asking *a, const struct spelling *s,
                                    struct dcpk_error *err)
{
    const struct dcpk_expected_param *p = s->param;
    struct dcpk_request request = {
        .purpose = DCPK_FOR_WEIGHTS, .is_tensor = true, .rank = p->rank, .shape = p->shape};

    if (ask_tensor(a, s, a->model_prefix, "", &request, err))
        return err->status;
    if ((p->flags & DCPK_EXPECTED_BUFFER) == 0 &&
        dcpk_loading_wants(a->loading, DCPK_FOR_MOMENTS) && ask_state(a, s, err))
        return err->status;
    return DCPK_OK;
}

/*
 * Multi-token prediction's inner layer (5.3). Groups keep the live module's name, which main has
 * renamed on disk alone. In a hybrid model it is a stack, under one name always.
 */
static const struct mtp_name {
    const char *name;
    enum dcpk_release first, last;
    bool of_groups, of_tensors;
} mtp_names[] = {
    {"transformer_layer.", DCPK_CORE_0_15, DCPK_CORE_0_16, true, true},
    {"mtp_model_layer.", DCPK_CORE_0_17, DCPK_CORE_0_19, true, true},
    {"transformer_layer.", DCPK_MAIN_2026_08_22, DCPK_MAIN, false, true},
    {"mtp_model_layer.", DCPK_MAIN_2026_08_22, DCPK_MAIN, true, false},
};

static dcpk_status ask_parts(struct asking *a, const struct spelling *s, bool tensors, bool groups,
                             struct dcpk_error *err)
{
    const bool is_trained = (s->param->flags & DCPK_EXPECTED_BUFFER) == 0;

    if (tensors && fsdp_ask_spelled(a, s, err))
        return err->status;
    if (groups && is_trained && dcpk_loading_wants(a->loading, DCPK_FOR_GROUPS) &&
        ask_group(a, s, err))
        return err->status;
    return DCPK_OK;
}

/* The names by release of what has one name by spec. */
static dcpk_status ask_releases(struct asking *a, struct spelling *s, struct dcpk_error *err)
{
    const bool is_inner = a->layer->section == DCPK_MTP_LAYERS && !a->layer->is_wrapper;
    const uint32_t loaders = s->loaders;

    s->mtp_layer = "mtp_model_layer.";
    if (!is_inner || a->layer->inner >= 0)
        return ask_parts(a, s, true, true, err);
    for (size_t i = 0; i < DCPK_COUNT(mtp_names); i++) {
        const struct mtp_name *name = &mtp_names[i];

        s->mtp_layer = name->name;
        s->loaders = loaders & dcpk_loaders_of(name->first, name->last);
        if (s->loaders != 0 && ask_parts(a, s, name->of_tensors, name->of_groups, err))
            return err->status;
    }
    return DCPK_OK;
}

/* Mamba's convolution is a module before 0.19 (MC/ssm/mamba_mixer.py). */
static dcpk_status ask_conv(struct asking *a, struct spelling *s, struct dcpk_error *err)
{
    static const char now[] = "mixer.conv1d_";
    const uint32_t loaders = s->loaders;

    if (!dcpk_starts_with(s->rest, now))
        return ask_releases(a, s, err);
    s->loaders = loaders & SINCE(DCPK_CORE_0_19);
    if (ask_releases(a, s, err))
        return err->status;
    if (strcmp(s->rest + strlen(now), "bias") == 0)
        s->rest = "mixer.conv1d.bias";
    else
        s->rest = "mixer.conv1d.weight";
    s->loaders = loaders & UP_TO(DCPK_CORE_0_18);
    return ask_releases(a, s, err);
}

/* The names by spec: Transformer Engine's groups experts where args ask for it, the local one
 * never. */
static dcpk_status ask_specs(struct asking *a, const struct dcpk_expected_param *p, int64_t expert,
                             struct dcpk_error *err)
{
    const uint32_t te = dcpk_loaders_with_impl(DCPK_LOADER_TE);
    const bool is_grouped = expert >= 0 && a->loading->model->is_grouped;
    struct spelling s = {.param = p, .rest = p->te, .expert = expert, .loaders = DCPK_ALL_LOADERS};

    if (strcmp(p->te, p->local) == 0 && !is_grouped)
        return ask_conv(a, &s, err);
    s.is_grouped = is_grouped;
    s.loaders = te;
    if ((a->loading->loaders & te) != 0 && ask_conv(a, &s, err))
        return err->status;
    s.is_grouped = false;
    s.rest = p->local;
    s.loaders = DCPK_ALL_LOADERS & ~te;
    if (!((a->loading->loaders & s.loaders) != 0))
        return DCPK_OK;
    return ask_conv(a, &s, err);
}

static dcpk_status fsdp_ask_param(struct asking *a, const struct dcpk_expected_param *p,
                                  struct dcpk_error *err)
{
    if ((p->flags & DCPK_EXPECTED_EXPERT) == 0)
        return ask_specs(a, p, -1, err);
    for (int64_t e = 0; e < a->loading->model->n_experts; e++)
        if (ask_specs(a, p, e, err))
            return err->status;
    return DCPK_OK;
}

/* --- state --- */

/* Things of one purpose, tensors or objects, by their names after a prefix. */
struct list {
    enum dcpk_purpose purpose;
    uint32_t loaders;
    const char *const *names;
    size_t n;
    bool is_tensor;
};

static dcpk_status ask_list(struct asking *a, const char *prefix, const struct list *list,
                            struct dcpk_error *err)
{
    struct dcpk_request request = {
        .purpose = list->purpose, .is_tensor = list->is_tensor, .rank = -1};

    for (size_t i = 0; i < list->n; i++) {
        a->key.n_bytes = 0;
        dcpk_bytes_text(&a->key, prefix);
        dcpk_bytes_text(&a->key, list->names[i]);
        request.loaders = list->loaders;
        if (request_put_fsdp(a, &request, err))
            return err->status;
    }
    return DCPK_OK;
}

/* The states of one tensor-parallel rank, of one data-parallel rank of it. */
static dcpk_status ask_rng_rank(struct asking *a, uint32_t loaders, int64_t tp, int64_t dp,
                                struct dcpk_error *err)
{
    const struct list objects = {DCPK_FOR_RNG, loaders, rng_objects, DCPK_COUNT(rng_objects),
                                 false};
    const struct list tensors = {DCPK_FOR_RNG, loaders, rng_tensors, DCPK_COUNT(rng_tensors), true};
    const char *prefix =
        dcpk_arena_printf(a->loading->arena, err, FD_RNG "(0, %" PRId64 ").%" PRId64 ".", tp, dp);

    if (prefix == NULL || ask_list(a, prefix, &objects, err))
        return err->status;
    return ask_list(a, prefix, &tensors, err);
}

/*
 * Up to core 0.18 every tensor-parallel rank asks for its own, of one data-parallel rank or of
 * each. From 0.19 on load_checkpoint hands get_rng_state no groups for this format, so that all of
 * them ask for those of rank (0, 0) (tests/golden/requests, dense_tp2).
 */
static dcpk_status ask_rng(struct asking *a, struct dcpk_error *err)
{
    const struct dcpk_grid *mesh = &a->loading->mesh;
    const bool is_each = dcpk_value_is_true(a->loading->attrs, "data_parallel_random_init");
    const int64_t n = is_each ? dcpk_max_i64(mesh->dp, 1) : 1, tp = dcpk_max_i64(mesh->tp, 1);

    for (int64_t i = 0; i < tp * n; i++) {
        const uint32_t loaders = i < n ? DCPK_ALL_LOADERS : UP_TO(DCPK_CORE_0_18);

        if (ask_rng_rank(a, loaders, i / n, i % n, err))
            return err->status;
    }
    return DCPK_OK;
}

static dcpk_status ask_training_state(struct asking *a, struct dcpk_error *err)
{
    static const char *const names[] = {"args", "checkpoint_version", "iteration"};
    const struct list always = {DCPK_FOR_COMMON, DCPK_ALL_LOADERS, names, DCPK_COUNT(names), false};
    const struct list scheduler = {DCPK_FOR_SCHEDULER, DCPK_ALL_LOADERS, scheduler_fields,
                                   DCPK_COUNT(scheduler_fields), false};

    if (ask_list(a, "", &always, err) ||
        (dcpk_loading_wants(a->loading, DCPK_FOR_SCHEDULER) &&
         ask_list(a, FD_SCHEDULER, &scheduler, err)) ||
        (dcpk_loading_wants(a->loading, DCPK_FOR_RNG) && ask_rng(a, err)))
        return err->status;
    return DCPK_OK;
}

/* Q of a prefix is one wrapper less in fp32 runs (section 4). */
static const char *with_q(const struct dcpk_loading *loading, const char *prefix,
                          struct dcpk_error *err)
{
    const char *const texts[] = {prefix, loading->model->is_fp32 ? FD_Q_FP32 : FD_Q_LOW};

    return dcpk_arena_join(loading->arena, texts, 2, err);
}

/* True if the run is one of v2: as the caller set it, or by args. */
static bool is_of_v2(const struct dcpk_loading *loading)
{
    if ((loading->flags & (DCPK_LOADING_FSDP_V1 | DCPK_LOADING_FSDP_V2)) != 0)
        return (loading->flags & DCPK_LOADING_FSDP_V2) != 0;
    return dcpk_value_int_or(loading->attrs, "megatron_fsdp_version", 1) == 2;
}

/* Reports everything that stops training with v2 (FORMAT.md 13; tests/golden/requests,
 * main.*v2*). */
static dcpk_status report_v2(const struct dcpk_loading *loading, struct dcpk_error *err)
{
    const struct {
        bool is_so;
        enum dcpk_purpose purpose;
        uint32_t loaders;
        const char *key, *text;
    } faults[] = {
        {true, DCPK_FOR_COMMON, UP_TO(DCPK_CORE_0_19), "megatron_fsdp_version",
         "2 is not known before main of 2026-08"},
        {loading->model->is_swiglu, DCPK_FOR_WEIGHTS, DCPK_ALL_LOADERS, "swiglu",
         "is on, where training with Megatron-FSDP v2 stops at each load: only its own "
         "load_checkpoint() takes such a model"},
        {dcpk_loading_wants(loading, DCPK_FOR_MOMENTS), DCPK_FOR_MOMENTS, DCPK_ALL_LOADERS,
         "optimizer", "has no state that training with Megatron-FSDP v2 loads: --no-load-optim"},
        {loading->mesh.tp > 1, DCPK_FOR_COMMON, DCPK_ALL_LOADERS, "tensor_model_parallel_size",
         "is above 1, which Megatron-FSDP v2 does not take"},
    };

    for (size_t i = 0; i < DCPK_COUNT(faults); i++)
        if (faults[i].is_so && dcpk_request_fault(loading, faults[i].purpose, faults[i].loaders,
                                                  faults[i].key, faults[i].text, err))
            return err->status;
    return DCPK_OK;
}

/* Training with v2 asks for the weights, under their names, and the training state. */
static dcpk_status ask_v2(const struct dcpk_loading *given, struct dcpk_loading *loading,
                          struct asking *a, struct dcpk_error *err)
{
    *loading = *given;
    loading->flags |= DCPK_LOADING_NO_OPTIMIZER;
    a->loading = loading;
    a->model_prefix = FD_V2_MODEL;
    return report_v2(given, err);
}

/* Runs that end before they have asked for anything (tests/golden/requests, "stops"). */
static dcpk_status report_stops(const struct dcpk_loading *loading, struct dcpk_error *err)
{
    const struct dcpk_expected *m = loading->model;
    const struct dcpk_value *variant =
        dcpk_value_get(loading->attrs, "experimental_attention_variant");
    const uint32_t oldest = UP_TO(DCPK_CORE_0_15);
    const struct {
        bool holds;
        uint32_t loaders;
        const char *about, *text;
    } stops[] = {
        {m->is_swiglu && m->is_fp32, DCPK_ALL_LOADERS, "args.swiglu",
         "in an fp32 run: Megatron-FSDP stops (AttributeError in handle_swiglu_in_state_dict)"},
        {m->n_experts > 0 && (loading->mesh.ep > 1 || m->is_grouped), oldest, "args.num_experts",
         "is set: core 0.15 has no expert-parallel Megatron-FSDP"},
        {m->is_hybrid, oldest, "args.hybrid_layer_pattern",
         "is set: Megatron-FSDP of core 0.15 does not take Mamba's parameters"},
        {dcpk_value_as_str(variant) != NULL, oldest, "args.experimental_attention_variant",
         "is set: core 0.15 has no such attention"},
        {m->is_sparse, dcpk_loaders_of(DCPK_CORE_0_16, DCPK_CORE_0_18),
         "args.experimental_attention_variant",
         "is dsa: no table has the names that core 0.16 to 0.18 ask for of it"},
        {m->is_swiglu && !dcpk_loading_wants(loading, DCPK_FOR_MOMENTS), oldest, "args.swiglu",
         "without the optimizer: core 0.15 stops (KeyError: 'optimizer')"},
        {m->is_mla_fused, dcpk_loaders_of(DCPK_CORE_0_17, DCPK_MAIN), "args.mla_down_proj_fusion",
         "is set: no table has the names that loaders ask for of the fused projection"},
        {m->n_experts > 0 && m->is_grouped && dcpk_value_is_true(loading->attrs, "add_bias_linear"),
         DCPK_ALL_LOADERS, "args.add_bias_linear",
         "is set: the biases of grouped experts have clashing names in Megatron-FSDP"},
    };

    for (size_t i = 0; i < DCPK_COUNT(stops); i++)
        if (stops[i].holds && dcpk_request_fault(loading, DCPK_FOR_COMMON, stops[i].loaders,
                                                 stops[i].about, stops[i].text, err))
            return err->status;
    return DCPK_OK;
}

/* The parameters of all layers, then the training state. */
static dcpk_status ask_all(struct asking *a, struct dcpk_error *err)
{
    const struct dcpk_expected *m = a->loading->model;

    for (size_t i = 0; i < m->n_layers; i++) {
        a->layer = &m->layers[i];
        for (size_t p = 0; p < a->layer->kind->n_params; p++)
            if (fsdp_ask_param(a, &a->layer->kind->params[p], err))
                return err->status;
    }
    return ask_training_state(a, err);
}

dcpk_status dcpk_fsdp_request(const struct dcpk_loading *loading, struct dcpk_error *err)
{
    struct dcpk_loading of_v2;
    struct asking a = {.loading = loading,
                       .is_v2 = is_of_v2(loading),
                       .model_prefix = FD_MODEL,
                       .state_prefix = with_q(loading, FD_STATE, err),
                       .group_prefix = with_q(loading, FD_GROUP, err)};

    if (a.state_prefix != NULL && a.group_prefix != NULL &&
        (!a.is_v2 || ask_v2(loading, &of_v2, &a, err) == DCPK_OK) && ask_all(&a, err) == DCPK_OK &&
        !a.is_v2)
        (void)report_stops(loading, err);
    dcpk_bytes_release(&a.key);
    return err->status;
}
