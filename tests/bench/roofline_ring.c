/* SPDX-License-Identifier: Apache-2.0 */
/* roofline_ring.c - one thread that keeps many reads and writes under way.
 */
#include "tests/bench/roofline_ring.h"

#include <errno.h>
#include <liburing.h>

/* What is done with a buffer: a block is read, then written. */
struct slot {
    uint64_t block;
    bool is_writing;
};

bool ring_is_there(void)
{
    struct io_uring ring;

    if (io_uring_queue_init(1, &ring, 0) != 0)
        return false;
    io_uring_queue_exit(&ring);
    return true;
}

/* Ask for the read or write of slot i; the queue has room for each slot. */
static void ask(struct io_uring *ring, const struct ring_job *job, struct slot *slots, unsigned i)
{
    struct io_uring_sqe *sqe = io_uring_get_sqe(ring);
    const uint64_t at_bytes = slots[i].block * job->block_bytes;
    const unsigned n_bytes = (unsigned)job->block_bytes;

    if (slots[i].is_writing)
        io_uring_prep_write(sqe, job->out, job->buffers[i], n_bytes, at_bytes);
    else
        io_uring_prep_read(sqe, job->in, job->buffers[i], n_bytes, at_bytes);
    io_uring_sqe_set_data64(sqe, i);
}

/* Go on with slot i, whose request is done. Returns false where it has nothing left to do. */
static bool go_on(struct io_uring *ring, const struct ring_job *job, struct slot *slots, unsigned i,
                  uint64_t *next)
{
    struct slot *slot = &slots[i];

    if (!slot->is_writing && job->between != NULL)
        job->between(job->buffers[i], job->block_bytes);
    if (!slot->is_writing && job->out >= 0) {
        slot->is_writing = true;
    } else {
        if (*next == job->n_blocks)
            return false;
        *slot = (struct slot){.block = (*next)++};
    }
    ask(ring, job, slots, i);
    return true;
}

int ring_run(const struct ring_job *job)
{
    struct slot slots[256] = {0};
    struct io_uring ring;
    struct io_uring_cqe *cqe;
    uint64_t next = 0;
    unsigned n_under_way = 0;
    int error;

    if (job->n_buffers > sizeof slots / sizeof *slots)
        return EINVAL;
    error = -io_uring_queue_init(job->n_buffers, &ring, 0);
    if (error != 0)
        return error;
    for (; n_under_way < job->n_buffers && next < job->n_blocks; n_under_way++) {
        slots[n_under_way].block = next++;
        ask(&ring, job, slots, n_under_way);
    }
    while (n_under_way > 0 && error == 0) {
        const int n = io_uring_submit_and_wait(&ring, 1);

        if (n < 0)
            error = -n;
        while (error == 0 && io_uring_peek_cqe(&ring, &cqe) == 0) {
            const unsigned i = (unsigned)io_uring_cqe_get_data64(cqe);

            if (cqe->res != (int)job->block_bytes)
                error = cqe->res < 0 ? -cqe->res : EIO;
            io_uring_cqe_seen(&ring, cqe);
            if (error == 0 && !go_on(&ring, job, slots, i, &next))
                n_under_way--;
        }
    }
    io_uring_queue_exit(&ring);
    return error;
}
