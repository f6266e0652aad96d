/* SPDX-License-Identifier: Apache-2.0 */
/* portable.c - args and other values without what another Megatron may not be able to import. */
#include "lib/model/portable.h"

#include <inttypes.h>
#include <stddef.h>
#include <string.h>

#include "lib/base/bytes.h"
#include "lib/base/order.h"
#include "lib/base/text.h"
#include "lib/model/sizes.h"

enum tensors { NO_TENSORS, WITH_TENSORS };

static bool is_portable(const struct dcpk_value *v, enum tensors tensors)
{
    switch (v->kind) {
    case DCPK_V_TUPLE:
    case DCPK_V_LIST:
    case DCPK_V_SET:
        for (size_t i = 0; i < v->n; i++)
            if (!is_portable(v->as.items[i], tensors))
                return false;
        return true;
    case DCPK_V_DICT:
        for (size_t i = 0; i < v->n; i++)
            if (!is_portable(v->as.pairs[i].key, tensors) ||
                !is_portable(v->as.pairs[i].value, tensors))
                return false;
        return true;
    case DCPK_V_GLOBAL:
        return strcmp(v->as.global.module, "torch") == 0 &&
               dcpk_dtype_from_name(v->as.global.name) != DCPK_DTYPE_NONE;
    case DCPK_V_OBJECT:
        return dcpk_value_is_object(v, "argparse", "Namespace") && dcpk_value_attrs(v) != NULL &&
               is_portable(dcpk_value_attrs(v), tensors);
    case DCPK_V_TENSOR:
        return tensors == WITH_TENSORS;
    case DCPK_V_NONE:
    case DCPK_V_BOOL:
    case DCPK_V_INT:
    case DCPK_V_BIGINT:
    case DCPK_V_FLOAT:
    case DCPK_V_STR:
    case DCPK_V_BYTES:
        return true;
    }
    return false;
}

bool dcpk_value_is_portable(const struct dcpk_value *v)
{
    return is_portable(v, WITH_TENSORS);
}

static bool names(const struct dcpk_value *key, const struct dcpk_value *other)
{
    const char *a = dcpk_value_as_str(key), *b = dcpk_value_as_str(other);

    return a != NULL && b != NULL && strcmp(a, b) == 0;
}

static bool is_in_set(const struct dcpk_value *key, const struct dcpk_dict *set)
{
    for (size_t i = 0; i < set->n; i++)
        if (names(key, set->pairs[i].key))
            return true;
    return false;
}

/* A class of Megatron's or Python's own: the attribute is a setting, which a run gets from its
 * command line. */
static bool is_setting_class(const struct dcpk_value *v)
{
    static const char *const modules[] = {"megatron.", "signal", "pathlib"};

    for (size_t i = 0; v->kind == DCPK_V_OBJECT && i < DCPK_COUNT(modules); i++)
        if (dcpk_starts_with(v->as.object->module, modules[i]))
            return true;
    return false;
}

/* The value that an attribute gets: of `set`, else its own. NULL: neither has it. */
static const struct dcpk_value *find_set(const char *name, const struct dcpk_value *attrs,
                                         const struct dcpk_dict *set)
{
    for (size_t i = 0; i < set->n; i++)
        if (strcmp(dcpk_value_as_str(set->pairs[i].key), name) == 0)
            return set->pairs[i].value;
    return dcpk_value_get(attrs, name);
}

/*
 * True if the size follows from the source's mesh. Data parallelism that is not given does
 * (dcpk_layout_fit_ranks); other sizes that a given mesh lacks follow from the rest of it.
 */
static bool is_of_source(const struct dcpk_output *out, const struct dcpk_layout_size *size,
                         bool is_set)
{
    const struct dcpk_grid *mesh = &out->target.mesh;

    if (size->at == offsetof(struct dcpk_grid, dp) || size->at == offsetof(struct dcpk_grid, world))
        return mesh->dp == 0;
    if (is_set)
        return false;
    return mesh->tp == 0 || (size->at == offsetof(struct dcpk_grid, cp) && mesh->cp == 0);
}

/* Name sizes in args that follow from the source's mesh. A run of one rank gives no note. */
static dcpk_status note_kept(struct dcpk_output *out, const struct dcpk_value *attrs,
                             const struct dcpk_dict *set, struct dcpk_error *err)
{
    struct dcpk_bytes text = {0};
    bool is_notable = false;
    dcpk_status st;

    for (size_t i = 0; i < DCPK_LAYOUT_N_SIZES; i++) {
        const struct dcpk_layout_size *size = &dcpk_layout_sizes[i];
        const struct dcpk_value *value = find_set(size->name, attrs, set);
        int64_t n = 0;

        if (!dcpk_value_as_int(value, &n) || n <= 0 ||
            (n == 1 && size->at != offsetof(struct dcpk_grid, dp)) ||
            !is_of_source(out, size, value != dcpk_value_get(attrs, size->name)))
            continue;
        is_notable = is_notable || n > 1;
        dcpk_bytes_printf(&text, "%s%s %" PRId64, dcpk_joint(text.n_bytes > 0, ", "), size->name,
                          n);
    }
    dcpk_bytes_put(&text, "", 1);
    st = dcpk_bytes_status(&text, err);
    if (st == DCPK_OK && is_notable)
        dcpk_output_event(out, DCPK_EVENT_NOTE, "args",
                          "args keep the source's %s: the target mesh %s", (const char *)text.data,
                          out->target.mesh.tp > 0 ? "does not give them" : "is not given");
    dcpk_bytes_release(&text);
    return st;
}

dcpk_status dcpk_args_portable(struct dcpk_output *out, const struct dcpk_value *args,
                               const struct dcpk_dict *set, const struct dcpk_value **portable,
                               struct dcpk_error *err)
{
    const struct dcpk_value *attrs = dcpk_value_attrs(args);
    struct dcpk_dict kept = {.arena = out->arena, .err = err};

    if (attrs == NULL)
        return dcpk_fail_fix(
            err, DCPK_EFORMAT, DCPK_FIX_ARGS,
            "the source has no args: Megatron does not load a checkpoint without them");
    for (size_t i = 0; i < attrs->n; i++) {
        const struct dcpk_value_pair *pair = &attrs->as.pairs[i];
        const char *name = dcpk_value_as_str(pair->key), *key;
        const struct dcpk_value *v = pair->value;

        if (is_in_set(pair->key, set))
            continue;
        if (name != NULL && is_portable(v, NO_TENSORS)) {
            dcpk_dict_add(&kept, pair->key, v);
            continue;
        }
        key = dcpk_arena_printf(out->arena, err, "args.%s", dcpk_text_or(name, "?"));
        if (key == NULL)
            return err->status;
        if (is_setting_class(v))
            dcpk_output_event(out, DCPK_EVENT_OMITTED, key,
                              "attribute of a class that another release may not have; a run takes "
                              "it from its command line");
        else
            dcpk_output_event(out, DCPK_EVENT_DROPPED, key,
                              "attribute of class %s.%s, which another Megatron may not have",
                              v->kind == DCPK_V_OBJECT ? v->as.object->module : "?",
                              v->kind == DCPK_V_OBJECT ? v->as.object->name : "?");
    }
    for (size_t i = 0; i < set->n; i++)
        dcpk_dict_add(&kept, set->pairs[i].key, set->pairs[i].value);
    if (err->status != DCPK_OK || note_kept(out, attrs, set, err) != DCPK_OK)
        return err->status;
    *portable = dcpk_value_namespace(out->arena, kept.pairs, kept.n, err);
    if (*portable == NULL)
        return err->status;
    dcpk_layout_read(dcpk_value_attrs(*portable), &out->layout);
    return DCPK_OK;
}
