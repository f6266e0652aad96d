/* SPDX-License-Identifier: Apache-2.0 */
/* fsdp_inspector.c - the Python tool's rules, R0 to R16 of FORMAT.md 12.1, and the traps that it
 * falls into. */
#include "formats/formats.h"

#include <ctype.h>
#include <inttypes.h>
#include <string.h>

#include "formats/fsdp_dtensor/fsdp_dtensor_priv.h"
#include "lib/base/text.h"

#define OPTIMIZER_STATE "optimizer.state."
#define EXPERTS         ".experts.experts."

struct mapper {
    struct dcpk_output *out;
    const struct dcpk_fsdp_inspector_options *options;
    bool rename_mtp;
    uint64_t visits_left; /* see flatten */
};

/* A tensor on its way: part of a source tensor under its new name. */
struct part {
    const char *key;
    uint32_t source;
    struct dcpk_box box;
    int n_dropped; /* leading axes of length 1 that the output lacks */
};

static dcpk_status refuse(struct dcpk_error *err, const char *key, const char *trap)
{
    return dcpk_fail_fix(err, DCPK_EUNSUPPORTED, DCPK_FIX_OWN_MAPPING, "'%s': %s", key, trap);
}

/* Checks for cases in which the tool crashes, scrambles or drops (FORMAT.md 12.2). */
static dcpk_status check_traps(const struct dcpk_tensor *t, struct dcpk_error *err)
{
    const bool is_state = dcpk_starts_with(t->key, OPTIMIZER_STATE);
    const char *experts = strstr(t->key, EXPERTS);

    if (t->rank == 0)
        return refuse(err, t->key, "the Python tool stops at a tensor without axes");
    if (t->model_shape != NULL)
        return refuse(err, t->key, "the Python tool scrambles flattened optimizer state");
    if (dcpk_starts_with(t->key, "optimizer.distributed."))
        return refuse(err, t->key,
                      "the Python tool turns dp_reshardable buckets into model tensors");
    if (dcpk_starts_with(t->key, "chained_"))
        return refuse(err, t->key,
                      "the Python tool turns chained optimizers' state into model tensors");
    if (experts == NULL)
        return DCPK_OK;
    if (isdigit((unsigned char)experts[strlen(EXPERTS)]))
        return refuse(err, t->key, "the Python tool cuts single experts into rows");
    if (strstr(t->key, ".layers.") != NULL &&
        !isdigit((unsigned char)strstr(t->key, ".layers.")[strlen(".layers.")]))
        return refuse(err, t->key, "the Python tool leaves experts stacked in a homogeneous model");
    if (is_state && strstr(t->key, "linear_fc2") != NULL)
        return refuse(err, t->key,
                      "the Python tool crashes on or scrambles moments of experts' fc2");
    if (is_state && strstr(t->key, ".bias") != NULL)
        return refuse(err, t->key, "the Python tool misnames moments of experts' biases");
    return DCPK_OK;
}

/* R5: optimizer.state.<s>.<K> -> <prefix>.<K>.<s>; anything else -> <prefix>.<key>. */
static const char *new_name(struct mapper *m, const char *key, struct dcpk_error *err)
{
    const char *state = key + strlen(OPTIMIZER_STATE), *dot;
    const char *prefix;

    if (!dcpk_starts_with(key, OPTIMIZER_STATE) || (dot = strchr(state, '.')) == NULL) {
        prefix = m->out->model_prefix;
        if (prefix == NULL)
            prefix = "model.module";
        return dcpk_arena_printf(m->out->arena, err, "%s.%s", prefix, key);
    }
    prefix = m->out->state_prefix;
    if (prefix == NULL)
        prefix = "optimizer.state.module.module.module";
    return dcpk_arena_printf(m->out->arena, err, "%s.%s.%.*s", prefix, dot + 1, (int)(dot - state),
                             state);
}

/* True for "layers." digits "." anywhere. */
static bool has_layer_number(const char *name)
{
    for (const char *p = name; (p = strstr(p, "layers.")) != NULL; p++) {
        const char *d = p + strlen("layers.");

        while (isdigit((unsigned char)*d))
            d++;
        if (d > p + strlen("layers.") && *d == '.')
            return true;
    }
    return false;
}

/* `text` with the first max_n occurrences of `old` replaced. */
static const char *fsdp_replace(struct dcpk_arena *arena, const char *text, const char *old,
                                const char *new, size_t max_n, struct dcpk_error *err)
{
    size_t n = 0;
    char *made, *to;

    for (const char *p = text; n < max_n && (p = strstr(p, old)) != NULL; p += strlen(old))
        n++;
    made = to = dcpk_arena_alloc(arena, strlen(text) + n * strlen(new) + 1, err);
    for (; made != NULL && n > 0; n--) {
        const char *p = strstr(text, old);

        memcpy(to, text, (size_t)(p - text));
        to += p - text;
        memcpy(to, new, strlen(new));
        to += strlen(new);
        text = p + strlen(old);
    }
    if (made != NULL)
        memcpy(to, text, strlen(text) + 1);
    return made;
}

/* `.mlp.linear_fc1.weight`, `.mlp.experts.linear_fc1.weight<n>`, ... anywhere in the name: the
 * tool's patterns of R8. */
static bool matches_pattern(const char *name, const char *before, bool number_before,
                            const char *between, bool number_behind)
{
    for (const char *p = name; (p = strstr(p, before)) != NULL; p++) {
        const char *q = p + strlen(before);
        const char *digits = q;

        while (number_before && isdigit((unsigned char)*q))
            q++;
        if ((number_before && q == digits) || !dcpk_starts_with(q, between))
            continue;
        q += strlen(between);
        if (dcpk_starts_with(q, "weight"))
            q += strlen("weight");
        else if (dcpk_starts_with(q, "bias"))
            q += strlen("bias");
        else
            continue;
        if (!number_behind || isdigit((unsigned char)*q))
            return true;
    }
    return false;
}

static bool is_swiglu(const struct mapper *m, const char *name)
{
    const struct dcpk_fsdp_inspector_options *o = m->options;

    if (!matches_pattern(name, ".mlp.linear_fc1.", false, "", false) &&
        !matches_pattern(name, ".mlp.experts.linear_fc1.", false, "", true) &&
        !matches_pattern(name, ".mlp.experts.local_experts.", true, ".linear_fc1.", false) &&
        !matches_pattern(name, ".mlp.shared_experts.linear_fc1.", false, "", false))
        return false;
    if (o->swiglu_modules == NULL)
        return o->swiglu;
    for (size_t i = 0; i < o->n_swiglu_modules; i++) {
        const char *module = o->swiglu_modules[i];
        const size_t n = strlen(module);

        for (const char *p = name; (p = strstr(p, module)) != NULL; p++)
            if ((p == name || p[-1] == '.') && p[n] == '.')
                return true;
    }
    return false;
}

/* R8's new name: _w or _v after the first "weight<digits>" or "bias<digits>". */
static const char *half_name(struct mapper *m, const char *name, char half, struct dcpk_error *err)
{
    const char *weight = strstr(name, "weight"), *bias = strstr(name, "bias");
    const char *p;

    if (weight == NULL || (bias != NULL && bias < weight))
        p = bias + strlen("bias");
    else
        p = weight + strlen("weight");
    while (isdigit((unsigned char)*p))
        p++;
    return dcpk_arena_printf(m->out->arena, err, "%.*s_%c%s", (int)(p - name), name, half, p);
}

/* R11 and the tensor itself. */
static dcpk_status fsdp_add_part(struct mapper *m, const struct part *part, struct dcpk_error *err)
{
    const struct dcpk_tensor *source = &m->out->source->tensors[part->source];
    struct dcpk_piece *piece = dcpk_arena_alloc(m->out->arena, sizeof *piece, err);
    const char **key = dcpk_arena_alloc(m->out->arena, sizeof *key, err);
    int64_t *shape;
    struct dcpk_out_tensor out;
    struct dcpk_box to = {.rank = part->box.rank - part->n_dropped};

    shape = dcpk_arena_array(m->out->arena, (size_t)to.rank + 1, sizeof *shape, err);
    if (piece == NULL || key == NULL || shape == NULL)
        return err->status;
    for (int a = 0; a < to.rank; a++)
        shape[a] = to.extent[a] = part->box.extent[a + part->n_dropped];
    *key = part->key;
    if (m->rename_mtp && strstr(part->key, ".mtp.layers.") != NULL)
        *key = fsdp_replace(m->out->arena, part->key, ".transformer_layer.", ".mtp_model_layer.",
                            false, err);
    if (*key == NULL || dcpk_piece_make(m->out->arena, part->source, &part->box, &to, piece, err))
        return err->status;
    out = (struct dcpk_out_tensor){.keys = key,
                                   .n_keys = 1,
                                   .dtype = source->dtype,
                                   .rank = to.rank,
                                   .shape = shape,
                                   .pieces = piece,
                                   .n_pieces = 1};
    return dcpk_output_add_tensor(m->out, &out, err);
}

/* R8: halves of the first axis as torch.chunk cuts it. */
static dcpk_status add_maybe_halves(struct mapper *m, const struct part *part,
                                    struct dcpk_error *err)
{
    struct part half = *part;
    const int a = part->n_dropped;
    const int64_t rows = part->box.extent[a], first = (rows + 1) / 2;

    if (!is_swiglu(m, part->key))
        return fsdp_add_part(m, part, err);
    if (rows < 2)
        return refuse(err, part->key, "the Python tool cannot cut a single row in halves");
    half.key = half_name(m, part->key, 'w', err);
    half.box.extent[a] = first;
    if (half.key == NULL || fsdp_add_part(m, &half, err))
        return err->status;
    half.key = half_name(m, part->key, 'v', err);
    half.box.offset[a] = part->box.offset[a] + first;
    half.box.extent[a] = rows - first;
    if (half.key == NULL)
        return err->status;
    return fsdp_add_part(m, &half, err);
}

/* The name of slice i of R7a (layers) or R7b (experts). */
static const char *slice_name(struct mapper *m, const char *name, bool layers, int64_t i,
                              struct dcpk_error *err)
{
    const char *number = dcpk_arena_printf(m->out->arena, err, ".layers.%" PRId64 ".", i);
    const char *weight;

    if (number == NULL)
        return NULL;
    if (layers)
        return fsdp_replace(m->out->arena, name, ".layers.", number, SIZE_MAX, err);
    name = fsdp_replace(m->out->arena, name, EXPERTS, ".experts.", SIZE_MAX, err);
    if (name == NULL)
        return NULL;
    weight = strstr(name, ".weight");
    if (weight == NULL)
        return dcpk_arena_printf(m->out->arena, err, "%s%" PRId64, name, i);
    weight += strlen(".weight");
    return dcpk_arena_printf(m->out->arena, err, "%.*s%" PRId64 "%s", (int)(weight - name), name, i,
                             weight);
}

static dcpk_status mapper_map_tensor(struct mapper *m, uint32_t source, struct dcpk_error *err)
{
    const struct dcpk_tensor *t = &m->out->source->tensors[source];
    struct part part = {.source = source};
    const char *name;
    bool layers;

    if (strstr(t->key, "._extra_state") != NULL) { /* R4 */
        dcpk_output_event(m->out, DCPK_EVENT_OMITTED, t->key,
                          "extra state, dropped by the Python tool too");
        return DCPK_OK;
    }
    if (check_traps(t, err))
        return err->status;
    name = new_name(m, t->key, err);
    if (name == NULL)
        return err->status;
    layers = strstr(name, ".layers.") != NULL && !has_layer_number(name);
    dcpk_box_whole(t->shape, t->rank, &part.box);
    part.key = name;
    if (!layers && strstr(name, EXPERTS) == NULL)
        return add_maybe_halves(m, &part, err);
    part.n_dropped = 1;
    part.box.extent[0] = 1;
    for (int64_t i = 0; i < t->shape[0]; i++) {
        part.box.offset[0] = i;
        part.key = slice_name(m, name, layers, i, err);
        if (part.key == NULL || add_maybe_halves(m, &part, err))
            return err->status;
    }
    return DCPK_OK;
}

static dcpk_status mapped_add_value(struct mapper *m, const char *key,
                                    const struct dcpk_value *value, struct dcpk_error *err)
{
    uint32_t payload;

    if (value->kind == DCPK_V_BYTES)
        return refuse(err, key, "the Python tool writes bare bytes without a torch item");
    if (value->kind == DCPK_V_TENSOR)
        return refuse(err, key, "a tensor inside the common state");
    if (dcpk_output_add_payload(m->out, value, NULL, &payload, err))
        return err->status;
    return dcpk_output_add_object(m->out, key, payload, err);
}

/* The tool's flatten(): dicts and lists descended, empty ones vanish, everything else is a leaf. */
static dcpk_status flatten(struct mapper *m, const char *prefix, const struct dcpk_value *v,
                           struct dcpk_error *err)
{
    const bool is_dict = v->kind == DCPK_V_DICT;

    if (m->visits_left-- == 0)
        return dcpk_fail(err, DCPK_ERANGE, "more than %d values in the common state",
                         FD_MAX_VALUES);
    if (!is_dict && v->kind != DCPK_V_LIST) { /* R13 */
        static const char nested[] = "optimizer.optimizer.param_groups.";

        if (dcpk_starts_with(prefix, nested))
            prefix += strlen("optimizer.");
        return mapped_add_value(m, prefix, v, err);
    }
    for (size_t i = 0; i < v->n; i++) {
        const struct dcpk_value *child = is_dict ? v->as.pairs[i].value : v->as.items[i];
        const char *dot = *prefix == '\0' ? "" : ".", *key;

        if (!is_dict || v->as.pairs[i].key->kind == DCPK_V_INT) {
            key = dcpk_arena_printf(m->out->arena, err, "%s%s%" PRId64, prefix, dot,
                                    is_dict ? v->as.pairs[i].key->as.i : (int64_t)i);
        } else if (dcpk_value_as_str(v->as.pairs[i].key) != NULL) {
            key = dcpk_arena_printf(m->out->arena, err, "%s%s%s", prefix, dot,
                                    dcpk_value_as_str(v->as.pairs[i].key));
        } else {
            return dcpk_fail(err, DCPK_EUNSUPPORTED,
                             "'%s': a dict key that is neither text nor an int", prefix);
        }
        if (key == NULL || flatten(m, key, child, err))
            return err->status;
    }
    return DCPK_OK;
}

/* R10, from the last item to the first. */
static dcpk_status map_objects(struct mapper *m, struct dcpk_error *err)
{
    struct dcpk_checkpoint *ckpt = m->out->source;
    bool has_rerun = false;

    for (size_t i = ckpt->n_objects; i-- > 0;) {
        const struct dcpk_object *object = &ckpt->objects[i];
        const struct dcpk_value *value;
        uint32_t payload;

        if (strstr(object->key, "._extra_state") != NULL ||
            dcpk_starts_with(object->key, "rng_state")) {
            dcpk_output_event(m->out, DCPK_EVENT_DROPPED, object->key,
                              "dropped by the Python tool too");
        } else if (dcpk_starts_with(object->key, "rerun_state_machine_state")) {
            if (has_rerun) {
                dcpk_output_event(m->out, DCPK_EVENT_OMITTED, object->key,
                                  "the Python tool keeps one rank's rerun state");
                continue;
            }
            has_rerun = true;
            if (dcpk_checkpoint_load_object(ckpt, object, m->out->arena, &value, err))
                return err->status;
            if (dcpk_value_at(value, 0) == NULL)
                return dcpk_fail(err, DCPK_EFORMAT, "'%s' is not a list", object->key);
            if (flatten(m, "rerun_state_machine.sharded", dcpk_value_at(value, 0), err))
                return err->status;
        } else if (dcpk_output_add_payload(m->out, NULL, object, &payload, err)) {
            return dcpk_context(err, "object '%s'", object->key);
        } else if (dcpk_output_add_object(m->out, object->key, payload, err)) {
            return err->status;
        }
    }
    return DCPK_OK;
}

/* R14: the tool finds groups only in these two forms, and then misnames what it writes (T1). */
static bool would_write_groups(const struct dcpk_value *common)
{
    const struct dcpk_value *optimizer = dcpk_value_get(common, "optimizer");

    return dcpk_value_get(optimizer, "param_groups") != NULL ||
           dcpk_value_get_int(optimizer, 0) != NULL;
}

/* R2: ".mtp.layers." and ".transformer_layer." in one key of the source. */
static bool detects_mtp(const struct dcpk_checkpoint *ckpt)
{
    for (size_t t = 0; t < ckpt->n_tensors; t++)
        if (strstr(ckpt->tensors[t].key, ".mtp.layers.") != NULL &&
            strstr(ckpt->tensors[t].key, ".transformer_layer.") != NULL)
            return true;
    return false;
}

static dcpk_status load_common(struct dcpk_checkpoint *ckpt, struct dcpk_arena *arena,
                               const struct dcpk_value **common, struct dcpk_error *err)
{
    if (ckpt->format->load_common == NULL)
        return dcpk_fail(err, DCPK_EUNSUPPORTED,
                         "Megatron's checkpoint_inspector.py converts torch_dist only, this is %s",
                         ckpt->format->name);
    if (dcpk_checkpoint_load_common(ckpt, arena, common, err))
        return err->status;
    if (*common == NULL)
        return dcpk_fail(err, DCPK_EFORMAT, "there is no common state");
    return DCPK_OK;
}

static dcpk_status inspector_from_keys(struct dcpk_output *out, const void *options,
                                       struct dcpk_error *err)
{
    const struct dcpk_fsdp_inspector_options *o = options;
    struct mapper m = {out, o, o->rename_mtp || detects_mtp(out->source), FD_MAX_VALUES};
    const struct dcpk_value *common = NULL;

    /* It leaves RNG out, and groups that fit no loader (FORMAT.md 12.2, T1). */
    out->load_needs = DCPK_LOAD_WITHOUT_OPTIM | DCPK_LOAD_WITHOUT_RNG;
    if (load_common(out->source, out->arena, &common, err))
        return err->status;
    if (dcpk_checkpoint_object(out->source, "common_state/shard_0_1") != NULL)
        return refuse(err, "common_state/shard_0_1",
                      "the Python tool cannot convert what core 0.19 and later write");
    if (o->has_group_map && would_write_groups(common))
        return refuse(err, "optimizer",
                      "the Python tool misnames the groups of several optimizers");
    out->pickle_protocol = 4; /* R16 */
    for (uint32_t t = 0; t < out->source->n_tensors; t++)
        if (mapper_map_tensor(&m, t, err))
            return err->status;
    if (map_objects(&m, err) || flatten(&m, "", common, err))
        return err->status;
    if (dcpk_value_get(common, "checkpoint_version") == NULL) { /* R15 */
        const struct dcpk_value *three = dcpk_value_float(out->arena, 3.0, err);

        if (three == NULL || mapped_add_value(&m, "checkpoint_version", three, err))
            return err->status;
    }
    return DCPK_OK;
}

const struct dcpk_format_mapping dcpk_fsdp_inspector = {.from_keys = inspector_from_keys};
