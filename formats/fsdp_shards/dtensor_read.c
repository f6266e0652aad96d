/* SPDX-License-Identifier: Apache-2.0 */
/* dtensor_read.c - DTensor, its mesh and its placements, as torch pickles them; the box of a rank.
 */
#include <inttypes.h>
#include <string.h>

#include "formats/fsdp_shards/dtensor.h"
#include "lib/base/alloc.h"
#include "lib/base/cursor.h"
#include "lib/base/order.h"

#define MAX_LEGS 16

#define TENSOR     "torch.distributed.tensor"
#define PLACEMENTS TENSOR ".placement_types"

/* ---- the mesh ---- */

/*
 * The ranks of a mesh: those of its rank map, by a place which is the sum of coordinate * stride
 * over all legs. A dimension is one leg or several, the last the fastest.
 */
struct mesh_reading {
    int64_t size[MAX_LEGS], stride[MAX_LEGS];
    int64_t n_legs;
    int64_t ends[DCPK_SHARDS_MAX_MESH]; /* the number of legs up to the end of a dimension */
    int64_t n_dims;
};

static dcpk_status fail_mesh(struct dcpk_error *err)
{
    return dcpk_fail(err, DCPK_EFORMAT, "its DeviceMesh has no layout and rank map that are known");
}

static const struct dcpk_value *member(const struct dcpk_value *object, const char *name)
{
    return dcpk_value_get(dcpk_value_attrs(object), name);
}

static dcpk_status add_leg(struct mesh_reading *m, const struct dcpk_value *size,
                           const struct dcpk_value *stride, struct dcpk_error *err)
{
    if (m->n_legs == MAX_LEGS || !dcpk_value_as_int(size, &m->size[m->n_legs]) ||
        !dcpk_value_as_int(stride, &m->stride[m->n_legs]) || m->size[m->n_legs] < 1 ||
        m->stride[m->n_legs] < 0)
        return fail_mesh(err);
    m->n_legs++;
    return DCPK_OK;
}

/* A dimension: a number, or a tuple of them. */
static dcpk_status add_dimension(struct mesh_reading *m, const struct dcpk_value *sizes,
                                 const struct dcpk_value *strides, struct dcpk_error *err)
{
    if (sizes == NULL || strides == NULL || m->n_dims == DCPK_SHARDS_MAX_MESH)
        return fail_mesh(err);
    if (sizes->kind != DCPK_V_TUPLE) {
        if (add_leg(m, sizes, strides, err))
            return err->status;
    } else {
        for (size_t i = 0; i < sizes->n; i++)
            if (add_leg(m, sizes->as.items[i], dcpk_value_at(strides, i), err))
                return err->status;
    }
    m->ends[m->n_dims++] = m->n_legs;
    return DCPK_OK;
}

/* torch 2.15: axes, each of shape and stride; 2.11: both of all axes. */
static dcpk_status read_layout(struct mesh_reading *m, const struct dcpk_value *layout,
                               struct dcpk_error *err)
{
    const struct dcpk_value *axes = member(layout, "axes");
    const struct dcpk_value *sizes = member(layout, "shape"), *strides = member(layout, "stride");

    if (axes != NULL && axes->kind == DCPK_V_TUPLE) {
        for (size_t i = 0; i < axes->n; i++)
            if (add_dimension(m, member(axes->as.items[i], "shape"),
                              member(axes->as.items[i], "stride"), err))
                return err->status;
        return DCPK_OK;
    }
    if (sizes == NULL || sizes->kind != DCPK_V_TUPLE)
        return add_dimension(m, sizes, strides, err);
    for (size_t i = 0; i < sizes->n; i++)
        if (add_dimension(m, sizes->as.items[i], dcpk_value_at(strides, i), err))
            return err->status;
    return DCPK_OK;
}

/* Before torch 2.9: a tensor of ranks in the mesh's shape. */
static dcpk_status read_old_layout(struct mesh_reading *m, const struct dcpk_value_tensor *ranks,
                                   struct dcpk_error *err)
{
    int64_t stride = 1;

    if (ranks->rank > DCPK_SHARDS_MAX_MESH)
        return fail_mesh(err);
    m->n_dims = m->n_legs = ranks->rank;
    for (int i = ranks->rank; i-- > 0;) {
        if (ranks->shape[i] < 1)
            return fail_mesh(err);
        m->size[i] = ranks->shape[i];
        m->stride[i] = stride;
        m->ends[i] = i + 1;
        stride *= ranks->shape[i]; /* the shape was counted */
    }
    return DCPK_OK;
}

/* The leg with the smallest stride, of those with a stride of at least `least` and several ranks;
 * n_legs: there is none. */
static int64_t next_leg(const struct mesh_reading *m, int64_t least)
{
    int64_t found = m->n_legs;

    for (int64_t i = 0; i < m->n_legs; i++)
        if (m->size[i] > 1 && m->stride[i] >= least &&
            (found == m->n_legs || m->stride[i] < m->stride[found]))
            found = i;
    return found;
}

/* A place shows the coordinates in the mesh: each leg, by strides, steps over all of the one before
 * it. Ranks with equal coordinates are in parts of a larger mesh. */
static bool has_coordinates(const struct mesh_reading *m, int64_t n)
{
    int64_t reach = 1, n_several = 0;

    for (int64_t i = 0; i < m->n_legs; i++)
        n_several += m->size[i] > 1;
    for (int64_t i = next_leg(m, 1); i < m->n_legs; i = next_leg(m, reach)) {
        if (m->stride[i] % reach != 0 || m->stride[i] > n || m->size[i] > n / m->stride[i])
            return false;
        reach = m->stride[i] * m->size[i];
        n_several--;
    }
    return n_several == 0 && n % reach == 0;
}

/* The place of the file's rank in the rank map. */
static dcpk_status find_rank(const struct dcpk_shard_file *file,
                             const struct dcpk_value_tensor *ranks, int64_t *place,
                             struct dcpk_error *err)
{
    const size_t elem = dcpk_dtype_bytes(ranks->dtype);
    uint8_t *data = dcpk_alloc((size_t)ranks->n_bytes, err);
    int64_t found = -1;

    if (data == NULL)
        return err->status;
    if (dcpk_source_read(file->source, ranks->first_bytes, data, (size_t)ranks->n_bytes, err) ==
        DCPK_OK)
        for (int64_t i = 0; i < file->n_ranks && found < 0; i++) {
            const uint8_t *at = data + (size_t)i * elem;
            const uint64_t rank = elem == 4 ? dcpk_load_u32le(at) : dcpk_load_u64le(at);

            if (rank == (uint64_t)file->rank)
                found = i;
        }
    dcpk_free(data);
    if (err->status != DCPK_OK)
        return err->status;
    *place = found;
    if (found < 0)
        return dcpk_fail(err, DCPK_EFORMAT, "its mesh does not have rank %" PRId64, file->rank);
    return DCPK_OK;
}

/* Sizes of the mesh, and the coordinates of the file's rank. */
static dcpk_status place_rank(const struct dcpk_shard_file *file, const struct mesh_reading *m,
                              const struct dcpk_value_tensor *ranks, struct dcpk_shard_mesh *mesh,
                              struct dcpk_error *err)
{
    int64_t place = 0, leg = 0;

    if ((ranks->dtype != DCPK_I32 && ranks->dtype != DCPK_I64) || !ranks->is_row_major ||
        m->n_dims == 0)
        return fail_mesh(err);
    if (ranks->n_bytes / dcpk_dtype_bytes(ranks->dtype) != (uint64_t)file->n_ranks ||
        !has_coordinates(m, file->n_ranks))
        return dcpk_fail(err, DCPK_EUNSUPPORTED,
                         "its mesh is not one of %" PRId64 " ranks, or a part of it",
                         file->n_ranks);
    if (find_rank(file, ranks, &place, err))
        return err->status;
    mesh->n = m->n_dims;
    for (int64_t d = 0; d < m->n_dims; d++) {
        mesh->sizes[d] = 1;
        mesh->at[d] = 0;
        for (; leg < m->ends[d]; leg++) {
            const int64_t size = m->size[leg];

            if (size == 1)
                continue;
            mesh->at[d] = mesh->at[d] * size + place / m->stride[leg] % size;
            mesh->sizes[d] *= size;
        }
    }
    return DCPK_OK;
}

/* *mesh: in the file, which keeps it. */
static dcpk_status read_mesh(struct dcpk_shard_file *file, const struct dcpk_value *value,
                             const struct dcpk_shard_mesh **mesh, struct dcpk_error *err)
{
    const struct dcpk_value *layout = member(value, "_layout"), *ranks = member(value, "_rank_map");
    struct mesh_reading m = {.n_legs = 0};

    for (size_t i = 0; i < file->n_meshes; i++)
        if (file->meshes[i].value == value) {
            *mesh = &file->meshes[i];
            return DCPK_OK;
        }
    if (!dcpk_value_is_object(value, "torch.distributed.device_mesh", "DeviceMesh"))
        return fail_mesh(err);
    if (file->n_meshes == DCPK_SHARDS_MAX_MESHES)
        return dcpk_fail(err, DCPK_ERANGE, "tensors before it have %d meshes, and no more are read",
                         DCPK_SHARDS_MAX_MESHES);
    if (layout == NULL)
        ranks = member(value, "mesh");
    if (ranks == NULL || ranks->kind != DCPK_V_TENSOR)
        return fail_mesh(err);
    if (layout != NULL)
        (void)read_layout(&m, layout, err);
    else
        (void)read_old_layout(&m, ranks->as.tensor, err);
    if (err->status != DCPK_OK ||
        place_rank(file, &m, ranks->as.tensor, &file->meshes[file->n_meshes], err))
        return err->status;
    file->meshes[file->n_meshes].value = value;
    *mesh = &file->meshes[file->n_meshes++];
    return DCPK_OK;
}

/* ---- placements ---- */

/* For messages. */
static const char *class_of(const struct dcpk_value *v)
{
    return v->kind == DCPK_V_OBJECT ? v->as.object->name : "of no class";
}

static dcpk_status read_placement(const struct dcpk_value *v, struct dcpk_dtensor_layout *layout,
                                  int64_t d, int64_t *split, struct dcpk_error *err)
{
    const bool is_strided = dcpk_value_is_object(v, PLACEMENTS, "_StridedShard");
    int64_t axis = -1;

    if (dcpk_value_is_object(v, PLACEMENTS, "Replicate"))
        return DCPK_OK;
    if (!is_strided && !dcpk_value_is_object(v, PLACEMENTS, "Shard"))
        return dcpk_fail(err, DCPK_EUNSUPPORTED,
                         "a placement of it is %.100s, and Shard, Replicate and _StridedShard are "
                         "read",
                         class_of(v));
    if (!dcpk_value_as_int(member(v, "dim"), &axis) || axis < 0 || axis >= layout->rank ||
        (is_strided && !dcpk_value_as_int(member(v, "split_factor"), split)))
        return dcpk_fail(err, DCPK_EFORMAT, "a placement of it cuts no axis that it has");
    layout->kind[d] = is_strided ? DCPK_STRIDED_SHARD : DCPK_SHARD;
    layout->axis[d] = axis;
    return DCPK_OK;
}

/* The order of cuts: that of the mesh; a strided one after those to its right, whose pieces it
 * cuts: as many as its split factor. */
static dcpk_status order_cuts(struct dcpk_dtensor_layout *layout, const int64_t *split,
                              struct dcpk_error *err)
{
    for (int64_t d = 0; d < layout->n_mesh; d++)
        if (layout->kind[d] == DCPK_SHARD)
            layout->cuts[layout->n_cuts++] = d;
    for (int64_t d = layout->n_mesh; d-- > 0;) {
        int64_t n = 1;

        if (layout->kind[d] != DCPK_STRIDED_SHARD)
            continue;
        for (int64_t right = d + 1; right < layout->n_mesh; right++)
            if (layout->kind[right] != DCPK_REPLICATE && layout->axis[right] == layout->axis[d])
                n *= layout->mesh[right];
        if (n != split[d])
            return dcpk_fail(err, DCPK_EUNSUPPORTED,
                             "a placement of it is _StridedShard with the split factor %" PRId64
                             ", and %" PRId64 " pieces are cut to its right",
                             split[d], n);
        layout->cuts[layout->n_cuts++] = d;
    }
    return DCPK_OK;
}

static dcpk_status fail_order(struct dcpk_error *err)
{
    return dcpk_fail(err, DCPK_EFORMAT, "its shard_order is not that of its placements");
}

/* From torch 2.11 on the order may be recorded: (axis, dimensions of the mesh), of plain shards. */
static dcpk_status read_order(const struct dcpk_value *order, struct dcpk_dtensor_layout *layout,
                              struct dcpk_error *err)
{
    bool is_taken[DCPK_SHARDS_MAX_MESH] = {false};
    int64_t cuts[DCPK_SHARDS_MAX_MESH], n_cuts = 0;

    for (int64_t d = 0; d < layout->n_mesh; d++)
        if (layout->kind[d] == DCPK_STRIDED_SHARD)
            return DCPK_OK;
    if (order == NULL || order->kind != DCPK_V_TUPLE || order->n == 0)
        return DCPK_OK;
    for (size_t i = 0; i < order->n; i++) {
        const struct dcpk_value *entry = order->as.items[i];
        const struct dcpk_value *args, *dims;
        int64_t axis = -1, d = -1;

        if (!dcpk_value_is_object(entry, TENSOR "._dtensor_spec", "ShardOrderEntry"))
            return fail_order(err);
        args = entry->as.object->args;
        dims = dcpk_value_at(args, 1);
        (void)dcpk_value_as_int(dcpk_value_at(args, 0), &axis);
        for (size_t k = 0; dcpk_value_at(dims, k) != NULL; k++) {
            if (!dcpk_value_as_int(dims->as.items[k], &d) || d < 0 || d >= layout->n_mesh ||
                is_taken[d] || layout->kind[d] != DCPK_SHARD || layout->axis[d] != axis)
                return fail_order(err);
            is_taken[d] = true;
            cuts[n_cuts++] = d;
        }
    }
    if (n_cuts != layout->n_cuts)
        return fail_order(err);
    memcpy(layout->cuts, cuts, (size_t)n_cuts * sizeof *cuts);
    return DCPK_OK;
}

static dcpk_status read_placements(const struct dcpk_value *placements,
                                   struct dcpk_dtensor_layout *layout, struct dcpk_error *err)
{
    int64_t split[DCPK_SHARDS_MAX_MESH] = {0};

    if (placements == NULL || placements->kind != DCPK_V_TUPLE ||
        placements->n != (size_t)layout->n_mesh)
        return dcpk_fail(err, DCPK_EFORMAT,
                         "it does not have a placement for each dimension of its mesh");
    for (int64_t d = 0; d < layout->n_mesh; d++)
        if (read_placement(placements->as.items[d], layout, d, &split[d], err))
            return err->status;
    return order_cuts(layout, split, err);
}

/* ---- tensors ---- */

static dcpk_status read_shape(const struct dcpk_value *size, struct dcpk_dtensor_layout *layout,
                              struct dcpk_error *err)
{
    int64_t unused;

    if (size == NULL || size->kind != DCPK_V_TUPLE || size->n > DCPK_MAX_RANK)
        return dcpk_fail(err, DCPK_EFORMAT, "it has no shape of at most %d axes", DCPK_MAX_RANK);
    layout->rank = (int64_t)size->n;
    for (size_t i = 0; i < size->n; i++)
        if (!dcpk_value_as_int(size->as.items[i], &layout->shape[i]))
            return dcpk_fail(err, DCPK_EFORMAT, "axis %zu of it has no size", i);
    return dcpk_shape_count(layout->shape, (int)layout->rank, &unused, err);
}

static bool is_dtype(const struct dcpk_value *v, enum dcpk_dtype dtype)
{
    return v != NULL && v->kind == DCPK_V_GLOBAL && strcmp(v->as.global.module, "torch") == 0 &&
           dcpk_dtype_from_name(v->as.global.name) == dtype;
}

/* _rebuild_from_type_v2(_rebuild_wrapper_subclass, DTensor, (DTensor, dtype, size, ..), state). */
static dcpk_status read_dtensor(struct dcpk_shard_file *file, const struct dcpk_value *args,
                                struct dcpk_dtensor *tensor, struct dcpk_error *err)
{
    const struct dcpk_value *wrapped = dcpk_value_at(args, 2), *state = dcpk_value_at(args, 3);
    const struct dcpk_value *slots = dcpk_value_at(state, 1); /* state: (its dict, its slots) */
    const struct dcpk_value *local = dcpk_value_get(slots, "_local_tensor");
    const struct dcpk_value *spec = dcpk_value_get(slots, "_spec");
    struct dcpk_dtensor_layout *layout = &tensor->layout;
    const struct dcpk_shard_mesh *mesh;

    if (local == NULL || local->kind != DCPK_V_TENSOR)
        return dcpk_fail(err, DCPK_EUNSUPPORTED, "its local tensor is not a dense tensor");
    if (read_shape(dcpk_value_at(wrapped, 2), layout, err) ||
        read_mesh(file, member(spec, "mesh"), &mesh, err))
        return err->status;
    tensor->local = local->as.tensor;
    layout->dtype = local->as.tensor->dtype;
    if (!is_dtype(dcpk_value_at(wrapped, 1), local->as.tensor->dtype))
        return dcpk_fail(err, DCPK_EFORMAT, "its dtype is not %s, that of its local tensor",
                         dcpk_dtype_name(local->as.tensor->dtype));
    layout->n_mesh = mesh->n;
    memcpy(layout->mesh, mesh->sizes, sizeof mesh->sizes);
    memcpy(tensor->at, mesh->at, sizeof mesh->at);
    if (read_placements(member(spec, "placements"), layout, err))
        return err->status;
    return read_order(member(spec, "shard_order"), layout, err);
}

static bool is_dtensor(const struct dcpk_value *value)
{
    const struct dcpk_value *type;

    if (!dcpk_value_is_object(value, "torch._tensor", "_rebuild_from_type_v2"))
        return false;
    type = dcpk_value_at(value->as.object->args, 1);
    return type != NULL && type->kind == DCPK_V_GLOBAL &&
           strcmp(type->as.global.module, TENSOR) == 0 &&
           strcmp(type->as.global.name, "DTensor") == 0;
}

dcpk_status dcpk_dtensor_read(struct dcpk_shard_file *file, const struct dcpk_value *value,
                              struct dcpk_dtensor *tensor, struct dcpk_error *err)
{
    memset(tensor, 0, sizeof *tensor);
    if (is_dtensor(value)) {
        if (read_dtensor(file, value->as.object->args, tensor, err))
            return err->status;
    } else if (value->kind == DCPK_V_TENSOR) {
        const struct dcpk_value_tensor *whole = value->as.tensor;

        tensor->local = whole;
        tensor->layout.dtype = whole->dtype;
        tensor->layout.rank = whole->rank;
        memcpy(tensor->layout.shape, whole->shape, (size_t)whole->rank * sizeof *whole->shape);
    } else {
        return dcpk_fail(err, DCPK_EUNSUPPORTED, "it is neither a tensor nor a DTensor, but %.200s",
                         class_of(value));
    }
    if (!tensor->local->is_row_major)
        return dcpk_fail(err, DCPK_EUNSUPPORTED,
                         "the elements of its local tensor do not lie in order: save contiguous "
                         "tensors");
    return DCPK_OK;
}

/* ---- the box of a rank ---- */

dcpk_status dcpk_dtensor_place(const struct dcpk_dtensor *tensor, struct dcpk_box *box,
                               struct dcpk_error *err)
{
    const struct dcpk_dtensor_layout *layout = &tensor->layout;
    const struct dcpk_value_tensor *local = tensor->local;
    char wanted[256], stored[256];

    dcpk_box_whole(layout->shape, (int)layout->rank, box);
    for (int64_t i = 0; i < layout->n_cuts; i++) {
        const int64_t cut = layout->cuts[i], n = layout->mesh[cut];
        int64_t *extent = &box->extent[layout->axis[cut]];
        const int64_t piece = *extent / n + (*extent % n != 0);
        int64_t skipped = *extent;

        if (piece > 0 && tensor->at[cut] <= *extent / piece)
            skipped = tensor->at[cut] * piece;
        box->offset[layout->axis[cut]] += skipped;
        *extent = dcpk_min_i64(piece, *extent - skipped);
    }
    if (dcpk_shape_equal(box->extent, box->rank, local->shape, local->rank))
        return DCPK_OK;
    return dcpk_fail(err, DCPK_EFORMAT,
                     "its local tensor has the shape %s, and its placements give the rank %s",
                     dcpk_shape_format(local->shape, local->rank, stored, sizeof stored),
                     dcpk_shape_format(box->extent, box->rank, wanted, sizeof wanted));
}
