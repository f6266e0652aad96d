/* SPDX-License-Identifier: Apache-2.0 */
/* exec_read.c - boxes of a view into memory. */
#include "lib/base/alloc.h"
#include "lib/exec/workers.h"

struct dcpk_view_reader {
    struct dcpk_exec *exec;
    const struct dcpk_view *view;
    struct dcpk_worker *workers; /* the first one is used */
    struct dcpk_box_tree pieces;
};

dcpk_status dcpk_view_reader_new(struct dcpk_exec *exec, const struct dcpk_view *view,
                                 struct dcpk_view_reader **reader, struct dcpk_error *err)
{
    struct dcpk_view_reader *r = dcpk_alloc(sizeof *r, err);

    if (r == NULL)
        return err->status;
    r->exec = exec;
    r->view = view;
    if (dcpk_piece_tree_build(view, &r->pieces, err) ||
        (r->workers = dcpk_workers_new(exec, err)) == NULL) {
        dcpk_view_reader_free(r);
        return err->status;
    }
    *reader = r;
    return DCPK_OK;
}

dcpk_status dcpk_view_reader_read(struct dcpk_view_reader *reader, const struct dcpk_box *region,
                                  void *out, struct dcpk_error *err)
{
    const struct dcpk_gather_from from = {reader->view, &reader->pieces};

    return dcpk_gather(reader->exec, &reader->workers[0], &from, region, out, err);
}

void dcpk_view_reader_free(struct dcpk_view_reader *reader)
{
    if (reader == NULL)
        return;
    dcpk_box_tree_release(&reader->pieces);
    dcpk_workers_free(reader->exec, reader->workers);
    dcpk_free(reader);
}
