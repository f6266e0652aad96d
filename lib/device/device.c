/* SPDX-License-Identifier: Apache-2.0 */
/* device.c - common parts of devices: tiles that can be moved, exported and mapped memory, and
 * waiting for a queue. */
#include "lib/device/device.h"

#include <assert.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/base/alloc.h"
#include "lib/base/clock.h"
#include "lib/tensor/dtype.h"

static dcpk_status check_tile(const struct dcpk_tile *tile, struct dcpk_error *err)
{
    const enum dcpk_dtype from = (enum dcpk_dtype)tile->from, to = (enum dcpk_dtype)tile->to;

    assert(from < DCPK_N_DTYPES && to < DCPK_N_DTYPES && dcpk_dtype_bytes(from) > 0);
    assert(tile->n_elems >= 1 && tile->n_rows >= 1 && tile->src != 0);
    assert(tile->dst != 0 || from == to);
    if (from != to && !(dcpk_dtype_is_float(from) && dcpk_dtype_is_float(to)))
        return dcpk_fail(err, DCPK_EUNSUPPORTED, "cannot cast %s to %s", dcpk_dtype_name(from),
                         dcpk_dtype_name(to));
    return DCPK_OK;
}

dcpk_status dcpk_tiles_check(const struct dcpk_tiles *tiles, struct dcpk_error *err)
{
    for (size_t i = 0; i < tiles->n; i++)
        if (check_tile(&tiles->tiles[i], err))
            return err->status;
    return DCPK_OK;
}

/* The kernel's text of 36 hex digits and dashes, folded into 16 bytes; zeros where it has none. */
static void fold_boot_id(uint8_t host[16])
{
    const int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    char text[36] = {0};

    if (fd < 0)
        return;
    if (read(fd, text, sizeof text) == (ssize_t)sizeof text)
        for (size_t i = 0; i < sizeof text; i++)
            host[i % 16] = (uint8_t)(host[i % 16] * 31 + (uint8_t)text[i]);
    close(fd);
}

void dcpk_memory_id_sign(struct dcpk_memory_id *id)
{
    struct stat namespace;

    id->process = (uint64_t)getpid();
    memset(id->host, 0, sizeof id->host);
    fold_boot_id(id->host);
    if (stat("/proc/self/ns/pid", &namespace) == 0)
        for (size_t i = 0; i < 8; i++)
            id->host[i] ^= (uint8_t)((uint64_t) namespace.st_ino >> (8 * i));
}

bool dcpk_memory_id_is_near(const struct dcpk_memory_id *id)
{
    struct dcpk_memory_id here = {0};

    dcpk_memory_id_sign(&here);
    return memcmp(here.host, id->host, sizeof here.host) == 0;
}

bool dcpk_memory_id_is_own(const struct dcpk_memory_id *id)
{
    return id->process == (uint64_t)getpid() && dcpk_memory_id_is_near(id);
}

dcpk_status dcpk_device_wait(struct dcpk_device *device, int queue, int timeout_ms,
                             struct dcpk_error *err)
{
    const double begun = dcpk_now_seconds();
    uint64_t ticket;
    bool done = false;
    double waited;

    if (device->ops->ticket(device, queue, &ticket, err))
        return err->status;
    for (;;) {
        if (device->ops->poll(device, ticket, &done, err))
            return err->status;
        if (done)
            return DCPK_OK;
        waited = dcpk_now_seconds() - begun;
        if (waited * 1000 > timeout_ms)
            return dcpk_fail(err, DCPK_EIO, "the device is not done after %d ms", timeout_ms);
        dcpk_pause(waited);
    }
}

/* ---- imports ---- */

static bool meets(const struct dcpk_memory_id *a, const struct dcpk_memory_id *b)
{
    return a->process == b->process && a->base < b->base + b->n_bytes &&
           b->base < a->base + a->n_bytes;
}

static void import_drop(struct dcpk_imports *imports, struct dcpk_import **link)
{
    struct dcpk_import *import = *link;

    *link = import->next;
    imports->unmap(imports->context, import);
    dcpk_free(import);
}

dcpk_status dcpk_imports_get(struct dcpk_imports *imports, const struct dcpk_memory_id *id,
                             void **at, struct dcpk_error *err)
{
    struct dcpk_import *made, **link = &imports->first;

    for (const struct dcpk_import *known = imports->first; known != NULL; known = known->next)
        if (memcmp(&known->id, id, sizeof *id) == 0) {
            *at = known->at;
            return DCPK_OK;
        }
    if (!dcpk_memory_id_is_near(id))
        return dcpk_fail(err, DCPK_EUNSUPPORTED, "the memory belongs to another machine");
    while (*link != NULL)
        if (meets(&(*link)->id, id))
            import_drop(imports, link);
        else
            link = &(*link)->next;
    made = dcpk_alloc(sizeof *made, err);
    if (made == NULL)
        return err->status;
    *made = (struct dcpk_import){.next = imports->first, .id = *id};
    if (imports->map(imports->context, id, &made->at, err)) {
        dcpk_free(made);
        return err->status;
    }
    imports->first = made;
    *at = made->at;
    return DCPK_OK;
}

void dcpk_imports_release(struct dcpk_imports *imports)
{
    while (imports->first != NULL)
        import_drop(imports, &imports->first);
}
