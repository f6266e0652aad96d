/* SPDX-License-Identifier: Apache-2.0 */
/* layers.h - tensors by layer and module, as their keys name them: for figures of pages. */
#ifndef DCPK_TOOLS_LAYERS_H
#define DCPK_TOOLS_LAYERS_H

#include "lib/base/bytes.h"
#include "lib/ckpt/checkpoint.h"
#include "lib/report/doc.h"

/*
 * The place of a tensor in a model, read off its key without rules of any model. A key of
 * "layers.3." has a number; one of "layers." with another name after it has layers in its first
 * axis.
 */
struct dcpk_key_place {
    int64_t layer;      /* -1: outside of layers, or stacked */
    bool is_stacked;    /* the first axis counts layers */
    const char *module; /* "mlp.linear_fc1.weight", in the key */
    size_t module_bytes;
    const char *state; /* "exp_avg", "exp_avg_sq"; "": another */
};
/* shape: of its tensor, NULL: not known. A first axis above DCPK_MAX_STACKED does not count layers.
 */
#define DCPK_MAX_STACKED 1024
struct dcpk_key_place dcpk_key_place_of(const char *key, int rank, const int64_t *shape);
/* Its module with each number as "*", and its state; in `text`, whose content it replaces. */
const char *dcpk_key_module(const struct dcpk_key_place *place, struct dcpk_bytes *text);

/* A table of sums by layer, for dcpk_doc_grid. Columns past DCPK_MAX_COLUMNS share one, rows past
 * DCPK_MAX_GRID_ROWS, too. All of it is in the document. */
#define DCPK_MAX_COLUMNS   49
#define DCPK_MAX_GRID_ROWS 32
struct dcpk_layer_sum {
    double value, weight;
    bool is_there, is_bad;
};
struct dcpk_layer_grid {
    struct dcpk_doc *doc;
    int64_t n_layers, per_column;
    size_t n_columns, n_rows; /* column 0: outside of layers */
    const char *rows[DCPK_MAX_GRID_ROWS];
    struct dcpk_layer_sum *sums;
};
/* False after a failure of the document. */
bool dcpk_layer_grid_begin(struct dcpk_layer_grid *grid, int64_t n_layers, struct dcpk_doc *doc);
/* Returns the row of that name; adds it, with a copy of the name, if it is missing. */
size_t dcpk_layer_grid_row(struct dcpk_layer_grid *grid, const char *name);
/* The cell of a layer; -1: outside. */
struct dcpk_layer_sum *dcpk_layer_grid_at(const struct dcpk_layer_grid *grid, size_t row,
                                          int64_t layer);

/* The number that a cell shows. */
enum dcpk_layer_measure {
    DCPK_LAYER_BYTES, /* value */
    DCPK_LAYER_RMS,   /* the root of value by weight, shaded by its logarithm */
    DCPK_LAYER_MOST,  /* value, shaded by its logarithm */
};
void dcpk_layer_grid_show(const struct dcpk_layer_grid *grid, const char *title, const char *corner,
                          enum dcpk_layer_measure measure, struct dcpk_doc *doc);

#endif
