/* SPDX-License-Identifier: Apache-2.0 */
/* html_curves.c - curves of a page, drawn as SVG. */
#include <math.h>

#include "lib/report/html_priv.h"

/* The picture, and the plot in it; units of SVG. */
#define WIDTH     1000.0
#define HEIGHT    420.0
#define LEFT      130.0
#define RIGHT     30.0
#define TOP       20.0
#define BOTTOM    60.0
#define MAX_MARKS 7 /* of an axis */

/* The range of the axes. */
struct span {
    double least, most;
};

static void span_take(struct span *span, double v)
{
    span->least = fmin(span->least, v);
    span->most = fmax(span->most, v);
}

/* The number that the axis of y shows; NaN: none. */
static double height_of(const struct dcpk_doc_plot *plot, double y)
{
    if (!plot->is_log)
        return y;
    return y > 0 ? log10(y) : NAN;
}

static bool is_point(const struct dcpk_doc_plot *plot, const struct dcpk_doc_curve *curve, size_t i)
{
    return isfinite(curve->x[i]) && isfinite(height_of(plot, curve->y[i]));
}

/* v as a part of the span, 0 to 1; the middle of one without extent. */
static double span_part(const struct span *span, double v)
{
    if (span->most <= span->least)
        return 0.5;
    return (v - span->least) / (span->most - span->least);
}

static double at_x(const struct span *x, double v)
{
    return LEFT + (WIDTH - LEFT - RIGHT) * span_part(x, v);
}

static double at_y(const struct span *y, double v)
{
    return TOP + (HEIGHT - TOP - BOTTOM) * (1 - span_part(y, v));
}

static void put_curve(struct dcpk_doc_pipe *pipe, const struct dcpk_doc_plot *plot, size_t number,
                      const struct span *x, const struct span *y)
{
    const struct dcpk_doc_curve *curve = &plot->curves[number];

    dcpk_pipe_printf(pipe, "<polyline class=\"c%zu\" points=\"", number % DCPK_HTML_COLOURS);
    for (size_t i = 0; i < curve->n; i++) {
        if (!is_point(plot, curve, i))
            continue;
        dcpk_pipe_printf(pipe, "%.1f,%.1f ", at_x(x, curve->x[i]),
                         at_y(y, height_of(plot, curve->y[i])));
        dcpk_pipe_rest(pipe);
    }
    dcpk_pipe_text(pipe, "\"/>\n");
}

/* The step of at most 6 marks on an axis: 1, 2 or 5 times a power of ten; whole for logarithms and
 * iterations. */
static double step_of(const struct span *span, bool is_whole)
{
    const double least = (span->most - span->least) / 5, power = pow(10, floor(log10(least)));
    double step = 10 * power;

    if (least <= 2 * power)
        step = 2 * power;
    else if (least <= 5 * power)
        step = 5 * power;
    return is_whole ? fmax(ceil(step), 1) : step;
}

/* The mark number k of an axis; NaN past its end. */
static double mark_at(const struct span *span, double step, int k)
{
    const double v = (ceil(span->least / step) + k) * step;

    return span->most > span->least && v <= span->most ? v : NAN;
}

/* A line for each mark across the plot, and its number. */
static void put_marks(struct dcpk_doc_pipe *pipe, const struct dcpk_doc_plot *plot,
                      const struct span *x, const struct span *y)
{
    const double bottom = HEIGHT - BOTTOM, right = WIDTH - RIGHT;
    const double step_x = step_of(x, true), step_y = step_of(y, plot->is_log);

    dcpk_pipe_printf(pipe, "<path d=\"M%.0f %.0fV%.0fH%.0f\"/>\n", LEFT, TOP, bottom, right);
    for (int k = 0; k < MAX_MARKS; k++) {
        const double v = mark_at(y, step_y, k);

        if (isnan(v))
            break;
        dcpk_pipe_printf(pipe, "<path d=\"M%.0f %.1fH%.0f\"/><text x=\"%.0f\" y=\"%.1f\">", LEFT,
                         at_y(y, v), right, LEFT / 2, at_y(y, v));
        if (plot->is_log)
            dcpk_pipe_printf(pipe, "1e%.0f</text>\n", v);
        else
            dcpk_pipe_printf(pipe, "%.6g</text>\n", v);
    }
    for (int k = 0; k < MAX_MARKS && !isnan(mark_at(x, step_x, k)); k++)
        dcpk_pipe_printf(pipe, "<text x=\"%.1f\" y=\"%.0f\">%.9g</text>\n",
                         at_x(x, mark_at(x, step_x, k)), HEIGHT - BOTTOM / 2,
                         mark_at(x, step_x, k));
}

static void put_legend(struct dcpk_doc_pipe *pipe, const struct dcpk_doc_plot *plot)
{
    dcpk_pipe_text(pipe, "<ol class=\"boxes\">\n");
    for (size_t c = 0; c < plot->n; c++) {
        dcpk_pipe_printf(pipe, "<li class=\"c%zu\">", c % DCPK_HTML_COLOURS);
        dcpk_html_text(pipe, plot->curves[c].label);
        dcpk_pipe_text(pipe, "</li>\n");
    }
    dcpk_pipe_text(pipe, "</ol>\n");
}

void dcpk_html_plot(struct dcpk_doc_pipe *pipe, const struct dcpk_doc_plot *plot)
{
    struct span x = {INFINITY, -INFINITY}, y = {INFINITY, -INFINITY};

    for (size_t c = 0; c < plot->n; c++)
        for (size_t i = 0; i < plot->curves[c].n; i++)
            if (isfinite(plot->curves[c].x[i])) {
                span_take(&x, plot->curves[c].x[i]); /* also of what has no height */
                if (is_point(plot, &plot->curves[c], i))
                    span_take(&y, height_of(plot, plot->curves[c].y[i]));
            }
    if (y.most < y.least) /* no point at all */
        return;
    if (plot->is_log) {
        y.least = floor(y.least);
        y.most = ceil(y.most);
    }
    dcpk_pipe_text(pipe, "<figure class=\"curves\"><figcaption>");
    dcpk_html_text(pipe, plot->title);
    dcpk_pipe_printf(pipe, "</figcaption>\n<svg viewBox=\"0 0 %.0f %.0f\" role=\"img\">\n", WIDTH,
                     HEIGHT);
    put_marks(pipe, plot, &x, &y);
    for (size_t c = 0; c < plot->n; c++)
        put_curve(pipe, plot, c, &x, &y);
    dcpk_pipe_text(pipe, "</svg>\n");
    put_legend(pipe, plot);
    dcpk_pipe_text(pipe, "</figure>\n");
}
