/* SPDX-License-Identifier: Apache-2.0 */
/* loss_compare.h - did two runs have the same losses? */
#ifndef DCPK_LIB_TRAIN_LOSS_COMPARE_H
#define DCPK_LIB_TRAIN_LOSS_COMPARE_H

#include "lib/train/step_log.h"

/*
 * Two numbers agree when |a - b| <= rtol |b| + r, r being the larger of what either was rounded by
 * when it was printed. Two exact ones with rtol 0: bit for bit. NaN agrees with NaN. Numbers that
 * one of the two lacks are not compared.
 */
struct dcpk_loss_options {
    double rtol;       /* of losses; 0: exact */
    double norm_rtol;  /* of norms of gradients; 0: exact */
    bool has_hashes;   /* state hashes, where both have them, must be equal: runs to the bit */
    bool allows_noise; /* losses may differ by 10 times their noise (noise.h) more; no norms then */
};

enum dcpk_loss_part { DCPK_GRAD_NORM, DCPK_LOSS, DCPK_SKIPPED, DCPK_STATE_HASH, DCPK_N_LOSS_PARTS };
extern const char *const dcpk_loss_part_names[DCPK_N_LOSS_PARTS]; /* "grad_norm", "loss", ... */

/* An iteration that both have. */
struct dcpk_loss_row {
    const struct dcpk_step *a, *b; /* of the logs */
    double gap, norm_gap;          /* |a - b| / |b|; 0 where equal or not compared */
    bool is_compared[DCPK_N_LOSS_PARTS];
    bool differs[DCPK_N_LOSS_PARTS];
};

struct dcpk_loss_report {
    struct dcpk_loss_row *rows; /* owned; by iteration */
    size_t n, n_different;      /* rows, and those of which a part differs */
    size_t n_only_a, n_only_b;  /* iterations */
    size_t n_compared[DCPK_N_LOSS_PARTS], n_differ[DCPK_N_LOSS_PARTS];
    double max_gap, max_norm_gap;
    bool is_equal;
};

/* Does a part of the row differ? */
bool dcpk_loss_row_differs(const struct dcpk_loss_row *row);

/* a, b: borrowed as long as the report. Errors: DCPK_EUSAGE where they share no iteration, or none
 * with a loss; DCPK_ENOMEM. */
dcpk_status dcpk_loss_compare(const struct dcpk_step_log *a, const struct dcpk_step_log *b,
                              const struct dcpk_loss_options *options,
                              struct dcpk_loss_report *report, struct dcpk_error *err);
void dcpk_loss_report_release(struct dcpk_loss_report *report); /* a zeroed one is a no-op */

#endif
