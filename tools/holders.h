/* SPDX-License-Identifier: Apache-2.0 */
/* holders.h - figures of a page: the bytes of tensors as a treemap, and by rank and layer. */
#ifndef DCPK_TOOLS_HOLDERS_H
#define DCPK_TOOLS_HOLDERS_H

#include "lib/ckpt/checkpoint.h"
#include "lib/place/grid.h"
#include "lib/report/doc.h"

/* A chunk of a tensor, of a checkpoint or of a plan. Borrowed. */
struct dcpk_held {
    const char *key;
    enum dcpk_dtype dtype;
    int rank;
    const int64_t *shape, *span; /* span: packed, as in a chunk */
    const char *file;
};

typedef void dcpk_take_held(void *to, const struct dcpk_held *held);

/* All chunks, the same ones each time. */
struct dcpk_holders {
    void (*each)(const void *context, dcpk_take_held *take, void *to);
    const void *context;
    /* Where the names of files do not show which rank holds a chunk: those of one data-parallel
     * replica, by what tensor, pipeline and expert parallelism cut. tp 0: nothing is known. */
    struct dcpk_grid grid;
};

/* The ranks of a data-parallel replica, numbered, and the layers that stages share out. Experts are
 * cut by as many tensor-parallel ranks as all else. */
struct dcpk_replica {
    struct dcpk_grid grid; /* full */
    int64_t n_layers, n;   /* n 0: nothing is known of them */
};
void dcpk_replica_init(struct dcpk_replica *replica, const struct dcpk_grid *grid,
                       int64_t n_layers);
/* False of buckets, whose elements are of many parameters: their cuts do not show such ranks. */
bool dcpk_replica_knows(const struct dcpk_held *held);
/* The first rank of it that holds a chunk's first layer. */
int64_t dcpk_replica_first(const struct dcpk_replica *replica, const struct dcpk_held *held);
/* "pp 0 ep 1 tp 3" of a rank; in the document. */
const char *dcpk_replica_name(const struct dcpk_replica *replica, int64_t rank,
                              struct dcpk_doc *doc);

/* "TP 2, PP 4": the sizes above 1, and the number of ranks. */
struct dcpk_doc_figure dcpk_grid_figure(const struct dcpk_grid *grid, struct dcpk_doc *doc);

void dcpk_report_holders(const struct dcpk_holders *holders, struct dcpk_doc *doc);

#endif
