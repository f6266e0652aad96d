/* SPDX-License-Identifier: Apache-2.0 */
/* gpt_linear.c - linear layers and norms with their gradients, cut by tensor parallelism or not. */
/*
 * Tensor parallelism with T ranks has in every layer one cut by rows, and one by columns after it:
 *
 *     y [rows, n/T] = x [rows, h]    w [n/T, h]^T      qkv, fc1, output: h is whole, no exchange
 *     z [rows, h]   = y [rows, n/T]  v [h, n/T]^T      proj, fc2: sums over n, whose parts ranks
 *                                                      have, so slices are exchanged
 *
 * Backward it is the other way: the input's gradient of the first kind is exchanged.
 * Source: Shoeybi et al.: Megatron-LM (arXiv 1909.08053), section 3; slices: lib/device/ops.h.
 */
#include "lib/train/gpt_priv.h"

dcpk_status dcpk_gpt_add_slices(struct dcpk_gpt *gpt, int64_t columns, enum dcpk_dtype dtype,
                                float *slices, void *out, struct dcpk_error *err)
{
    const struct gpt_sizes *size = &gpt->size;
    struct dcpk_group *tp = gpt_group(gpt, DCPK_G_TP);
    const int64_t n = size->rows * columns;

    if (tp->n_ranks > 1)
        if (gpt->ops->wait(gpt->math, err) ||
            tp->by->all_gather(tp, slices + size->first_slice * n,
                               (size_t)(size->my_slices * n) * sizeof *slices, slices, NULL, err))
            return err->status;
    gpt->ops->add_slices(gpt->math, &(struct dcpk_matrix){dtype, size->rows, columns}, size->slices,
                         slices, out);
    return DCPK_OK;
}

/* A product of the layer's rows with its weight, whole. */
static struct dcpk_matmul linear_shape(const struct dcpk_gpt *gpt, int64_t rows, int64_t columns,
                                       int64_t inner)
{
    return (struct dcpk_matmul){.dtype = gpt->dtype,
                                .out = gpt->dtype,
                                .rows = rows,
                                .columns = columns,
                                .inner = inner,
                                .n_slices = 1,
                                .n_parts = 1};
}

void dcpk_gpt_linear(struct dcpk_gpt *gpt, size_t param, int64_t rows, const void *x, void *y)
{
    const struct dcpk_train_param *p = gpt_param(gpt, param);
    const struct dcpk_matmul shape = linear_shape(gpt, rows, p->shape[0], p->shape[1]);

    gpt->ops->matmul(gpt->math, &shape, x, gpt_weight(gpt, param), y);
}

/* One slice, rounded once, is the product itself. */
static bool linear_is_whole(const struct dcpk_gpt *gpt)
{
    return gpt->size.slices == 1;
}

dcpk_status dcpk_gpt_linear_cut(struct dcpk_gpt *gpt, size_t param, const void *x, void *y,
                                struct dcpk_error *err)
{
    const struct dcpk_train_param *p = gpt_param(gpt, param);
    struct dcpk_matmul shape = linear_shape(gpt, gpt->size.rows, p->shape[0], p->shape[1]);
    float *slices = gpt->scratch.slices;

    shape.out = DCPK_F32;
    shape.n_slices = gpt->size.my_slices;
    if (linear_is_whole(gpt)) {
        dcpk_gpt_linear(gpt, param, shape.rows, x, y);
        return DCPK_OK;
    }
    gpt->ops->matmul(gpt->math, &shape, x, gpt_weight(gpt, param),
                     slices + gpt->size.first_slice * shape.rows * shape.columns);
    return dcpk_gpt_add_slices(gpt, shape.columns, gpt->dtype, slices, y, err);
}

void dcpk_gpt_linear_input(struct dcpk_gpt *gpt, size_t param, int64_t rows, const void *dy,
                           void *dx)
{
    const struct dcpk_train_param *p = gpt_param(gpt, param);
    const struct dcpk_matmul shape = linear_shape(gpt, rows, p->shape[1], p->shape[0]);

    gpt->ops->matmul_input(gpt->math, &shape, dy, gpt_weight(gpt, param), dx);
}

dcpk_status dcpk_gpt_linear_input_cut(struct dcpk_gpt *gpt, size_t param, const void *dy, void *dx,
                                      struct dcpk_error *err)
{
    const struct dcpk_train_param *p = gpt_param(gpt, param);
    struct dcpk_matmul shape = linear_shape(gpt, gpt->size.rows, p->shape[1], p->shape[0]);
    float *slices = gpt->scratch.slices;

    shape.out = DCPK_F32;
    shape.n_slices = gpt->size.my_slices;
    shape.n_parts = p->has_halves ? 2 : 1;
    if (linear_is_whole(gpt)) {
        dcpk_gpt_linear_input(gpt, param, shape.rows, dy, dx);
        return DCPK_OK;
    }
    gpt->ops->matmul_input(gpt->math, &shape, dy, gpt_weight(gpt, param),
                           slices + gpt->size.first_slice * shape.rows * shape.columns);
    return dcpk_gpt_add_slices(gpt, shape.columns, gpt->dtype, slices, dx, err);
}

void dcpk_gpt_linear_leaf(struct dcpk_gpt *gpt, size_t param, struct gpt_leaf leaf, const void *dy,
                          const void *x)
{
    const struct dcpk_train_param *p = gpt_param(gpt, param);
    struct dcpk_matmul shape = linear_shape(gpt, p->shape[0], p->shape[1], leaf.n);
    struct dcpk_weights *weights = gpt->options.weights;

    shape.out = DCPK_F32;
    if (leaf.n == 0)
        return;
    gpt->ops->matmul_weight(gpt->math, &shape, gpt_at(gpt, dy, leaf.first * shape.rows),
                            gpt_at(gpt, x, leaf.first * shape.columns), gpt->scratch.weight);
    weights->ops->add(weights, param, 0, shape.rows, gpt->scratch.weight);
}

void dcpk_gpt_linear_weight(struct dcpk_gpt *gpt, size_t param, const void *dy, const void *x)
{
    for (int64_t i = 0; i < gpt->n_leaves; i++)
        dcpk_gpt_linear_leaf(gpt, param, gpt->leaves[i], dy, x);
}

static struct dcpk_rmsnorm norm_shape(const struct dcpk_gpt *gpt, size_t param, int64_t rows,
                                      int64_t lanes)
{
    return (struct dcpk_rmsnorm){.dtype = gpt->dtype,
                                 .rows = rows * lanes,
                                 .columns = gpt_param(gpt, param)->shape[0],
                                 .lanes = lanes,
                                 .epsilon = (float)gpt->model->norm_epsilon};
}

void dcpk_gpt_norm(struct dcpk_gpt *gpt, size_t param, int64_t lanes, const void *x, void *y)
{
    const struct dcpk_rmsnorm shape = norm_shape(gpt, param, gpt->size.rows, lanes);

    gpt->ops->rmsnorm(gpt->math, &shape, x, gpt_weight(gpt, param), y);
}

/* The parts of the gradient of a norm's weight: rows of `lanes` heads each. */
struct normed {
    int64_t lanes;
    const void *x, *dy;
};

/* A head is a leaf of its own: under any spread of heads the same integers are added. */
static void norm_leaf(struct dcpk_gpt *gpt, size_t param, struct gpt_leaf leaf,
                      const struct normed *of)
{
    const struct dcpk_rmsnorm shape = norm_shape(gpt, param, leaf.n, of->lanes);
    const int64_t first = leaf.first * of->lanes * shape.columns;
    struct dcpk_weights *weights = gpt->options.weights;
    const float *dw = gpt->scratch.weight;

    gpt->ops->rmsnorm_weight(gpt->math, &shape, gpt_at(gpt, of->x, first),
                             gpt_at(gpt, of->dy, first), gpt->scratch.weight);
    for (int64_t i = 0; i < of->lanes; i++)
        weights->ops->add(weights, param, 0, shape.columns, dw + i * shape.columns);
}

void dcpk_gpt_norm_backward(struct dcpk_gpt *gpt, size_t param, int64_t lanes, const void *x,
                            void *dy)
{
    const struct dcpk_rmsnorm shape = norm_shape(gpt, param, gpt->size.rows, lanes);
    const struct normed of = {lanes, x, dy};

    for (int64_t i = 0; i < gpt->n_leaves; i++)
        norm_leaf(gpt, param, gpt->leaves[i], &of);
    gpt->ops->rmsnorm_input(gpt->math, &shape, x, gpt_weight(gpt, param), dy, dy);
}
