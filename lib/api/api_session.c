/* SPDX-License-Identifier: Apache-2.0 */
/* api_session.c - what a program has of the library: its options, progress and failures. */
#include <assert.h>
#include <stddef.h>
#include <string.h>

#include "formats/formats.h"
#include "kernels/kernels.h"
#include "lib/api/api_engine_priv.h"
#include "lib/api/api_priv.h"
#include "lib/base/alloc.h"
#include "lib/base/order.h"

#define SAME(name) static_assert((int)DCPKIT_##name == (int)DCPK_##name, "one status, one number")
SAME(OK);
SAME(EUSAGE);
SAME(EFORMAT);
SAME(EUNSUPPORTED);
SAME(ERANGE);
SAME(EMISMATCH);
SAME(ENOMEM);
SAME(EIO);
SAME(ECANCELLED);

/* A later field must not lie where an earlier caller has padding, of any value. */
#define ENDS_WITH(type, last)                                                                      \
    static_assert(offsetof(struct type, last) + sizeof(((struct type *)0)->last) ==                \
                      sizeof(struct type),                                                         \
                  "a struct with a size has no padding at its end")
ENDS_WITH(dcpkit_options, context);
ENDS_WITH(dcpkit_convert_options, dtype);
ENDS_WITH(dcpkit_engine_options, reserved);
ENDS_WITH(dcpkit_map_totals, note);
ENDS_WITH(dcpkit_map_stats, sent_bytes);

const char *dcpkit_version(void)
{
    return DCPK_VERSION;
}

const char *dcpkit_format_name(size_t index)
{
    for (size_t i = 0; dcpk_formats[i] != NULL; i++)
        if (i == index)
            return dcpk_formats[i]->name;
    return NULL;
}

static void session_stage(void *context, const char *label)
{
    ((dcpkit *)context)->stage = label;
}

static bool session_update(void *context, uint64_t done_bytes, uint64_t total_bytes)
{
    const dcpkit *session = context;
    const struct dcpkit_options *o = &session->options;

    return o->progress(o->context, session->stage, done_bytes, total_bytes) == 0;
}

dcpk_status api_check_size(size_t most, size_t n_bytes, struct dcpk_error *err)
{
    if (n_bytes >= sizeof n_bytes && n_bytes <= most)
        return DCPK_OK;
    return dcpk_fail(err, DCPK_EUSAGE, "a struct has %zu bytes, but this library expects %zu",
                     n_bytes, most);
}

dcpk_status api_take(void *to, size_t most, const void *from, size_t n_bytes,
                     struct dcpk_error *err)
{
    if (api_check_size(most, n_bytes, err))
        return err->status;
    memcpy(to, from, n_bytes);
    return DCPK_OK;
}

void api_give(void *to, const void *from, size_t n_bytes)
{
    memcpy((uint8_t *)to + sizeof n_bytes, (const uint8_t *)from + sizeof n_bytes,
           n_bytes - sizeof n_bytes);
}

dcpk_status api_give_text(struct dcpk_bytes *bytes, char **text, struct dcpk_error *err)
{
    dcpk_bytes_u8(bytes, 0);
    if (dcpk_bytes_status(bytes, err)) {
        dcpk_bytes_release(bytes);
        return err->status;
    }
    *text = (char *)bytes->data;
    return DCPK_OK;
}

static dcpk_status options_take(struct dcpkit_options *to, const struct dcpkit_options *from,
                                struct dcpk_error *err)
{
    if (api_take(to, sizeof *to, from, from->size, err))
        return err->status;
    if (to->n_threads < 0)
        return dcpk_fail(err, DCPK_EUSAGE, "%d is not a number of threads", to->n_threads);
    return DCPK_OK;
}

int dcpkit_new(const struct dcpkit_options *options, dcpkit **session)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    dcpkit *made = dcpk_alloc(sizeof *made, &err);

    if (made == NULL)
        return (int)err.status;
    if (options != NULL && options_take(&made->options, options, &err)) {
        dcpk_free(made);
        return (int)err.status;
    }
    made->env = (struct dcpk_env){
        .formats = dcpk_formats,
        .open_file = dcpk_archive_opener,
        .open_url = dcpk_remote_open,
        .side_files = dcpk_side_files,
        .kernels = dcpk_host_kernel_sets[0],
        .n_threads = made->options.n_threads,
        .memory_bytes = made->options.memory_bytes,
    };
    made->stage = "";
    if (made->options.progress != NULL)
        made->env.progress = (struct dcpk_progress){session_update, made, session_stage};
    *session = made;
    return DCPKIT_OK;
}

void dcpkit_free(dcpkit *session)
{
    dcpk_free(session);
}

const char *dcpkit_error(const dcpkit *session)
{
    return session->err.text;
}

#define FIX(api, lib)                                                                              \
    static_assert((int)DCPKIT_FIX_##api == (int)DCPK_FIX_##lib, "one fix, one bit")
FIX(REPLACE, REPLACE);
FIX(RESUME, RESUME);
FIX(MEMORY, MEMORY);
FIX(WEIGHTS_ONLY, WEIGHTS_ONLY);
FIX(SWIGLU, SWIGLU);
FIX(NO_MESH, NO_MESH);
FIX(NO_PROOF, NO_READ_BACK);
FIX(NO_INTEGRITY, NO_INTEGRITY);
FIX(CONFIG, CONFIG);

unsigned dcpkit_fixes(const dcpkit *session)
{
    const unsigned ours = DCPKIT_FIX_REPLACE | DCPKIT_FIX_RESUME | DCPKIT_FIX_MEMORY |
                          DCPKIT_FIX_WEIGHTS_ONLY | DCPKIT_FIX_SWIGLU | DCPKIT_FIX_NO_MESH |
                          DCPKIT_FIX_NO_PROOF | DCPKIT_FIX_NO_INTEGRITY | DCPKIT_FIX_CONFIG;

    return session->err.fixes & ours;
}

void dcpkit_text_free(char *text)
{
    dcpk_free(text);
}

/* ---- a world of ranks ---- */

#define BROADCAST_BYTES ((size_t)256 << 10) /* at once, of each rank */

struct world_comm {
    struct dcpk_comm base;
    struct dcpkit_world world;
    uint8_t *all; /* broadcasts of all ranks */
};

/* Not in place. An answer of 0 is believed when the own bytes came back. */
static dcpk_status world_all_gather(struct dcpk_comm *comm, const void *mine, size_t n_bytes,
                                    void *all, struct dcpk_error *err)
{
    const struct dcpkit_world *world = &((struct world_comm *)comm)->world;
    uint8_t *own = (uint8_t *)all + (size_t)comm->rank * n_bytes;
    int answer;

    for (size_t i = 0; i < n_bytes; i++)
        own[i] = (uint8_t) ~((const uint8_t *)mine)[i];
    answer = world->all_gather(world->context, mine, n_bytes, all);
    if (answer != 0)
        return dcpk_fail(err, DCPK_EIO, "rank %d of %d: all_gather of %zu bytes failed with %d",
                         comm->rank, comm->n_ranks, n_bytes, answer);
    if (n_bytes > 0 && memcmp(own, mine, n_bytes) != 0)
        return dcpk_fail(err, DCPK_EIO, "all_gather did not bring back what rank %d gave",
                         comm->rank);
    return DCPK_OK;
}

/* All give what they have at `data`, and take that of the root. */
static dcpk_status world_broadcast(struct dcpk_comm *comm, int root, void *data, size_t n_bytes,
                                   struct dcpk_error *err)
{
    uint8_t *all = ((struct world_comm *)comm)->all, *bytes = data;

    for (size_t at = 0, n; at < n_bytes; at += n) {
        n = dcpk_min_size(n_bytes - at, BROADCAST_BYTES);
        if (world_all_gather(comm, bytes + at, n, all, err))
            return err->status;
        memcpy(bytes + at, all + (size_t)root * n, n);
    }
    return DCPK_OK;
}

static void world_free(struct dcpk_comm *comm)
{
    dcpk_free(((struct world_comm *)comm)->all);
    dcpk_free(comm);
}

/* No work of ranks here sends messages: there is no `send`. */
static const struct dcpk_transport world_transport = {
    .name = "world",
    .summary = "the caller's all_gather",
    .all_gather = world_all_gather,
    .broadcast = world_broadcast,
    .leave = world_free,
    .abandon = world_free,
};

static dcpk_status check_world(const struct dcpkit_world *world, struct dcpk_error *err)
{
    if (world->n_ranks < 1 || world->rank < 0 || world->rank >= world->n_ranks)
        return dcpk_fail(err, DCPK_EUSAGE, "a world has ranks from 0 on, not rank %d of %d",
                         world->rank, world->n_ranks);
    if (world->n_ranks > 1 && world->all_gather == NULL)
        return dcpk_fail(err, DCPK_EUSAGE, "a world of %d ranks needs an all_gather",
                         world->n_ranks);
    return DCPK_OK;
}

dcpk_status api_ranks_over(const struct dcpkit_world *world, struct dcpk_ranks **ranks,
                           struct dcpk_error *err)
{
    struct world_comm *comm;

    *ranks = NULL;
    if (world == NULL)
        return DCPK_OK;
    if (check_world(world, err))
        return err->status;
    if (world->n_ranks == 1)
        return DCPK_OK;
    comm = dcpk_alloc(sizeof *comm, err);
    if (comm == NULL)
        return err->status;
    comm->base = (struct dcpk_comm){
        .transport = &world_transport, .rank = world->rank, .n_ranks = world->n_ranks};
    comm->world = *world;
    comm->all = dcpk_alloc_array((size_t)world->n_ranks, BROADCAST_BYTES, err);
    if (comm->all == NULL || dcpk_ranks_over(&comm->base, ranks, err))
        world_free(&comm->base);
    return err->status;
}
