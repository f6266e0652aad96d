/* SPDX-License-Identifier: Apache-2.0 */
/* train_page.c - a run as curves by iteration: loss, norm of gradients, learning rate, time. */
#include "tools/train_page.h"

#include <inttypes.h>
#include <math.h>

#include "lib/base/alloc.h"
#include "lib/base/clock.h"
#include "lib/base/text.h"
#include "tools/print_doc.h"

#define REFRESH_SECONDS 5

/* Rows of page->points. */
enum { AT_ITERATION, LOSS, NORM, RATE, TIME, N_ROWS };

static const struct {
    const char *title, *label;
    bool is_log;
} pictures[N_ROWS] = {
    [LOSS] = {"loss by iteration", "lm loss", false},
    [NORM] = {"norm of gradients by iteration, on a scale of logarithms", "grad norm", true},
    [RATE] = {"learning rate by iteration", "learning rate", false},
    [TIME] = {"milliseconds by iteration, on a scale of logarithms", "elapsed time", true},
};

static double *row_of(const struct dcpk_train_page *page, int row)
{
    return page->points + (size_t)row * DCPK_TRAIN_PAGE_POINTS;
}

static double logged_or_nan(const struct dcpk_logged *logged)
{
    return logged->is_there ? logged->value : (double)NAN;
}

/* Leaves every second point out, so that a long run fits. */
static void thin_points(struct dcpk_train_page *page)
{
    for (int row = 0; row < N_ROWS; row++)
        for (size_t i = 0; i < page->n / 2; i++)
            row_of(page, row)[i] = row_of(page, row)[2 * i];
    page->n /= 2;
    page->stride *= 2;
}

static void add_point(struct dcpk_train_page *page, const struct dcpk_step *step, double seconds)
{
    const double point[N_ROWS] = {(double)step->iteration, logged_or_nan(&step->loss),
                                  logged_or_nan(&step->grad_norm), logged_or_nan(&step->lr),
                                  1e3 * seconds};

    if (page->n == DCPK_TRAIN_PAGE_POINTS)
        thin_points(page);
    for (int row = 0; row < N_ROWS; row++)
        row_of(page, row)[page->n] = point[row];
    page->n++;
}

/* verdict NULL: the run has not ended. */
static void report_page(const struct dcpk_train_page *page, const struct dcpk_train_config *config,
                        const char *verdict, bool is_good, struct dcpk_doc *doc)
{
    const int64_t planned = config->data.train_iters, done = page->last.iteration;
    const double loss = logged_or_nan(&page->last.loss);

    doc->title = dcpk_page_title(page->path);
    if (verdict == NULL)
        doc->refresh_seconds = REFRESH_SECONDS;
    dcpk_doc_headline(
        doc,
        &(struct dcpk_doc_headline){
            .figures = {
                {dcpk_doc_format(doc, "%" PRId64 " of %" PRId64, done, planned), "iterations"},
                {dcpk_doc_format(doc, "%.6g", loss), "loss of the last one"},
                {dcpk_doc_format(doc, "%+.3g", loss - page->first_loss), "since this run began"}}});
    dcpk_doc_row(doc, "samples", "%" PRId64 " consumed", page->last.consumed_samples);
    dcpk_doc_row(doc, "loss scale", "%g", page->last.loss_scale.value);
    if (page->stride > 1)
        dcpk_doc_row(doc, "curves", "every %" PRId64 " iterations", page->stride);
    dcpk_doc_verdict(doc, is_good, "%s", dcpk_text_or(verdict, "running"));
    for (int row = LOSS; row < N_ROWS; row++) {
        const struct dcpk_doc_curve curve = {pictures[row].label, row_of(page, AT_ITERATION),
                                             row_of(page, row), page->n};

        dcpk_doc_plot(
            doc, &(struct dcpk_doc_plot){pictures[row].title, &curve, 1, pictures[row].is_log});
    }
}

static dcpk_status write_curves(struct dcpk_train_page *page,
                                const struct dcpk_train_config *config, const char *verdict,
                                bool is_good, struct dcpk_error *err)
{
    static const struct dcpk_doc_style style = {.label_columns = 13};
    const struct dcpk_print_options way = {.is_silent = true, .html = page->path};
    struct dcpk_doc doc;

    dcpk_doc_init(&doc, "train", &style);
    report_page(page, config, verdict, is_good, &doc);
    page->written = dcpk_now_seconds();
    return dcpk_print_doc(&doc, &way, err);
}

dcpk_status dcpk_train_page_put(struct dcpk_train_page *page,
                                const struct dcpk_train_config *config,
                                const struct dcpk_step *step, double seconds,
                                struct dcpk_error *err)
{
    if (page->path == NULL)
        return DCPK_OK;
    if (page->points == NULL) {
        page->points =
            dcpk_alloc_array((size_t)N_ROWS * DCPK_TRAIN_PAGE_POINTS, sizeof *page->points, err);
        if (page->points == NULL)
            return err->status;
        page->stride = 1;
        page->first_loss = logged_or_nan(&step->loss);
    }
    if (page->n_steps++ % page->stride == 0)
        add_point(page, step, seconds);
    page->last = *step;
    if (page->n_steps > 1 && dcpk_now_seconds() - page->written < REFRESH_SECONDS)
        return DCPK_OK;
    return write_curves(page, config, NULL, true, err);
}

dcpk_status dcpk_train_page_end(struct dcpk_train_page *page,
                                const struct dcpk_train_config *config,
                                const struct dcpk_error *failure, struct dcpk_error *err)
{
    const bool is_good = failure->status == DCPK_OK;

    if (page->n_steps == 0)
        return DCPK_OK;
    return write_curves(page, config, is_good ? "ended" : failure->text, is_good, err);
}

void dcpk_train_page_release(struct dcpk_train_page *page)
{
    dcpk_free(page->points);
    *page = (struct dcpk_train_page){0};
}
