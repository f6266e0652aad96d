/* SPDX-License-Identifier: Apache-2.0 */
/* loss_compare.c - the iterations that two logs share, number by number. */
#include "lib/job/loss_compare.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "lib/base/alloc.h"
#include "lib/base/order.h"

/* Noise is one sample of what rounding does: two programs may be several of it apart. */
#define NOISE_MULTIPLE 10
#define MAX_NOISE      1e-2 /* of a loss; a run with more has diverged */
#define MAX_ROUNDED    5e-4 /* of a loss: four digits, "1.000" */

const char *const dcpk_loss_part_names[DCPK_N_LOSS_PARTS] = {
    [DCPK_CONSUMED_SAMPLES] = "consumed_samples",
    [DCPK_GRAD_NORM] = "grad_norm",
    [DCPK_LOSS] = "loss",
    [DCPK_LOSS_SCALE] = "loss_scale",
    [DCPK_LR] = "lr",
    [DCPK_SKIPPED] = "skipped",
    [DCPK_STATE_HASH] = "state_hash",
};

static bool same_bits(double a, double b)
{
    return memcmp(&a, &b, sizeof a) == 0 || (isnan(a) && isnan(b));
}

static double gap_of(double a, double b)
{
    if (same_bits(a, b) || a == b)
        return 0;
    return fabs(a - b) / fabs(b);
}

/* The most that two numbers may differ by: a share of b, what printing rounded, and `more`. */
struct allowance {
    double rtol, more;
    bool takes_nonfinite;
};

static bool numbers_agree(const struct dcpk_logged *a, const struct dcpk_logged *b,
                          const struct allowance *allowed)
{
    const double slack = fmax(a->rounded, b->rounded) + allowed->more;

    if (!isfinite(a->value) || !isfinite(b->value)) /* any share of infinity is infinite */
        return allowed->takes_nonfinite && same_bits(a->value, b->value);
    if (same_bits(a->value, b->value))
        return true;
    if (allowed->rtol <= 0 && slack <= 0)
        return false;
    return fabs(a->value - b->value) <= allowed->rtol * fabs(b->value) + slack;
}

/* ---- a row ---- */

static bool loss_is_coarse(const struct dcpk_logged *a, const struct dcpk_logged *b)
{
    const double size = fmax(fabs(a->value), fabs(b->value));

    return size > 0 && fmax(a->rounded, b->rounded) > MAX_ROUNDED * size;
}

/* The larger noise of two steps; 0 where none was measured. Sets row->is_loud. */
static double row_noise(struct dcpk_loss_row *row)
{
    const double size = fmin(fabs(row->a->loss.value), fabs(row->b->loss.value));
    const double noise = fmax(row->a->loss_noise.value, row->b->loss_noise.value);

    row->is_loud = !(noise <= MAX_NOISE * size);
    return row->is_loud ? 0 : noise;
}

static void row_compare_number(struct dcpk_loss_row *row, enum dcpk_loss_part part,
                               const struct dcpk_logged *numbers[2],
                               const struct allowance *allowed)
{
    const struct dcpk_logged *a = numbers[0], *b = numbers[1];

    row->is_compared[part] = a->is_there && b->is_there;
    if (!row->is_compared[part])
        return;
    row->differs[part] = !numbers_agree(a, b, allowed);
    row->gap[part] = gap_of(a->value, b->value);
}

static void row_compare_loss(struct dcpk_loss_row *row, const struct dcpk_loss_options *options)
{
    struct allowance allowed = {.rtol = options->rtol, .takes_nonfinite = options->takes_nonfinite};
    const struct dcpk_logged *a = &row->a->loss, *b = &row->b->loss;

    if (a->is_there && b->is_there && loss_is_coarse(a, b)) {
        row->is_coarse = true;
        return;
    }
    if (options->allows_noise)
        allowed.more = NOISE_MULTIPLE * row_noise(row);
    row_compare_number(row, DCPK_LOSS, (const struct dcpk_logged *[]){a, b}, &allowed);
}

static void row_compare(struct dcpk_loss_row *row, const struct dcpk_loss_options *options)
{
    const struct dcpk_step *a = row->a, *b = row->b;
    const struct allowance norm = {.rtol = options->norm_rtol,
                                   .takes_nonfinite = options->takes_nonfinite};
    const struct allowance lr = {.rtol = options->rtol}, scale = {.rtol = 0};

    row_compare_loss(row, options);
    if (!options->allows_noise)
        row_compare_number(row, DCPK_GRAD_NORM,
                           (const struct dcpk_logged *[]){&a->grad_norm, &b->grad_norm}, &norm);
    row_compare_number(row, DCPK_LR, (const struct dcpk_logged *[]){&a->lr, &b->lr}, &lr);
    row_compare_number(row, DCPK_LOSS_SCALE,
                       (const struct dcpk_logged *[]){&a->loss_scale, &b->loss_scale}, &scale);
    row->is_nonfinite =
        (row->is_compared[DCPK_LOSS] && !isfinite(a->loss.value) && !isfinite(b->loss.value)) ||
        (row->is_compared[DCPK_GRAD_NORM] && !isfinite(a->grad_norm.value) &&
         !isfinite(b->grad_norm.value));
    row->is_compared[DCPK_CONSUMED_SAMPLES] = a->consumed_samples != 0 && b->consumed_samples != 0;
    row->differs[DCPK_CONSUMED_SAMPLES] =
        row->is_compared[DCPK_CONSUMED_SAMPLES] && a->consumed_samples != b->consumed_samples;
    row->is_compared[DCPK_SKIPPED] = true;
    row->differs[DCPK_SKIPPED] = a->is_skipped != b->is_skipped;
    row->is_compared[DCPK_STATE_HASH] = options->has_hashes && a->has_hash && b->has_hash;
    row->differs[DCPK_STATE_HASH] =
        row->is_compared[DCPK_STATE_HASH] && a->state_hash != b->state_hash;
}

bool dcpk_loss_row_differs(const struct dcpk_loss_row *row)
{
    for (int p = 0; p < DCPK_N_LOSS_PARTS; p++)
        if (row->differs[p])
            return true;
    return false;
}

static bool row_is_rounded(const struct dcpk_loss_row *row)
{
    return (row->is_compared[DCPK_LOSS] && row->a->loss.rounded + row->b->loss.rounded > 0) ||
           (row->is_compared[DCPK_GRAD_NORM] &&
            row->a->grad_norm.rounded + row->b->grad_norm.rounded > 0);
}

/* ---- all rows ---- */

/* The larger one; a NaN is larger than all. */
static double worse_gap(double a, double b)
{
    if (isnan(a) || isnan(b))
        return NAN;
    return fmax(a, b);
}

/* Ends a gap: rows that lacked after the last row lacked before this one. */
static void lack_close(struct dcpk_loss_lack *lack)
{
    lack->n_between += lack->n_after;
    lack->n_after = 0;
}

static void lack_add(struct dcpk_loss_lack *lack, bool has_begun, int64_t iteration)
{
    if (!has_begun) {
        lack->n_before++;
        return;
    }
    if (lack->n_between + lack->n_after == 0)
        lack->first = iteration;
    lack->n_after++;
}

static void report_add(struct dcpk_loss_report *report, const struct dcpk_loss_row *row)
{
    lack_close(&report->a_lacks);
    lack_close(&report->b_lacks);
    report->rows[report->n++] = *row;
    report->n_different += dcpk_loss_row_differs(row);
    report->n_nonfinite += row->is_nonfinite;
    report->n_coarse += row->is_coarse;
    report->n_loud += row->is_loud;
    report->is_rounded |= row_is_rounded(row);
    for (int p = 0; p < DCPK_N_LOSS_PARTS; p++) {
        report->max_gap[p] = worse_gap(report->max_gap[p], row->gap[p]);
        report->n_compared[p] += row->is_compared[p];
        report->n_differ[p] += row->differs[p];
    }
}

/* Walks both logs; rows has room for the shorter one. */
static void report_fill(struct dcpk_loss_report *report, const struct dcpk_step_log *a,
                        const struct dcpk_step_log *b, const struct dcpk_loss_options *options)
{
    size_t i = 0, j = 0;

    while (i < a->n || j < b->n) {
        const int64_t in_a = i < a->n ? a->steps[i].iteration : INT64_MAX;
        const int64_t in_b = j < b->n ? b->steps[j].iteration : INT64_MAX;

        if (i < a->n && j < b->n && in_a == in_b) {
            struct dcpk_loss_row row = {.a = &a->steps[i++], .b = &b->steps[j++]};

            row_compare(&row, options);
            report_add(report, &row);
        } else if (j == b->n || (i < a->n && in_a < in_b)) {
            lack_add(&report->b_lacks, report->n > 0, in_a);
            i++;
        } else {
            lack_add(&report->a_lacks, report->n > 0, in_b);
            j++;
        }
    }
    report->n_missing = report->a_lacks.n_between + report->b_lacks.n_between;
    if (options->asks_all)
        report->n_missing += report->a_lacks.n_after + report->b_lacks.n_after;
    report->is_equal = report->n_different == 0 && report->n_missing == 0;
}

dcpk_status dcpk_loss_compare(const struct dcpk_step_log *a, const struct dcpk_step_log *b,
                              const struct dcpk_loss_options *options,
                              struct dcpk_loss_report *report, struct dcpk_error *err)
{
    struct dcpk_loss_report made = {0};

    made.rows = dcpk_alloc_array(dcpk_min_size(a->n, b->n), sizeof *made.rows, err);
    if (made.rows == NULL)
        return err->status;
    report_fill(&made, a, b, options);
    if (made.n == 0) {
        dcpk_loss_report_release(&made);
        return dcpk_fail(err, DCPK_EUSAGE,
                         "the two logs share no iteration: A has %" PRId64 " to %" PRId64
                         ", B %" PRId64 " to %" PRId64,
                         a->steps[0].iteration, a->steps[a->n - 1].iteration, b->steps[0].iteration,
                         b->steps[b->n - 1].iteration);
    }
    if (made.n_compared[DCPK_LOSS] == 0) {
        const char *digits = made.n_coarse > 0 ? " of at least 4 digits" : "";

        dcpk_loss_report_release(&made);
        return dcpk_fail(err, DCPK_EUSAGE, "no iteration has a loss%s in both logs", digits);
    }
    *report = made;
    return DCPK_OK;
}

void dcpk_loss_report_release(struct dcpk_loss_report *report)
{
    dcpk_free(report->rows);
    *report = (struct dcpk_loss_report){0};
}
