/* SPDX-License-Identifier: Apache-2.0 */
/* footprint.c - a rank of a configuration, laid out without a run. */
#include "lib/train/footprint.h"

#include "lib/base/order.h"
#include "lib/train/gpt.h"

/* Elements of one token that backward reads of a layer: both norms' inputs and outputs, queries,
 * keys and values, the attention's output; gate and up, and their product. */
static double act_of_layer(const struct dcpk_train_config *c, int64_t layer)
{
    const struct dcpk_train_model *m = &c->model;
    const double tp = (double)c->layout.tp;
    double mlp = 3 * (double)m->ffn / tp;

    if (dcpk_train_is_moe(m, layer))
        mlp = 3 * ((double)m->topk * (double)m->moe_ffn + (double)m->shared_ffn / tp);
    return 4 * (double)m->hidden + 2 * (double)((m->heads + m->groups) * m->head_dim) / tp + mlp;
}

static uint64_t act_bytes(const struct dcpk_train_config *c)
{
    const struct dcpk_train_model *m = &c->model;
    const double w = (double)dcpk_dtype_bytes(c->precision.compute);
    const double tokens = (double)(c->data.micro_batch * m->seq_length) / (double)c->layout.cp;
    double of_stage = 0, most = 0;
    int64_t first, last;

    dcpk_train_stage(c, 0, &first, &last);
    for (int64_t l = first; l < last; l++) {
        const double here = act_of_layer(c, l);

        of_stage += c->fsdp.recomputes ? (double)m->hidden : here;
        if (here > most)
            most = here;
    }
    if (c->fsdp.recomputes)
        of_stage += most;
    /* 1F1B: the first stage has as many micro batches under way as there are stages. Where there
     * is one, it has the logits, in the compute dtype and as fp32. */
    of_stage *= (double)c->layout.pp * w;
    if (c->layout.pp == 1)
        of_stage += (w + 4) * (double)m->padded_vocab / (double)c->layout.tp;
    return (uint64_t)(of_stage * tokens);
}

/* ---- a rank ---- */

/* A rank that does not run. */
struct planned {
    const struct dcpk_train_config *config;
    struct dcpk_group groups[DCPK_N_GROUPS];
    struct dcpk_train_mesh mesh;
    struct dcpk_train_params params;
    struct dcpk_memory_account account;
    struct dcpk_fsdp *fsdp;
};

static dcpk_status planned_make(struct planned *p, int64_t rank, enum dcpk_footprint_of of,
                                struct dcpk_arena *arena, struct dcpk_error *err)
{
    const struct dcpk_fsdp_options options = {.config = p->config,
                                              .mesh = &p->mesh,
                                              .params = &p->params,
                                              .account = &p->account,
                                              .is_megatron = of == DCPK_OF_MEGATRON};

    if (dcpk_train_mesh_plan(&p->config->layout, rank, p->groups, &p->mesh, err))
        return err->status;
    if (dcpk_train_params(p->config, &p->mesh.at, arena, &p->params, err))
        return err->status;
    return dcpk_fsdp_plan(&options, &p->fsdp, err);
}

static dcpk_status planned_hold(struct planned *p, enum dcpk_footprint_of of,
                                uint64_t held[DCPK_N_TAGS], struct dcpk_error *err)
{
    const struct dcpk_gpt_options gpt = {
        .config = p->config, .mesh = &p->mesh, .params = &p->params, .account = &p->account};

    if (of == DCPK_OF_MEGATRON) {
        dcpk_fsdp_predict_megatron(p->fsdp, held);
        held[DCPK_TAG_ACT] = act_bytes(p->config);
        return DCPK_OK;
    }
    if (dcpk_gpt_count(&gpt, err))
        return err->status;
    dcpk_fsdp_predict_memory(p->fsdp, held);
    held[DCPK_TAG_ACT] = p->account.most[DCPK_TAG_ACT];
    return DCPK_OK;
}

dcpk_status dcpk_train_footprint(const struct dcpk_train_config *config, int64_t rank,
                                 enum dcpk_footprint_of of, struct dcpk_train_footprint *footprint,
                                 struct dcpk_error *err)
{
    const struct dcpk_train_data *data = &config->data;
    const uint64_t n_moments = (uint64_t)dcpk_train_count_moments(&config->optim);
    struct dcpk_train_config asked = *config;
    struct planned p = {.config = &asked, .account.math = dcpk_memory_counted()};
    struct dcpk_arena *arena = dcpk_arena_new(0, err);
    struct dcpk_train_footprint made = {.most_adam_bytes = 0};
    uint64_t most_bytes;
    dcpk_status st;

    if (arena == NULL)
        return err->status;
    if (of == DCPK_OF_MEGATRON)
        asked.precision.is_exact = false;
    st = planned_make(&p, rank, of, arena, err);
    if (st == DCPK_OK)
        st = planned_hold(&p, of, made.held, err);
    if (st != DCPK_OK)
        goto out;
    most_bytes = 4 * (uint64_t)dcpk_fsdp_most_own(p.fsdp);
    made.most_adam_bytes = n_moments * most_bytes;
    made.save_copy_bytes = (1 + n_moments) * most_bytes;
    dcpk_fsdp_predict_traffic(p.fsdp, data->global_batch / (data->micro_batch * config->layout.dp),
                              &made.sent);
    *footprint = made;
out:
    dcpk_fsdp_free(p.fsdp);
    dcpk_arena_free(arena);
    return st;
}

uint64_t dcpk_train_held_sum(const uint64_t held[DCPK_N_TAGS])
{
    uint64_t sum = 0;

    for (int tag = 0; tag < DCPK_N_TAGS; tag++)
        sum += held[tag];
    return sum;
}

/* Ranks of a stage differ in their parts of the optimizer's state alone. The rank that saves most
 * may be another one. */
dcpk_status dcpk_train_footprint_most(const struct dcpk_train_config *config,
                                      enum dcpk_footprint_of of,
                                      struct dcpk_train_footprint *footprint,
                                      struct dcpk_error *err)
{
    struct dcpk_train_footprint most = {.most_adam_bytes = 0}, here;
    uint64_t copy_bytes = 0;

    for (int64_t pp = 0; pp < config->layout.pp; pp++) {
        const int64_t rank = dcpk_grid_stage_rank(&config->layout, pp);

        if (dcpk_train_footprint(config, rank, of, &here, err))
            return err->status;
        here.held[DCPK_TAG_ADAM] = here.most_adam_bytes;
        copy_bytes = dcpk_max_u64(copy_bytes, here.save_copy_bytes);
        if (dcpk_train_held_sum(here.held) > dcpk_train_held_sum(most.held))
            most = here;
    }
    most.save_copy_bytes = copy_bytes;
    *footprint = most;
    return DCPK_OK;
}
