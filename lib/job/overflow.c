/* SPDX-License-Identifier: Apache-2.0 */
/* overflow.c - compares what a cast makes with what it is made of, before anything is written. */
#include "lib/job/overflow.h"

#include <inttypes.h>

#include "lib/base/alloc.h"
#include "lib/tensor/elem.h"
#include "lib/write/writing.h"

#define MAX_NAMED 4

/* Tensors that are cast to a narrower dtype: as they are written, and as they are stored. */
struct narrowed {
    struct dcpk_view *written, *stored;
    const char **keys;
    struct dcpk_compare *results;
    size_t n;
};

/* The widest dtype of a tensor's sources of which its own is narrower; NONE: there is none. */
static enum dcpk_dtype find_wider(const struct dcpk_checkpoint *ckpt,
                                  const struct dcpk_out_tensor *tensor)
{
    enum dcpk_dtype widest = DCPK_DTYPE_NONE;

    for (size_t i = 0; i < tensor->n_pieces; i++) {
        const uint32_t src = tensor->pieces[i].src;

        if (src != DCPK_PIECE_FILL &&
            dcpk_elem_is_narrower(tensor->dtype, ckpt->tensors[src].dtype) &&
            (widest == DCPK_DTYPE_NONE || dcpk_elem_is_narrower(widest, ckpt->tensors[src].dtype)))
            widest = ckpt->tensors[src].dtype;
    }
    return widest;
}

static dcpk_status list_narrowed(const struct dcpk_output *out, struct narrowed *n,
                                 struct dcpk_error *err)
{
    n->written = dcpk_alloc_array(out->n_tensors, sizeof *n->written, err);
    if (n->written != NULL)
        n->stored = dcpk_alloc_array(out->n_tensors, sizeof *n->stored, err);
    if (n->stored != NULL)
        n->keys = dcpk_alloc_array(out->n_tensors, sizeof *n->keys, err);
    if (n->keys == NULL)
        return err->status;
    for (size_t t = 0; t < out->n_tensors; t++) {
        const enum dcpk_dtype wider = find_wider(out->source, &out->tensors[t]);

        if (wider == DCPK_DTYPE_NONE)
            continue;
        n->written[n->n] = n->stored[n->n] = dcpk_write_view(&out->tensors[t]);
        n->stored[n->n].dtype = wider;
        n->keys[n->n++] = out->tensors[t].keys[0];
    }
    n->results = dcpk_alloc_array(n->n, sizeof *n->results, err);
    if (n->results == NULL)
        return err->status;
    return DCPK_OK;
}

static void add_overflow(const char *key, const struct dcpk_compare *result,
                         struct dcpk_overflow *found, struct dcpk_bytes *names)
{
    uint64_t n;

    if (result->n_not_finite[0] <= result->n_not_finite[1])
        return;
    n = result->n_not_finite[0] - result->n_not_finite[1];
    if (found->n_tensors < MAX_NAMED)
        dcpk_bytes_printf(names, "%s'%s' (%" PRIu64 ")", found->n_tensors > 0 ? ", " : "", key, n);
    else if (found->n_tensors == MAX_NAMED)
        dcpk_bytes_text(names, ", ...");
    found->n_elems += n;
    found->n_tensors++;
}

dcpk_status dcpk_output_find_overflow(struct dcpk_exec *exec, const struct dcpk_output *out,
                                      struct dcpk_overflow *found, struct dcpk_bytes *names,
                                      struct dcpk_error *err)
{
    struct narrowed n = {.n = 0};
    struct dcpk_view_pairs pairs = {.left_exec = exec, .right_exec = exec};
    dcpk_status st = list_narrowed(out, &n, err);

    if (st != DCPK_OK || n.n == 0)
        goto out;
    pairs.left = n.written;
    pairs.right = n.stored;
    pairs.n = n.n;
    st = dcpk_exec_compare(&pairs, n.results, NULL, err);
    if (st != DCPK_OK)
        goto out;
    for (size_t i = 0; i < n.n; i++) {
        add_overflow(n.keys[i], &n.results[i], found, names);
        if (found->n_tensors == 1)
            found->dtype = n.written[i].dtype;
    }
    dcpk_bytes_u8(names, 0);
    st = dcpk_bytes_status(names, err);
out:
    dcpk_free(n.results);
    dcpk_free(n.keys);
    dcpk_free(n.stored);
    dcpk_free(n.written);
    return st;
}
