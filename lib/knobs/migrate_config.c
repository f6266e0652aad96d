/* SPDX-License-Identifier: Apache-2.0 */
/* migrate_config.c - edits of a configuration, YAML or JSON, which is YAML in flow style. */
#include <stdio.h>
#include <string.h>

#include "lib/base/json.h"
#include "lib/base/text.h"
#include "lib/knobs/migrate.h"

struct adding {
    const struct dcpk_migration *m;
    struct dcpk_text_edit *edits;
    size_t n;
    bool is_there[DCPK_MAX_CHANGES];
};

/* A value as YAML and JSON both have it. */
static void put_value(const struct dcpk_change *c, const char *old, struct dcpk_bytes *out)
{
    struct dcpk_json_out j;

    if (c->to == NULL)
        dcpk_bytes_text(out, old != NULL && strcmp(old, "true") == 0 ? "false" : "null");
    else if (c->row != NULL && !dcpk_option_is_text(c->row)) {
        dcpk_bytes_text(out, c->to);
    } else {
        dcpk_json_out_init(&j, out, 0);
        dcpk_json_put_string(&j, c->to);
    }
}

static bool is_section(const char *a, const char *b)
{
    return strcmp(dcpk_text_or(a, ""), dcpk_text_or(b, "")) == 0;
}

static bool is_wanted(const struct adding *a, size_t i)
{
    return !a->is_there[i] && a->m->changes[i].to != NULL && a->m->changes[i].row != NULL;
}

/* Appends what the section lacks, `before` between two, `after` after each. */
static void put_members(struct adding *a, const char *section, const char *quote,
                        const char *before, const char *after, struct dcpk_bytes *out)
{
    const char *separator = "";

    for (size_t i = 0; i < a->m->n_changes; i++) {
        const struct dcpk_change *c = &a->m->changes[i];

        if (!is_wanted(a, i) || !is_section(c->section, section))
            continue;
        dcpk_bytes_printf(out, "%s%s%s%s: ", separator, quote, c->name, quote);
        put_value(c, NULL, out);
        dcpk_bytes_text(out, after);
        separator = before;
        a->is_there[i] = true;
    }
}

/* A section's own members, then, in the whole text, sections that it lacks. */
static void put_room(struct adding *a, const struct dcpk_setting_room *room, struct dcpk_bytes *out)
{
    const bool is_root = room->section == NULL;
    const char *quote = room->is_flow ? "\"" : "";
    char after[64] = ", ";

    if (room->is_empty) {
        dcpk_bytes_text(out, room->at == room->end ? " {" : "{");
        put_members(a, room->section, "\"", ", ", "", out);
        if (out->data != NULL && out->data[out->n_bytes - 1] == '{')
            out->n_bytes = 0; /* it stays empty */
        else
            dcpk_bytes_text(out, "}");
        return;
    }
    if (room->has_line && room->indent < sizeof after - 4)
        snprintf(after, sizeof after, "%s\n%*s", room->is_flow ? "," : "", (int)room->indent, "");
    put_members(a, room->section, quote, "", after, out);
    for (size_t i = 0; is_root && i < a->m->n_changes; i++) {
        const struct dcpk_change *c = &a->m->changes[i];

        if (!is_wanted(a, i))
            continue;
        if (a->m->is_flat) {
            dcpk_bytes_printf(out, "%s%s.%s%s: ", quote, c->section, c->name, quote);
            put_value(c, NULL, out);
            dcpk_bytes_text(out, after);
            continue;
        }
        dcpk_bytes_printf(out, "%s%s%s: {", quote, c->section, quote);
        put_members(a, c->section, quote, ", ", "", out);
        dcpk_bytes_printf(out, "}%s", after);
    }
}

/* Adds an edit, unless the text is empty. Releases the text. */
static dcpk_status keep_edit(struct adding *a, size_t begin, size_t end, struct dcpk_bytes *text,
                             struct dcpk_error *err)
{
    if (text->n_bytes > 0)
        a->edits[a->n++] =
            (struct dcpk_text_edit){begin, end, dcpk_bytes_to_arena(text, a->m->from->arena, err)};
    else
        dcpk_bytes_release(text);
    return err->status;
}

dcpk_status dcpk_config_edit(const struct dcpk_migration *m, struct dcpk_text_edit **edits,
                             size_t *n, struct dcpk_error *err)
{
    const struct dcpk_settings *list = m->from;
    struct adding a = {.m = m};
    struct dcpk_bytes text = {0};

    a.edits = dcpk_arena_array(list->arena, list->n + list->n_rooms, sizeof *a.edits, err);
    if (a.edits == NULL)
        return err->status;
    for (size_t k = 0; k < list->n; k++)
        for (size_t i = 0; i < m->n_changes; i++) {
            if (!dcpk_change_is_of(&m->changes[i], &list->all[k]))
                continue;
            a.is_there[i] = true;
            put_value(&m->changes[i], list->all[k].text, &text);
            if (keep_edit(&a, list->all[k].begin, list->all[k].end, &text, err) != DCPK_OK)
                return err->status;
            break;
        }
    for (size_t i = list->n_rooms; i-- > 0;) { /* the whole text comes last */
        put_room(&a, &list->rooms[i], &text);
        if (keep_edit(&a, list->rooms[i].at,
                      list->rooms[i].is_empty ? list->rooms[i].end : list->rooms[i].at, &text,
                      err) != DCPK_OK)
            return err->status;
    }
    *edits = a.edits;
    *n = a.n;
    return DCPK_OK;
}
