/* SPDX-License-Identifier: Apache-2.0 */
/* fake_ranks.c - one rank of a run without training that saves, or resumes and looks at every
 * number. Started by mpirun, or alone. */
/*
 *   fake_ranks save FOLDER FORMAT LAYOUT [GENERATION]
 *   fake_ranks resume FOLDER LAYOUT [STRICTNESS|finetune|no_load_optim]
 *   fake_ranks copy FOLDER LAYOUT FORMAT OUT     resumes, and saves what it has
 *   fake_ranks groups FOLDER LAYOUT
 *
 * FAKE_SAMPLES: how many samples a saved run claims to have consumed.
 * Exit: 0 done and right, 1 wrong numbers, else that of the error, whose text is printed by rank 0.
 */
#include "tests/train/fake_run.h"

static dcpk_status run_save(struct fake_run *run, struct dcpk_error *err)
{
    const char *samples = getenv("FAKE_SAMPLES");

    (void)fake_numbers(run, true);
    run->progress = (struct dcpk_train_progress){.iteration = FAKE_ITERATION,
                                                 .consumed_samples = FAKE_ITERATION * 8,
                                                 .adam_steps = FAKE_ITERATION - 1};
    if (samples != NULL)
        run->progress.consumed_samples = strtoll(samples, NULL, 10);
    run->progress.flops = FAKE_FLOPS;
    run->loss_scale = (struct dcpk_loss_scale){65536, 7, 1};
    dcpk_schedule_step(&run->schedule, (FAKE_ITERATION - 1) * 8);
    return dcpk_train_save(&run->saved, err);
}

static dcpk_status run_resume(struct fake_run *run, size_t *n_wrong, struct dcpk_error *err)
{
    const struct dcpk_train_files *files = &run->config.files;
    struct dcpk_bytes notes = {0};
    dcpk_status st = dcpk_train_resume(&run->saved, &notes, err);

    if (st == DCPK_OK && notes.n_bytes > 0 && dcpk_ranks_self(run->env.ranks) == 0)
        printf("%.*s", (int)notes.n_bytes, (const char *)notes.data);
    dcpk_bytes_release(&notes);
    if (st != DCPK_OK)
        return st;
    *n_wrong = fake_numbers(run, false);
    if (files->is_finetune)
        *n_wrong += run->progress.iteration != 0 || run->schedule.num_steps != 0;
    else
        *n_wrong += run->progress.iteration != FAKE_ITERATION ||
                    run->progress.consumed_samples != FAKE_ITERATION * 8 ||
                    run->progress.flops != FAKE_FLOPS;
    if (!files->is_finetune && !files->no_load_optim)
        *n_wrong += run->progress.adam_steps != FAKE_ITERATION - 1 ||
                    run->schedule.num_steps != (FAKE_ITERATION - 1) * 8;
    if (run->config.precision.compute == DCPK_F16)
        *n_wrong += run->loss_scale.scale != 65536 || run->loss_scale.n_good != 7 ||
                    run->loss_scale.n_left != 1;
    return DCPK_OK;
}

/* What a checkpoint holds, through the memory of a run into another one. */
static dcpk_status run_copy(struct fake_run *run, struct dcpk_error *err)
{
    struct dcpk_bytes notes = {0};
    dcpk_status st = dcpk_train_resume(&run->saved, &notes, err);

    dcpk_bytes_release(&notes);
    if (st == DCPK_OK)
        st = dcpk_train_save(&run->saved, err);
    return st;
}

/* Moments are not asked for: what they are is not looked at. */
static void forget_moments(struct fake_run *run)
{
    const struct dcpk_train_files *files = &run->config.files;

    for (size_t i = 0; (files->no_load_optim || files->is_finetune) && i < run->shards.n; i++)
        run->shards.list[i].exp_avg = run->shards.list[i].exp_avg_sq = NULL;
}

static void take_options(struct dcpk_train_config *config, int argc, char **argv)
{
    struct dcpk_train_files *files = &config->files;
    const char *more = argc > 4 ? argv[4] : NULL;

    files->save = files->load = files->map_folder = argv[2];
    if (strcmp(argv[1], "copy") == 0 && argc > 5) {
        files->ckpt_format = argv[4];
        files->save = argv[5];
        config->optim.uses_saved_schedule = true;
    } else if (strcmp(argv[1], "save") == 0) {
        files->ckpt_format = argv[3];
        files->generation = argc > 5 ? argv[5] : NULL;
    } else if (more != NULL && strcmp(more, "finetune") == 0) {
        files->is_finetune = true;
    } else if (more != NULL && strcmp(more, "no_load_optim") == 0) {
        files->no_load_optim = true;
    } else {
        files->strictness = more;
    }
}

int main(int argc, char **argv)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_ranks *ranks = NULL;
    struct fake_run run = {.arena = NULL};
    size_t n_wrong = 0;
    dcpk_status st;

    if (argc < 4)
        return 2;
    fake_config(&run.config);
    fake_parse(&run.config, argv[strcmp(argv[1], "save") == 0 ? 4 : 3]);
    take_options(&run.config, argc, argv);
    st = dcpk_ranks_join(dcpk_transports, &ranks, &err);
    if (st == DCPK_OK)
        st = fake_begin(&run, ranks, &err);
    if (st == DCPK_OK) {
        forget_moments(&run);
        if (strcmp(argv[1], "save") == 0)
            st = run_save(&run, &err);
        else if (strcmp(argv[1], "copy") == 0)
            st = run_copy(&run, &err);
        else if (strcmp(argv[1], "groups") == 0)
            st = dcpk_train_dump_groups(&run.saved, &err);
        else
            st = run_resume(&run, &n_wrong, &err);
    }
    if (st != DCPK_OK && dcpk_ranks_self(ranks) == 0)
        fprintf(stderr, "%s\n", err.text);
    if (n_wrong > 0)
        fprintf(stderr, "rank %d: %zu numbers are wrong\n", dcpk_ranks_self(ranks), n_wrong);
    fake_end(&run);
    dcpk_error_clear(&err);
    if (dcpk_ranks_leave(ranks, &err) != DCPK_OK)
        return 4;
    return st != DCPK_OK ? 2 + (int)st : n_wrong > 0;
}
