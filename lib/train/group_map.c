/* SPDX-License-Identifier: Apache-2.0 */
/* group_map.c - lists the parameters of all places of the mesh, and writes their groups. */
#include "lib/train/group_map.h"

#include <string.h>

#include "lib/job/output_job.h"
#include "lib/train/memory_checkpoint.h"

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
        .state = &nothing, .ranks = run->env->ranks, .space = run->space};
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
