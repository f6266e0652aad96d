/* SPDX-License-Identifier: Apache-2.0 */
/* api_engine.c - an engine for programs: ranks over the caller's world, a device, a link. */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/kernels.h"
#include "lib/api/api_engine_priv.h"
#include "lib/base/alloc.h"
#include "lib/base/order.h"

#define ANY_LINK (-1)

/* "cuda:1" */
static dcpk_status device_take(const char *device, const struct dcpk_device_ops **ops, int *ordinal,
                               struct dcpk_error *err)
{
    const size_t n_bytes = strcspn(device, ":");
    char *end;
    long number;

    *ordinal = 0;
    if (device[n_bytes] == ':') {
        number = strtol(device + n_bytes + 1, &end, 10);
        if (end == device + n_bytes + 1 || *end != '\0' || number < 0 || number > INT32_MAX)
            return dcpk_fail(err, DCPK_EUSAGE, "'%s' is not a device: write NAME, or NAME:NUMBER",
                             device);
        *ordinal = (int)number;
    }
    for (size_t i = 0; dcpk_devices[i] != NULL; i++)
        if (strncmp(dcpk_devices[i]->name, device, n_bytes) == 0 &&
            dcpk_devices[i]->name[n_bytes] == '\0') {
            *ops = dcpk_devices[i];
            return DCPK_OK;
        }
    return dcpk_kernels_fail("device", device, err);
}

static dcpk_status transport_take(dcpkit_engine *engine, const char *transport,
                                  struct dcpk_error *err)
{
    static const struct {
        const char *name;
        enum dcpk_remap_path path;
    } paths[] = {
        {"auto", DCPK_REMAP_AUTO}, {"direct", DCPK_REMAP_DIRECT}, {"staged", DCPK_REMAP_STAGED}};

    engine->link = ANY_LINK;
    for (size_t i = 0; i < DCPK_COUNT(paths); i++)
        if (strcmp(transport, paths[i].name) == 0) {
            engine->options.path = paths[i].path;
            return DCPK_OK;
        }
    engine->options.path = DCPK_REMAP_STAGED;
    for (int i = 0; dcpk_links[i] != NULL; i++)
        if (strcmp(transport, dcpk_links[i]->name) == 0) {
            engine->link = i;
            return DCPK_OK;
        }
    return dcpk_kernels_fail("transport", transport, err);
}

static dcpk_status engine_take(dcpkit_engine *engine, const struct dcpkit_engine_options *from,
                               struct dcpk_error *err)
{
    struct dcpkit_engine_options given = {0};
    struct dcpk_device_options device = {0};
    const struct dcpk_device_ops *ops;

    if (from != NULL && api_take(&given, sizeof given, from, from->size, err))
        return err->status;
    if (given.timeout_ms < 0 || given.n_blocks < 0 || given.link_bytes_a_second < 0)
        return dcpk_fail(err, DCPK_EUSAGE, "an option of an engine is below 0");
    if (given.reserved != 0)
        return dcpk_fail(err, DCPK_EUSAGE, "a reserved option of an engine is not 0");
    if (device_take(given.device == NULL ? "cpu" : given.device, &ops, &device.ordinal, err) ||
        transport_take(engine, given.transport == NULL ? "auto" : given.transport, err))
        return err->status;
    device.n_blocks = given.n_blocks;
    engine->options.staging_bytes = given.staging_bytes;
    engine->options.unit_bytes = given.unit_bytes;
    engine->options.link_bytes_a_second = given.link_bytes_a_second;
    engine->options.timeout_ms = given.timeout_ms;
    engine->options.checks = given.check != 0;
    return ops->open(&device, &engine->options.device, err);
}

/* The facts that ranks must have in common, and the rank. Without holes. */
struct facts {
    uint64_t staging_bytes, unit_bytes;
    double link_bytes_a_second;
    char device[16];
    int32_t path, link, checks, rank;
};

static void facts_fill(const dcpkit_engine *engine, struct facts *facts)
{
    const struct dcpk_remap_options *o = &engine->options;

    *facts = (struct facts){.staging_bytes = o->staging_bytes,
                            .unit_bytes = o->unit_bytes,
                            .link_bytes_a_second = o->link_bytes_a_second,
                            .path = (int32_t)o->path,
                            .link = engine->link,
                            .checks = o->checks,
                            .rank = dcpk_ranks_self(o->ranks)};
    snprintf(facts->device, sizeof facts->device, "%s", o->device->ops->name);
}

static dcpk_status check_facts(const struct dcpk_bytes *all, int n_ranks, struct dcpk_error *err)
{
    struct facts first, other;

    memcpy(&first, all->data, sizeof first);
    for (int r = 0; r < n_ranks; r++) {
        memcpy(&other, all->data + (size_t)r * sizeof other, sizeof other);
        if (other.rank != r)
            return dcpk_fail(err, DCPK_EUSAGE, "all_gather has the bytes of rank %d from rank %d",
                             r, other.rank);
        other.rank = first.rank;
        if (memcmp(&first, &other, sizeof first) != 0)
            return dcpk_fail(err, DCPK_EUSAGE, "ranks 0 and %d have other options of an engine", r);
    }
    return DCPK_OK;
}

/* Collective: checks that all ranks have the same options. st: of this rank's own. */
static dcpk_status share_facts(dcpkit_engine *engine, dcpk_status st, struct dcpk_error *err)
{
    struct dcpk_ranks *ranks = engine->options.ranks;
    struct dcpk_bytes all = {0};
    struct facts mine = {0};

    static_assert(sizeof mine == 3 * 8 + 16 + 4 * 4, "no holes that memcmp would compare");
    if (st == DCPK_OK)
        facts_fill(engine, &mine);
    st = dcpk_ranks_share_each(ranks, &mine, sizeof mine, &all, st, err);
    if (st == DCPK_OK)
        st = check_facts(&all, dcpk_ranks_count(ranks), err);
    dcpk_bytes_release(&all);
    return dcpk_ranks_agree(ranks, st, err);
}

void api_engine_drop(dcpkit_engine *engine)
{
    struct dcpk_remap_options *o = &engine->options;

    if (--engine->n_holders > 0)
        return;
    if (o->link != NULL)
        o->link->ops->close(o->link);
    if (o->device != NULL)
        o->device->ops->close(o->device);
    dcpk_ranks_abandon(o->ranks);
    dcpk_free(engine);
}

int dcpkit_engine_open(dcpkit *session, const struct dcpkit_world *world,
                       const struct dcpkit_engine_options *options, dcpkit_engine **engine)
{
    struct dcpk_error *err = api_begin(session);
    dcpkit_engine *made = dcpk_alloc(sizeof *made, err);

    if (made == NULL)
        return (int)err->status;
    made->session = session;
    made->n_holders = 1;
    if (api_ranks_over(world, &made->options.ranks, err) == DCPK_OK)
        share_facts(made, engine_take(made, options, err), err);
    if (err->status == DCPK_OK && made->options.path == DCPK_REMAP_STAGED)
        api_engine_find_link(made, err);
    if (err->status != DCPK_OK) {
        api_engine_drop(made);
        return (int)err->status;
    }
    *engine = made;
    return DCPKIT_OK;
}

void dcpkit_engine_close(dcpkit_engine *engine)
{
    if (engine != NULL)
        api_engine_drop(engine);
}

/* Collective: open one link on all ranks, or on none. */
static dcpk_status link_open(dcpkit_engine *engine, const struct dcpk_link_ops *ops,
                             struct dcpk_error *err)
{
    struct dcpk_remap_options *o = &engine->options;
    struct dcpk_link *link = NULL;
    dcpk_status st;

    if (ops->memory == DCPK_MEMORY_DEVICE && o->device->ops == dcpk_devices[0])
        st = dcpk_fail(err, DCPK_EUNSUPPORTED, "the link '%s' is for GPUs", ops->name);
    else
        st = ops->open(dcpk_ranks_comm(o->ranks), o->device, &link, err);
    st = dcpk_ranks_agree(o->ranks, st, err);
    if (st == DCPK_OK)
        o->link = link;
    else if (link != NULL)
        link->ops->close(link);
    return st;
}

dcpk_status api_engine_find_link(dcpkit_engine *engine, struct dcpk_error *err)
{
    if (engine->has_tried_links || engine->options.ranks == NULL)
        return DCPK_OK;
    engine->has_tried_links = true;
    if (engine->link != ANY_LINK)
        return link_open(engine, dcpk_links[engine->link], err);
    for (size_t i = 0; dcpk_links[i] != NULL; i++) {
        struct dcpk_error why = DCPK_ERROR_INIT;

        if (link_open(engine, dcpk_links[i], &why) == DCPK_OK)
            return DCPK_OK;
        if (why.status != DCPK_EUNSUPPORTED) {
            *err = why;
            return err->status;
        }
    }
    return DCPK_OK;
}
