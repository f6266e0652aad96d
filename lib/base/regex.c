/* SPDX-License-Identifier: Apache-2.0 */
/* regex.c - regular expressions by PCRE2, and the replacement templates of Python's re. */
#include "lib/base/regex.h"

#include <assert.h>
#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "lib/base/alloc.h"
#include "lib/base/order.h"

/*
 * Limits of one search: its steps (ten million are about a second), and the memory of its
 * backtracking, of which PCRE2 holds up to twice as much while it grows. Its own default for the
 * second is 20 GiB. A compiled expression has at most 64 KiB, as long as PCRE2 is built with links
 * of two bytes.
 */
#ifndef DCPK_REGEX_STEPS
#define DCPK_REGEX_STEPS 10000000 /* a test may have fewer */
#endif
#define MIN_STEPS         1000
#define MAX_HEAP_KIB      (16 * 1024)
#define MAX_PATTERN_BYTES (64 * 1024)
#define MESSAGE_BYTES     256
#define BAD_ESCAPE        "it is neither a group (\\1 to \\99, \\g<name>) nor '\\\\'"

struct dcpk_regex {
    pcre2_general_context *general;
    pcre2_compile_context *compiling;
    pcre2_match_context *matching;
    pcre2_code *code;
    pcre2_match_data *match;
    uint32_t n_steps; /* of one text */
    uint32_t n_groups;
};

/* A run of the template, then a group; the last part has none. */
struct part {
    const char *text; /* borrowed */
    size_t n_bytes;
    int group; /* -1: none */
};

struct dcpk_replacement {
    struct part *parts;
    size_t n, capacity;
};

static void *take_memory(size_t n_bytes, void *context)
{
    struct dcpk_error ignored = DCPK_ERROR_INIT; /* PCRE2 has codes of its own for it */

    (void)context;
    return dcpk_alloc(n_bytes, &ignored);
}

static void return_memory(void *memory, void *context)
{
    (void)context;
    dcpk_free(memory);
}

void dcpk_regex_free(struct dcpk_regex *regex)
{
    if (regex == NULL)
        return;
    pcre2_match_data_free(regex->match);
    pcre2_code_free(regex->code);
    pcre2_match_context_free(regex->matching);
    pcre2_compile_context_free(regex->compiling);
    pcre2_general_context_free(regex->general);
    dcpk_free(regex);
}

static dcpk_status regex_no_memory(struct dcpk_error *err)
{
    return dcpk_fail(err, DCPK_ENOMEM, "out of memory for a regular expression");
}

static dcpk_status make_contexts(struct dcpk_regex *r, struct dcpk_error *err)
{
    r->general = pcre2_general_context_create(take_memory, return_memory, NULL);
    if (r->general == NULL)
        return regex_no_memory(err);
    r->compiling = pcre2_compile_context_create(r->general);
    r->matching = pcre2_match_context_create(r->general);
    if (r->compiling == NULL || r->matching == NULL)
        return regex_no_memory(err);
    pcre2_set_max_pattern_length(r->compiling, MAX_PATTERN_BYTES);
    pcre2_set_newline(r->compiling,
                      PCRE2_NEWLINE_LF); /* the only newline of Python's '.' and '$' */
    dcpk_regex_share(r, 1);
    pcre2_set_heap_limit(r->matching, MAX_HEAP_KIB);
    return DCPK_OK;
}

static dcpk_status compile(struct dcpk_regex *r, const char *text, size_t n_bytes,
                           struct dcpk_error *err)
{
    const uint32_t options = PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C;
    unsigned char message[MESSAGE_BYTES];
    size_t at;
    int code;

    r->code = pcre2_compile((PCRE2_SPTR)text, n_bytes, options, &code, &at, r->compiling);
    if (r->code == NULL && code == PCRE2_ERROR_HEAP_FAILED)
        return regex_no_memory(err);
    if (r->code == NULL) {
        pcre2_get_error_message(code, message, sizeof message);
        return dcpk_fail(err, DCPK_EUSAGE, "the regular expression '%.*s', byte %zu: %s",
                         (int)dcpk_min_size(n_bytes, MESSAGE_BYTES), text, at,
                         (const char *)message);
    }
    pcre2_pattern_info(r->code, PCRE2_INFO_CAPTURECOUNT, &r->n_groups);
    r->match = pcre2_match_data_create_from_pattern(r->code, r->general);
    if (r->match == NULL)
        return regex_no_memory(err);
    return DCPK_OK;
}

dcpk_status dcpk_regex_new(const char *text, size_t n_bytes, struct dcpk_regex **regex,
                           struct dcpk_error *err)
{
    struct dcpk_regex *r = dcpk_alloc(sizeof *r, err);

    if (r == NULL)
        return err->status;
    if (make_contexts(r, err) || compile(r, text, n_bytes, err)) {
        dcpk_regex_free(r);
        return err->status;
    }
    *regex = r;
    return DCPK_OK;
}

/* A text that is searched, step by step. */
struct subject {
    const char *text;
    size_t n_bytes, from;
    uint32_t options;
    size_t begin, end; /* of the match */
};

static dcpk_status subject_find(struct dcpk_regex *r, struct subject *s, bool *found,
                                struct dcpk_error *err)
{
    const int code = pcre2_match(r->code, (PCRE2_SPTR)s->text, s->n_bytes, s->from, s->options,
                                 r->match, r->matching);
    unsigned char message[MESSAGE_BYTES];
    const size_t *places;

    *found = code >= 0;
    if (code == PCRE2_ERROR_NOMATCH)
        return DCPK_OK;
    if (code >= 0) {
        places = pcre2_get_ovector_pointer(r->match);
        assert(places[0] >= s->from && places[1] >= places[0]); /* \K in lookaround is refused */
        s->begin = places[0];
        s->end = places[1];
        return DCPK_OK;
    }
    if (code == PCRE2_ERROR_NOMEMORY)
        return regex_no_memory(err);
    if (code == PCRE2_ERROR_MATCHLIMIT || code == PCRE2_ERROR_HEAPLIMIT)
        return dcpk_fail(err, DCPK_EUSAGE,
                         "the regular expression needs more than %" PRIu32
                         " steps or %d MiB for the text "
                         "'%.200s'",
                         r->n_steps, MAX_HEAP_KIB / 1024, s->text);
    pcre2_get_error_message(code, message, sizeof message);
    return dcpk_fail(err, DCPK_EUNSUPPORTED, "searching the text '%.200s': %s", s->text,
                     (const char *)message);
}

void dcpk_regex_share(struct dcpk_regex *regex, size_t n)
{
    regex->n_steps = (uint32_t)dcpk_max_size(DCPK_REGEX_STEPS / n, MIN_STEPS);
    pcre2_set_match_limit(regex->matching, regex->n_steps);
}

dcpk_status dcpk_regex_search(struct dcpk_regex *regex, const char *text, bool *found,
                              struct dcpk_error *err)
{
    struct subject subject = {.text = text, .n_bytes = strlen(text)};

    return subject_find(regex, &subject, found, err);
}

/* ---- replacements ---- */

/* A template while it is parsed. */
struct template
{
    const struct dcpk_regex *regex;
    const char *begin, *at, *end;
};

static dcpk_status bad_template(const struct template *t, const char *where, const char *fault,
                                struct dcpk_error *err)
{
    return dcpk_fail(err, DCPK_EUSAGE, "the replacement '%.*s', byte %zu: %s",
                     (int)(t->end - t->begin), t->begin, (size_t)(where - t->begin), fault);
}

static dcpk_status check_group(const struct template *t, const char *where, int group,
                               struct dcpk_error *err)
{
    char fault[64];

    if ((uint32_t)group <= t->regex->n_groups)
        return DCPK_OK;
    snprintf(fault, sizeof fault, "group %d, but the expression has %" PRIu32 " groups", group,
             t->regex->n_groups);
    return bad_template(t, where, fault, err);
}

/* One or two digits at t->at, as Python takes them. */
static int take_digits(struct template *t)
{
    int group = *t->at++ - '0';

    if (group != 0 && t->at < t->end && isdigit((unsigned char)*t->at))
        group = 10 * group + (*t->at++ - '0');
    return group;
}

/* "<name>" or "<12>" at t->at. */
static dcpk_status take_name(struct template *t, const char *where, int *group,
                             struct dcpk_error *err)
{
    const char *close = NULL;
    char name[MESSAGE_BYTES] = "";
    size_t n;
    int number;

    if (t->at < t->end && *t->at == '<')
        close = memchr(t->at, '>', (size_t)(t->end - t->at));
    if (close == NULL)
        return bad_template(t, where, "\\g is followed by the name of a group: \\g<name>", err);
    n = (size_t)(close - t->at) - 1;
    if (n > 0 && n < sizeof name)
        memcpy(name, t->at + 1, n);
    t->at = close + 1;
    if (n > 0 && n <= 2 && strspn(name, "0123456789") == n) {
        number = 0;
        for (size_t i = 0; i < n; i++)
            number = 10 * number + (name[i] - '0');
    } else {
        number = pcre2_substring_number_from_name(t->regex->code, (PCRE2_SPTR)name);
        if (number < 0)
            return bad_template(t, where, "the expression has no group of this name", err);
    }
    *group = number;
    return check_group(t, where, number, err);
}

/* Takes the part after the backslash at `where`: a group, or -1 for a backslash, which begins the
 * next part. */
static dcpk_status take_escape(struct template *t, const char *where, int *group,
                               struct dcpk_error *err)
{
    *group = -1;
    if (t->at < t->end && isdigit((unsigned char)*t->at)) {
        *group = take_digits(t);
        return check_group(t, where, *group, err);
    }
    if (t->at < t->end && *t->at == 'g') {
        t->at++;
        return take_name(t, where, group, err);
    }
    if (t->at < t->end && *t->at == '\\')
        return DCPK_OK;
    return bad_template(t, where, BAD_ESCAPE, err);
}

static dcpk_status add_part(struct dcpk_replacement *r, const char *text, const char *end,
                            int group, struct dcpk_error *err)
{
    if (dcpk_grow(&r->parts, &r->capacity, r->n, sizeof *r->parts, err))
        return err->status;
    r->parts[r->n++] = (struct part){text, (size_t)(end - text), group};
    return DCPK_OK;
}

static dcpk_status template_parse(struct template *t, struct dcpk_replacement *r,
                                  struct dcpk_error *err)
{
    const char *plain = t->begin;

    while (t->at < t->end) {
        const char *where = t->at++;
        int group;

        if (*where != '\\')
            continue;
        if (take_escape(t, where, &group, err) || add_part(r, plain, where, group, err))
            return err->status;
        plain = t->at;
        t->at += group < 0; /* the second backslash is text */
    }
    return add_part(r, plain, t->end, -1, err);
}

dcpk_status dcpk_replacement_new(const struct dcpk_regex *regex, const char *text, size_t n_bytes,
                                 struct dcpk_replacement **replacement, struct dcpk_error *err)
{
    struct template t = {regex, text, text, text + n_bytes};
    struct dcpk_replacement *r = dcpk_alloc(sizeof *r, err);

    if (r == NULL)
        return err->status;
    if (template_parse(&t, r, err) != DCPK_OK) {
        dcpk_replacement_free(r);
        return err->status;
    }
    *replacement = r;
    return DCPK_OK;
}

void dcpk_replacement_free(struct dcpk_replacement *replacement)
{
    if (replacement == NULL)
        return;
    dcpk_free(replacement->parts);
    dcpk_free(replacement);
}

static void put_replacement(const struct dcpk_regex *regex, const struct dcpk_replacement *r,
                            const char *text, struct dcpk_bytes *out)
{
    const size_t *places = pcre2_get_ovector_pointer(regex->match);

    for (size_t i = 0; i < r->n; i++) {
        const struct part *part = &r->parts[i];
        const size_t *place;

        dcpk_bytes_put(out, part->text, part->n_bytes);
        if (part->group < 0)
            continue;
        place = places + 2 * (size_t)part->group;
        if (place[0] != PCRE2_UNSET)
            dcpk_bytes_put(out, text + place[0], place[1] - place[0]);
    }
}

dcpk_status dcpk_regex_replace(struct dcpk_regex *regex, const struct dcpk_replacement *replacement,
                               const char *text, struct dcpk_bytes *out, struct dcpk_error *err)
{
    struct subject s = {.text = text, .n_bytes = strlen(text)};
    bool found;
    dcpk_status st;

    while ((st = subject_find(regex, &s, &found, err)) == DCPK_OK && found) {
        dcpk_bytes_put(out, text + s.from, s.begin - s.from);
        put_replacement(regex, replacement, text, out);
        /* The text has been found to be UTF-8: checking it at each match would be quadratic. */
        s.options = PCRE2_NO_UTF_CHECK;
        if (s.begin == s.end)
            s.options |= PCRE2_NOTEMPTY_ATSTART;
        s.from = s.end;
    }
    dcpk_bytes_put(out, text + s.from, s.n_bytes - s.from);
    if (st != DCPK_OK)
        return st;
    return dcpk_bytes_status(out, err);
}
