/* SPDX-License-Identifier: Apache-2.0 */
/* loss_compare.h - compares the losses of two runs. */
#ifndef DCPK_LIB_JOB_LOSS_COMPARE_H
#define DCPK_LIB_JOB_LOSS_COMPARE_H

#include "lib/job/step_log.h"

/*
 * Two numbers agree when |a - b| <= rtol |b| + r, r being the larger of what either was rounded by
 * when it was printed. Two exact ones with rtol 0: bit for bit. Numbers that one of the two lacks
 * are not compared, nor is a loss that was printed with fewer than 4 digits.
 *
 * Losses or norms that are not finite in both prove nothing: they differ, unless the caller takes
 * them. Noise above a hundredth of the loss is divergence: it allows nothing.
 */
struct dcpk_loss_options {
    double rtol;          /* of losses and learning rates; 0: exact */
    double norm_rtol;     /* of norms of gradients; 0: exact */
    bool has_hashes;      /* state hashes, where both have them, must be equal: runs to the bit */
    bool allows_noise;    /* losses may differ by 10 times their noise more; no norms */
    bool takes_nonfinite; /* equal bits agree, whatever they are */
    bool asks_all;        /* a log that ends before the other one is not equal to it */
};

enum dcpk_loss_part {
    DCPK_CONSUMED_SAMPLES,
    DCPK_GRAD_NORM,
    DCPK_LOSS,
    DCPK_LOSS_SCALE,
    DCPK_LR,
    DCPK_SKIPPED,
    DCPK_STATE_HASH,
    DCPK_N_LOSS_PARTS,
};
extern const char *const dcpk_loss_part_names[DCPK_N_LOSS_PARTS]; /* "consumed_samples", ... */

/* An iteration that both have. */
struct dcpk_loss_row {
    const struct dcpk_step *a, *b; /* of the logs */
    double gap[DCPK_N_LOSS_PARTS]; /* of numbers: |a - b| / |b|; 0 where equal or not compared */
    bool is_compared[DCPK_N_LOSS_PARTS];
    bool differs[DCPK_N_LOSS_PARTS];
    bool is_nonfinite; /* the loss or the norm of both */
    bool is_coarse;    /* a loss of too few digits */
    bool is_loud;      /* noise that is not allowed for */
};

/* Iterations that one log lacks and the other has, by where they are: before the first one that
 * both have, up to the last one, after it. */
struct dcpk_loss_lack {
    size_t n_before, n_between, n_after;
    int64_t first; /* not before; where n_between or n_after is not 0 */
};

struct dcpk_loss_report {
    struct dcpk_loss_row *rows; /* owned; by iteration */
    size_t n, n_different;      /* rows, and those of which a part differs */
    struct dcpk_loss_lack a_lacks, b_lacks;
    size_t n_missing; /* things that they lack: the reason why they are not equal */
    size_t n_nonfinite, n_coarse, n_loud; /* rows */
    size_t n_compared[DCPK_N_LOSS_PARTS], n_differ[DCPK_N_LOSS_PARTS];
    double max_gap[DCPK_N_LOSS_PARTS];
    bool is_rounded; /* a number that was compared was printed with fewer digits than it had */
    bool is_equal;   /* no row differs, and nothing is missing */
};

/* True if a part of the row differs. */
bool dcpk_loss_row_differs(const struct dcpk_loss_row *row);

/* a, b: borrowed as long as the report. Errors: DCPK_EUSAGE where they share no iteration, or none
 * with a loss; DCPK_ENOMEM. */
dcpk_status dcpk_loss_compare(const struct dcpk_step_log *a, const struct dcpk_step_log *b,
                              const struct dcpk_loss_options *options,
                              struct dcpk_loss_report *report, struct dcpk_error *err);
void dcpk_loss_report_release(struct dcpk_loss_report *report); /* a zeroed one is a no-op */

#endif
