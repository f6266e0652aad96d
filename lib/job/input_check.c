/* SPDX-License-Identifier: Apache-2.0 */
/* input_check.c - checks a checkpoint's checksums, and Megatron's list of its files. */
#include "lib/job/input_check.h"

dcpk_status dcpk_check_input(struct dcpk_exec *exec, struct dcpk_input_check *check,
                             struct dcpk_error *err)
{
    struct dcpk_exec_stats stats = {0};
    bool has_integrity = false;
    size_t n_listed = 0;

    if (dcpk_exec_check_items(exec, &stats, err) ||
        dcpk_exec_find_integrity(exec, &has_integrity, err) ||
        (has_integrity && dcpk_exec_check_integrity(exec, &n_listed, NULL, err)))
        return err->status;
    *check = (struct dcpk_input_check){true, stats.checked_bytes, n_listed};
    return DCPK_OK;
}
