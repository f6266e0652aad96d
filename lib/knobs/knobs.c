/* SPDX-License-Identifier: Apache-2.0 */
/* knobs.c - the table of knobs: walks over it, rows by their names, values. */
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "lib/base/order.h"
#include "lib/base/text.h"
#include "lib/knobs/knobs_priv.h"

static const struct {
    const char *title;
    const struct dcpk_option *rows;
} parts[] = {
    {"model", dcpk_knobs_of_model},
    {"layout of ranks", dcpk_knobs_of_ranks},
    {"data parallelism", dcpk_knobs_of_fsdp},
    {"numbers", dcpk_knobs_of_numbers},
    {"optimizer and schedule", dcpk_knobs_of_optimizer},
    {"course of the run, checkpoints", dcpk_knobs_of_run},
    {"accepted without effect", dcpk_knobs_of_no_effect},
};

/* ---- walks ---- */

const struct dcpk_option *dcpk_knob_next_row(struct dcpk_knob_walk *w)
{
    while (w->at_part < DCPK_COUNT(parts)) {
        const struct dcpk_option *row = &parts[w->at_part].rows[w->at_row++];

        if (row->name != NULL) {
            w->part = parts[w->at_part].title;
            w->begins_part = w->at_row == 1;
            w->number = w->n++;
            return row;
        }
        w->at_part++;
        w->at_row = 0;
    }
    return NULL;
}

/* The row of a word in a list: "name", "name=true", "name=true,other". */
static void walk_name(struct dcpk_knob_walk *w, const struct dcpk_knob_set *list, const char *word,
                      size_t n_bytes)
{
    const char *equals = memchr(word, '=', n_bytes), *comma = memchr(word, ',', n_bytes);
    const size_t n_name = dcpk_min_size(n_bytes, strcspn(word, "=,"));
    struct dcpk_option *row = &w->named;

    assert(n_name < sizeof w->name);
    *row = (struct dcpk_option){.kind = DCPK_OPTION_TEXT,
                                .name = w->name,
                                .sections = list->sections,
                                .at_bytes = offsetof(struct dcpk_train_knobs, no_effect.text),
                                .effect = DCPK_KNOB_NO_EFFECT,
                                .source = list->source,
                                .help = list->reason};
    memcpy(w->name, word, n_name);
    w->name[n_name] = '\0';
    if (equals != NULL) {
        row->kind = DCPK_OPTION_FLAG;
        row->at_bytes = offsetof(struct dcpk_train_knobs, no_effect.flag);
        row->initial = equals[1] == 't' ? "true" : "false";
    }
    if (comma == NULL)
        return;
    row->others = w->others;
    snprintf(w->others, sizeof w->others, "%.*s", (int)(word + n_bytes - comma - 1), comma + 1);
    if (strcmp(w->others, "!disable") == 0)
        snprintf(w->others, sizeof w->others, "!disable_%s", w->name);
}

/* The next name of the lists. */
static const struct dcpk_option *walk_next_name(struct dcpk_knob_walk *w)
{
    const struct dcpk_knob_set *list = &dcpk_knobs_without_effect[w->at_list];
    const char *word;
    size_t n;

    if (list->names == NULL)
        return NULL;
    w->word = dcpk_text_or(w->word, list->names);
    word = dcpk_take_word(&w->word, &n);
    assert(word != NULL);
    walk_name(w, list, word, n);
    if (*w->word == '\0') {
        w->word = NULL;
        w->at_list++;
    }
    w->begins_part = false;
    w->number = w->n++;
    return &w->named;
}

const struct dcpk_option *dcpk_knob_next(struct dcpk_knob_walk *walk)
{
    const struct dcpk_option *row = dcpk_knob_next_row(walk);

    if (row == NULL)
        row = walk_next_name(walk);
    return row;
}

/* ---- names ---- */

/* A name as a caller gives it: with dashes before it or a section, "no_" for the opposite. */
struct spelling {
    const char *section, *name;
    size_t section_bytes, n_bytes;
    bool is_negated; /* "no_" is before it */
};

static bool knob_matches(const struct dcpk_option *knob, const struct spelling *s,
                         enum dcpk_option_sense *sense)
{
    if (s->section != NULL && !dcpk_option_has_word(knob->sections, s->section, s->section_bytes))
        return false;
    *sense = dcpk_option_is_named(knob, s->name, s->n_bytes);
    if (*sense == DCPK_OPTION_OTHER)
        return false;
    if (!s->is_negated)
        return true;
    *sense = *sense == DCPK_OPTION_SAME ? DCPK_OPTION_OPPOSITE : DCPK_OPTION_SAME;
    return knob->kind == DCPK_OPTION_FLAG;
}

static const struct dcpk_option *knob_spelled(const struct spelling *s, struct dcpk_knob_walk *walk)
{
    enum dcpk_option_sense sense;
    const struct dcpk_option *knob;

    *walk = (struct dcpk_knob_walk){0};
    while ((knob = dcpk_knob_next(walk)) != NULL)
        if (knob_matches(knob, s, &sense))
            break;
    return knob;
}

/* Reads how a name is spelled, and walks to its first row. */
static const struct dcpk_option *knob_spell(const char *text, struct spelling *s,
                                            struct dcpk_knob_walk *walk)
{
    const char *dot;
    const struct dcpk_option *knob;

    *s = (struct spelling){.name = text};
    if (dcpk_starts_with(text, "--"))
        s->name += 2;
    dot = strchr(s->name, '.');
    if (dot != NULL) {
        s->section = s->name;
        s->section_bytes = (size_t)(dot - s->name);
        s->name = dot + 1;
    }
    s->n_bytes = strlen(s->name);
    knob = knob_spelled(s, walk);
    if (knob != NULL || !(dcpk_starts_with(s->name, "no_") || dcpk_starts_with(s->name, "no-")))
        return knob;
    s->is_negated = true;
    s->name += 3;
    s->n_bytes -= 3;
    return knob_spelled(s, walk);
}

const struct dcpk_option *dcpk_knob_find(const char *name, struct dcpk_knob_walk *walk)
{
    struct spelling s;

    return knob_spell(name, &s, walk);
}

const struct dcpk_option *dcpk_knob_find_near(const char *word, const char *section, size_t n_bytes,
                                              struct dcpk_knob_walk *walk)
{
    const struct dcpk_option *knob;
    char name[DCPK_KNOB_NAME_BYTES];

    snprintf(name, sizeof name, "%s", word);
    for (char *c = name; *c != '\0'; c++)
        if (*c == '-')
            *c = '_';
    *walk = (struct dcpk_knob_walk){0};
    while ((knob = dcpk_knob_next(walk)) != NULL)
        if ((section == NULL || dcpk_option_has_word(knob->sections, section, n_bytes)) &&
            dcpk_option_is_near(name, knob->name))
            return knob;
    return NULL;
}

bool dcpk_knob_is_of_fsdp(const struct dcpk_knob_walk *walk)
{
    return walk->at_part < DCPK_COUNT(parts) && parts[walk->at_part].rows == dcpk_knobs_of_fsdp;
}

bool dcpk_knobs_was_given(const struct dcpk_train_knobs *knobs, const char *name)
{
    struct dcpk_knob_walk walk = {0};
    const struct dcpk_option *knob;

    while ((knob = dcpk_knob_next_row(&walk)) != NULL)
        if (knobs->given[walk.number] && strcmp(knob->name, name) == 0)
            return true;
    return false;
}

/* ---- values ---- */

void dcpk_train_knobs_init(struct dcpk_train_knobs *knobs, struct dcpk_arena *arena)
{
    struct dcpk_knob_walk walk = {0};
    const struct dcpk_option *knob;

    *knobs = (struct dcpk_train_knobs){.arena = arena};
    while ((knob = dcpk_knob_next_row(&walk)) != NULL)
        dcpk_option_reset(knob, knobs);
}

static dcpk_status knob_set(struct dcpk_train_knobs *knobs, const struct dcpk_option *knob,
                            const char *text, enum dcpk_option_sense sense, struct dcpk_error *err)
{
    char takes[DCPK_OPTION_TAKES_BYTES];
    bool *flag;

    if (!dcpk_option_read(knob, text, knobs))
        return dcpk_fail(err, DCPK_EUSAGE, "%s is '%s': it takes %s", knob->name, text,
                         dcpk_option_takes(knob, takes));
    if (sense == DCPK_OPTION_OPPOSITE) {
        flag = dcpk_option_field(knob, knobs);
        *flag = !*flag;
    }
    return DCPK_OK;
}

/* Python's None and YAML's null, unless the knob has such a word: the default. */
static bool knob_is_none(const struct dcpk_option *knob, const char *text)
{
    return text == NULL || ((strcmp(text, "None") == 0 || strcmp(text, "null") == 0) &&
                            !dcpk_option_has_word(knob->words, text, strlen(text)));
}

dcpk_status dcpk_train_knobs_set(struct dcpk_train_knobs *knobs, const char *name, const char *text,
                                 struct dcpk_error *err)
{
    struct dcpk_knob_walk walk;
    enum dcpk_option_sense sense;
    const struct dcpk_option *knob;
    struct spelling s;

    if (knob_spell(name, &s, &walk) == NULL)
        return dcpk_fail(err, DCPK_EUSAGE, "%s: unknown knob", name);
    walk = (struct dcpk_knob_walk){0};
    while ((knob = dcpk_knob_next(&walk)) != NULL) {
        if (!knob_matches(knob, &s, &sense))
            continue;
        knobs->given[walk.number] = !knob_is_none(knob, text);
        if (!knobs->given[walk.number])
            dcpk_option_reset(knob, knobs);
        else if (knob_set(knobs, knob, text, sense, err) != DCPK_OK)
            return err->status;
    }
    return DCPK_OK;
}

void dcpk_train_knobs_hash(const struct dcpk_train_knobs *knobs, struct dcpk_hash *hash)
{
    struct dcpk_knob_walk walk = {0};
    const struct dcpk_option *knob;
    struct dcpk_hasher hasher;

    dcpk_hasher_begin(&hasher);
    while ((knob = dcpk_knob_next_row(&walk)) != NULL) {
        const void *field = (const char *)knobs + knob->at_bytes;
        const char *text;

        if (!dcpk_option_is_text(knob)) {
            dcpk_hasher_update(&hasher, field, dcpk_option_bytes(knob));
            continue;
        }
        memcpy(&text, field, sizeof text);
        dcpk_hasher_update(&hasher, text != NULL ? "t" : "n", 1);
        text = dcpk_text_or(text, "");
        dcpk_hasher_update(&hasher, text, strlen(text) + 1);
    }
    dcpk_hasher_digest(&hasher, hash);
}
