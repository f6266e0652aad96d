/* SPDX-License-Identifier: Apache-2.0 */
/* layout.c - the sizes of a mesh in a checkpoint's args. */
#include "lib/model/layout.h"
#include "lib/base/checked.h"
#include "lib/base/order.h"

#include <stddef.h>
#include <string.h>

const struct dcpk_layout_size dcpk_layout_sizes[DCPK_LAYOUT_N_SIZES] = {
    {"tensor_model_parallel_size", offsetof(struct dcpk_grid, tp)},
    {"pipeline_model_parallel_size", offsetof(struct dcpk_grid, pp)},
    {"expert_model_parallel_size", offsetof(struct dcpk_grid, ep)},
    {"context_parallel_size", offsetof(struct dcpk_grid, cp)},
    {"data_parallel_size", offsetof(struct dcpk_grid, dp)},
    {"world_size", offsetof(struct dcpk_grid, world)},
    {"expert_tensor_parallel_size", offsetof(struct dcpk_grid, etp)},
    {"virtual_pipeline_model_parallel_size", offsetof(struct dcpk_grid, vpp)},
    {"decoder_first_pipeline_num_layers", offsetof(struct dcpk_grid, first)},
    {"decoder_last_pipeline_num_layers", offsetof(struct dcpk_grid, last)},
};

const struct dcpk_stage_arg dcpk_stage_args[DCPK_N_STAGE_ARGS] = {
    {"account_for_embedding_in_pipeline_split", true},
    {"account_for_loss_in_pipeline_split", true},
    {"decoder_first_pipeline_num_layers", false},
    {"decoder_last_pipeline_num_layers", false},
    {"num_layers_per_virtual_pipeline_stage", false},
    {"num_virtual_stages_per_pipeline_rank", false},
    {"pipeline_model_parallel_layout", false},
    {"virtual_pipeline_model_parallel_size", false},
};

void dcpk_layout_read(const struct dcpk_value *attrs, struct dcpk_grid *layout)
{
    for (size_t i = 0; i < DCPK_LAYOUT_N_SIZES; i++) {
        int64_t size = 0;

        if (!dcpk_value_as_int(dcpk_value_get(attrs, dcpk_layout_sizes[i].name), &size) || size < 0)
            size = 0;
        memcpy((char *)layout + dcpk_layout_sizes[i].at, &size, sizeof size);
    }
}

int64_t dcpk_layout_get(const struct dcpk_grid *layout, const struct dcpk_layout_size *size)
{
    int64_t value;

    memcpy(&value, (const char *)layout + size->at, sizeof value);
    return value;
}

static int64_t size_or(int64_t size, int64_t other)
{
    return dcpk_max_i64(size > 0 ? size : other, 1);
}

static int64_t greatest_divisor(int64_t a, int64_t b)
{
    while (b != 0) {
        const int64_t rest = a % b;

        a = b;
        b = rest;
    }
    return a;
}

void dcpk_layout_fit_ranks(const struct dcpk_grid *from, struct dcpk_grid *mesh)
{
    const int64_t tp = size_or(mesh->tp, from->tp), pp = size_or(mesh->pp, from->pp);
    const int64_t etp = size_or(mesh->etp, mesh->tp > 0 ? mesh->tp : from->etp);
    int64_t dense, expert, world;

    if (mesh->dp > 0 || mesh->world > 0 || from->world <= 0 || !dcpk_mul_i64(tp, pp, &dense) ||
        !dcpk_mul_i64(dense, size_or(mesh->cp, from->cp), &dense) ||
        !dcpk_mul_i64(size_or(mesh->ep, from->ep), pp, &expert) ||
        !dcpk_mul_i64(expert, etp, &expert) || !dcpk_mul_i64(dense, size_or(from->dp, 1), &world) ||
        !dcpk_mul_i64(world, expert / greatest_divisor(world, expert), &world))
        return;
    mesh->world = world;
    mesh->dp = world / dense;
}

size_t dcpk_layout_args(const struct dcpk_grid *mesh, const struct dcpk_value *attrs,
                        struct dcpk_layout_arg *list)
{
    const int64_t etp = mesh->etp > 0 ? mesh->etp : mesh->tp;
    const struct dcpk_layout_arg completed[] = {
        {"expert_tensor_parallel_size", mesh->etp > 0 ? 0 : etp},
        {"transformer_pipeline_model_parallel_size", mesh->pp},
        {"tensor_parallel_num_weight_shards", mesh->tp},
        {"gtp_weight_remat_size", mesh->tp > 0},
        {"expert_tensor_parallel_num_weight_shards", etp},
        {"expert_gtp_weight_remat_size", etp > 0},
    };
    int64_t old;
    size_t n = 0;

    for (size_t i = 0; i < DCPK_LAYOUT_N_SIZES; i++) {
        list[n] = (struct dcpk_layout_arg){dcpk_layout_sizes[i].name,
                                           dcpk_layout_get(mesh, &dcpk_layout_sizes[i])};
        n += list[n].size > 0;
    }
    for (size_t i = 0; i < DCPK_COUNT(completed); i++)
        if (completed[i].size > 0 &&
            dcpk_value_as_int(dcpk_value_get(attrs, completed[i].name), &old))
            list[n++] = completed[i];
    return n;
}

bool dcpk_layout_is_arg(const char *name)
{
    static const char *const others[] = {"transformer_pipeline_model_parallel_size",
                                         "tensor_parallel_num_weight_shards",
                                         "gtp_weight_remat_size",
                                         "expert_tensor_parallel_num_weight_shards",
                                         "expert_gtp_weight_remat_size",
                                         "num_distributed_optimizer_instances"};

    for (size_t i = 0; i < DCPK_LAYOUT_N_SIZES; i++)
        if (strcmp(name, dcpk_layout_sizes[i].name) == 0)
            return true;
    for (size_t i = 0; i < DCPK_COUNT(others); i++)
        if (strcmp(name, others[i]) == 0)
            return true;
    return false;
}

const struct dcpk_value *dcpk_stage_arg_no(const struct dcpk_stage_arg *arg,
                                           const struct dcpk_value *attrs)
{
    const struct dcpk_value *v = dcpk_value_get(attrs, arg->name);
    bool on = true;

    if (dcpk_value_is_none(v) || (dcpk_value_as_bool(v, &on) && !on))
        return NULL;
    if (arg->is_flag)
        return dcpk_value_bool(false);
    return dcpk_value_none();
}
