/* SPDX-License-Identifier: Apache-2.0 */
/* loss_compare.c - the iterations that two logs share, number by number. */
#include "lib/train/loss_compare.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "lib/base/alloc.h"
#include "lib/base/order.h"

/* Noise is one sample of what rounding does: two programs may be several of it apart. */
#define NOISE_MULTIPLE 10

const char *const dcpk_loss_part_names[DCPK_N_LOSS_PARTS] = {"grad_norm", "loss", "skipped",
                                                             "state_hash"};

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

/* more: what they may differ by beside rtol and what printing rounded. */
static bool numbers_agree(const struct dcpk_logged *a, const struct dcpk_logged *b, double rtol,
                          double more)
{
    const double slack = fmax(a->rounded, b->rounded) + more;

    if (rtol <= 0 && slack <= 0)
        return same_bits(a->value, b->value);
    if (same_bits(a->value, b->value))
        return true;
    if (!isfinite(a->value) || !isfinite(b->value))
        return false; /* any share of infinity is infinite */
    return fabs(a->value - b->value) <= rtol * fabs(b->value) + slack;
}

/* Of a run that was not measured, or whose losses are no longer numbers, nothing is known. */
static double noise_of(const struct dcpk_step *step)
{
    const double noise = step->loss_noise.value;

    return isfinite(noise) ? noise : 0;
}

static double noise_allowed(const struct dcpk_loss_options *options, const struct dcpk_step *a,
                            const struct dcpk_step *b)
{
    if (!options->allows_noise)
        return 0;
    return NOISE_MULTIPLE * fmax(noise_of(a), noise_of(b));
}

static void compare_row(const struct dcpk_loss_options *options, struct dcpk_loss_row *row)
{
    const struct dcpk_step *a = row->a, *b = row->b;

    row->is_compared[DCPK_LOSS] = a->loss.is_there && b->loss.is_there;
    row->is_compared[DCPK_GRAD_NORM] =
        a->grad_norm.is_there && b->grad_norm.is_there && !options->allows_noise;
    row->is_compared[DCPK_SKIPPED] = true;
    row->is_compared[DCPK_STATE_HASH] = options->has_hashes && a->has_hash && b->has_hash;
    row->differs[DCPK_SKIPPED] = a->is_skipped != b->is_skipped;
    row->differs[DCPK_STATE_HASH] =
        row->is_compared[DCPK_STATE_HASH] && a->state_hash != b->state_hash;
    if (row->is_compared[DCPK_LOSS]) {
        row->differs[DCPK_LOSS] =
            !numbers_agree(&a->loss, &b->loss, options->rtol, noise_allowed(options, a, b));
        row->gap = gap_of(a->loss.value, b->loss.value);
    }
    if (row->is_compared[DCPK_GRAD_NORM]) {
        row->differs[DCPK_GRAD_NORM] =
            !numbers_agree(&a->grad_norm, &b->grad_norm, options->norm_rtol, 0);
        row->norm_gap = gap_of(a->grad_norm.value, b->grad_norm.value);
    }
}

bool dcpk_loss_row_differs(const struct dcpk_loss_row *row)
{
    for (int p = 0; p < DCPK_N_LOSS_PARTS; p++)
        if (row->differs[p])
            return true;
    return false;
}

/* The larger one; a NaN is larger than all. */
static double worse_gap(double a, double b)
{
    if (isnan(a) || isnan(b))
        return NAN;
    return fmax(a, b);
}

static void report_add(struct dcpk_loss_report *report, const struct dcpk_loss_row *row)
{
    report->rows[report->n++] = *row;
    report->n_different += dcpk_loss_row_differs(row);
    report->max_gap = worse_gap(report->max_gap, row->gap);
    report->max_norm_gap = worse_gap(report->max_norm_gap, row->norm_gap);
    for (int p = 0; p < DCPK_N_LOSS_PARTS; p++) {
        report->n_compared[p] += row->is_compared[p];
        report->n_differ[p] += row->differs[p];
    }
}

dcpk_status dcpk_loss_compare(const struct dcpk_step_log *a, const struct dcpk_step_log *b,
                              const struct dcpk_loss_options *options,
                              struct dcpk_loss_report *report, struct dcpk_error *err)
{
    struct dcpk_loss_report made = {0};
    size_t i = 0, j = 0;

    made.rows = dcpk_alloc_array(dcpk_min_size(a->n, b->n), sizeof *made.rows, err);
    if (made.rows == NULL)
        return err->status;
    while (i < a->n && j < b->n) {
        struct dcpk_loss_row row = {.a = &a->steps[i], .b = &b->steps[j]};

        if (row.a->iteration == row.b->iteration) {
            compare_row(options, &row);
            report_add(&made, &row);
        }
        i += row.a->iteration <= row.b->iteration;
        j += row.b->iteration <= row.a->iteration;
    }
    made.n_only_a = a->n - made.n;
    made.n_only_b = b->n - made.n;
    made.is_equal = made.n_different == 0;
    if (made.n == 0) {
        dcpk_loss_report_release(&made);
        return dcpk_fail(err, DCPK_EUSAGE,
                         "the two logs share no iteration: A has %" PRId64 " to %" PRId64
                         ", B %" PRId64 " to %" PRId64,
                         a->steps[0].iteration, a->steps[a->n - 1].iteration, b->steps[0].iteration,
                         b->steps[b->n - 1].iteration);
    }
    if (made.n_compared[DCPK_LOSS] == 0) {
        dcpk_loss_report_release(&made);
        return dcpk_fail(err, DCPK_EUSAGE, "no iteration has a loss in both logs");
    }
    *report = made;
    return DCPK_OK;
}

void dcpk_loss_report_release(struct dcpk_loss_report *report)
{
    dcpk_free(report->rows);
    *report = (struct dcpk_loss_report){0};
}
