/* SPDX-License-Identifier: Apache-2.0 */
/* conversions.h - run a conversion and open what it wrote, for tests that convert samples. */
#ifndef DCPK_TESTS_GOLDEN_CONVERSIONS_H
#define DCPK_TESTS_GOLDEN_CONVERSIONS_H

#include "formats/formats.h"
#include "lib/exec/convert.h"
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

    CHECK_OK(dcpk_run_find(folder, &run, &err), folder);
    CHECK_OK(dcpk_store_open(run.folder, &store, &err), folder);
    CHECK_OK(dcpk_checkpoint_open(store, dcpk_formats, NULL, &ckpt, &err), folder);
    dcpk_run_release(&run);
    return ckpt;
}

#endif
