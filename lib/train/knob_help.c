/* SPDX-License-Identifier: Apache-2.0 */
/* knob_help.c - rows of the table of knobs, as documents. */
#include "lib/train/knob_help.h"

#include <ctype.h>
#include <string.h>

#include "lib/base/order.h"
#include "lib/base/text.h"
#include "lib/train/knobs_rules_priv.h"

static const struct dcpk_knob_rule *const rule_lists[] = {
    dcpk_knob_rules_of_modes,        dcpk_knob_rules_of_others,    dcpk_knob_rules_of_fsdp,
    dcpk_knob_rules_of_combinations, dcpk_knob_rules_of_this_loop, dcpk_knob_rules_of_numbers,
};

/* ---- one knob ---- */

static const char *help_of_class(enum dcpk_knob_class knob_class)
{
    switch (knob_class) {
    case DCPK_KNOB_VALUE:
        return "the run: what it trains, on which ranks, for how long; what it loads, saves and "
               "logs";
    case DCPK_KNOB_CHECKED:
        return "some values are refused";
    case DCPK_KNOB_ADJUSTED:
        return "a rule may set it, with a notice";
    case DCPK_KNOB_SCHEDULE:
        return "order and memory of the work, not a bit of its result";
    case DCPK_KNOB_NUMERIC:
        return "the numbers of the result";
    case DCPK_KNOB_NO_EFFECT:
        return "nothing here: accepted, with a notice";
    }
    return "";
}

static const char *help_of_kind(const struct dcpk_knob *knob)
{
    switch (knob->kind) {
    case DCPK_KNOB_FLAG:
        return "true or false";
    case DCPK_KNOB_LENGTH:
        return "a whole number, 1 or more";
    case DCPK_KNOB_COUNT:
        return "a whole number, 0 or more";
    case DCPK_KNOB_NUMBER:
        return "a number, 0 or more";
    case DCPK_KNOB_TEXT:
        return "a text";
    case DCPK_KNOB_WORD:
        break;
    }
    return knob->words;
}

static bool help_is_of_name(char c)
{
    return isalnum((unsigned char)c) || c == '_' || c == '-';
}

/* Does a sentence name the knob, with underscores or dashes? One word alone is also plain English,
 * "optimizer": such a knob's help has to name its rules. */
static bool help_names(const char *sentence, const char *name)
{
    const size_t n = strlen(name);

    if (strchr(name, '_') == NULL)
        return false;
    for (const char *at = dcpk_text_or(sentence, ""); *at != '\0'; at++) {
        size_t i = 0;

        while (at[i] == name[i] || (at[i] == '-' && name[i] == '_'))
            if (++i == n)
                break;
        if (i == n && (at == sentence || !help_is_of_name(at[-1])) && !help_is_of_name(at[n]))
            return true;
        if (i == n && at >= sentence + 2 && at[-1] == '-' && at[-2] == '-' &&
            !help_is_of_name(at[n]))
            return true;
    }
    return false;
}

/* The sections of all rows of a name. */
static const char *help_sections(const char *name, struct dcpk_doc *doc)
{
    const struct dcpk_knob *knob;
    const char *sections = NULL;

    for (size_t i = 0; (knob = dcpk_knob_at(i)) != NULL; i++) {
        if (strcmp(knob->name, name) != 0)
            continue;
        if (sections == NULL)
            sections = knob->sections;
        else
            sections = dcpk_doc_format(doc, "%s %s", sections, knob->sections);
    }
    return sections;
}

static void fill_rules(const void *context, struct dcpk_doc_rows *rows)
{
    const char *name = context;

    for (size_t l = 0; l < DCPK_COUNT(rule_lists); l++)
        for (const struct dcpk_knob_rule *rule = rule_lists[l]; rule->when != NULL; rule++) {
            const char *kind = rule->kind == DCPK_RULE_REFUSE ? "refused" : "notice";

            if (!help_names(rule->text, name) && !help_names(rule->remedy, name))
                continue;
            DCPK_DOC_PUT(rows, {.key = "kind", .title = "kind", .fact = dcpk_fact_text(kind)},
                         {.key = "text", .title = "text", .fact = dcpk_fact_text(rule->text)},
                         DCPK_DOC_SHOWN(rule->remedy != NULL, .key = "remedy", .title = "remedy",
                                        .fact = dcpk_fact_text(rule->remedy)));
        }
}

dcpk_status dcpk_knob_explain(const char *name, struct dcpk_doc *doc, struct dcpk_error *err)
{
    const struct dcpk_knob *knob = dcpk_knob_find(name);
    const char *absence = dcpk_knob_absence(name);

    if (absence != NULL)
        return dcpk_fail(err, DCPK_EUSAGE, "%s is not in this loop: %s", name, absence);
    if (knob == NULL)
        return dcpk_fail(err, DCPK_EUSAGE, "%s: unknown knob", name);
    dcpk_doc_fact(doc, "knob", "name", dcpk_fact_text(knob->name));
    if (knob->others != NULL)
        dcpk_doc_fact(doc, "other names", "other_names", dcpk_fact_text(knob->others));
    dcpk_doc_fact(doc, "sections", "sections", dcpk_fact_text(help_sections(knob->name, doc)));
    dcpk_doc_set_text(doc, "help", knob->help);
    dcpk_doc_note(doc, "what", knob->help);
    dcpk_doc_fact(doc, "takes", "takes", dcpk_fact_text(help_of_kind(knob)));
    dcpk_doc_fact(doc, "default", "default", dcpk_fact_text(dcpk_text_or(knob->standard, "none")));
    dcpk_doc_fact(doc, "changes", "changes", dcpk_fact_text(help_of_class(knob->knob_class)));
    dcpk_doc_fact(doc, "source", "source", dcpk_fact_text(knob->source));
    dcpk_doc_table(doc, "rules",
                   &(struct dcpk_doc_table){.fill = fill_rules,
                                            .context = knob->name,
                                            .flags = DCPK_DOC_PARAGRAPHS,
                                            .indent = doc->style.indent});
    return dcpk_doc_status(doc, err);
}

/* ---- all of them ---- */

/* A row of the table, for programs with the part that it is of. */
static void put_knob(struct dcpk_doc_rows *rows, const struct dcpk_knob *knob, const char *part)
{
    DCPK_DOC_PUT(rows, {.key = "name", .title = "knob", .fact = dcpk_fact_text(knob->name)},
                 {.key = "help", .title = "what", .fact = dcpk_fact_text(knob->help)},
                 DCPK_MEMBER("part", dcpk_fact_text(part)));
}

/* Is row i the second of its name? */
static bool help_is_repeated(size_t i)
{
    return dcpk_knob_find(dcpk_knob_at(i)->name) != dcpk_knob_at(i);
}

static void fill_part(const void *context, struct dcpk_doc_rows *rows)
{
    const size_t *first = context;

    for (size_t i = *first; dcpk_knob_at(i) != NULL; i++) {
        if (i > *first && dcpk_knob_title(i) != NULL)
            return;
        if (!help_is_repeated(i))
            put_knob(rows, dcpk_knob_at(i), dcpk_knob_title(*first));
    }
}

static void fill_all(const void *context, struct dcpk_doc_rows *rows)
{
    (void)context;
    for (size_t i = 0; dcpk_knob_at(i) != NULL; i++)
        if (dcpk_knob_title(i) != NULL)
            fill_part(&i, rows);
}

dcpk_status dcpk_knob_list(struct dcpk_doc *doc, struct dcpk_error *err)
{
    for (size_t i = 0; dcpk_knob_at(i) != NULL; i++) {
        const char *title = dcpk_knob_title(i);
        const size_t *first;

        if (title == NULL)
            continue;
        first = dcpk_doc_keep(doc, &i, sizeof i);
        if (first == NULL)
            return dcpk_doc_status(doc, err);
        dcpk_doc_heading(doc, title);
        dcpk_doc_show(doc, &(struct dcpk_doc_table){
                               .fill = fill_part, .context = first, .flags = DCPK_DOC_PARAGRAPHS});
    }
    dcpk_doc_set_table(doc, "knobs", &(struct dcpk_doc_table){.fill = fill_all});
    return dcpk_doc_status(doc, err);
}
