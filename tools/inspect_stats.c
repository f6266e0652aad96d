/* SPDX-License-Identifier: Apache-2.0 */
/* inspect_stats.c - statistics of tensors as one table, the worst first. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/alloc.h"
#include "tools/cmd.h"
#include "tools/inspect.h"

struct row {
    const struct dcpk_stats *stats;
    const char *key;
};

void dcpk_inspect_findings(const struct dcpk_inspection *in, struct dcpk_stats_findings *found)
{
    *found = (struct dcpk_stats_findings){0};
    for (size_t t = 0; t < in->ckpt->n_tensors; t++) {
        const struct dcpk_stats *s = &in->stats[t];

        if (in->chosen != NULL && !in->chosen->tensors[t])
            continue;
        found->n_tensors++;
        found->n_nan += s->n_nan;
        found->n_inf += s->n_inf;
        found->n_not_finite += s->n_nan + s->n_inf > 0;
        found->n_zero += s->n_zero > 0 && s->n_zero == s->n_elems;
        found->n_unread += !s->has_numbers;
    }
}

static double magnitude(const struct dcpk_stats *s)
{
    return s->n_finite == 0 ? -1 : fmax(fabs(s->min), fabs(s->max));
}

/* What a person looks for: numbers that are none, tensors that were never filled, large values. */
static int compare_rows(const void *left, const void *right)
{
    const struct row *a = left, *b = right;
    const uint64_t a_bad = a->stats->n_nan + a->stats->n_inf;
    const uint64_t b_bad = b->stats->n_nan + b->stats->n_inf;
    const bool a_zero = a->stats->n_zero > 0 && a->stats->n_zero == a->stats->n_elems;
    const bool b_zero = b->stats->n_zero > 0 && b->stats->n_zero == b->stats->n_elems;

    if (a_bad != b_bad)
        return a_bad > b_bad ? -1 : 1;
    if (a_zero != b_zero)
        return a_zero ? -1 : 1;
    if (magnitude(a->stats) != magnitude(b->stats))
        return magnitude(a->stats) > magnitude(b->stats) ? -1 : 1;
    return strcmp(a->key, b->key);
}

static int digits(uint64_t n, int least)
{
    const int width = snprintf(NULL, 0, "%" PRIu64, n);

    return width < least ? least : width;
}

static void print_numbers(const struct dcpk_stats *s)
{
    const double v[] = {s->min, s->max, dcpk_stats_mean(s), dcpk_stats_norm(s)};

    for (size_t i = 0; i < sizeof v / sizeof *v; i++)
        if (s->n_finite > 0)
            dcpk_cli_printf(stdout, "%*.3g", i == 0 ? 9 : 10, v[i]);
        else
            dcpk_cli_printf(stdout, "%*s", i == 0 ? 9 : 10, "-");
}

/* Behind the numbers where it fits, which end at column `at`; else whole on a line of its own. */
static void put_key(const char *key, size_t at)
{
    const bool fits = at + 2 + strlen(key) <= DCPK_CLI_COLUMNS;

    dcpk_cli_put_lines(stdout, fits ? "  " : "\n    ", fits ? 2 : 5);
    dcpk_inspect_put_key(key, fits ? at + 2 : 4, 4);
    dcpk_cli_printf(stdout, "\n");
}

static void print_table(const struct row *rows, size_t n, const struct dcpk_stats_findings *found)
{
    const int nan_columns = digits(found->n_nan, 3), inf_columns = digits(found->n_inf, 3);
    const size_t at = (size_t)(39 + 2 + nan_columns + 2 + inf_columns + 2 + 6);

    dcpk_cli_printf(stdout, "%9s%10s%10s%10s  %*s  %*s  %6s  %s\n", "min", "max", "mean", "L2 norm",
                    nan_columns, "NaN", inf_columns, "Inf", "zeros", "tensor");
    for (size_t i = 0; i < n; i++) {
        const struct dcpk_stats *s = rows[i].stats;

        print_numbers(s);
        if (s->has_numbers && s->n_elems > 0)
            dcpk_cli_printf(stdout, "  %*" PRIu64 "  %*" PRIu64 "  %5.1f%%", nan_columns, s->n_nan,
                            inf_columns, s->n_inf, 100.0 * (double)s->n_zero / (double)s->n_elems);
        else
            dcpk_cli_printf(stdout, "  %*s  %*s  %6s", nan_columns, "-", inf_columns, "-", "-");
        put_key(rows[i].key, at);
    }
}

static void print_findings(const struct dcpk_stats_findings *found)
{
    char text[512];
    int n = snprintf(text, sizeof text, "%" PRIu64 " tensors: ", found->n_tensors);

    if (found->n_not_finite == 0)
        n += snprintf(text + n, sizeof text - (size_t)n, "all finite");
    else
        n += snprintf(text + n, sizeof text - (size_t)n,
                      "%" PRIu64 " not finite (%" PRIu64 " NaN, %" PRIu64 " Inf)",
                      found->n_not_finite, found->n_nan, found->n_inf);
    if (found->n_zero > 0)
        n += snprintf(text + n, sizeof text - (size_t)n, ", %" PRIu64 " all zero", found->n_zero);
    if (found->n_unread > 0)
        n += snprintf(text + n, sizeof text - (size_t)n,
                      ", %" PRIu64 " of dtypes that have no numbers", found->n_unread);
    dcpk_cli_put_wrapped(stdout, text, (size_t)n, 0, 0);
    dcpk_cli_printf(stdout, "\n");
}

dcpk_status dcpk_inspect_print_stats(const struct dcpk_inspection *in, struct dcpk_error *err)
{
    struct row *rows = dcpk_alloc_array(in->ckpt->n_tensors, sizeof *rows, err);
    struct dcpk_stats_findings found;
    size_t n = 0;

    if (rows == NULL)
        return err->status;
    for (size_t t = 0; t < in->ckpt->n_tensors; t++)
        if (in->chosen == NULL || in->chosen->tensors[t])
            rows[n++] = (struct row){&in->stats[t], in->ckpt->tensors[t].key};
    qsort(rows, n, sizeof *rows, compare_rows);
    dcpk_inspect_findings(in, &found);
    dcpk_cli_printf(
        stdout, "\nstatistics of the finite elements, worst first (not finite, all zero, then by "
                "magnitude):\n");
    print_table(rows, n, &found);
    print_findings(&found);
    dcpk_free(rows);
    return DCPK_OK;
}
