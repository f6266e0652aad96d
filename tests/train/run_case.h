/* SPDX-License-Identifier: Apache-2.0 */
/* run_case.h - a run of the training loop in a test: its flags, one process, the steps it logs. */
#ifndef DCPK_TESTS_TRAIN_RUN_CASE_H
#define DCPK_TESTS_TRAIN_RUN_CASE_H

#include <stdio.h>
#include <string.h>

#include "formats/formats.h"
#include "kernels/kernels.h"
#include "lib/knobs/knobs.h"
#include "lib/train/train.h"
#include "tests/check.h"

#define RUN_CASE_STEPS 64
#define RUN_CASE_WORDS 127

struct run_case {
    struct dcpk_step steps[RUN_CASE_STEPS];
    size_t n;
    int apart_ms;                           /* of the job */
    int gpu_major;                          /* that the device claims; 0: it is what it is */
    void (*between)(void);                  /* called behind the first step; NULL: nothing is */
    const struct dcpk_train_config *config; /* while it runs */
    struct dcpk_train_measured measured;    /* at the end; it is what its configuration says */
    struct dcpk_train_footprint megatron;   /* what Megatron would hold and send */
    uint64_t n_flag_bytes;                  /* that the loop keeps next to gradients */
};

static inline dcpk_status run_case_step(void *context, const struct dcpk_step *step,
                                        struct dcpk_error *err)
{
    struct run_case *run = context;

    if (run->n == RUN_CASE_STEPS)
        return dcpk_fail(err, DCPK_ERANGE, "more steps than a test keeps");
    run->steps[run->n++] = *step;
    if (run->n == 1 && run->between != NULL)
        run->between();
    return DCPK_OK;
}

/* A flag of each parameter, and a number. */
static inline uint64_t run_case_flag_bytes(const struct dcpk_train_config *config, int64_t rank)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_arena *arena = dcpk_arena_new();
    struct dcpk_group groups[DCPK_N_GROUPS];
    struct dcpk_train_params params;
    struct dcpk_train_mesh mesh;

    CHECK_OK(dcpk_train_mesh_plan(&config->layout, rank, groups, &mesh, &err), "mesh");
    CHECK_OK(dcpk_train_params(config, &mesh.at, arena, &params, &err), "parameters");
    dcpk_arena_free(arena);
    return params.n * sizeof(uint64_t) + sizeof(double);
}

static inline dcpk_status
run_case_measured(void *context, const struct dcpk_train_measured *measured, struct dcpk_error *err)
{
    struct run_case *run = context;

    run->measured = *measured;
    run->n_flag_bytes = run_case_flag_bytes(run->config, measured->rank);
    if (dcpk_train_measured_check(measured, err) != DCPK_OK)
        return err->status;
    return dcpk_train_footprint(run->config, measured->rank, DCPK_OF_MEGATRON, &run->megatron, err);
}

static inline void run_case_notes(void *context, const char *text, size_t n_bytes)
{
    (void)context;
    print_message("%.*s", (int)n_bytes, text);
}

/* Where a run is: NULL world: this process alone. */
struct run_place {
    struct dcpk_group *world;
    struct dcpk_ranks *ranks; /* of a run that saves or resumes */
};

/* words: a flag each, NULL-terminated, as `dcpkit train` takes them. */
static inline dcpk_status run_case_at(const struct run_place *place, const char *const *words,
                                      struct run_case *run, struct dcpk_error *failed)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_arena *arena = dcpk_arena_new();
    struct dcpk_group *alone = NULL;
    const struct dcpk_device_options first = {0};
    struct dcpk_env env = {.formats = dcpk_formats,
                           .open_file = dcpk_archive_opener,
                           .kernels = dcpk_host_kernel_sets[0],
                           .memory_bytes = (uint64_t)64 << 20,
                           .ranks = place->ranks};
    struct dcpk_train_knobs *knobs = dcpk_arena_alloc(arena, sizeof *knobs, &err);
    struct dcpk_train_environment environment = {.gpu_major = 10};
    struct dcpk_train_notices notices = {.n = 0};
    struct dcpk_train_job job = {.config = &knobs->config,
                                 .world = place->world,
                                 .env = &env,
                                 .apart_ms = run->apart_ms,
                                 .step = run_case_step,
                                 .notes = run_case_notes,
                                 .measured = run_case_measured,
                                 .context = run};
    char *argv[RUN_CASE_WORDS + 1] = {(char[]){"train"}};
    int argc = 1;
    dcpk_status st;

    for (; words[argc - 1] != NULL; argc++) {
        CHECK(argc < RUN_CASE_WORDS, "flags");
        argv[argc] = dcpk_arena_strdup(arena, words[argc - 1], &err);
    }
    run->n = 0;
    run->config = &knobs->config;
    CHECK_OK(dcpk_collectives_alone.world(NULL, 0, &alone, &err), "world");
    if (job.world == NULL)
        job.world = alone;
    environment.n_ranks = job.world->n_ranks;
    dcpk_train_knobs_init(knobs, arena);
    CHECK_OK(dcpk_train_knobs_take_args(knobs, &argc, argv, &err), "flags");
    CHECK_EQ_INT(argc, 1, argv[1] != NULL ? argv[1] : "flags");
    CHECK_OK(dcpk_train_knobs_check(knobs, &environment, &notices, &err), "configuration");
    CHECK_OK(dcpk_math_open(dcpk_math_ops[0], 0, &job.math, &err), "math");
    job.math->device->gpu_major = run->gpu_major;
    CHECK_OK(dcpk_devices[0]->open(&first, &job.host, &err), "host");
    st = dcpk_train_run(&job, &err);
    job.host->ops->close(job.host);
    dcpk_collectives_alone.free(alone);
    job.math->device->ops->close(job.math->device);
    dcpk_arena_free(arena);
    *failed = err;
    return st;
}

/* The same alone, which succeeds. */
static inline void run_case(const char *const *words, struct run_case *run)
{
    const struct run_place alone = {NULL, NULL};
    struct dcpk_error err = DCPK_ERROR_INIT;

    CHECK_OK(run_case_at(&alone, words, run, &err), "run");
}

/* The flags of two texts, cut at their blanks. */
static inline dcpk_status run_case_try(const struct run_place *place, const char *first,
                                       const char *more, struct run_case *run,
                                       struct dcpk_error *failed)
{
    const char *words[RUN_CASE_WORDS];
    char text[2048], *rest = text;
    size_t n = 0;

    CHECK((size_t)snprintf(text, sizeof text, "%s %s", first, more) < sizeof text, more);
    for (char *word; (word = strsep(&rest, " ")) != NULL;)
        if (*word != '\0') {
            CHECK(n + 1 < RUN_CASE_WORDS, more);
            words[n++] = word;
        }
    words[n] = NULL;
    return run_case_at(place, words, run, failed);
}

/* ranks: NULL: alone. */
static inline void run_case_flags(struct dcpk_group *ranks, const char *first, const char *more,
                                  struct run_case *run)
{
    const struct run_place place = {.world = ranks};
    struct dcpk_error err = DCPK_ERROR_INIT;

    CHECK_OK(run_case_try(&place, first, more, run, &err), more);
}

/* The steps of b are those of a from `first` on, to the bit. */
static inline void run_case_check_same(const struct run_case *a, const struct run_case *b,
                                       size_t first, const char *label)
{
    CHECK(a->n > first, label);
    CHECK_EQ_INT(b->n, a->n - first, label);
    for (size_t i = 0; i < b->n; i++) {
        const struct dcpk_step *want = &a->steps[first + i], *got = &b->steps[i];

        CHECK_EQ_INT(got->iteration, want->iteration, label);
        if (got->loss.value != want->loss.value || got->grad_norm.value != want->grad_norm.value ||
            got->state_hash != want->state_hash)
            fail_msg("%s, iteration %d: loss %a, norm %a, state %016llx; not %a, %a, %016llx",
                     label, (int)got->iteration, got->loss.value, got->grad_norm.value,
                     (unsigned long long)got->state_hash, want->loss.value, want->grad_norm.value,
                     (unsigned long long)want->state_hash);
        CHECK(got->lr.value == want->lr.value && got->loss_scale.value == want->loss_scale.value,
              label);
        CHECK_EQ_INT(got->is_skipped, want->is_skipped, label);
    }
}

#endif
