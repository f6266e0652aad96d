/* SPDX-License-Identifier: Apache-2.0 */
/* setting.c - lists of settings that grow in an arena, and edits of a text. */
#include "lib/base/setting.h"

#define MAX_SETTINGS 200000

/* Room for one more item of item_bytes. NULL and err: there is none. */
static void *list_grow(struct dcpk_settings *list, void *items, size_t n, size_t *capacity,
                       size_t item_bytes, struct dcpk_error *err)
{
    void *room;

    if (n < *capacity)
        return items;
    if (n >= MAX_SETTINGS) {
        dcpk_fail(err, DCPK_ERANGE, "it has more than %d settings", MAX_SETTINGS);
        return NULL;
    }
    room = dcpk_arena_extend(list->arena, items, n, 2 * n + 64, item_bytes, err);
    if (room != NULL)
        *capacity = 2 * n + 64;
    return room;
}

dcpk_status dcpk_settings_add(struct dcpk_settings *list, const struct dcpk_setting *setting,
                              struct dcpk_error *err)
{
    struct dcpk_setting *all =
        list_grow(list, list->all, list->n, &list->capacity, sizeof *all, err);

    if (all == NULL)
        return err->status;
    list->all = all;
    all[list->n++] = *setting;
    return DCPK_OK;
}

dcpk_status dcpk_settings_add_room(struct dcpk_settings *list, const struct dcpk_setting_room *room,
                                   struct dcpk_error *err)
{
    struct dcpk_setting_room *rooms =
        list_grow(list, list->rooms, list->n_rooms, &list->room_capacity, sizeof *rooms, err);

    if (rooms == NULL)
        return err->status;
    list->rooms = rooms;
    rooms[list->n_rooms++] = *room;
    return DCPK_OK;
}

/* By place; what is put before another edit comes before it. */
static bool text_edit_is_after(const struct dcpk_text_edit *a, const struct dcpk_text_edit *b)
{
    return a->begin > b->begin || (a->begin == b->begin && a->end > b->end);
}

static void text_edits_sort(struct dcpk_text_edit *edits, size_t n)
{
    for (size_t i = 1; i < n; i++) {
        const struct dcpk_text_edit edit = edits[i];
        size_t at = i;

        for (; at > 0 && text_edit_is_after(&edits[at - 1], &edit); at--)
            edits[at] = edits[at - 1];
        edits[at] = edit;
    }
}

dcpk_status dcpk_text_edit_apply(const char *text, size_t n_bytes, struct dcpk_text_edit *edits,
                                 size_t n, struct dcpk_bytes *out, struct dcpk_error *err)
{
    size_t at = 0;

    text_edits_sort(edits, n);
    for (size_t i = 0; i < n; at = edits[i++].end) {
        if (edits[i].begin < at || edits[i].end > n_bytes)
            return dcpk_fail(err, DCPK_EUNSUPPORTED,
                             "two changes overlap at '%.*s'; write each setting out once",
                             (int)strcspn(text + edits[i].begin, "\n"), text + edits[i].begin);
        dcpk_bytes_put(out, text + at, edits[i].begin - at);
        dcpk_bytes_text(out, edits[i].text);
    }
    dcpk_bytes_put(out, text + at, n_bytes - at);
    return dcpk_bytes_status(out, err);
}
