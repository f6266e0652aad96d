/* SPDX-License-Identifier: Apache-2.0 */
/* layers.c - tensors by layer and module, as their keys name them: for figures of pages. */
#include "tools/layers.h"

#include <ctype.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "lib/base/order.h"
#include "lib/base/text.h"
#include "tools/cmd.h"

/* ---- keys ---- */

static bool is_word(const char *text, size_t n, const char *const *words, size_t n_words)
{
    for (size_t i = 0; i < n_words; i++)
        if (strlen(words[i]) == n && memcmp(text, words[i], n) == 0)
            return true;
    return false;
}

/* Names around the one of a parameter. */
static bool is_wrapper(const char *text, size_t n)
{
    static const char *const words[] = {"optimizer", "state",       "exp_avg",        "exp_avg_sq",
                                        "param",     "fp32_param",  "module",         "model",
                                        "step",      "transformer", "momentum_buffer"};

    return is_word(text, n, words, DCPK_COUNT(words)) ||
           (n > 8 && memcmp(text, "chained_", 8) == 0);
}

/* The bytes of text[0 .. n) without wrappers at its end. */
static size_t trim_end(const char *text, size_t n)
{
    for (size_t at = n; at > 0; at--)
        if (text[at - 1] == '.') {
            if (!is_wrapper(text + at, n - at))
                break;
            n = at - 1;
        }
    return n;
}

static const char *state_of(const char *key)
{
    if (strstr(key, "exp_avg_sq") != NULL)
        return "exp_avg_sq";
    if (strstr(key, "exp_avg") != NULL)
        return "exp_avg";
    return strstr(key, "momentum_buffer") != NULL ? "momentum_buffer" : "";
}

struct dcpk_key_place dcpk_key_place_of(const char *key, int rank, const int64_t *shape)
{
    static const char *const lists[] = {"layers", "layer", "h", "blocks"};
    struct dcpk_key_place place = {.layer = -1, .module = key, .state = state_of(key)};
    bool is_after_wrappers = false, is_extra = false;
    size_t n;

    for (const char *name = key; *name != '\0'; name += n + (name[n] != '\0')) {
        const char *after;

        n = strcspn(name, ".");
        after = name + n + (name[n] != '\0');
        is_after_wrappers |= !is_wrapper(name, n);
        if (!is_after_wrappers && *after != '\0')
            place.module = after;
        is_extra |= n == 3 && memcmp(name, "mtp", 3) == 0; /* layers of their own */
        if (is_extra || !is_word(name, n, lists, DCPK_COUNT(lists)) || *after == '\0')
            continue;
        place.layer = dcpk_take_number(&after);
        place.is_stacked =
            place.layer < 0 && n == 6 && rank > 0 && shape != NULL && shape[0] <= DCPK_MAX_STACKED;
        if (place.layer >= 0 && *after == '.')
            after++;
        if (place.layer >= 0 || place.is_stacked)
            place.module = after;
        break;
    }
    place.module_bytes = trim_end(place.module, strlen(place.module));
    return place;
}

/* True if a number that counts things begins at text[i]: "0.", "weight0", not "fc1". */
static bool counts_at(const char *text, size_t i)
{
    static const char weight[] = "weight";
    const size_t n = sizeof weight - 1;

    return isdigit((unsigned char)text[i]) &&
           (i == 0 || text[i - 1] == '.' || (i >= n && memcmp(text + i - n, weight, n) == 0));
}

const char *dcpk_key_module(const struct dcpk_key_place *place, struct dcpk_bytes *text)
{
    const char *module = place->module;

    text->n_bytes = 0;
    for (size_t i = 0; i < place->module_bytes;) {
        const bool counts = counts_at(module, i);

        dcpk_bytes_u8(text, counts ? '*' : (uint8_t)module[i]);
        for (i++; counts && i < place->module_bytes && isdigit((unsigned char)module[i]); i++)
            ;
    }
    if (*place->state != '\0')
        dcpk_bytes_printf(text, ": %s", place->state);
    dcpk_bytes_u8(text, 0);
    return text->status == DCPK_OK ? (const char *)text->data : "";
}

/* ---- tables ---- */

bool dcpk_layer_grid_begin(struct dcpk_layer_grid *grid, int64_t n_layers, struct dcpk_doc *doc)
{
    const int64_t most = DCPK_MAX_COLUMNS - 1;

    *grid = (struct dcpk_layer_grid){.doc = doc, .n_layers = n_layers};
    grid->per_column = dcpk_max_i64((n_layers + most - 1) / most, 1);
    grid->n_columns = 1 + (size_t)((n_layers + grid->per_column - 1) / grid->per_column);
    grid->sums = dcpk_doc_take(doc, DCPK_MAX_GRID_ROWS * grid->n_columns, sizeof *grid->sums);
    return grid->sums != NULL;
}

size_t dcpk_layer_grid_row(struct dcpk_layer_grid *grid, const char *name)
{
    size_t i = 0;

    while (i < grid->n_rows && strcmp(grid->rows[i], name) != 0)
        i++;
    if (i == DCPK_MAX_GRID_ROWS) {
        i--;
        grid->rows[i] = "others";
    } else if (i == grid->n_rows) {
        grid->rows[grid->n_rows++] = dcpk_doc_format(grid->doc, "%s", name);
    }
    return i;
}

struct dcpk_layer_sum *dcpk_layer_grid_at(const struct dcpk_layer_grid *grid, size_t row,
                                          int64_t layer)
{
    size_t column = 0;

    if (layer >= 0 && layer < grid->n_layers)
        column = 1 + (size_t)(layer / grid->per_column);
    return &grid->sums[row * grid->n_columns + column];
}

static double measured(const struct dcpk_layer_sum *sum, enum dcpk_layer_measure measure)
{
    if (measure == DCPK_LAYER_RMS)
        return sum->weight > 0 ? sqrt(sum->value / sum->weight) : 0;
    return sum->value;
}

/* The ends of the scale, of numbers that have a logarithm where that is shown. */
static void find_span(const struct dcpk_layer_grid *grid, enum dcpk_layer_measure measure,
                      double span[2])
{
    span[0] = measure == DCPK_LAYER_BYTES ? 0 : INFINITY;
    span[1] = 0;
    for (size_t i = 0; i < grid->n_rows * grid->n_columns; i++) {
        const double v = measured(&grid->sums[i], measure);

        if (!grid->sums[i].is_there || !isfinite(v) || v <= 0)
            continue;
        span[0] = fmin(span[0], v);
        span[1] = fmax(span[1], v);
    }
    span[0] = fmin(span[0], span[1]);
}

static const char *measure_text(double v, enum dcpk_layer_measure measure, struct dcpk_doc *doc)
{
    char size[DCPK_SIZE_TEXT_BYTES];

    if (measure == DCPK_LAYER_BYTES)
        return dcpk_doc_format(doc, "%s", dcpk_cli_short_size((uint64_t)v, size));
    return dcpk_doc_format(doc, "%.3g", v);
}

static struct dcpk_doc_grid_cell show_cell(const struct dcpk_layer_sum *sum,
                                           enum dcpk_layer_measure measure, const double span[2],
                                           struct dcpk_doc *doc)
{
    const double v = measured(sum, measure);
    struct dcpk_doc_grid_cell cell = {.shade = 0};

    if (!sum->is_there)
        return cell;
    cell.text = measure_text(v, measure, doc);
    if (measure == DCPK_LAYER_BYTES && span[1] > 0)
        cell.shade = v / span[1];
    else if (v > 0 && span[1] > span[0])
        cell.shade = log(v / span[0]) / log(span[1] / span[0]);
    else if (v > 0)
        cell.shade = 1;
    if (sum->is_bad || !isfinite(v)) {
        cell.tone = DCPK_DOC_BAD;
        cell.text = dcpk_doc_format(doc, "%s, NaN or infinite ones left out", cell.text);
        if (!isfinite(v))
            cell.text = "infinite";
    }
    return cell;
}

/* The order of the rows: ranks as they are, modules by name, the others last. */
static void order_rows(const struct dcpk_layer_grid *grid, enum dcpk_layer_measure measure,
                       size_t order[DCPK_MAX_GRID_ROWS])
{
    const size_t n_named = dcpk_min_size(grid->n_rows, DCPK_MAX_GRID_ROWS - 1);
    size_t at;

    for (size_t i = 0; i < grid->n_rows; i++) {
        for (at = i; measure != DCPK_LAYER_BYTES && at > 0 && i < n_named &&
                     strcmp(grid->rows[order[at - 1]], grid->rows[i]) > 0;
             at--)
            order[at] = order[at - 1];
        order[at] = i;
    }
}

void dcpk_layer_grid_show(const struct dcpk_layer_grid *grid, const char *title, const char *corner,
                          enum dcpk_layer_measure measure, struct dcpk_doc *doc)
{
    struct dcpk_doc_grid_cell *cells =
        dcpk_doc_take(doc, grid->n_rows * grid->n_columns, sizeof *cells);
    const char **columns = dcpk_doc_take(doc, grid->n_columns, sizeof *columns);
    const char **rows = dcpk_doc_take(doc, grid->n_rows, sizeof *rows);
    size_t order[DCPK_MAX_GRID_ROWS];
    double span[2];

    if (cells == NULL || columns == NULL || rows == NULL || grid->n_rows == 0)
        return;
    order_rows(grid, measure, order);
    find_span(grid, measure, span);
    columns[0] = "other";
    for (size_t i = 1; i < grid->n_columns; i++)
        columns[i] = dcpk_doc_format(doc, "%" PRId64, (int64_t)(i - 1) * grid->per_column);
    for (size_t i = 0; i < grid->n_rows; i++) {
        rows[i] = grid->rows[order[i]];
        for (size_t k = 0; k < grid->n_columns; k++)
            cells[i * grid->n_columns + k] =
                show_cell(&grid->sums[order[i] * grid->n_columns + k], measure, span, doc);
    }
    if (grid->per_column > 1)
        title = dcpk_doc_format(doc, "%s; a column is %" PRId64 " layers", title, grid->per_column);
    dcpk_doc_grid(doc, &(struct dcpk_doc_grid){.title = title,
                                               .corner = corner,
                                               .rows = rows,
                                               .columns = columns,
                                               .n_rows = grid->n_rows,
                                               .n_columns = grid->n_columns,
                                               .cells = cells,
                                               .least = measure_text(span[0], measure, doc),
                                               .most = measure_text(span[1], measure, doc)});
}
