/* SPDX-License-Identifier: Apache-2.0 */
/* hf_scales.c - weights of 8 and 4 bits with the scales that are next to them (MAPS.md,
 * "scales"). */
#include <stdio.h>
#include <string.h>

#include "formats/safetensors/hf_matching.h"
#include "formats/safetensors/hf_ops.h"
#include "formats/safetensors/hf_writing.h"
#include "lib/base/checked.h"
#include "lib/base/text.h"

/* ---- reading ---- */

#define MAX_BLOCK       (INT64_C(1) << 20)
#define MX_BLOCK        32 /* elements that share a scale; OCP MX 1.0, 5.2 */
#define MX_BLOCK_BYTES  (MX_BLOCK / 2)
#define MAX_SCALED_NAME 1000

/* Everything while the scales of a folder are found. */
struct scaling {
    const struct dcpk_hf_map *map;
    struct dcpk_checkpoint *ckpt;
    int64_t block[2]; /* rows, columns; 0: config.json has none */
    struct dcpk_hf_scaled *of;
    struct dcpk_hf_faults *faults;
    bool takes_alone;
};

/* --- the size of blocks --- */

/* The node at "a.b" of config.json. NULL: none. */
static const struct dcpk_json *node_at(const struct dcpk_json *node, const char *path)
{
    while (node != NULL && *path != '\0') {
        const size_t n = strcspn(path, ".");
        const struct dcpk_json *member = NULL;

        if (dcpk_json_kind(node) == DCPK_JSON_OBJECT)
            member = dcpk_json_first(node);
        while (member != NULL &&
               (strncmp(dcpk_json_key(member), path, n) != 0 || strlen(dcpk_json_key(member)) != n))
            member = dcpk_json_next(member);
        node = member;
        path += n + (path[n] == '.');
    }
    return node;
}

/* Left at 0 where config.json has no two sizes: a weight with scales is then a fault. */
static void read_block(struct scaling *s, const struct dcpk_json *config)
{
    const struct dcpk_json *node = NULL;
    int64_t sizes[2] = {0, 0};

    if (s->map->scales_block != NULL)
        node = node_at(config, s->map->scales_block);
    if (node == NULL || dcpk_json_kind(node) != DCPK_JSON_ARRAY)
        return;
    node = dcpk_json_first(node);
    for (int i = 0; i < 2; i++, node = dcpk_json_next(node))
        if (node == NULL || !dcpk_json_int(node, &sizes[i]) || sizes[i] < 1 || sizes[i] > MAX_BLOCK)
            return;
    if (node == NULL)
        memcpy(s->block, sizes, sizeof sizes);
}

/* --- pairs --- */

/* The tensor that `name` without the ending `was` and with `is` names. */
static uint32_t find_partner(const struct scaling *s, const char *name, const char *was,
                             const char *is, char partner[MAX_SCALED_NAME])
{
    const struct dcpk_tensor *tensor;

    snprintf(partner, MAX_SCALED_NAME, "%.*s%s", (int)(strlen(name) - strlen(was)), name, is);
    tensor = dcpk_checkpoint_tensor(s->ckpt, partner);
    return tensor == NULL ? DCPK_NO_TENSOR : (uint32_t)(tensor - s->ckpt->tensors);
}

static bool is_scale_dtype(enum dcpk_dtype dtype)
{
    return dtype == DCPK_U8 || dtype == DCPK_F8_E8M0FNU ||
           (dcpk_dtype_is_float(dtype) && dcpk_dtype_bytes(dtype) >= 2);
}

static dcpk_status fault_shape(struct scaling *s, uint32_t values, uint32_t scales,
                               const char *asked)
{
    const struct dcpk_tensor *v = &s->ckpt->tensors[values], *c = &s->ckpt->tensors[scales];
    char of_values[256], of_scales[256];

    return dcpk_hf_fault(s->faults, DCPK_EMISMATCH, "'%s' is %s %s and '%s' %s %s: %s", v->key,
                         dcpk_dtype_name(v->dtype),
                         dcpk_shape_format(v->shape, v->rank, of_values, sizeof of_values), c->key,
                         dcpk_dtype_name(c->dtype),
                         dcpk_shape_format(c->shape, c->rank, of_scales, sizeof of_scales), asked);
}

/* Scales of 8-bit values: one a block, those at the end cut off. */
static bool fits_blocks(const struct scaling *s, const struct dcpk_tensor *values,
                        const struct dcpk_tensor *scales)
{
    const int rank = values->rank;

    if (rank < 2 || scales->rank != rank || !is_scale_dtype(scales->dtype) ||
        !dcpk_shape_equal(values->shape, rank - 2, scales->shape, rank - 2))
        return false;
    for (int i = 0; i < 2; i++) {
        const int64_t n = values->shape[rank - 2 + i];

        if (scales->shape[rank - 2 + i] != n / s->block[i] + (n % s->block[i] != 0))
            return false;
    }
    return true;
}

/* Scales of 4-bit values, of which a block has an axis of its own. */
static bool fits_mx(const struct dcpk_tensor *values, const struct dcpk_tensor *scales)
{
    return values->dtype == DCPK_U8 && values->rank >= 3 && scales->rank == values->rank - 1 &&
           (scales->dtype == DCPK_U8 || scales->dtype == DCPK_F8_E8M0FNU) &&
           dcpk_shape_equal(values->shape, scales->rank, scales->shape, scales->rank) &&
           values->shape[scales->rank] == MX_BLOCK_BYTES;
}

/* --- views --- */

/* The bytes of blocks one after another: a view whose last axis has all of a row. */
static dcpk_status add_packed(struct scaling *s, uint32_t values, uint32_t *packed,
                              struct dcpk_error *err)
{
    const struct dcpk_tensor stored = s->ckpt->tensors[values];
    struct dcpk_tensor view = {
        .key = stored.key, .dtype = DCPK_F4_E2M1FN_X2, .rank = stored.rank - 1};
    int64_t *shape =
        dcpk_arena_copy(s->ckpt->arena, stored.shape, (size_t)view.rank, sizeof *shape, err);
    struct dcpk_box whole;
    int64_t n_bytes;

    if (shape == NULL)
        return err->status;
    if (!dcpk_mul_i64(shape[view.rank - 1], MX_BLOCK_BYTES, &shape[view.rank - 1]))
        return dcpk_fail(err, DCPK_ERANGE, "'%s' has too many blocks", stored.key);
    view.shape = shape;
    dcpk_box_whole(shape, view.rank, &whole);
    if (dcpk_box_count(&whole, &n_bytes, err) ||
        dcpk_checkpoint_add_view(s->ckpt, &view, packed, err))
        return err->status;
    return dcpk_checkpoint_add_run(s->ckpt, &whole, 0, n_bytes,
                                   (struct dcpk_chunk_run){stored.first_chunk, 0}, err);
}

/* The weight that values (of `shape`, which lives as long as the checkpoint) and scales make. */
static dcpk_status add_weight(struct scaling *s, const struct dcpk_computed *how, const char *key,
                              const int64_t *shape, uint32_t *view, struct dcpk_error *err)
{
    const struct dcpk_tensor weight = {
        .key = key, .dtype = DCPK_F32, .rank = s->ckpt->tensors[how->values].rank, .shape = shape};

    return dcpk_checkpoint_add_computed(s->ckpt, &weight, how, view, err);
}

static dcpk_status add_f8(struct scaling *s, uint32_t values, uint32_t scales,
                          struct dcpk_error *err)
{
    const struct dcpk_tensor *v = &s->ckpt->tensors[values];
    const struct dcpk_computed how = {
        .values = values, .scales = scales, .block_rows = s->block[0], .block_cols = s->block[1]};

    s->of[values].scales = s->of[scales].scales = scales;
    if (v->dtype != DCPK_F8_E4M3FN && v->dtype != DCPK_F8_E5M2)
        return fault_shape(s, values, scales,
                           "a scale is for values of float8_e4m3fn or float8_e5m2");
    if (s->block[0] == 0)
        return fault_shape(s, values, scales, "config.json does not have the size of the blocks");
    if (!fits_blocks(s, v, &s->ckpt->tensors[scales]))
        return fault_shape(s, values, scales, "a scale is for each block of config.json's size");
    return add_weight(s, &how, v->key, v->shape, &s->of[values].view, err);
}

static dcpk_status add_mx(struct scaling *s, uint32_t values, uint32_t scales,
                          struct dcpk_error *err)
{
    const struct dcpk_tensor *v = &s->ckpt->tensors[values];
    struct dcpk_computed how = {
        .values = DCPK_NO_TENSOR, .scales = scales, .block_rows = 1, .block_cols = MX_BLOCK};
    const char *key = v->key;
    const int last = v->rank - 2;
    int64_t *shape;

    s->of[values].scales = s->of[scales].scales = scales;
    if (!fits_mx(v, &s->ckpt->tensors[scales]))
        return fault_shape(s, values, scales,
                           "blocks are 16 bytes of two values, a scale is for each");
    if (add_packed(s, values, &how.values, err))
        return err->status;
    shape = dcpk_arena_copy(s->ckpt->arena, s->ckpt->tensors[how.values].shape, (size_t)last + 1,
                            sizeof *shape, err);
    if (shape == NULL)
        return err->status;
    if (!dcpk_mul_i64(shape[last], 2, &shape[last]))
        return dcpk_fail(err, DCPK_ERANGE, "'%s' has too many blocks", key);
    return add_weight(s, &how, key, shape, &s->of[values].view, err);
}

/* --- the folder --- */

/* The role of a stored tensor by its name, and the other of the pair. */
struct pair {
    bool is_scale, is_value;
    uint32_t other; /* DCPK_NO_TENSOR: it is not there */
    char partner[MAX_SCALED_NAME];
};

static void pair_find(const struct scaling *s, const char *key, struct pair *pair)
{
    const char *scale = s->map->scales_suffix, *value = s->map->scales_values;

    *pair = (struct pair){.other = DCPK_NO_TENSOR};
    if (scale == NULL || strlen(key) + strlen(scale) + strlen(value) >= MAX_SCALED_NAME)
        return;
    pair->is_scale = dcpk_ends_with(key, scale);
    pair->is_value = !pair->is_scale && dcpk_ends_with(key, value);
    if (pair->is_scale)
        pair->other = find_partner(s, key, scale, value, pair->partner);
    if (pair->is_value)
        pair->other = find_partner(s, key, value, scale, pair->partner);
}

/* Scales without a weight, and values that mean nothing without scales. */
static void fault_alone(struct scaling *s, uint32_t t, const struct pair *pair)
{
    const struct dcpk_tensor *tensor = &s->ckpt->tensors[t];

    if (pair->is_scale) {
        s->of[t].scales = t;
        dcpk_hf_fault(s->faults, DCPK_EMISMATCH, "'%s' scales '%s', which is missing", tensor->key,
                      pair->partner);
    } else if (dcpk_dtype_bytes(tensor->dtype) >= 2 || s->takes_alone) {
        return;
    } else if (pair->is_value) {
        dcpk_hf_fault(s->faults, DCPK_EMISMATCH, "'%s' is %s without its scales '%s'", tensor->key,
                      dcpk_dtype_name(tensor->dtype), pair->partner);
    } else {
        dcpk_hf_fault(s->faults, DCPK_EUNSUPPORTED,
                      "'%s' is %s, and the map of %s names no scales for it", tensor->key,
                      dcpk_dtype_name(tensor->dtype), s->map->family);
    }
}

/* A stored tensor is a weight with scales, scales with a weight, or neither. A tensor that the map
 * drops, such as a mask, may be alone, with any dtype. */
static dcpk_status hf_look_at(struct scaling *s, uint32_t t, struct dcpk_error *err)
{
    const char *key = s->ckpt->tensors[t].key;
    struct pair pair;

    pair_find(s, key, &pair);
    if (pair.other == DCPK_NO_TENSOR && !dcpk_hf_map_drops(s->map, key))
        fault_alone(s, t, &pair);
    if (!pair.is_value || pair.other == DCPK_NO_TENSOR)
        return DCPK_OK;
    if (*s->map->scales_values == '\0')
        return add_f8(s, t, pair.other, err);
    return add_mx(s, t, pair.other, err);
}

dcpk_status dcpk_hf_scales_read(const struct dcpk_hf_scales_input *input,
                                struct dcpk_hf_scaled **of, struct dcpk_error *err)
{
    struct dcpk_checkpoint *ckpt = input->ckpt;
    struct scaling s = {.map = input->map,
                        .ckpt = ckpt,
                        .faults = input->faults,
                        .takes_alone = input->takes_alone};

    s.of = dcpk_arena_array(input->arena, ckpt->n_tensors, sizeof *s.of, err);
    if (s.of == NULL)
        return err->status;
    read_block(&s, input->config);
    for (uint32_t t = 0; t < ckpt->n_tensors; t++)
        s.of[t] = (struct dcpk_hf_scaled){DCPK_NO_TENSOR, DCPK_NO_TENSOR};
    for (uint32_t t = 0; t < ckpt->n_tensors; t++)
        if (dcpk_checkpoint_tensor_left_out(ckpt, t) == NULL &&
            (input->names == NULL || input->names[t] != NULL) && hf_look_at(&s, t, err))
            return err->status;
    *of = s.of;
    return DCPK_OK;
}

/* ---- writing: blocks of fp8 with scales ---- */

static const char suffix[] = "_scale_inv"; /* of names of scales */

bool dcpk_hf_is_quantised(const struct dcpk_hf_writing *e, const struct dcpk_hf_binding *b,
                          const struct dcpk_out_tensor *part)
{
    return e->out->target.family.fp8.variant != DCPK_FP8_NONE && e->role == DCPK_WEIGHT &&
           part->rank >= 2 && b->rule->dtype == DCPK_DTYPE_NONE &&
           strstr(b->mg, ".linear_") != NULL;
}

/* Checks that the class has the matrix as a linear layer of torch does, by itself. */
static dcpk_status check_matrix(const struct dcpk_hf_writing *e, const struct dcpk_hf_binding *b,
                                const struct dcpk_out_tensor *part, struct dcpk_error *err)
{
    bool is_plain =
        part->rank == 2 && part->written_shape == NULL && dcpk_ends_with(part->keys[0], ".weight");

    for (size_t i = 0; i < b->rule->n_ops; i++)
        is_plain = is_plain && b->rule->ops[i] != DCPK_HF_TRANSPOSE;
    if (is_plain)
        return DCPK_OK;
    return dcpk_fail(err, DCPK_EUNSUPPORTED,
                     "'%s' of family %s is not the matrix of one linear layer: there are no blocks "
                     "of fp8 for it",
                     part->keys[0], e->map->family);
}

/* Appends the tensor under its key and `ending`. */
static dcpk_status add_half(struct dcpk_hf_writing *e, struct dcpk_out_tensor *tensor,
                            const struct dcpk_fp8_blocks *how, const char *ending,
                            struct dcpk_error *err)
{
    struct dcpk_arena *arena = e->out->arena;
    struct dcpk_fp8_blocks *blocks = dcpk_arena_alloc(arena, sizeof *blocks, err);
    const char **key = dcpk_arena_alloc(arena, sizeof *key, err);

    if (blocks == NULL || key == NULL)
        return err->status;
    *blocks = *how;
    *key = dcpk_arena_printf(arena, err, "%s%s", how->name, ending);
    if (*key == NULL)
        return err->status;
    tensor->blocks = blocks;
    tensor->keys = key;
    return dcpk_output_add_tensor(e->out, tensor, err);
}

dcpk_status dcpk_hf_add_blocks(struct dcpk_hf_writing *e, const struct dcpk_hf_binding *b,
                               const struct dcpk_out_tensor *part, struct dcpk_error *err)
{
    struct dcpk_fp8_blocks how = {
        .format = e->out->target.family.fp8, .shape = part->shape, .name = part->keys[0]};
    struct dcpk_out_tensor values = *part, scales = *part;
    int64_t *shape;

    if (check_matrix(e, b, part, err))
        return err->status;
    shape = dcpk_arena_array(e->out->arena, 2, sizeof *shape, err);
    if (shape == NULL)
        return err->status;
    for (int a = 0; a < 2; a++)
        shape[a] = (part->shape[a] + DCPK_FP8_BLOCK - 1) / DCPK_FP8_BLOCK;
    values.dtype = DCPK_F8_E4M3FN;
    scales.shape = shape;
    scales.dtype = DCPK_F32;
    if (how.format.is_ue8m0 && how.format.variant == DCPK_FP8_TRANSFORMERS)
        scales.dtype = DCPK_F8_E8M0FNU;
    e->n_quantised++;
    if (add_half(e, &values, &how, "", err))
        return err->status;
    how.gives_scales = true;
    return add_half(e, &scales, &how, suffix, err);
}

dcpk_status dcpk_hf_check_blocks(const struct dcpk_hf_writing *e, struct dcpk_error *err)
{
    static const char *const names[DCPK_FP8_N_VARIANTS] = {"", "deepseek", "deepgemm",
                                                           "transformers"};
    const struct dcpk_fp8_format *fp8 = &e->out->target.family.fp8;

    if (fp8->variant == DCPK_FP8_NONE)
        return DCPK_OK;
    if (e->n_quantised == 0 || e->map->scales_suffix == NULL ||
        strcmp(e->map->scales_suffix, suffix) != 0)
        return dcpk_fail(err, DCPK_EUNSUPPORTED,
                         "models of family %s are not written in blocks of fp8", e->map->family);
    dcpk_output_event(
        e->out, DCPK_EVENT_NOTE, "fp8",
        "%zu matrices are rounded to blocks of fp8 (variant %s%s); embeddings, norms, "
        "routers and biases are not",
        e->n_quantised, names[fp8->variant], dcpk_joint(fp8->is_ue8m0, ", scales ue8m0"));
    return DCPK_OK;
}
