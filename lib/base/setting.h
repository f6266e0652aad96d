/* SPDX-License-Identifier: Apache-2.0 */
/* setting.h - settings that a text makes, with their places in it, and edits of the text. */
/*
 *   --num-layers 4 --swiglu            model: {num_layers: 4}
 *   |            | |      |                                |
 *   begin    value end    end, no value                    begin = value, end
 */
#ifndef DCPK_LIB_BASE_SETTING_H
#define DCPK_LIB_BASE_SETTING_H

#include "lib/base/arena.h"
#include "lib/base/bytes.h"

#define DCPK_NO_NUMBER SIZE_MAX

struct dcpk_setting {
    const char *section;      /* NULL: none */
    const char *name;         /* with underscores, without dashes before it */
    const char *text;         /* its value; NULL: None, or not a scalar */
    const char *texts;        /* of a flag: all its values, where it may have some; else NULL */
    size_t begin, value, end; /* bytes of the text; value == end: it has none of its own */
    bool is_open;             /* the value is a variable that the text does not set */
    size_t number;            /* for the owner of the list */
};

/* A mapping that settings can be added to; of a command line, the one place for more flags. */
struct dcpk_setting_room {
    const char *section;    /* NULL: the whole text */
    size_t at, end, indent; /* before its first member; end of an empty value; blanks before it */
    bool has_line;          /* the first member begins a line */
    bool is_flow;           /* {a: 1}, or empty */
    bool is_empty;          /* at .. end is replaced */
};

struct dcpk_settings {
    struct dcpk_arena *arena; /* borrowed */
    struct dcpk_setting *all;
    struct dcpk_setting_room *rooms;
    size_t n, n_rooms, capacity, room_capacity;
};

/* Append one. Errors: DCPK_ENOMEM; DCPK_ERANGE for more than a configuration has. */
dcpk_status dcpk_settings_add(struct dcpk_settings *list, const struct dcpk_setting *setting,
                              struct dcpk_error *err);
/* The same of a room. */
dcpk_status dcpk_settings_add_room(struct dcpk_settings *list, const struct dcpk_setting_room *room,
                                   struct dcpk_error *err);

/* A text that takes the place of text[begin .. end). */
struct dcpk_text_edit {
    size_t begin, end;
    const char *text;
};

/* Append text[0 .. n_bytes) to `out` with n edits, which are sorted here: by `begin`, then `end`,
 * those of one place in their order. Errors: DCPK_EUNSUPPORTED where two overlap; DCPK_ENOMEM. */
dcpk_status dcpk_text_edit_apply(const char *text, size_t n_bytes, struct dcpk_text_edit *edits,
                                 size_t n, struct dcpk_bytes *out, struct dcpk_error *err);

#endif
