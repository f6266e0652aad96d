/* SPDX-License-Identifier: Apache-2.0 */
/* pickle_check.c - the last look at a pickle's value: one walk, each container once, no
 * recursion. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "formats/torch/pickle.h"
#include "formats/torch/pickle_priv.h"
#include "lib/base/alloc.h"
#include "lib/base/map.h"
#include "lib/base/order.h"

/* ---- checks of values ---- */

#define GRAY       UINT16_MAX
#define SCAN_PAIRS 8 /* dicts up to here are searched for double keys pair by pair */

struct dcpk_check_frame {
    struct dcpk_node *node;
    size_t next;       /* child to look at */
    uint64_t unfolded; /* nodes that the walk had met before it */
    uint16_t below;    /* height of the children seen so far */
};

struct dcpk_check {
    const struct dcpk_builder *build;
    struct dcpk_check_frame *frames;
    size_t n_frames;
    uint64_t unfolded; /* nodes that the walk has met, shared ones each time */
};

static size_t n_children(const struct dcpk_value *v)
{
    if (v->kind == DCPK_V_OBJECT)
        return 2 + v->as.object->n_items + 2 * v->as.object->n_pairs;
    return v->kind == DCPK_V_DICT ? 2 * v->n : v->n;
}

static const struct dcpk_value *pair_part(const struct dcpk_value_pair *pairs, size_t i)
{
    return i % 2 == 0 ? pairs[i / 2].key : pairs[i / 2].value;
}

/* NULL: an object without state. */
static const struct dcpk_value *child(const struct dcpk_value *v, size_t i)
{
    const struct dcpk_value_object *o = v->as.object;

    if (v->kind == DCPK_V_DICT)
        return pair_part(v->as.pairs, i);
    if (v->kind != DCPK_V_OBJECT)
        return v->as.items[i];
    if (i < 2)
        return i == 0 ? o->args : o->state;
    if (i - 2 < o->n_items)
        return o->items[i - 2];
    return pair_part(o->pairs, i - 2 - o->n_items);
}

static dcpk_status double_key(const struct dcpk_builder *b, const struct dcpk_node *dict,
                              const struct dcpk_value *key, struct dcpk_error *err)
{
    const uint64_t at = b->base_bytes + dict->at_bytes;

    if (key->kind == DCPK_V_INT)
        return dcpk_fail(err, DCPK_EFORMAT,
                         "dict made at byte %" PRIu64 " holds key %" PRId64 " twice", at,
                         key->as.i);
    return dcpk_fail(err, DCPK_EFORMAT, "dict made at byte %" PRIu64 " holds key '%.200s' twice",
                     at, key->as.str);
}

static bool same_key(const struct dcpk_value *a, const struct dcpk_value *b)
{
    if (a->kind != b->kind)
        return false;
    if (a->kind == DCPK_V_INT)
        return a->as.i == b->as.i;
    return a->kind == DCPK_V_STR && a->n == b->n && memcmp(a->as.str, b->as.str, a->n) == 0;
}

/* Checks that no key is there twice. Few pairs are compared with each other. */
static dcpk_status scan_keys(const struct dcpk_builder *b, const struct dcpk_node *dict,
                             struct dcpk_error *err)
{
    const struct dcpk_value_pair *pairs = dict->v.as.pairs;

    for (size_t i = 1; i < dict->v.n; i++)
        for (size_t k = 0; k < i; k++)
            if (same_key(pairs[i].key, pairs[k].key))
                return double_key(b, dict, pairs[i].key, err);
    return DCPK_OK;
}

static dcpk_status map_key(struct dcpk_map *texts, struct dcpk_map *ints,
                           const struct dcpk_value *key, bool *existed, struct dcpk_error *err)
{
    uint64_t found;

    *existed = false;
    if (key->kind == DCPK_V_STR)
        return dcpk_map_put(texts, key->as.str, key->n, 0, existed, &found, err);
    if (key->kind == DCPK_V_INT)
        return dcpk_map_put(ints, (const char *)&key->as.i, sizeof key->as.i, 0, existed, &found,
                            err);
    return DCPK_OK;
}

/* Python lets the last of two equal keys win, a look-up here finds the first: such a dict is not
 * read. */
static dcpk_status pickle_check_keys(const struct dcpk_builder *b, const struct dcpk_node *dict,
                                     struct dcpk_error *err)
{
    struct dcpk_map texts = {0}, ints = {0};

    if (dict->v.n <= SCAN_PAIRS)
        return scan_keys(b, dict, err);
    for (size_t i = 0; i < dict->v.n && err->status == DCPK_OK; i++) {
        const struct dcpk_value *key = dict->v.as.pairs[i].key;
        bool existed;

        if (map_key(&texts, &ints, key, &existed, err) == DCPK_OK && existed)
            (void)double_key(b, dict, key, err);
    }
    dcpk_map_release(&texts);
    dcpk_map_release(&ints);
    return err->status;
}

static dcpk_status too_deep(const struct dcpk_builder *b, const struct dcpk_node *node,
                            struct dcpk_error *err)
{
    return dcpk_fail(err, DCPK_ERANGE, "the %s made at byte %" PRIu64 " nests deeper than %" PRIu32,
                     dcpk_builder_kind_name(node->v.kind), b->base_bytes + node->at_bytes,
                     b->max_depth);
}

/* A child of `frame` is `height` levels high. */
static dcpk_status raise_height(const struct dcpk_builder *b, struct dcpk_check_frame *frame,
                                uint16_t height, struct dcpk_error *err)
{
    if (height > frame->below)
        frame->below = height;
    if (frame->below < b->max_depth)
        return DCPK_OK;
    return too_deep(b, frame->node, err);
}

/* The walk has met nodes of so much unfolded size, below the container `node`. */
static dcpk_status add_unfolded(struct dcpk_check *c, const struct dcpk_node *node,
                                uint64_t unfolded, struct dcpk_error *err)
{
    c->unfolded += unfolded; /* both are at most 2^32 */
    if (c->unfolded <= c->build->max_unfolded)
        return DCPK_OK;
    return dcpk_fail(err, DCPK_ERANGE,
                     "the %s made at byte %" PRIu64 " shares its parts so often that it unfolds to "
                     "more than %" PRIu32 " values, the limit of a pickle of its length",
                     dcpk_builder_kind_name(node->v.kind), c->build->base_bytes + node->at_bytes,
                     c->build->max_unfolded);
}

/* A tuple without containers, as most sizes are: it needs no frame of its own. */
static bool is_flat(const struct dcpk_value *v)
{
    bool flat = v->kind == DCPK_V_TUPLE;

    for (size_t i = 0; flat && i < v->n; i++)
        flat = !dcpk_value_is_container(v->as.items[i]);
    return flat;
}

static void measure_flat(struct dcpk_node *node)
{
    uint64_t unfolded = dcpk_value_unfolded_node(&node->v);

    for (size_t i = 0; i < node->v.n; i++)
        unfolded += dcpk_value_unfolded_node(node->v.as.items[i]);
    node->unfolded = (uint32_t)dcpk_min_u64(unfolded, UINT32_MAX);
    node->height = 1;
}

/* Walk the children of a container before what is around it. */
static dcpk_status enter(struct dcpk_check *c, struct dcpk_node *node, struct dcpk_error *err)
{
    if (c->n_frames == c->build->max_depth)
        return too_deep(c->build, node, err);
    node->height = GRAY;
    c->frames[c->n_frames++] = (struct dcpk_check_frame){.node = node, .unfolded = c->unfolded};
    return add_unfolded(c, node, dcpk_value_unfolded_node(&node->v), err);
}

/* Look at the next child of the top frame; there are more frames then when it has to be walked
 * first. */
static dcpk_status check_next_child(struct dcpk_check *c, struct dcpk_error *err)
{
    struct dcpk_check_frame *top = &c->frames[c->n_frames - 1];
    const struct dcpk_value *v = child(&top->node->v, top->next++);
    struct dcpk_node *node;

    if (v == NULL)
        return DCPK_OK;
    if (!dcpk_value_is_container(v))
        return add_unfolded(c, top->node, dcpk_value_unfolded_node(v), err);
    node = dcpk_node_of(v);
    if (node->height == GRAY)
        return dcpk_fail(err, DCPK_EUNSUPPORTED, "the %s made at byte %" PRIu64 " holds itself",
                         dcpk_builder_kind_name(v->kind), c->build->base_bytes + node->at_bytes);
    if (node->height == 0 && !is_flat(v))
        return enter(c, node, err);
    if (node->height == 0)
        measure_flat(node);
    if (add_unfolded(c, top->node, node->unfolded, err) != DCPK_OK)
        return err->status;
    return raise_height(c->build, top, node->height, err);
}

/* All children of the top frame are walked: its height is known, and raises the one around it. */
static dcpk_status leave(struct dcpk_check *c, struct dcpk_error *err)
{
    const struct dcpk_check_frame top = c->frames[--c->n_frames];

    top.node->height = (uint16_t)(top.below + 1);
    top.node->unfolded = (uint32_t)(c->unfolded - top.unfolded);
    if (c->n_frames > 0 &&
        raise_height(c->build, &c->frames[c->n_frames - 1], top.node->height, err) != DCPK_OK)
        return err->status;
    if (top.node->v.kind == DCPK_V_DICT)
        return pickle_check_keys(c->build, top.node, err);
    return DCPK_OK;
}

dcpk_status dcpk_builder_check(struct dcpk_builder *b, const struct dcpk_value *v,
                               struct dcpk_error *err)
{
    struct dcpk_check c = {.build = b};

    if (!dcpk_value_is_container(v) || dcpk_node_of(v)->height != 0)
        return DCPK_OK;
    if (b->frames == NULL)
        b->frames = dcpk_alloc_array(b->max_depth, sizeof *b->frames, err);
    c.frames = b->frames;
    if (c.frames == NULL)
        return err->status;
    if (enter(&c, dcpk_node_of(v), err))
        return err->status;
    while (c.n_frames > 0) {
        const struct dcpk_check_frame *top = &c.frames[c.n_frames - 1];
        if (top->next < n_children(&top->node->v)) {
            if (check_next_child(&c, err))
                return err->status;
        } else if (leave(&c, err)) {
            return err->status;
        }
    }
    return DCPK_OK;
}

/* ---- classes and functions that are known ---- */

struct known {
    const char *module, *name;
};

/*
 * Sorted by module, then name, by byte value. Sources: torch 2.1 to 2.11
 * distributed/checkpoint/{metadata,filesystem, planner}.py, _utils.py, storage.py,
 * _weights_only_unpickler.py; Megatron core_v0.6.0 to 0.19.0 dist_checkpointing/strategies/torch.py
 * and safe_globals.py; pickles of checkpoints that they wrote. "builtins" stands for Python 2's
 * "__builtin__" too. None of them reaches further than itself: getattr on an object leads to any
 * function there is, so it is none of them (on a class it is read as the nested class's name).
 */
static const struct known known[] = {
    {"_codecs", "encode"},
    {"_io", "BytesIO"},
    {"argparse", "Namespace"},
    {"builtins", "bytearray"},
    {"builtins", "bytes"},
    {"builtins", "frozenset"},
    {"builtins", "set"},
    {"collections", "OrderedDict"},
    {"io", "BytesIO"},
    {"megatron.core.dist_checkpointing.strategies.torch", "MCoreMetadata"},
    {"megatron.core.dist_checkpointing.strategies.torch", "MCoreSavePlan"},
    {"megatron.core.enums", "ModelType"},
    {"megatron.core.optimizer", "OptimizerConfig"},
    {"megatron.core.optimizer.optimizer_config", "OptimizerConfig"},
    {"megatron.core.rerun_state_machine", "RerunDiagnostic"},
    {"megatron.core.rerun_state_machine", "RerunMode"},
    {"megatron.core.rerun_state_machine", "RerunState"},
    {"megatron.core.transformer.enums", "AttnBackend"},
    {"megatron.core.transformer.enums", "CudaGraphModule"},
    {"megatron.core.transformer.enums", "CudaGraphScope"},
    {"megatron.core.transformer.enums", "InferenceCudaGraphScope"},
    {"numpy", "dtype"},
    {"numpy", "ndarray"},
    {"numpy._core.multiarray", "_reconstruct"},
    {"numpy._core.multiarray", "scalar"},
    {"numpy.core.multiarray", "_reconstruct"},
    {"numpy.core.multiarray", "scalar"},
    {"numpy.dtypes", "UInt32DType"},
    {"pathlib", "PosixPath"},
    {"pathlib._local", "PosixPath"},
    {"signal", "SIGTERM"},
    {"signal", "Signals"},
    {"torch", "BFloat16Storage"},
    {"torch", "BoolStorage"},
    {"torch", "ByteStorage"},
    {"torch", "CharStorage"},
    {"torch", "ComplexDoubleStorage"},
    {"torch", "ComplexFloatStorage"},
    {"torch", "DoubleStorage"},
    {"torch", "FloatStorage"},
    {"torch", "HalfStorage"},
    {"torch", "IntStorage"},
    {"torch", "LongStorage"},
    {"torch", "QInt32Storage"},
    {"torch", "QInt8Storage"},
    {"torch", "QUInt8Storage"},
    {"torch", "ShortStorage"},
    {"torch", "Size"},
    {"torch", "bfloat16"},
    {"torch", "bits16"},
    {"torch", "bits1x8"},
    {"torch", "bits2x4"},
    {"torch", "bits4x2"},
    {"torch", "bits8"},
    {"torch", "bool"},
    {"torch", "complex128"},
    {"torch", "complex32"},
    {"torch", "complex64"},
    {"torch", "device"},
    {"torch", "float16"},
    {"torch", "float32"},
    {"torch", "float4_e2m1fn_x2"},
    {"torch", "float64"},
    {"torch", "float8_e4m3fn"},
    {"torch", "float8_e4m3fnuz"},
    {"torch", "float8_e5m2"},
    {"torch", "float8_e5m2fnuz"},
    {"torch", "float8_e8m0fnu"},
    {"torch", "int16"},
    {"torch", "int32"},
    {"torch", "int64"},
    {"torch", "int8"},
    {"torch", "qint32"},
    {"torch", "qint8"},
    {"torch", "quint8"},
    {"torch", "uint16"},
    {"torch", "uint32"},
    {"torch", "uint64"},
    {"torch", "uint8"},
    {"torch._utils", "_rebuild_parameter"},
    {"torch._utils", "_rebuild_qtensor"},
    {"torch._utils", "_rebuild_tensor"},
    {"torch._utils", "_rebuild_tensor_v2"},
    {"torch._utils", "_rebuild_tensor_v3"},
    {"torch.distributed._shard.sharded_tensor.metadata", "MEM_FORMAT_ENCODING"},
    {"torch.distributed._shard.sharded_tensor.metadata", "TensorProperties"},
    {"torch.distributed.checkpoint.filesystem", "_StorageInfo"},
    {"torch.distributed.checkpoint.filesystem", "_StoragePrefix"},
    {"torch.distributed.checkpoint.metadata", "BytesStorageMetadata"},
    {"torch.distributed.checkpoint.metadata", "ChunkStorageMetadata"},
    {"torch.distributed.checkpoint.metadata", "Metadata"},
    {"torch.distributed.checkpoint.metadata", "MetadataIndex"},
    {"torch.distributed.checkpoint.metadata", "StorageMeta"},
    {"torch.distributed.checkpoint.metadata", "TensorProperties"},
    {"torch.distributed.checkpoint.metadata", "TensorStorageMetadata"},
    {"torch.distributed.checkpoint.metadata", "_MEM_FORMAT_ENCODING"},
    {"torch.distributed.checkpoint.planner", "BytesIOWriteData"},
    {"torch.distributed.checkpoint.planner", "SavePlan"},
    {"torch.distributed.checkpoint.planner", "TensorWriteData"},
    {"torch.distributed.checkpoint.planner", "WriteItem"},
    {"torch.distributed.checkpoint.planner", "WriteItemType"},
    {"torch.serialization", "_get_layout"},
    {"torch.storage", "TypedStorage"},
    {"torch.storage", "UntypedStorage"},
    {"types", "SimpleNamespace"},
};

static int compare_known(const void *key, const void *row)
{
    const struct known *a = key, *b = row;
    const int by_module = strcmp(a->module, b->module);

    return by_module != 0 ? by_module : strcmp(a->name, b->name);
}

bool dcpk_pickle_is_known(const char *module, const char *name)
{
    const struct known key = {module, name};

    return bsearch(&key, known, DCPK_COUNT(known), sizeof *known, compare_known) != NULL;
}
