/* SPDX-License-Identifier: Apache-2.0 */
/* pickle_input.c - the bytes of a pickle: all in memory, or seen through a window that moves on. */
#include <string.h>

#include "formats/torch/pickle_priv.h"
#include "lib/base/alloc.h"
#include "lib/base/order.h"

#define WINDOW_BYTES ((size_t)256 * 1024) /* larger when one text or number is */

void dcpk_pickle_input_memory(struct dcpk_pickle_input *in, const void *data, size_t n_bytes,
                              uint64_t base_bytes)
{
    *in = (struct dcpk_pickle_input){.n_bytes = n_bytes, .base_bytes = base_bytes};
    dcpk_cursor_init(&in->cursor, data, n_bytes, base_bytes);
}

void dcpk_pickle_input_source(struct dcpk_pickle_input *in, struct dcpk_source *source,
                              uint64_t base_bytes)
{
    *in = (struct dcpk_pickle_input){
        .source = source, .n_bytes = dcpk_source_bytes(source), .base_bytes = base_bytes};
    dcpk_cursor_init(&in->cursor, NULL, 0, base_bytes);
}

void dcpk_pickle_input_release(struct dcpk_pickle_input *in)
{
    dcpk_free(in->window);
}

void dcpk_pickle_input_rewind(struct dcpk_pickle_input *in)
{
    if (in->source != NULL)
        dcpk_cursor_init(&in->cursor, NULL, 0, in->base_bytes);
    in->cursor.at_bytes = 0;
}

dcpk_status dcpk_pickle_input_fill(struct dcpk_pickle_input *in, size_t n, struct dcpk_error *err)
{
    struct dcpk_cursor *c = &in->cursor;
    const uint64_t at = dcpk_pickle_input_at(in), left = in->n_bytes - at;
    const size_t kept = c->n_bytes - c->at_bytes;
    size_t room = dcpk_max_size(n, WINDOW_BYTES);

    if (kept >= n || kept == left)
        return DCPK_OK;
    if (room > left)
        room = (size_t)left;
    if (room > in->window_bytes) {
        uint8_t *window = dcpk_alloc(room, err);

        if (window == NULL)
            return err->status;
        memcpy(window, c->data + c->at_bytes, kept);
        dcpk_free(in->window);
        in->window = window;
        in->window_bytes = room;
    } else {
        memmove(in->window, c->data + c->at_bytes, kept);
    }
    if (dcpk_source_read(in->source, at + kept, in->window + kept, room - kept, err))
        return err->status;
    dcpk_cursor_init(c, in->window, room, in->base_bytes + at);
    return DCPK_OK;
}
