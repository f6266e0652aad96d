/* SPDX-License-Identifier: Apache-2.0 */
/* knobs.c - the table of knobs: finding rows by their names, setting values. */
#include "lib/train/knobs_priv.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/order.h"
#include "lib/base/text.h"

#define MAX_LENGTH INT32_MAX
#define MAX_COUNT  (INT64_C(1) << 40)

static const struct {
    const char *title;
    const struct dcpk_knob *rows;
} parts[] = {
    {"model", dcpk_knobs_of_model},
    {"layout of ranks", dcpk_knobs_of_ranks},
    {"data parallelism", dcpk_knobs_of_fsdp},
    {"numbers", dcpk_knobs_of_numbers},
    {"optimizer and schedule", dcpk_knobs_of_optimizer},
    {"course of the run, checkpoints", dcpk_knobs_of_run},
    {"accepted without effect", dcpk_knobs_of_no_effect},
};

/* The part that row i is of; *i becomes its number there. NULL: there is no such row. */
static const char *knob_part(size_t *i, const struct dcpk_knob **row)
{
    for (size_t p = 0; p < DCPK_COUNT(parts); p++) {
        size_t n = 0;

        while (parts[p].rows[n].name != NULL && n < *i)
            n++;
        if (parts[p].rows[n].name != NULL) {
            *row = &parts[p].rows[n];
            return parts[p].title;
        }
        *i -= n;
    }
    return NULL;
}

const struct dcpk_knob *dcpk_knob_at(size_t i)
{
    const struct dcpk_knob *row = NULL;

    (void)knob_part(&i, &row);
    return row;
}

const char *dcpk_knob_title(size_t i)
{
    const struct dcpk_knob *row = NULL;
    const char *title = knob_part(&i, &row);

    if (i > 0)
        return NULL;
    return title;
}

/* ---- names ---- */

static bool knob_is_spelled(const char *name, size_t name_bytes, const char *text, size_t n_bytes)
{
    if (name_bytes != n_bytes)
        return false;
    for (size_t i = 0; i < n_bytes; i++)
        if (text[i] != name[i] && (text[i] != '-' || name[i] != '_'))
            return false;
    return true;
}

bool dcpk_knob_has_word(const char *list, const char *word, size_t n_bytes)
{
    while (list != NULL && *list != '\0') {
        const size_t n = strcspn(list, " ");

        if (n == n_bytes && memcmp(list, word, n) == 0)
            return true;
        list += n + strspn(list + n, " ");
    }
    return false;
}

enum dcpk_knob_sense dcpk_knob_is_named(const struct dcpk_knob *knob, const char *name,
                                        size_t n_bytes)
{
    const char *other = dcpk_text_or(knob->others, "");

    if (knob_is_spelled(knob->name, strlen(knob->name), name, n_bytes))
        return DCPK_KNOB_SAME;
    while (*other != '\0') {
        const bool is_opposite = *other == '!';
        const size_t mark = is_opposite, n = strcspn(other, " ");

        if (knob_is_spelled(other + mark, n - mark, name, n_bytes)) {
            if (is_opposite)
                return DCPK_KNOB_OPPOSITE;
            return DCPK_KNOB_SAME;
        }
        other += n + strspn(other + n, " ");
    }
    return DCPK_KNOB_OTHER;
}

/* A name as a caller gives it: with dashes before it or a section, "no_" for the opposite. */
struct spelling {
    const char *section, *name;
    size_t section_bytes, n_bytes;
    bool is_negated; /* "no_" stands before it */
};

static bool knob_matches(const struct dcpk_knob *knob, const struct spelling *s,
                         enum dcpk_knob_sense *sense)
{
    if (s->section != NULL && !dcpk_knob_has_word(knob->sections, s->section, s->section_bytes))
        return false;
    *sense = dcpk_knob_is_named(knob, s->name, s->n_bytes);
    if (*sense == DCPK_KNOB_OTHER)
        return false;
    if (!s->is_negated)
        return true;
    *sense = *sense == DCPK_KNOB_SAME ? DCPK_KNOB_OPPOSITE : DCPK_KNOB_SAME;
    return knob->kind == DCPK_KNOB_FLAG;
}

static const struct dcpk_knob *knob_spelled(const struct spelling *s)
{
    enum dcpk_knob_sense sense;
    const struct dcpk_knob *knob;

    for (size_t i = 0; (knob = dcpk_knob_at(i)) != NULL; i++)
        if (knob_matches(knob, s, &sense))
            return knob;
    return NULL;
}

/* Reads how a name is spelled. Returns its first row, or NULL. */
static const struct dcpk_knob *knob_spell(const char *text, struct spelling *s)
{
    const char *dot;
    const struct dcpk_knob *knob;

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
    knob = knob_spelled(s);
    if (knob != NULL || s->n_bytes < 3 || !knob_is_spelled("no_", 3, s->name, 3))
        return knob;
    s->is_negated = true;
    s->name += 3;
    s->n_bytes -= 3;
    return knob_spelled(s);
}

const struct dcpk_knob *dcpk_knob_find(const char *name)
{
    struct spelling s;

    return knob_spell(name, &s);
}

bool dcpk_knobs_was_given(const struct dcpk_train_knobs *knobs, const char *name)
{
    const struct dcpk_knob *knob;

    for (size_t i = 0; (knob = dcpk_knob_at(i)) != NULL; i++)
        if (knobs->given[i] && strcmp(knob->name, name) == 0)
            return true;
    return false;
}

/* ---- values ---- */

static bool knob_read_flag(const char *text, bool *flag)
{
    const bool is_true = strcmp(text, "true") == 0 || strcmp(text, "True") == 0;

    if (!is_true && strcmp(text, "false") != 0 && strcmp(text, "False") != 0)
        return false;
    *flag = is_true;
    return true;
}

static bool knob_read_integer(const char *text, int64_t least, int64_t most, int64_t *number)
{
    char *end;
    int64_t n;

    if (!isdigit((unsigned char)*text))
        return false;
    errno = 0;
    n = strtoll(text, &end, 10);
    if (*end != '\0' || errno != 0 || n < least || n > most)
        return false;
    *number = n;
    return true;
}

static bool knob_read_number(const char *text, double *number)
{
    char *end;
    double n;

    if (text[strspn(text, "0123456789.eE+-")] != '\0' || *text == '\0')
        return false;
    n = strtod(text, &end);
    if (*end != '\0' || !isfinite(n) || n < 0)
        return false;
    *number = n;
    return true;
}

static const char *knob_wants(const struct dcpk_knob *knob)
{
    switch (knob->kind) {
    case DCPK_KNOB_FLAG:
        return "true or false";
    case DCPK_KNOB_LENGTH:
        return "a whole number from 1 to 2147483647";
    case DCPK_KNOB_COUNT:
        return "a whole number from 0 to 2^40";
    case DCPK_KNOB_NUMBER:
        return "a number, 0 or more";
    case DCPK_KNOB_WORD:
        return knob->words;
    case DCPK_KNOB_TEXT:
        break;
    }
    return "a text";
}

static bool knob_read(const struct dcpk_knob *knob, const char *text, void *place)
{
    switch (knob->kind) {
    case DCPK_KNOB_FLAG:
        return knob_read_flag(text, place);
    case DCPK_KNOB_LENGTH:
        return knob_read_integer(text, 1, MAX_LENGTH, place);
    case DCPK_KNOB_COUNT:
        return knob_read_integer(text, 0, MAX_COUNT, place);
    case DCPK_KNOB_NUMBER:
        return knob_read_number(text, place);
    case DCPK_KNOB_WORD:
        if (!dcpk_knob_has_word(knob->words, text, strlen(text)))
            return false;
        break;
    case DCPK_KNOB_TEXT:
        break;
    }
    memcpy(place, &text, sizeof text);
    return true;
}

static void *knob_place(struct dcpk_train_knobs *knobs, const struct dcpk_knob *knob)
{
    return (char *)knobs + knob->at_bytes;
}

/* Back to the default. Without one: 0, false or NULL. */
static void knob_reset(struct dcpk_train_knobs *knobs, size_t i)
{
    const struct dcpk_knob *knob = dcpk_knob_at(i);
    void *place = knob_place(knobs, knob);
    const char *none = NULL;

    knobs->given[i] = false;
    if (knob->standard != NULL)
        (void)knob_read(knob, knob->standard, place);
    else if (knob->kind == DCPK_KNOB_FLAG)
        *(bool *)place = false;
    else if (knob->kind == DCPK_KNOB_NUMBER)
        *(double *)place = 0;
    else if (knob->kind == DCPK_KNOB_LENGTH || knob->kind == DCPK_KNOB_COUNT)
        *(int64_t *)place = 0;
    else
        memcpy(place, &none, sizeof none);
}

void dcpk_train_knobs_init(struct dcpk_train_knobs *knobs, struct dcpk_arena *arena)
{
    *knobs = (struct dcpk_train_knobs){.arena = arena};
    for (size_t i = 0; dcpk_knob_at(i) != NULL; i++)
        knob_reset(knobs, i);
}

static dcpk_status knob_set(struct dcpk_train_knobs *knobs, size_t i, const char *text,
                            enum dcpk_knob_sense sense, struct dcpk_error *err)
{
    const struct dcpk_knob *knob = dcpk_knob_at(i);
    void *place = knob_place(knobs, knob);

    if (text == NULL) {
        knob_reset(knobs, i);
        return DCPK_OK;
    }
    if (!knob_read(knob, text, place))
        return dcpk_fail(err, DCPK_EUSAGE, "%s is '%s': it takes %s", knob->name, text,
                         knob_wants(knob));
    if (sense == DCPK_KNOB_OPPOSITE)
        *(bool *)place = !*(bool *)place;
    knobs->given[i] = true;
    return DCPK_OK;
}

/* Python's None and YAML's null, unless the knob has such a word: the default. */
static bool knob_is_none(const struct dcpk_knob *knob, const char *text)
{
    return text != NULL && (strcmp(text, "None") == 0 || strcmp(text, "null") == 0) &&
           (knob->kind != DCPK_KNOB_WORD || !dcpk_knob_has_word(knob->words, text, strlen(text)));
}

dcpk_status dcpk_train_knobs_set(struct dcpk_train_knobs *knobs, const char *name, const char *text,
                                 struct dcpk_error *err)
{
    enum dcpk_knob_sense sense;
    const struct dcpk_knob *knob;
    struct spelling s;

    if (knob_spell(name, &s) == NULL)
        return dcpk_fail(err, DCPK_EUSAGE, "%s: unknown knob", name);
    for (size_t i = 0; (knob = dcpk_knob_at(i)) != NULL; i++) {
        const char *value = text;

        if (!knob_matches(knob, &s, &sense))
            continue;
        if (knob_is_none(knob, text))
            value = NULL;
        if (knob_set(knobs, i, value, sense, err) != DCPK_OK)
            return err->status;
    }
    return DCPK_OK;
}

static void knob_hash(const struct dcpk_knob *knob, const void *place, struct dcpk_hasher *hasher)
{
    const char *text;
    size_t n_bytes;

    switch (knob->kind) {
    case DCPK_KNOB_FLAG:
        dcpk_hasher_update(hasher, place, sizeof(bool));
        break;
    case DCPK_KNOB_LENGTH:
    case DCPK_KNOB_COUNT:
        dcpk_hasher_update(hasher, place, sizeof(int64_t));
        break;
    case DCPK_KNOB_NUMBER:
        dcpk_hasher_update(hasher, place, sizeof(double));
        break;
    case DCPK_KNOB_TEXT:
    case DCPK_KNOB_WORD:
        memcpy(&text, place, sizeof text);
        n_bytes = text == NULL ? 0 : strlen(text) + 1;
        dcpk_hasher_update(hasher, &n_bytes, sizeof n_bytes);
        if (text != NULL)
            dcpk_hasher_update(hasher, text, n_bytes);
        break;
    }
}

dcpk_status dcpk_train_knobs_hash(const struct dcpk_train_knobs *knobs, struct dcpk_hash *hash,
                                  struct dcpk_error *err)
{
    const struct dcpk_knob *knob;
    struct dcpk_hasher *hasher;

    if (dcpk_hasher_new(&hasher, err) != DCPK_OK)
        return err->status;
    for (size_t i = 0; (knob = dcpk_knob_at(i)) != NULL; i++)
        knob_hash(knob, (const char *)knobs + knob->at_bytes, hasher);
    dcpk_hasher_digest(hasher, hash);
    dcpk_hasher_free(hasher);
    return DCPK_OK;
}
