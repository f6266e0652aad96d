/* SPDX-License-Identifier: Apache-2.0 */
/* save.c - lists a run's shards, makes a checkpoint of them and converts it. */
#include "lib/train/save.h"

#include <string.h>

#include "lib/base/alloc.h"
#include "lib/base/order.h"
#include "lib/exec/pool.h"
#include "lib/job/convert.h"
#include "lib/job/output_job.h"
#include "lib/train/run_rng.h"

/* Shards of one row of the table: gate rows and others, each with three arrays. */
#define MAX_PIECES 6

/* A list under construction, which has room. */
struct listing {
    const struct dcpk_saved_run *run;
    unsigned flags;
    struct dcpk_arena *arena;
    struct dcpk_shard *list;
    size_t n;
};

/* A box of a parameter, row-major at *at; NULL: there is no such tensor. */
static dcpk_status list_add(struct listing *l, const struct dcpk_train_param *param,
                            const struct dcpk_box *box, enum dcpk_role role, const float *at,
                            struct dcpk_error *err)
{
    struct dcpk_shard *shard = &l->list[l->n];
    int64_t *numbers;

    if (at == NULL)
        return DCPK_OK;
    numbers = dcpk_arena_array(l->arena, 3 * (size_t)box->rank, sizeof *numbers, err);
    if (numbers == NULL)
        return err->status;
    dcpk_box_pack(box, numbers);
    dcpk_row_major_strides(sizeof *at, box->extent, box->rank, numbers + 2 * box->rank);
    *shard = (struct dcpk_shard){
        .name = dcpk_arena_printf(l->arena, err, "%s.%s", dcpk_role_name(role), param->canonical),
        .dtype = DCPK_F32,
        .rank = box->rank,
        .holder = dcpk_ranks_self(l->run->env->ranks),
        .shape = param->whole,
        .span = numbers,
        .stride_bytes = numbers + 2 * box->rank,
        .at = (uint64_t)(uintptr_t)at};
    l->n += shard->name != NULL;
    return err->status;
}

/* Rows [row, row + n_rows) of this rank's part, which follow each other in the model. */
static dcpk_status list_rows(struct listing *l, const struct dcpk_train_shard *shard, int64_t row,
                             int64_t n_rows, struct dcpk_error *err)
{
    const struct dcpk_train_param *param = &l->run->state->params->list[shard->param];
    const struct dcpk_train_config *config = l->run->state->config;
    const bool is_weight = config->precision.compute == DCPK_F32;
    const bool is_adam = config->optim.kind == DCPK_ADAM;
    const int64_t first = (row - shard->row) * param->shape[1];
    const struct dcpk_box box = {.rank = param->rank,
                                 .offset = {dcpk_train_param_row(param, row), param->offset[1]},
                                 .extent = {n_rows, param->shape[1]}};
    const float *second = shard->exp_avg_sq;
    dcpk_status st =
        list_add(l, param, &box, is_weight ? DCPK_WEIGHT : DCPK_MASTER, shard->main + first, err);

    if (st != DCPK_OK || (l->flags & DCPK_LIST_NO_STATE) != 0)
        return st;
    if (second != NULL)
        second += first;
    if (list_add(l, param, &box, is_adam ? DCPK_EXP_AVG : DCPK_STATE, shard->exp_avg + first,
                 err) ||
        list_add(l, param, &box, DCPK_EXP_AVG_SQ, second, err))
        return err->status;
    return DCPK_OK;
}

/* In fc1 gate rows end in the middle of the part. */
static dcpk_status list_shard(struct listing *l, const struct dcpk_train_shard *shard,
                              struct dcpk_error *err)
{
    const struct dcpk_train_param *param = &l->run->state->params->list[shard->param];
    const int64_t end = shard->row + shard->n_rows;
    int64_t middle = end;

    if ((l->flags & DCPK_LIST_OWN) != 0 && !shard->is_counted)
        return DCPK_OK;
    if (param->has_halves)
        middle = dcpk_min_i64(end, dcpk_max_i64(shard->row, param->shape[0] / 2));
    if (middle > shard->row && list_rows(l, shard, shard->row, middle - shard->row, err))
        return err->status;
    if (end > middle && list_rows(l, shard, middle, end - middle, err))
        return err->status;
    return DCPK_OK;
}

static dcpk_status list_buffer(struct listing *l, size_t p, struct dcpk_error *err)
{
    const struct dcpk_train_param *param = &l->run->state->params->list[p];
    struct dcpk_box box;

    dcpk_box_whole(param->whole, param->rank, &box);
    return list_add(l, param, &box, DCPK_WEIGHT, l->run->state->buffers[p], err);
}

dcpk_status dcpk_train_list(const struct dcpk_saved_run *run, unsigned flags,
                            struct dcpk_arena *arena, struct dcpk_shard **list, size_t *n,
                            struct dcpk_error *err)
{
    struct listing l = {.run = run, .flags = flags, .arena = arena};

    l.list = dcpk_arena_array(arena, run->state->shards->n * MAX_PIECES + run->state->params->n,
                              sizeof *l.list, err);
    if (l.list == NULL)
        return err->status;
    for (size_t i = 0; i < run->state->shards->n; i++)
        if (list_shard(&l, &run->state->shards->list[i], err))
            return err->status;
    for (size_t p = 0; run->state->buffers != NULL && p < run->state->params->n; p++)
        if (run->state->params->list[p].is_buffer && list_buffer(&l, p, err))
            return err->status;
    *list = l.list;
    *n = l.n;
    return DCPK_OK;
}

/* ---- state besides tensors ---- */

static dcpk_status save_state(const struct dcpk_saved_run *run, struct dcpk_arena *arena,
                              struct dcpk_memory_state *kept, struct dcpk_error *err)
{
    const struct dcpk_value **groups =
        dcpk_arena_array(arena, DCPK_TRAIN_GROUPS, sizeof *groups, err);
    struct dcpk_rng *rng = NULL;

    if (groups == NULL ||
        dcpk_train_rng(run->state->config, arena, &rng, &kept->n_rng, err) != DCPK_OK)
        return err->status;
    kept->rng = rng;
    kept->iteration = run->progress->iteration;
    kept->is_fp32 = run->state->config->precision.compute == DCPK_F32;
    kept->args = dcpk_train_args_make(run->state->config, run->progress, arena, err);
    kept->scheduler = dcpk_schedule_state(run->schedule, arena, err);
    kept->n_groups =
        dcpk_train_groups(run->state->config, run->schedule, run->progress, arena, groups, err);
    kept->step = dcpk_value_float(arena, (double)run->progress->adam_steps, err);
    kept->flops = dcpk_value_float(arena, run->progress->flops, err);
    if (run->state->config->precision.compute == DCPK_F16)
        kept->scaler = dcpk_train_scaler(run->loss_scale, arena, err);
    kept->groups = groups;
    return err->status;
}

/* ---- the target ---- */

static dcpk_status find_format(const struct dcpk_saved_run *run, const struct dcpk_format **format,
                               struct dcpk_error *err)
{
    const char *name = run->state->config->files.ckpt_format;

    for (const struct dcpk_format *const *f = run->env->formats; *f != NULL; f++)
        if (strcmp((*f)->name, name) == 0 && dcpk_format_is_target(*f)) {
            *format = *f;
            return DCPK_OK;
        }
    return dcpk_fail(err, DCPK_EUNSUPPORTED, "no checkpoint is written in the format '%s'", name);
}

/* The ranks that cut the output: those of this run. A target without pipeline stages of its own
 * (fsdp_dtensor) can only be cut as a run of one stage is. */
static void save_mesh(const struct dcpk_train_config *config, struct dcpk_target *target)
{
    const struct dcpk_grid *l = &config->layout;
    const int64_t n_dp = l->dp * l->cp;

    target->generation = config->files.generation;
    if (config->files.optimizer_layout == DCPK_DP_RESHARDABLE)
        target->optimizer_layout = "dp_reshardable";
    if (config->fsdp.mode != DCPK_MODE_MEGATRON_FSDP) {
        target->mesh = (struct dcpk_grid){.tp = l->tp,
                                          .pp = l->pp,
                                          .dp = l->dp,
                                          .ep = l->ep,
                                          .cp = l->cp,
                                          .etp = 1,
                                          .world = n_dp * l->tp * l->pp};
        return;
    }
    if (l->pp > 1 || config->fsdp.strategy == DCPK_NO_SHARD)
        return;
    target->mesh = (struct dcpk_grid){.tp = l->tp, .ep = l->ep, .dp = n_dp, .world = n_dp * l->tp};
    if (!config->fsdp.is_outer_sharded)
        target->mesh.instances = l->instances;
    target->bucket_elems = dcpk_max_i64(config->fsdp.bucket_elems, 0);
}

/* ---- a save ---- */

/* From the copy of the shards to the tracker. */
struct dcpk_saving {
    struct dcpk_saved_run run;
    struct dcpk_env env; /* of the conversion: with the run's ranks, or rank 0 alone */
    int64_t iteration;
    const struct dcpk_format *format;
    struct dcpk_arena *arena;
    struct dcpk_memory_state kept;
    struct dcpk_memory_checkpoint *memory;
    struct dcpk_background *background; /* rank 0's, of a asynchronous save */
};

static dcpk_status saving_list(struct dcpk_saving *s, struct dcpk_shard **list, size_t *n,
                               struct dcpk_error *err)
{
    s->arena = dcpk_arena_new();
    if (find_format(&s->run, &s->format, err) || save_state(&s->run, s->arena, &s->kept, err) ||
        dcpk_train_list(&s->run, DCPK_LIST_OWN, s->arena, list, n, err))
        return err->status;
    return DCPK_OK;
}

static struct dcpk_memory_run saving_memory(const struct dcpk_saved_run *run)
{
    return (struct dcpk_memory_run){.ranks = run->env->ranks,
                                    .host = run->host,
                                    .math = run->state->math,
                                    .n_threads = run->env->n_threads,
                                    .reserve = run->reserve};
}

/* Collective: all that needs the run as it is. */
static dcpk_status saving_open(const struct dcpk_saved_run *run, struct dcpk_saving *s,
                               struct dcpk_error *err)
{
    struct dcpk_shard *list = NULL;
    struct dcpk_memory_run memory_run = saving_memory(run);
    dcpk_status st;

    memory_run.state = &s->kept;
    s->run = *run;
    s->env = *run->env;
    s->iteration = run->progress->iteration;
    st = dcpk_ranks_agree(run->env->ranks, saving_list(s, &list, &memory_run.n_shards, err), err);
    memory_run.shards = list;
    if (st == DCPK_OK)
        st = dcpk_memory_open(&memory_run, &s->memory, err);
    return st;
}

/* Collective over s->env.ranks. */
static dcpk_status saving_convert(struct dcpk_saving *s, struct dcpk_error *err)
{
    const struct dcpk_train_config *config = s->run.state->config;
    struct dcpk_convert_options options = {.env = s->env,
                                           .to = s->format,
                                           .flags = DCPK_CONVERT_ONCE,
                                           .opened = dcpk_memory_checkpoint(s->memory),
                                           .rules = {.impl = config->model.impl},
                                           .folder_flags = DCPK_FOLDER_REPLACE,
                                           .out = config->files.save,
                                           .tracker = DCPK_TRACKER_SET};
    struct dcpk_conversion c = {0};
    dcpk_status st;

    if (config->files.no_save_optim)
        options.flags |= DCPK_CONVERT_WEIGHTS_ONLY;
    save_mesh(config, &options.target);
    st = dcpk_conversion_plan(&c, &options, err);
    st = dcpk_ranks_agree(s->env.ranks, st, err);
    if (st == DCPK_OK)
        st = dcpk_conversion_run(&c, err);
    dcpk_conversion_free(&c);
    return st;
}

/* Frees what it holds; the context of a failure is the save. */
static dcpk_status saving_close(struct dcpk_saving *s, dcpk_status st, struct dcpk_error *err)
{
    dcpk_memory_close(s->memory);
    dcpk_arena_free(s->arena);
    if (st != DCPK_OK)
        dcpk_context(err, "saving iteration %lld", (long long)s->iteration);
    return st;
}

dcpk_status dcpk_train_save(const struct dcpk_saved_run *run, struct dcpk_error *err)
{
    struct dcpk_saving s = {.memory = NULL};
    dcpk_status st = saving_open(run, &s, err);

    if (st == DCPK_OK)
        st = saving_convert(&s, err);
    return saving_close(&s, st, err);
}

/* ---- asynchronously ---- */

dcpk_status dcpk_saving_reserve(const struct dcpk_saved_run *run, struct dcpk_reserve **reserve,
                                struct dcpk_error *err)
{
    const struct dcpk_memory_run memory_run = saving_memory(run);
    struct dcpk_arena *arena = dcpk_arena_new();
    struct dcpk_shard *list;
    size_t n;
    dcpk_status st = dcpk_train_list(run, DCPK_LIST_OWN, arena, &list, &n, err);

    if (st == DCPK_OK)
        st = dcpk_memory_reserve(&memory_run, dcpk_memory_bytes(list, n), true, reserve, err);
    dcpk_arena_free(arena);
    return dcpk_ranks_agree(run->env->ranks, st, err);
}

static dcpk_status saving_task(void *context, struct dcpk_error *err)
{
    return saving_convert(context, err);
}

/* Rank 0 has mapped the memory of all: it needs no other rank to write. */
static dcpk_status saving_leave(struct dcpk_saving *s, struct dcpk_error *err)
{
    s->env.ranks = NULL;
    s->env.n_threads = 1;
    s->env.progress = (struct dcpk_progress){0};
    if (dcpk_ranks_self(s->run.env->ranks) > 0)
        return DCPK_OK;
    return dcpk_background_start(saving_task, s, &s->background, err);
}

dcpk_status dcpk_saving_start(const struct dcpk_saved_run *run, struct dcpk_saving **saving,
                              struct dcpk_error *err)
{
    struct dcpk_saving *s = dcpk_alloc(sizeof *s, err);
    dcpk_status st = dcpk_ranks_agree(run->env->ranks, err->status, err);

    if (st != DCPK_OK) {
        dcpk_free(s);
        return st;
    }
    st = saving_open(run, s, err);
    if (st == DCPK_OK)
        st = dcpk_ranks_agree(run->env->ranks, saving_leave(s, err), err);
    if (st == DCPK_OK) {
        *saving = s;
        return DCPK_OK;
    }
    saving_close(s, st, err);
    dcpk_free(s);
    return st;
}

dcpk_status dcpk_saving_finish(struct dcpk_saving *saving, struct dcpk_error *err)
{
    dcpk_status st;

    if (saving == NULL)
        return DCPK_OK;
    st = dcpk_background_finish(saving->background, err);
    st = dcpk_ranks_agree(saving->run.env->ranks, st, err);
    st = saving_close(saving, st, err);
    dcpk_free(saving);
    return st;
}

void dcpk_saving_abandon(struct dcpk_saving *saving)
{
    struct dcpk_error ignored = DCPK_ERROR_INIT;

    if (saving == NULL)
        return;
    (void)saving_close(saving, dcpk_background_finish(saving->background, &ignored), &ignored);
    dcpk_free(saving);
}

/* ---- the map of parameter groups ---- */

#define CONTAINER "dcp"

/* A dump under way. */
struct dumping {
    const struct dcpk_saved_run *run;
    struct dcpk_output *out;
    struct dcpk_run target;
    struct dcpk_map done; /* keys */
    uint32_t payloads[DCPK_TRAIN_GROUPS];
};

static int group_of(const struct dcpk_train_config *config, const struct dcpk_train_param *param)
{
    if (param->expert >= 0 && config->layout.ep > 1)
        return DCPK_GROUP_EXPERT;
    return param->is_decayed ? DCPK_GROUP_DECAYED : DCPK_GROUP_PLAIN;
}

/* Stages and experts have parameters in common: each is listed once. */
static dcpk_status dump_param(struct dumping *d, const struct dcpk_train_param *param,
                              struct dcpk_error *err)
{
    const struct dcpk_train_config *config = d->run->state->config;
    const char *wrappers = "module.module.", *key;
    uint64_t found;
    bool existed;

    if (config->precision.compute == DCPK_F32)
        wrappers = "module.";
    key = dcpk_arena_printf(d->out->arena, err, "%s%s", wrappers, param->live);
    if (key == NULL || dcpk_map_put(&d->done, key, strlen(key), 0, &existed, &found, err))
        return err->status;
    if (existed)
        return DCPK_OK;
    return dcpk_output_add_object(d->out, key, d->payloads[group_of(config, param)], err);
}

static dcpk_status dump_place(struct dumping *d, const struct dcpk_coords *place,
                              struct dcpk_error *err)
{
    struct dcpk_train_params params;

    if (dcpk_train_params(d->run->state->config, place, d->out->arena, &params, err) != DCPK_OK)
        return err->status;
    for (size_t p = 0; p < params.n; p++)
        if (!params.list[p].is_buffer && dump_param(d, &params.list[p], err) != DCPK_OK)
            return err->status;
    return DCPK_OK;
}

static dcpk_status dump_places(struct dumping *d, struct dcpk_error *err)
{
    const struct dcpk_grid *l = &d->run->state->config->layout;
    struct dcpk_coords place = {0};

    for (int64_t g = 0; g < DCPK_TRAIN_GROUPS; g++) {
        const struct dcpk_value *number = dcpk_value_int(d->out->arena, g, err);

        if (number == NULL ||
            dcpk_output_add_payload(d->out, number, NULL, &d->payloads[g], err) != DCPK_OK)
            return err->status;
    }
    for (place.pp = 0; place.pp < l->pp; place.pp++)
        for (place.ep = 0; place.ep < l->ep; place.ep++)
            if (dump_place(d, &place, err) != DCPK_OK)
                return err->status;
    return DCPK_OK;
}

static dcpk_status dump_plan(struct dumping *d, struct dcpk_checkpoint *source,
                             struct dcpk_error *err)
{
    const struct dcpk_target_options wish = {.source = &d->target,
                                             .out = d->run->state->config->files.map_folder,
                                             .is_model = true,
                                             .iteration = DCPK_ITERATION_UNKNOWN,
                                             .flags = DCPK_FOLDER_REPLACE,
                                             .formats = d->run->env->formats};
    const struct dcpk_format *const *f = d->run->env->formats;

    while (*f != NULL && strcmp((*f)->name, CONTAINER) != 0)
        f++;
    if (*f == NULL)
        return dcpk_fail(err, DCPK_EUNSUPPORTED, "the format " CONTAINER " is not built in");
    if (dcpk_output_new(source, *f, &d->out, err) || dump_places(d, err) ||
        dcpk_target_find(&wish, &d->target, err))
        return err->status;
    return dcpk_plan_build(d->out, err);
}

static const struct dcpk_output_step dump_steps[] = {{dcpk_output_job_begin_folder, false},
                                                     {dcpk_output_job_unmark_folder, false},
                                                     {dcpk_output_job_begin_exec, false},
                                                     {dcpk_output_job_begin_writing, false},
                                                     {dcpk_output_job_resume, false},
                                                     {dcpk_output_job_write, false},
                                                     {dcpk_output_job_finish, false},
                                                     {dcpk_output_job_publish, false},
                                                     {NULL, false}};

/* Collective. */
static dcpk_status dump_write(struct dumping *d, struct dcpk_checkpoint *source,
                              struct dcpk_error *err)
{
    struct dcpk_output_job making = {.env = d->run->env,
                                     .ckpt = source,
                                     .target = &d->target,
                                     .folder_flags = DCPK_FOLDER_REPLACE,
                                     .label = "writing groups",
                                     .context = d};
    dcpk_status st = dump_plan(d, source, err);

    st = dcpk_ranks_agree(d->run->env->ranks, st, err);
    making.out = d->out;
    if (st == DCPK_OK)
        st = dcpk_output_job_run(&making, dump_steps, err);
    return st;
}

dcpk_status dcpk_train_dump_groups(const struct dcpk_saved_run *run, struct dcpk_error *err)
{
    const struct dcpk_memory_state nothing = {0};
    const struct dcpk_memory_run memory_run = {
        .state = &nothing, .ranks = run->env->ranks, .host = run->host};
    struct dcpk_memory_checkpoint *memory = NULL;
    struct dumping d = {.run = run};
    dcpk_status st = dcpk_memory_open(&memory_run, &memory, err);

    if (st == DCPK_OK)
        st = dump_write(&d, dcpk_memory_checkpoint(memory), err);
    dcpk_map_release(&d.done);
    dcpk_output_free(d.out);
    dcpk_run_release(&d.target);
    dcpk_memory_close(memory);
    if (st != DCPK_OK)
        dcpk_context(err, "dumping parameter groups");
    return st;
}
