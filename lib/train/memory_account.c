/* SPDX-License-Identifier: Apache-2.0 */
/* memory_account.c - counts what the device's memory is used for. */
#include "lib/train/memory_account.h"

#include <assert.h>

#include "lib/base/order.h"

const char *const dcpk_memory_tag_names[DCPK_N_TAGS] = {
    [DCPK_TAG_WEIGHTS] = "weights", [DCPK_TAG_MAIN] = "main",     [DCPK_TAG_GRADS] = "grads",
    [DCPK_TAG_ADAM] = "adam",       [DCPK_TAG_GATHER] = "gather", [DCPK_TAG_COMM] = "comm",
    [DCPK_TAG_ACT] = "act",
};

static dcpk_status counted_alloc(struct dcpk_device *device, enum dcpk_memory_kind kind,
                                 size_t n_bytes, void **at, struct dcpk_error *err)
{
    (void)device;
    (void)kind;
    (void)n_bytes;
    (void)err;
    *at = NULL;
    return DCPK_OK;
}

struct dcpk_math *dcpk_memory_counted(void)
{
    static const struct dcpk_device_ops memory = {.is_host = true, .alloc = counted_alloc};
    static struct dcpk_device device = {.ops = &memory};
    static const struct dcpk_ops ops = {.name = "none", .device = &memory};
    static struct dcpk_math math = {.ops = &ops, .device = &device};

    return &math;
}

dcpk_status dcpk_memory_account_alloc(struct dcpk_memory_account *account, enum dcpk_memory_tag tag,
                                      size_t n_bytes, void **at, struct dcpk_error *err)
{
    struct dcpk_device *device = account->math->device;
    size_t wanted = n_bytes;

    if (wanted == 0)
        wanted = 1;
    if (device->ops->alloc(device, DCPK_MEMORY_PRIVATE, wanted, at, err))
        return dcpk_context(err, "memory for %s", dcpk_memory_tag_names[tag]);
    dcpk_memory_account_count(account, tag, (int64_t)n_bytes);
    return DCPK_OK;
}

void dcpk_memory_account_count(struct dcpk_memory_account *account, enum dcpk_memory_tag tag,
                               int64_t n_bytes)
{
    assert(n_bytes >= 0 || account->now[tag] >= (uint64_t)-n_bytes);
    account->now[tag] += (uint64_t)n_bytes;
    account->now_all += (uint64_t)n_bytes;
    account->most[tag] = dcpk_max_u64(account->most[tag], account->now[tag]);
    account->most_all = dcpk_max_u64(account->most_all, account->now_all);
}

void dcpk_memory_account_free(struct dcpk_memory_account *account, enum dcpk_memory_tag tag,
                              size_t n_bytes, void *at)
{
    if (at == NULL)
        return;
    account->math->device->ops->free(account->math->device, at);
    dcpk_memory_account_count(account, tag, -(int64_t)n_bytes);
}
