/* SPDX-License-Identifier: Apache-2.0 */
/* out_folder.h - an output folder "out" in the scratch folder, begun and filled. */
#ifndef DCPK_TESTS_UNIT_OUT_FOLDER_H
#define DCPK_TESTS_UNIT_OUT_FOLDER_H

#include "lib/io/sink.h"
#include "tests/check.h"
#include "tests/unit/scratch.h"

static inline struct dcpk_folder *begin(unsigned flags, const char *label)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_folder *folder = NULL;

    CHECK_OK(dcpk_folder_begin(scratch("out"), flags, &folder, &err), label);
    return folder;
}

static inline void put(struct dcpk_folder *folder, const char *name, const char *text)
{
    struct dcpk_error err = DCPK_ERROR_INIT;

    CHECK_OK(dcpk_folder_put(folder, name, text, strlen(text), &err), name);
}

#endif
