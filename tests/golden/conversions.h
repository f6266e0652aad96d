/* SPDX-License-Identifier: Apache-2.0 */
/* conversions.h - run a conversion and open what it wrote, for tests that convert samples. */
#ifndef DCPK_TESTS_GOLDEN_CONVERSIONS_H
#define DCPK_TESTS_GOLDEN_CONVERSIONS_H

#include "formats/formats.h"
#include "kernels/kernels.h"
#include "lib/job/convert.h"
#include "tests/unit/scratch.h"

/* Plan and run it. */
static inline dcpk_status run_conversion(const struct dcpk_convert_options *options,
                                         struct dcpk_error *err)
{
    struct dcpk_conversion c = {0};
    dcpk_status st = dcpk_conversion_plan(&c, options, err);

    if (st == DCPK_OK)
        st = dcpk_conversion_run(&c, err);
    dcpk_conversion_free(&c);
    return st;
}

/* DCPK_SAMPLES/<name>, which may go on with the iteration folder; valid until the next call. */
static inline const char *sample_path(const char *name)
{
    static char path[4096];

    snprintf(path, sizeof path, "%s/%s", DCPK_SAMPLES, name);
    return path;
}

/* The checkpoint in a run or iteration folder; the caller closes it. */
static inline struct dcpk_checkpoint *open_at(const char *folder)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_run run = {0};
    struct dcpk_store *store = NULL;
    struct dcpk_checkpoint *ckpt = NULL;

    CHECK_OK(dcpk_run_find(folder, dcpk_formats, &run, &err), folder);
    CHECK_OK(dcpk_store_open(run.folder, &store, &err), folder);
    CHECK_OK(dcpk_checkpoint_open(store, dcpk_formats, NULL, &ckpt, &err), folder);
    dcpk_run_release(&run);
    return ckpt;
}

/* What a case asks of a conversion; zeroed: nothing but the format. */
struct wish {
    const char *to;
    const char *generation;
    enum dcpk_impl impl;
    unsigned flags;
    int64_t ep;
};

/* Convert the checkpoint in a folder as the case asks. */
static inline dcpk_status convert_as(const char *in, const char *out, const struct wish *wish,
                                     struct dcpk_error *err)
{
    struct dcpk_convert_options options = {
        .to = dcpk_format_find(wish->to),
        .in = in,
        .out = out,
        .env = {.formats = dcpk_formats, .kernels = dcpk_host_kernel_sets[0], .n_threads = 2},
        .rules = {.impl = wish->impl},
        .flags = wish->flags,
        .target = {.generation = wish->generation, .mesh = {.ep = wish->ep}},
    };

    return run_conversion(&options, err);
}

/* Is the checkpoint whole, and only its tracker could not be written? The message says so. */
static inline bool has_only_no_tracker(const struct dcpk_error *err)
{
    return strstr(err->text, "is in place, and then") != NULL;
}

/* The common state, which must be there, in `arena`. */
static inline const struct dcpk_value *load_common(struct dcpk_checkpoint *ckpt,
                                                   struct dcpk_arena *arena)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    const struct dcpk_value *common = NULL;

    CHECK_OK(dcpk_checkpoint_load_common(ckpt, arena, &common, &err), "common state");
    CHECK(common != NULL, "common state");
    return common;
}

#endif
