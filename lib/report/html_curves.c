/* SPDX-License-Identifier: Apache-2.0 */
/* html_curves.c - curves of a page, drawn as SVG. */
#include <math.h>
#include <stdio.h>

#include "lib/report/html_priv.h"

/* The picture, and the plot in it; units of SVG. */
#define WIDTH  1000.0
#define HEIGHT 420.0
#define LEFT   130.0
#define RIGHT  30.0
#define TOP    20.0
#define BOTTOM 60.0

/* The range of the axes. */
struct span {
    double least, most;
};

static void span_take(struct span *span, double v)
{
    span->least = fmin(span->least, v);
    span->most = fmax(span->most, v);
}

static bool is_point(const struct dcpk_doc_curve *curve, size_t i)
{
    return isfinite(curve->x[i]) && isfinite(curve->y[i]);
}

/* v as a part of the span, 0 to 1; the middle of one without extent. */
static double span_part(const struct span *span, double v)
{
    if (span->most <= span->least)
        return 0.5;
    return (v - span->least) / (span->most - span->least);
}

static void put_curve(struct dcpk_doc_pipe *pipe, const struct dcpk_doc_curve *curve, size_t number,
                      const struct span *x, const struct span *y)
{
    dcpk_pipe_printf(pipe, "<polyline class=\"c%zu\" points=\"", number % DCPK_HTML_COLOURS);
    for (size_t i = 0; i < curve->n; i++) {
        if (!is_point(curve, i))
            continue;
        dcpk_pipe_printf(pipe, "%.1f,%.1f ",
                         LEFT + (WIDTH - LEFT - RIGHT) * span_part(x, curve->x[i]),
                         TOP + (HEIGHT - TOP - BOTTOM) * (1 - span_part(y, curve->y[i])));
        dcpk_pipe_rest(pipe);
    }
    dcpk_pipe_text(pipe, "\"/>\n");
}

static void put_axes(struct dcpk_doc_pipe *pipe, const struct span *x, const struct span *y)
{
    const double bottom = HEIGHT - BOTTOM, right = WIDTH - RIGHT;

    dcpk_pipe_printf(pipe, "<path d=\"M%.0f %.0fV%.0fH%.0f\"/>\n", LEFT, TOP, bottom, right);
    dcpk_pipe_printf(pipe, "<text x=\"%.0f\" y=\"%.0f\">%.4g</text>\n", LEFT / 2, TOP, y->most);
    dcpk_pipe_printf(pipe, "<text x=\"%.0f\" y=\"%.0f\">%.4g</text>\n", LEFT / 2, bottom, y->least);
    dcpk_pipe_printf(pipe, "<text x=\"%.0f\" y=\"%.0f\">%.9g</text>\n", LEFT, HEIGHT - BOTTOM / 2,
                     x->least);
    dcpk_pipe_printf(pipe, "<text x=\"%.0f\" y=\"%.0f\">%.9g</text>\n", right - RIGHT,
                     HEIGHT - BOTTOM / 2, x->most);
}

void dcpk_html_curves(struct dcpk_doc_pipe *pipe, const char *title,
                      const struct dcpk_doc_curve *curves, size_t n)
{
    struct span x = {INFINITY, -INFINITY}, y = {INFINITY, -INFINITY};

    for (size_t c = 0; c < n; c++)
        for (size_t i = 0; i < curves[c].n; i++)
            if (is_point(&curves[c], i)) {
                span_take(&x, curves[c].x[i]);
                span_take(&y, curves[c].y[i]);
            }
    if (x.most < x.least) /* no point at all */
        return;
    dcpk_pipe_text(pipe, "<figure class=\"curves\"><figcaption>");
    dcpk_html_text(pipe, title);
    dcpk_pipe_printf(pipe, "</figcaption>\n<svg viewBox=\"0 0 %.0f %.0f\" role=\"img\">\n", WIDTH,
                     HEIGHT);
    put_axes(pipe, &x, &y);
    for (size_t c = 0; c < n; c++)
        put_curve(pipe, &curves[c], c, &x, &y);
    dcpk_pipe_text(pipe, "</svg>\n<ol class=\"boxes\">\n");
    for (size_t c = 0; c < n; c++) {
        dcpk_pipe_printf(pipe, "<li class=\"c%zu\">", c % DCPK_HTML_COLOURS);
        dcpk_html_text(pipe, curves[c].label);
        dcpk_pipe_text(pipe, "</li>\n");
    }
    dcpk_pipe_text(pipe, "</ol>\n</figure>\n");
}
