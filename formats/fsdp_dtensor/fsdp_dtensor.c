/* SPDX-License-Identifier: Apache-2.0 */
/* fsdp_dtensor.c - Megatron-FSDP's checkpoint on top of torch's: the row and its probe. */
#include <ctype.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "formats/dcp/dcp.h"
#include "formats/fsdp_dtensor/fsdp_dtensor_priv.h"
#include "formats/torch/pickle.h"
#include "lib/base/alloc.h"
#include "lib/base/order.h"
#include "lib/base/text.h"
#include "lib/model/numbered.h"
#include "lib/model/registered.h"

#define PROBE_BYTES   (64u << 10)
#define BRIDGE_CONFIG "run_config.yaml" /* of Megatron-Bridge */
/* Groups by number, as Megatron's own converter leaves them. */
#define FD_GROUPS_OF_TOOL "optimizer.param_groups."

static int score_head(const char *head, size_t n_bytes)
{
    if (memmem(head, n_bytes, FD_MODEL, strlen(FD_MODEL)) != NULL ||
        memmem(head, n_bytes, FD_GROUP, strlen(FD_GROUP)) != NULL)
        return 80;
    if (dcpk_fsdp_has_prefixed_key(head, n_bytes))
        return 40;
    return 0;
}

/*
 * A .metadata without metadata.json (which would make Megatron read it as torch_dist,
 * FORMAT.md 1), and a key of a model or of parameter groups near its start; less certain where its
 * keys have another prefix.
 */
static dcpk_status fsdp_probe(struct dcpk_store *store, int *score, struct dcpk_error *err)
{
    enum dcpk_path_kind metadata_json;
    struct dcpk_source *source;
    uint64_t n_bytes;
    bool is_folder;
    char *head;

    *score = 0;
    if (dcpk_store_look(store, "metadata.json", &metadata_json, err) ||
        dcpk_dcp_is_folder(store, &is_folder, err))
        return err->status;
    if (metadata_json == DCPK_PATH_FILE || !is_folder)
        return DCPK_OK;
    if (dcpk_store_find(store, ".metadata", &source, err))
        return err->status;
    n_bytes = dcpk_min_u64(dcpk_source_bytes(source), PROBE_BYTES);
    head = dcpk_alloc((size_t)n_bytes, err);
    if (head == NULL)
        return err->status;
    if (dcpk_source_read(source, 0, head, (size_t)n_bytes, err) == DCPK_OK)
        *score = score_head(head, (size_t)n_bytes);
    dcpk_free(head);
    return err->status;
}

/* Marks of the release in keys (FORMAT.md 2). */
struct marks {
    bool has_groups;         /* of parameters */
    bool has_default_config; /* its field of 0.16 and later */
    bool has_expert_half;    /* a gated fc1 of an expert in two halves: 0.16 and later */
    bool has_master_param;   /* of a precision-aware optimizer, to 0.17 */
    /* Multi-token prediction: its old name and main's, or that of 0.17 to 0.19. */
    bool has_mtp, has_new_mtp;
    bool has_joined_mla; /* both down-projections in one: before main */
};

static struct marks find_marks(const struct dcpk_checkpoint *ckpt)
{
    struct marks m = {0};

    for (size_t i = 0; i < ckpt->n_objects; i++) {
        const char *key = ckpt->objects[i].key;
        const bool is_group =
            dcpk_starts_with(key, FD_GROUP) || dcpk_starts_with(key, FD_GROUPS_OF_TOOL);

        m.has_groups |= is_group;
        m.has_default_config |= is_group && dcpk_ends_with(key, ".default_config");
    }
    for (size_t i = 0; i < ckpt->n_tensors; i++) {
        const char *key = ckpt->tensors[i].key;
        const char *experts = strstr(key, ".mlp.experts.");

        m.has_expert_half |= experts != NULL && strstr(experts, ".linear_fc1.") != NULL &&
                             (dcpk_ends_with(key, "_w") || dcpk_ends_with(key, "_v"));
        m.has_master_param |= dcpk_ends_with(key, ".master_param");
        m.has_mtp |=
            strstr(key, "mtp.layers.") != NULL && strstr(key, ".transformer_layer.") != NULL;
        m.has_new_mtp |=
            strstr(key, "mtp.layers.") != NULL && strstr(key, ".mtp_model_layer.") != NULL;
        m.has_joined_mla |= strstr(key, ".linear_qkv_down_proj.") != NULL;
    }
    return m;
}

/* A: groups without default_config. Names that only some releases use narrow B down. */
static void fsdp_find_generation(struct dcpk_checkpoint *ckpt)
{
    const struct marks m = find_marks(ckpt);

    if (dcpk_fsdp_is_torch_dcp(ckpt)) {
        ckpt->generation = ""; /* of another row */
    } else if (dcpk_fsdp_is_v2(ckpt)) {
        ckpt->generation = "V2";
        ckpt->releases = (struct dcpk_releases){"main", "main"};
    } else if (m.has_groups && !m.has_default_config) {
        ckpt->generation = "A";
        ckpt->releases = (struct dcpk_releases){"core-0.14", "core-0.15"};
    } else if (m.has_groups || m.has_expert_half) {
        ckpt->generation = "B";
        ckpt->releases = (struct dcpk_releases){"core-0.16", NULL};
        if (m.has_new_mtp && !m.has_mtp)
            ckpt->releases.from = "core-0.17";
        if (m.has_joined_mla)
            ckpt->releases.to = "core-0.19";
        if (m.has_master_param)
            ckpt->releases.to = "core-0.17";
    }
}

static dcpk_status fsdp_open(struct dcpk_checkpoint *ckpt, struct dcpk_error *err)
{
    if (dcpk_dcp_open(ckpt, ckpt->state, err))
        return err->status;
    fsdp_find_generation(ckpt);
    return DCPK_OK;
}

/* True if the checkpoint holds an object whose key begins so. */
static bool has_object_below(const struct dcpk_checkpoint *ckpt, const char *prefix)
{
    for (size_t i = 0; i < ckpt->n_objects; i++)
        if (dcpk_starts_with(ckpt->objects[i].key, prefix))
            return true;
    return false;
}

/*
 * A run saves args, iteration and checkpoint_version together (generate_state_dict of
 * megatron/training/checkpointing.py @core_v0.19.0); a folder that has one of them, or the
 * scheduler, and not all has lost some. Weights alone have none. Megatron-Bridge keeps the content
 * of args and iteration in a file of its own.
 */
static dcpk_status fsdp_check_whole(struct dcpk_checkpoint *ckpt, struct dcpk_error *err)
{
    static const char *const names[] = {"args", "iteration"};
    bool is_of_run = dcpk_checkpoint_object(ckpt, "checkpoint_version") != NULL ||
                     has_object_below(ckpt, "opt_param_scheduler");
    enum dcpk_path_kind bridge;

    if (dcpk_store_look(ckpt->store, BRIDGE_CONFIG, &bridge, err))
        return err->status;
    for (size_t i = 0; i < 2; i++)
        is_of_run = is_of_run || dcpk_checkpoint_object(ckpt, names[i]) != NULL;
    if (bridge == DCPK_PATH_FILE || !is_of_run)
        return DCPK_OK;
    for (size_t i = 0; i < 2; i++)
        if (dcpk_checkpoint_object(ckpt, names[i]) == NULL)
            return dcpk_fail(err, DCPK_EFORMAT,
                             "there is other state of a training run, but no object '%s', which "
                             "Megatron saves with it",
                             names[i]);
    return DCPK_OK;
}

#define DCPK_FSDP_CONTAINER                                                                        \
    .marks = dcpk_dcp_marks, .probe = fsdp_probe, .open = fsdp_open,                               \
    .check_whole = fsdp_check_whole, DCPK_DCP_CONTAINER

static const struct dcpk_format_mapping mapping = {
    .has_prefixes = true,
    .has_flat_buffers = true,
    .to_model = dcpk_fsdp_to_model,
    .from_model = dcpk_fsdp_from_model,
    .request = dcpk_fsdp_request,
    .optimizer_layout = dcpk_fsdp_optimizer_layout,
};

const struct dcpk_format dcpk_format_fsdp_dtensor = {
    .name = "fsdp_dtensor",
    .other_names = "fsdp megatron_fsdp",
    .summary = "Megatron-FSDP's checkpoint, core 0.14 to main",
    .mapping = &mapping,
    DCPK_FSDP_CONTAINER,
};

/* ---- keys of torch.distributed.checkpoint: the scheme torch_dcp ---- */

bool dcpk_fsdp_is_torch_dcp(const struct dcpk_checkpoint *ckpt)
{
    for (size_t i = 0; i < ckpt->n_tensors; i++)
        if (dcpk_starts_with(ckpt->tensors[i].key, FD_STATE) &&
            isdigit((unsigned char)ckpt->tensors[i].key[strlen(FD_STATE)]))
            return dcpk_fsdp_is_v2(ckpt);
    return false;
}

/* ---- numbers ---- */

/* A weight, and when its module registers it. */
struct weight {
    struct dcpk_registered reg;
    const char *name;
    int n_axes;
};

static int compare_weights(const void *left, const void *right)
{
    const struct weight *a = left, *b = right;
    const int order = dcpk_registered_compare(&a->reg, &b->reg);

    return order != 0 ? order : strcmp(a->name, b->name);
}

/* The order of registration of the run's modules: enum dcpk_spec. */
static unsigned spec_of(const struct dcpk_model *model)
{
    const struct dcpk_value *attrs = dcpk_value_attrs(model->args);

    if (dcpk_value_is_str(dcpk_value_get(attrs, "transformer_impl"), "local"))
        return 0;
    if (dcpk_value_is_true(attrs, "moe_grouped_gemm"))
        return DCPK_SPEC_TE | DCPK_SPEC_GROUPED;
    return DCPK_SPEC_TE;
}

/* The weights, less buffers, as modules register them. */
static dcpk_status list_weights(const struct dcpk_fsdp_reader *r, struct weight **weights,
                                size_t *n, struct dcpk_error *err)
{
    const struct dcpk_checkpoint *ckpt = r->model->ckpt;
    struct dcpk_arena *arena = r->model->arena;
    struct weight *list = dcpk_arena_array(arena, ckpt->n_tensors, sizeof *list, err);

    *n = 0;
    *weights = list;
    for (size_t t = 0; list != NULL && t < ckpt->n_tensors; t++) {
        const char *name = ckpt->tensors[t].key, *canonical;

        if (!dcpk_starts_with(name, r->prefixes.weight))
            continue;
        name += strlen(r->prefixes.weight);
        canonical = dcpk_name_canonical(arena, name, dcpk_name_layer_flags(name), err);
        if (canonical == NULL)
            return err->status;
        list[*n] = (struct weight){.name = name, .n_axes = ckpt->tensors[t].rank};
        if (!dcpk_registered_find(canonical, spec_of(r->model), &list[*n].reg))
            return dcpk_fail(err, DCPK_EUNSUPPORTED,
                             "the place of '%s' in the order of registration is not known", name);
        *n += !list[*n].reg.is_buffer;
    }
    if (*n > 0)
        qsort(list, *n, sizeof *list, compare_weights);
    return dcpk_made(list, err);
}

/* {"params": [...], "wd_mult": ..., ...} of group g; *group NULL: there is none. */
static dcpk_status number_read_group(const struct dcpk_fsdp_reader *r, size_t g,
                                     const struct dcpk_value **group, struct dcpk_error *err)
{
    static const char *const fields[] = {"params", "wd_mult", "is_expert_parallel"};
    struct dcpk_arena *arena = r->model->arena;
    struct dcpk_dict made = {.arena = arena, .err = err};

    *group = NULL;
    for (size_t i = 0; i < DCPK_COUNT(fields); i++) {
        const char *key =
            dcpk_arena_printf(arena, err, "optimizer.param_groups.%zu.%s", g, fields[i]);
        const struct dcpk_object *object;
        const struct dcpk_value *value;

        if (key == NULL)
            return err->status;
        object = dcpk_checkpoint_object(r->model->ckpt, key);
        if (object == NULL && i == 0)
            return DCPK_OK;
        if (object == NULL)
            continue;
        if (dcpk_model_need(r->model, object, &value, err))
            return err->status;
        dcpk_dict_put(&made, fields[i], value);
    }
    *group = dcpk_dict_end(&made);
    return dcpk_made(*group, err);
}

static dcpk_status fsdp_list_groups(const struct dcpk_fsdp_reader *r,
                                    const struct dcpk_value **groups, struct dcpk_error *err)
{
    const struct dcpk_value **list =
        dcpk_arena_array(r->model->arena, DCPK_MAX_GROUPS, sizeof *list, err);
    size_t n = 0;

    if (list == NULL)
        return err->status;
    for (; n < DCPK_MAX_GROUPS; n++) {
        if (number_read_group(r, n, &list[n], err))
            return err->status;
        if (list[n] == NULL)
            break;
    }
    *groups = dcpk_value_seq(r->model->arena, DCPK_V_LIST, list, n, err);
    return dcpk_made(*groups, err);
}

static dcpk_status find_numbers(struct dcpk_fsdp_reader *r, struct dcpk_error *err)
{
    struct dcpk_arena *arena = r->model->arena;
    const struct dcpk_value *groups;
    struct dcpk_numbered_param *params;
    struct dcpk_numbered numbered;
    const char **names;
    struct weight *weights;
    int64_t ep = 1; /* experts have groups of their own where it is more */
    size_t n;

    (void)dcpk_value_as_int(
        dcpk_value_get(dcpk_value_attrs(r->model->args), "expert_model_parallel_size"), &ep);
    if (list_weights(r, &weights, &n, err) || fsdp_list_groups(r, &groups, err))
        return err->status;
    params = dcpk_arena_array(arena, n, sizeof *params, err);
    if (params == NULL)
        return err->status;
    for (size_t i = 0; i < n; i++)
        params[i] =
            (struct dcpk_numbered_param){weights[i].n_axes, weights[i].reg.expert >= 0 && ep > 1};
    if (dcpk_numbered_find(groups, params, n, arena, &numbered, err))
        return err->status;
    names = dcpk_arena_array(arena, numbered.n, sizeof *names, err);
    for (size_t i = 0; names != NULL && i < numbered.n; i++)
        names[i] = weights[numbered.param_of[i]].name;
    r->numbered = names;
    r->n_numbered = numbered.n;
    return dcpk_made(names, err);
}

dcpk_status dcpk_fsdp_number(struct dcpk_fsdp_reader *r, struct dcpk_error *err)
{
    if ((r->model->flags & DCPK_MODEL_WEIGHTS_ONLY) != 0 ||
        !dcpk_fsdp_is_torch_dcp(r->model->ckpt) || find_numbers(r, err) == DCPK_OK)
        return err->status;
    dcpk_context(err, "naming the optimizer's state");
    err->fixes |= DCPK_FIX_WEIGHTS_ONLY;
    return err->status;
}

dcpk_status dcpk_fsdp_numbered_name(const struct dcpk_fsdp_reader *r, const char *digits,
                                    const char **name, struct dcpk_error *err)
{
    const char *end = digits;
    const int64_t number = dcpk_take_number(&end);

    if (number < 0 || *end != '\0' || (uint64_t)number >= r->n_numbered)
        return dcpk_fail(err, DCPK_EFORMAT, "'%.100s' is not the number of a group's parameter",
                         digits);
    *name = r->numbered[number];
    return DCPK_OK;
}

/* ---- the row ---- */

static bool torch_dcp_fits(struct dcpk_checkpoint *ckpt)
{
    return dcpk_fsdp_is_torch_dcp(ckpt);
}

static const struct dcpk_format_mapping torch_dcp_mapping = {
    .has_prefixes = true,
    .to_model = dcpk_fsdp_to_model,
    .optimizer_layout = dcpk_fsdp_optimizer_layout,
};

const struct dcpk_format dcpk_format_torch_dcp = {
    .name = "torch_dcp",
    .summary = "Megatron's state dict in DCP (--use-torch-fsdp2; read, not written)",
    .container = &dcpk_format_fsdp_dtensor,
    .fits = torch_dcp_fits,
    .mapping = &torch_dcp_mapping,
    DCPK_FSDP_CONTAINER,
};
