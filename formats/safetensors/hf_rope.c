/* SPDX-License-Identifier: Apache-2.0 */
/* hf_rope.c - rotary embeddings: theta, and the kinds of scaling of a map. */
#include <stdio.h>
#include <string.h>

#include "formats/safetensors/hf_config_priv.h"
#include "lib/base/order.h"
#include "lib/base/text.h"

#define DEFAULT_KIND "default"

static const struct dcpk_hf_rope_kind *find_kind(const struct dcpk_hf_map *map, const char *name)
{
    for (size_t i = 0; i < map->n_rope_kinds; i++)
        if (strcmp(map->rope_kinds[i].name, name) == 0)
            return &map->rope_kinds[i];
    return NULL;
}

static const char *kinds_of(const struct dcpk_hf_map *map, struct dcpk_arena *arena)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    const char *text = "";

    for (size_t i = 0; i < map->n_rope_kinds && text != NULL; i++)
        text = dcpk_arena_printf(arena, &err, "%s%s%s", text, dcpk_joint(i > 0, ", "),
                                 map->rope_kinds[i].name);
    return text == NULL ? "?" : text;
}

/* True if the kind reads this member of rope_scaling, or the member has no meaning anyway. */
static bool member_fits(const struct dcpk_hf_rope_kind *kind, const char *key,
                        const struct dcpk_value *value)
{
    static const char *const known[] = {
        "rope_type",        "type", "rope_theta", "partial_rotary_factor", "mrope_section",
        "mrope_interleaved" /* axes of positions, which are one in text */};

    for (size_t i = 0; i < DCPK_COUNT(known); i++)
        if (strcmp(known[i], key) == 0)
            return true;
    for (size_t i = 0; i < kind->n_rows; i++)
        if (strcmp(kind->rows[i].key, key) == 0)
            return true;
    if (dcpk_value_get(kind->require, key) != NULL)
        return dcpk_value_same(dcpk_value_get(kind->require, key), value);
    if (dcpk_value_get(kind->args, key) != NULL) /* mscale of plain attention */
        return dcpk_value_same(dcpk_value_get(kind->args, key), value);
    return dcpk_value_is_none(value);
}

static void check_members(struct dcpk_hf_importing *m, const struct dcpk_hf_rope_kind *kind)
{
    const struct dcpk_value *rope = m->view.rope;

    for (size_t i = 0; rope != NULL && i < rope->n; i++) {
        const char *key = dcpk_value_as_str(rope->as.pairs[i].key);
        const struct dcpk_value *value = rope->as.pairs[i].value;

        if (!member_fits(kind, key, value))
            dcpk_hf_fault(&m->faults, DCPK_EUNSUPPORTED,
                          "'%s' of rope kind '%s' is %s, which Megatron has no args for", key,
                          kind->name, dcpk_hf_show(m->arena, value));
    }
    for (size_t i = 0; i < kind->require->n; i++) {
        const char *key = dcpk_value_as_str(kind->require->as.pairs[i].key);

        if (dcpk_value_get(rope, key) == NULL)
            dcpk_hf_fault(&m->faults, DCPK_EFORMAT,
                          "'%s' is missing in rope kind '%s': Megatron has %s", key, kind->name,
                          dcpk_hf_show(m->arena, kind->require->as.pairs[i].value));
    }
}

static dcpk_status import_kind(struct dcpk_hf_importing *m, const struct dcpk_hf_rope_kind *kind,
                               struct dcpk_error *err)
{
    check_members(m, kind);
    if (dcpk_dict_set_all(&m->args, kind->args))
        return err->status;
    for (size_t i = 0; i < kind->n_rows; i++) {
        const struct dcpk_hf_rope_row *row = &kind->rows[i];
        const struct dcpk_value *value = dcpk_value_get(m->view.rope, row->key);

        /* transformers takes max_position_embeddings then, DeepSeek's own code 4096 */
        if (dcpk_value_is_none(value) && strcmp(row->key, "original_max_position_embeddings") != 0)
            value = row->by_default;
        if (dcpk_value_is_none(value))
            dcpk_hf_fault(&m->faults, DCPK_EFORMAT, "'%s' is missing in rope kind '%s'", row->key,
                          kind->name);
        else if (dcpk_hf_arg_import(m, row->key, row->arg, value, err))
            return err->status;
    }
    return DCPK_OK;
}

static bool is_theta(const struct dcpk_value *value, double *number)
{
    return dcpk_value_as_float(value, number) && *number >= 1 && *number <= DCPK_HF_MAX_THETA;
}

/* The base, a whole number where it is one: --rotary-base takes no other. */
static dcpk_status import_theta(struct dcpk_hf_importing *m, struct dcpk_error *err)
{
    const struct dcpk_value *theta = m->view.theta;
    double number = m->in->map->usual_theta;
    char text[80];

    snprintf(text, sizeof text, "config.json has none; the family's default is used, %.17g",
             number);
    if (dcpk_value_is_none(theta) && m->in->remark != NULL)
        m->in->remark(m->in->context, "rope_theta", text);
    else if (!dcpk_value_is_none(theta) && !is_theta(theta, &number))
        return dcpk_hf_fault(&m->faults, DCPK_EFORMAT,
                             "'rope_theta' is %s, not a number from 1 to %g",
                             dcpk_hf_show(m->arena, theta), DCPK_HF_MAX_THETA);
    if (number == (double)(int64_t)number)
        return dcpk_dict_set(&m->args, m->in->map->rope_theta,
                             dcpk_value_int(m->arena, (int64_t)number, err));
    return dcpk_dict_set(&m->args, m->in->map->rope_theta, dcpk_value_float(m->arena, number, err));
}

dcpk_status dcpk_hf_rope_import(struct dcpk_hf_importing *m, struct dcpk_error *err)
{
    const struct dcpk_hf_map *map = m->in->map;
    const struct dcpk_hf_rope_kind *kind;

    if (map->rope_theta == NULL)
        return DCPK_OK;
    kind = find_kind(map, m->view.rope_kind);
    if (kind == NULL) {
        dcpk_hf_fault(&m->faults, DCPK_EUNSUPPORTED,
                      "rope kind '%.60s' has no args in Megatron; family '%s' has %s",
                      m->view.rope_kind, map->family, kinds_of(map, m->arena));
        return DCPK_OK;
    }
    if (import_theta(m, err))
        return err->status;
    return import_kind(m, kind, err);
}

/* --- to config.json --- */

static bool kind_names(const struct dcpk_hf_rope_kind *kind, const char *arg)
{
    for (size_t i = 0; i < kind->n_rows; i++)
        if (strcmp(kind->rows[i].arg, arg) == 0)
            return true;
    return dcpk_value_get(kind->args, arg) != NULL;
}

bool dcpk_hf_ropes_name(const struct dcpk_hf_map *map, const char *arg)
{
    for (size_t i = 0; i < map->n_rope_kinds; i++)
        if (kind_names(&map->rope_kinds[i], arg))
            return true;
    return false;
}

/* The reason why the args are not of that kind; NULL: they are. */
static const char *kind_fault(struct dcpk_hf_exporting *m, const struct dcpk_hf_rope_kind *kind)
{
    for (size_t i = 0; i < kind->args->n; i++) {
        const char *arg = dcpk_value_as_str(kind->args->as.pairs[i].key);

        if (!dcpk_value_same(dcpk_arg_value(m->attrs, arg), kind->args->as.pairs[i].value))
            return arg;
    }
    for (size_t i = 0; i < kind->n_rows; i++)
        if (kind->rows[i].by_default == NULL &&
            dcpk_value_is_none(dcpk_arg_value(m->attrs, kind->rows[i].arg)))
            return kind->rows[i].arg;
    for (size_t i = 0; i < dcpk_n_args; i++) {
        const struct dcpk_arg *arg = &dcpk_args[i];

        if (!kind_names(kind, arg->name) && dcpk_hf_ropes_name(m->map, arg->name) &&
            dcpk_arg_is_off(arg, m->attrs))
            return arg->name;
    }
    return NULL;
}

/* rope_scaling, null for plain embeddings: transformers 4 and 5 and vLLM read it. */
static dcpk_status export_kind(struct dcpk_hf_exporting *m, const struct dcpk_hf_rope_kind *kind,
                               struct dcpk_error *err)
{
    struct dcpk_hf_exporting inner = {
        .map = m->map, .arena = m->arena, .config = {.arena = m->arena, .err = err}};

    if (strcmp(kind->name, DEFAULT_KIND) == 0)
        return dcpk_dict_set(&m->config, "rope_scaling", dcpk_value_none());
    if (dcpk_dict_set(&inner.config, "rope_type", dcpk_value_str(m->arena, kind->name, err)))
        return err->status;
    for (size_t i = 0; i < kind->require->n; i++)
        if (dcpk_hf_key_export(&inner, dcpk_value_as_str(kind->require->as.pairs[i].key),
                               kind->require->as.pairs[i].value, err))
            return err->status;
    for (size_t i = 0; i < kind->n_rows; i++) {
        const struct dcpk_hf_rope_row *row = &kind->rows[i];
        const struct dcpk_value *value = dcpk_arg_value(m->attrs, row->arg);

        if (dcpk_value_is_none(value))
            value = row->by_default;
        if (dcpk_hf_key_export(&inner, row->key, value, err))
            return err->status;
    }
    if (inner.faults.n > 0)
        dcpk_hf_fault(&m->faults, inner.faults.status, "%.*s", (int)inner.faults.first_bytes,
                      (const char *)inner.faults.text.data);
    dcpk_bytes_release(&inner.faults.text);
    dcpk_dict_sort(&inner.config);
    return dcpk_dict_set(&m->config, "rope_scaling", dcpk_dict_end(&inner.config));
}

dcpk_status dcpk_hf_rope_export(struct dcpk_hf_exporting *m, struct dcpk_error *err)
{
    const struct dcpk_hf_map *map = m->map;
    const struct dcpk_value *theta;
    const char *first = NULL;
    double number;

    if (map->rope_theta == NULL)
        return DCPK_OK;
    theta = dcpk_arg_value(m->attrs, map->rope_theta);
    if (!is_theta(theta, &number))
        dcpk_hf_fault(&m->faults, DCPK_EMISMATCH, "%s is %s, not a number from 1 to %g",
                      map->rope_theta, dcpk_hf_show(m->arena, theta), DCPK_HF_MAX_THETA);
    if (dcpk_hf_key_export(m, "rope_theta", theta, err))
        return err->status;
    for (size_t i = 0; i < map->n_rope_kinds; i++) {
        const char *fault = kind_fault(m, &map->rope_kinds[i]);

        if (fault == NULL)
            return export_kind(m, &map->rope_kinds[i], err);
        if (first == NULL)
            first = fault;
    }
    return dcpk_hf_fault(&m->faults, DCPK_EMISMATCH,
                         "%s is %s, and no kind of rope of family '%s' has it (%s)", first,
                         dcpk_hf_show(m->arena, dcpk_arg_value(m->attrs, first)), map->family,
                         kinds_of(map, m->arena));
}
