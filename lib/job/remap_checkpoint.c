/* SPDX-License-Identifier: Apache-2.0 */
/* remap_checkpoint.c - what a process knows of a remap: the model, two layouts, the files'
 * fingerprints. */
#include "lib/job/remap_checkpoint.h"

#include <inttypes.h>

#include "lib/base/alloc.h"
#include "lib/exec/slab.h"
#include "lib/exec/thread_ranks.h"
#include "lib/job/remap_checkpoint_priv.h"
#include "lib/model/account.h"
#include "lib/model/parallel.h"

/* The canonical view, with all that a layout needs to know of it. */
static dcpk_status job_read_model(struct dcpk_remap_job *job, struct dcpk_error *err)
{
    const struct dcpk_remap_job_options *o = job->options;
    const struct dcpk_rule_options rules = {.swiglu = o->swiglu};
    unsigned flags = 0;

    if (o->weights_only)
        flags = DCPK_MODEL_WEIGHTS_ONLY;
    if (dcpk_checkpoint_check_cover(job->ckpt, err) ||
        dcpk_model_read(job->ckpt, flags, &job->model, err) ||
        dcpk_model_check_known(job->model, err) || dcpk_rules_check_model_rows(job->model, err) ||
        dcpk_rules_canonical(job->model, err) || dcpk_rules_gate(job->model, &rules, err) ||
        dcpk_rules_parallel(job->model, rules.impl, err))
        return err->status;
    return DCPK_OK;
}

/* "decoder.final_layernorm.weight", "....exp_avg" */
static const char *tensor_name(struct dcpk_remap_job *job, const struct dcpk_model_tensor *t,
                               struct dcpk_error *err)
{
    static const char *const roles[DCPK_N_ROLES] = {[DCPK_MASTER] = "master",
                                                    [DCPK_EXP_AVG] = "exp_avg",
                                                    [DCPK_EXP_AVG_SQ] = "exp_avg_sq",
                                                    [DCPK_STEP] = "step"};
    const char *param = job->model->params[t->param].name;

    if (t->role == DCPK_WEIGHT)
        return param;
    if (t->role == DCPK_STATE)
        return dcpk_arena_printf(job->arena, err, "%s.%s", param, t->state);
    return dcpk_arena_printf(job->arena, err, "%s.%s", param, roles[t->role]);
}

static dcpk_status job_list_tensors(struct dcpk_remap_job *job, struct dcpk_error *err)
{
    job->n = job->model->n_tensors;
    job->views = dcpk_arena_array(job->arena, job->n, sizeof *job->views, err);
    job->sums = dcpk_arena_array(job->arena, job->n, sizeof *job->sums, err);
    if (job->views == NULL || job->sums == NULL)
        return err->status;
    if (job->n == 0)
        return dcpk_fail(err, DCPK_EUNSUPPORTED, "the checkpoint has no tensor of a model");
    for (size_t i = 0; i < job->n; i++) {
        const struct dcpk_model_tensor *t = &job->model->tensors[i];

        job->views[i].name = tensor_name(job, t, err);
        if (job->views[i].name == NULL)
            return err->status;
        job->views[i].view = dcpk_model_view(t);
    }
    return DCPK_OK;
}

static dcpk_status check_size(const struct dcpk_placing *layout, const char *what, int n_ranks,
                              struct dcpk_error *err)
{
    const int64_t n = dcpk_grid_ranks(&layout->grid);

    if (n <= n_ranks)
        return DCPK_OK;
    return dcpk_fail(err, DCPK_EUSAGE, "the layout %s has %" PRId64 " ranks, there are %d", what, n,
                     n_ranks);
}

/* Checks that the model fits the layout. Sizes that add no constraint are left to the rules. */
static dcpk_status check_mesh(struct dcpk_model *model, const struct dcpk_placing *layout,
                              struct dcpk_error *err)
{
    struct dcpk_grid mesh = layout->grid;

    if (mesh.etp == mesh.tp)
        mesh.etp = 0;
    return dcpk_rules_mesh(model, &mesh, err);
}

static dcpk_status job_lay_out(struct dcpk_remap_job *job, struct dcpk_error *err)
{
    const struct dcpk_remap_job_options *o = job->options;
    int n_ranks = o->n_ranks;

    if (o->env.ranks != NULL)
        n_ranks = dcpk_ranks_count(o->env.ranks);
    if (check_size(&o->from, "to load", n_ranks, err) ||
        check_size(&o->to, "to remap to", n_ranks, err) || check_mesh(job->model, &o->from, err) ||
        check_mesh(job->model, &o->to, err) ||
        dcpk_lay_out(job->model, &o->from, &job->from, err) ||
        dcpk_lay_out(job->model, &o->to, &job->to, err))
        return err->status;
    return DCPK_OK;
}

/* The fingerprints of the files. Collective over processes. */
static dcpk_status job_sum_files(struct dcpk_remap_job *job, struct dcpk_error *err)
{
    struct dcpk_exec *exec = NULL;
    struct dcpk_view *views = dcpk_alloc_array(job->n, sizeof *views, err);
    dcpk_status st = views == NULL ? err->status : DCPK_OK;

    for (size_t i = 0; i < job->n && st == DCPK_OK; i++)
        views[i] = job->views[i].view;
    if (st == DCPK_OK)
        st = dcpk_exec_new(job->ckpt, &job->options->env, &exec, err);
    st = dcpk_ranks_agree(job->options->env.ranks, st, err);
    if (st == DCPK_OK)
        st = dcpk_exec_fingerprint(exec, views, job->n, job->sums, NULL, err);
    dcpk_exec_free(exec);
    dcpk_free(views);
    return dcpk_ranks_agree(job->options->env.ranks, st, err);
}

static dcpk_status job_fill(struct dcpk_remap_job *job, struct dcpk_error *err)
{
    job->arena = dcpk_arena_new(0, err);
    if (job->arena == NULL || job_read_model(job, err) || job_list_tensors(job, err) ||
        job_lay_out(job, err))
        return err->status;
    return DCPK_OK;
}

dcpk_status dcpk_remap_job_new(struct dcpk_checkpoint *ckpt,
                               const struct dcpk_remap_job_options *options,
                               struct dcpk_remap_job **job, struct dcpk_error *err)
{
    struct dcpk_remap_job *made = dcpk_alloc(sizeof *made, err);
    dcpk_status st = err->status;

    if (made != NULL) {
        made->options = options;
        made->ckpt = ckpt;
        st = job_fill(made, err);
    }
    st = dcpk_ranks_agree(options->env.ranks, st, err);
    if (st == DCPK_OK)
        st = job_sum_files(made, err);
    if (st == DCPK_OK)
        *job = made;
    else
        dcpk_remap_job_free(made);
    return st;
}

dcpk_status dcpk_remap_job_run(struct dcpk_remap_job *job, struct dcpk_remap_result *result,
                               struct dcpk_error *err)
{
    const struct dcpk_remap_job_options *o = job->options;

    *result = (struct dcpk_remap_result){.n_ranks = o->n_ranks, .n_tensors = job->n};
    for (size_t i = 0; i < job->n; i++) {
        struct dcpk_box whole;

        dcpk_box_whole(job->views[i].view.shape, job->views[i].view.rank, &whole);
        result->tensor_bytes +=
            dcpk_slab_elems(&whole) * dcpk_dtype_bytes(job->views[i].view.dtype);
    }
    job->result = result;
    if (o->env.ranks == NULL)
        return dcpk_thread_ranks_run(o->n_ranks, dcpk_remap_rank_run, job, err);
    result->n_ranks = dcpk_ranks_count(o->env.ranks);
    return dcpk_remap_rank_run(o->env.ranks, job, err);
}

void dcpk_remap_job_free(struct dcpk_remap_job *job)
{
    if (job == NULL)
        return;
    dcpk_laid_out_release(&job->to);
    dcpk_laid_out_release(&job->from);
    dcpk_model_free(job->model);
    dcpk_arena_free(job->arena);
    dcpk_free(job);
}
