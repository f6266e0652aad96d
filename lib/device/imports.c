/* SPDX-License-Identifier: Apache-2.0 */
/* imports.c - mapped memory in a list: a rank maps a few allocations of each of its peers. */
#include "lib/device/imports.h"

#include <string.h>

#include "lib/base/alloc.h"

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
        return dcpk_fail(err, DCPK_EUNSUPPORTED, "the memory is of another machine");
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
