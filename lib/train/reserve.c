/* SPDX-License-Identifier: Apache-2.0 */
/* reserve.c - takes host memory and makes it ready by blocks, on background threads. */
#include "lib/train/reserve.h"

#include <assert.h>
#include <unistd.h>

#include "lib/base/alloc.h"
#include "lib/base/order.h"
#include "lib/exec/pool.h"

#define USUAL_BLOCK_BYTES ((size_t)256 << 20)

struct dcpk_reserve {
    struct dcpk_reserve_options options;
    uint8_t *at;
    size_t n_blocks;
    struct dcpk_background *background; /* NULL: it has ended */
    bool is_locked;
    struct dcpk_error unlocked; /* why it is not */
};

static uint8_t *block_at(const struct dcpk_reserve *r, size_t block)
{
    return r->at + block * r->options.block_bytes;
}

static size_t block_bytes(const struct dcpk_reserve *r, size_t block)
{
    const size_t most = r->options.block_bytes;

    return dcpk_min_size(most, r->options.n_bytes - block * most);
}

/* One byte makes a page be there. */
static dcpk_status block_touch(void *context, int worker, uint64_t block, struct dcpk_error *err)
{
    const struct dcpk_reserve *r = context;
    const size_t page_bytes = (size_t)dcpk_max_i64(sysconf(_SC_PAGESIZE), 1);
    const size_t n_bytes = block_bytes(r, (size_t)block);
    volatile uint8_t *at = block_at(r, (size_t)block);

    (void)worker;
    (void)err;
    for (size_t i = 0; i < n_bytes; i += page_bytes)
        at[i] = 0;
    return DCPK_OK;
}

/* All of it at once: a copy may not cross from one locked piece to another. */
static void reserve_lock(struct dcpk_reserve *r)
{
    struct dcpk_device *device = r->options.device;

    if (device == NULL || device->ops->lock_host == NULL)
        return;
    r->is_locked =
        device->ops->lock_host(device, r->at, r->options.n_bytes, &r->unlocked) == DCPK_OK;
}

static dcpk_status reserve_prepare(void *context, struct dcpk_error *err)
{
    struct dcpk_reserve *r = context;

    if (dcpk_pool_run(r->options.n_threads, r->n_blocks, block_touch, r, err) == DCPK_OK)
        reserve_lock(r);
    return err->status;
}

dcpk_status dcpk_reserve_new(const struct dcpk_reserve_options *options,
                             struct dcpk_reserve **reserve, struct dcpk_error *err)
{
    struct dcpk_reserve *made = dcpk_alloc(sizeof *made, err);
    struct dcpk_device *host = options->host;
    void *at = NULL;

    assert(options->n_bytes >= 1 && options->n_threads >= 1);
    if (made == NULL)
        return err->status;
    made->options = *options;
    if (options->block_bytes == 0)
        made->options.block_bytes = USUAL_BLOCK_BYTES;
    made->n_blocks = (options->n_bytes - 1) / made->options.block_bytes + 1;
    if (host->ops->alloc(host, DCPK_MEMORY_DEVICE, options->n_bytes, &at, err) == DCPK_OK) {
        made->at = at;
        if (dcpk_background_start(reserve_prepare, made, &made->background, err) == DCPK_OK) {
            *reserve = made;
            return DCPK_OK;
        }
    }
    dcpk_reserve_free(made);
    return err->status;
}

void dcpk_reserve_free(struct dcpk_reserve *reserve)
{
    struct dcpk_error ignored = DCPK_ERROR_INIT;
    struct dcpk_device *host, *device;

    if (reserve == NULL)
        return;
    (void)dcpk_reserve_wait(reserve, &ignored);
    host = reserve->options.host;
    device = reserve->options.device;
    if (reserve->is_locked)
        device->ops->unlock_host(device, reserve->at);
    host->ops->free(host, reserve->at);
    dcpk_free(reserve);
}

dcpk_status dcpk_reserve_wait(struct dcpk_reserve *reserve, struct dcpk_error *err)
{
    struct dcpk_background *background = reserve->background;

    reserve->background = NULL;
    return dcpk_background_finish(background, err);
}

const char *dcpk_reserve_unlocked(const struct dcpk_reserve *reserve)
{
    return reserve->unlocked.status == DCPK_OK ? NULL : reserve->unlocked.text;
}

uint8_t *dcpk_reserve_at(const struct dcpk_reserve *reserve)
{
    return reserve->at;
}

size_t dcpk_reserve_bytes(const struct dcpk_reserve *reserve)
{
    return reserve->options.n_bytes;
}
