/* SPDX-License-Identifier: Apache-2.0 */
/* edit.c - parses operations on keys and applies them. */
#include "lib/rules/edit.h"

#include <stdint.h>
#include <string.h>

#include "lib/base/alloc.h"
#include "lib/base/bytes.h"
#include "lib/base/map.h"
#include "lib/base/regex.h"

enum verb { RENAME, REMOVE, KEEP, CAST, N_VERBS };
static const struct {
    const char *name, *usage;
    bool has_argument;
} verbs[N_VERBS] = {
    [RENAME] = {"rename", "rename RE NEW", true},
    [REMOVE] = {"remove", "remove RE", false},
    [KEEP] = {"keep", "keep RE", false},
    [CAST] = {"cast", "cast RE DTYPE", true},
};

struct edit {
    const char *text; /* the whole operation, for messages */
    enum verb verb;
    struct dcpk_regex *regex;
    struct dcpk_replacement *replacement; /* RENAME */
    enum dcpk_dtype to;
};

struct dcpk_edits {
    struct edit *list;
    size_t n;
};

void dcpk_edits_free(struct dcpk_edits *edits)
{
    if (edits == NULL)
        return;
    for (size_t i = 0; edits->list != NULL && i < edits->n; i++) {
        dcpk_regex_free(edits->list[i].regex);
        dcpk_replacement_free(edits->list[i].replacement);
    }
    dcpk_free(edits->list);
    dcpk_free(edits);
}

static bool is_blank(char c)
{
    return c == ' ' || c == '\t';
}

/* A run of text. */
struct word {
    const char *text;
    size_t n;
};

/* Split "verb RE [last]" at blanks: the first word, the last one where wanted, and what is
 * between. */
static enum verb split(const char *text, struct word *regex, struct word *last)
{
    const char *end = text + strlen(text), *at = text;
    enum verb verb = 0;

    while (is_blank(*at))
        at++;
    while (end > at && is_blank(end[-1]))
        end--;
    while (verb < N_VERBS && (strncmp(at, verbs[verb].name, strlen(verbs[verb].name)) != 0 ||
                              !is_blank(at[strlen(verbs[verb].name)])))
        verb++;
    if (verb == N_VERBS)
        return verb;
    at += strlen(verbs[verb].name);
    while (at < end && is_blank(*at))
        at++;
    *last = (struct word){end, 0};
    if (verbs[verb].has_argument) {
        while (last->text > at && !is_blank(last->text[-1]))
            last->text--;
        last->n = (size_t)(end - last->text);
        end = last->text;
        while (end > at && is_blank(end[-1]))
            end--;
    }
    *regex = (struct word){at, (size_t)(end - at)};
    return verb;
}

static dcpk_status copy_word(const struct word *word, char **copy, struct dcpk_error *err)
{
    *copy = dcpk_alloc(word->n + 1, err);
    if (*copy == NULL)
        return err->status;
    memcpy(*copy, word->text, word->n);
    return DCPK_OK;
}

static dcpk_status parse_argument(struct edit *edit, const struct word *last,
                                  struct dcpk_error *err)
{
    char *name = NULL;

    if (edit->verb == RENAME) {
        size_t n = last->n;

        if (n == 2 && memcmp(last->text, "''", 2) == 0) /* how an empty one is written */
            n = 0;
        return dcpk_replacement_new(edit->regex, last->text, n, &edit->replacement, err);
    }
    if (edit->verb != CAST)
        return DCPK_OK;
    if (copy_word(last, &name, err) != DCPK_OK)
        return err->status;
    edit->to = dcpk_dtype_from_name(name);
    if (!dcpk_dtype_is_float(edit->to))
        dcpk_fail(err, DCPK_EUSAGE,
                  "'%s' is none of float64, float32, float16, bfloat16, float8_e4m3fn, float8_e5m2",
                  name);
    dcpk_free(name);
    return err->status;
}

static dcpk_status edit_parse(const char *text, struct edit *edit, struct dcpk_error *err)
{
    struct word regex = {0}, last = {0};
    dcpk_status st;

    edit->text = text;
    edit->verb = split(text, &regex, &last);
    if (edit->verb == N_VERBS)
        st = dcpk_fail(err, DCPK_EUSAGE,
                       "it must begin with 'rename ', 'remove ', 'keep ' or 'cast '");
    else if (regex.n == 0)
        st = dcpk_fail(err, DCPK_EUSAGE, "it has too few words: %s", verbs[edit->verb].usage);
    else
        st = dcpk_regex_new(regex.text, regex.n, &edit->regex, err);
    if (st == DCPK_OK)
        st = parse_argument(edit, &last, err);
    if (st != DCPK_OK)
        dcpk_context(err, "operation '%s'", text);
    return st;
}

dcpk_status dcpk_edits_parse(const char *const *texts, size_t n, struct dcpk_edits **edits,
                             struct dcpk_error *err)
{
    struct dcpk_edits *e = dcpk_alloc(sizeof *e, err);
    dcpk_status st = DCPK_OK;

    if (e == NULL)
        return err->status;
    e->n = n;
    e->list = dcpk_alloc_array(n, sizeof *e->list, err);
    if (e->list == NULL)
        st = err->status;
    for (size_t i = 0; i < n && st == DCPK_OK; i++)
        st = edit_parse(texts[i], &e->list[i], err);
    if (st != DCPK_OK) {
        dcpk_edits_free(e);
        return st;
    }
    *edits = e;
    return DCPK_OK;
}

/* Replace every match in item->name. */
static dcpk_status rename_item(const struct edit *edit, struct dcpk_arena *arena,
                               struct dcpk_edit_item *item, struct dcpk_error *err)
{
    struct dcpk_bytes text = {0};
    dcpk_status st = dcpk_regex_replace(edit->regex, edit->replacement, item->name, &text, err);

    if (st == DCPK_OK && text.n_bytes == 0)
        st = dcpk_fail(err, DCPK_EUSAGE, "'%s' would become the empty key", item->key);
    if (st == DCPK_OK) {
        item->name = dcpk_bytes_to_arena(&text, arena, err);
        return dcpk_made(item->name, err);
    }
    dcpk_bytes_release(&text);
    return st;
}

static dcpk_status cast_item(const struct edit *edit, struct dcpk_edit_item *item,
                             struct dcpk_error *err)
{
    if (!dcpk_dtype_is_float(item->dtype))
        return dcpk_fail(err, DCPK_EUSAGE, "'%s' is %s, which is not cast", item->key,
                         dcpk_dtype_name(item->dtype));
    item->to = edit->to;
    return DCPK_OK;
}

static dcpk_status apply_one(const struct edit *edit, struct dcpk_arena *arena,
                             struct dcpk_edit_item *items, size_t n, struct dcpk_error *err)
{
    size_t n_matched = 0;
    dcpk_status st = DCPK_OK;

    for (size_t i = 0; i < n && st == DCPK_OK; i++) {
        bool is_match;

        if (items[i].removed_by != NULL)
            continue;
        st = dcpk_regex_search(edit->regex, items[i].name, &is_match, err);
        if (st != DCPK_OK)
            break;
        if (edit->verb == CAST && items[i].dtype == DCPK_DTYPE_NONE)
            continue;
        n_matched += is_match;
        if (edit->verb == (is_match ? REMOVE : KEEP))
            items[i].removed_by = edit->text;
        else if (is_match && edit->verb == RENAME)
            st = rename_item(edit, arena, &items[i], err);
        else if (is_match && edit->verb == CAST)
            st = cast_item(edit, &items[i], err);
    }
    if (st == DCPK_OK && n_matched == 0)
        st = dcpk_fail(err, DCPK_EUSAGE, "no %s matches",
                       edit->verb == CAST ? "tensor's key" : "key");
    if (st != DCPK_OK)
        dcpk_context(err, "operation '%s'", edit->text);
    return st;
}

/* Keys that stay are unique, and there are some. */
static dcpk_status check_names(const struct dcpk_edit_item *items, size_t n, struct dcpk_error *err)
{
    struct dcpk_map names = {0};
    dcpk_status st = DCPK_OK;
    size_t n_left = 0;

    for (size_t i = 0; i < n && st == DCPK_OK; i++) {
        bool existed = false;
        uint64_t other;

        if (items[i].removed_by != NULL)
            continue;
        n_left++;
        st = dcpk_map_put(&names, items[i].name, strlen(items[i].name), i, &existed, &other, err);
        if (st == DCPK_OK && existed)
            st = dcpk_fail(err, DCPK_EUSAGE, "'%s' and '%s' would both become '%s'",
                           items[other].key, items[i].key, items[i].name);
    }
    dcpk_map_release(&names);
    if (st == DCPK_OK && n_left == 0)
        st = dcpk_fail(err, DCPK_EUSAGE, "the operations leave no key");
    return st;
}

dcpk_status dcpk_edits_apply(const struct dcpk_edits *edits, struct dcpk_arena *arena,
                             struct dcpk_edit_item *items, size_t n, struct dcpk_error *err)
{
    for (size_t i = 0; i < n; i++) {
        items[i].name = items[i].key;
        items[i].to = items[i].dtype;
        items[i].removed_by = NULL;
    }
    for (size_t e = 0; e < edits->n; e++)
        if (apply_one(&edits->list[e], arena, items, n, err) != DCPK_OK)
            return err->status;
    return check_names(items, n, err);
}
