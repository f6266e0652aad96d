/* SPDX-License-Identifier: Apache-2.0 */
/* pipe.c - rendered text on its way out: gathered, and written in large parts. */
#include <stdarg.h>
#include <stdio.h>

#include "lib/report/doc_priv.h"

#define MUCH_BYTES 65536

void dcpk_pipe_put(void *to, const char *text, size_t n_bytes)
{
    struct dcpk_doc_pipe *pipe = to;

    dcpk_bytes_put(&pipe->bytes, text, n_bytes);
}

void dcpk_pipe_text(struct dcpk_doc_pipe *pipe, const char *text)
{
    dcpk_bytes_text(&pipe->bytes, text);
}

/* For numbers and names of ours: what is longer than a line of them is a bug. */
void dcpk_pipe_printf(struct dcpk_doc_pipe *pipe, const char *fmt, ...)
{
    char text[512];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    dcpk_bytes_text(&pipe->bytes, text);
}

static void write_out(struct dcpk_doc_pipe *pipe)
{
    if (pipe->err->status == DCPK_OK && dcpk_bytes_status(&pipe->bytes, pipe->err) == DCPK_OK &&
        pipe->bytes.n_bytes > 0)
        pipe->out->write(pipe->out->to, (const char *)pipe->bytes.data, pipe->bytes.n_bytes,
                         pipe->err);
    pipe->bytes.n_bytes = 0;
}

void dcpk_pipe_rest(struct dcpk_doc_pipe *pipe)
{
    if (pipe->bytes.n_bytes >= MUCH_BYTES)
        write_out(pipe);
}

dcpk_status dcpk_pipe_end(struct dcpk_doc_pipe *pipe)
{
    write_out(pipe);
    dcpk_bytes_release(&pipe->bytes);
    return pipe->err->status;
}
