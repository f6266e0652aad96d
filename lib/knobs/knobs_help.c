/* SPDX-License-Identifier: Apache-2.0 */
/* knobs_help.c - rows of the table of knobs, as documents. */
#include <ctype.h>
#include <string.h>

#include "lib/base/order.h"
#include "lib/base/text.h"
#include "lib/knobs/knobs_priv.h"
#include "lib/report/doc.h"

/* ---- one knob ---- */

static const char *help_of_effect(enum dcpk_knob_effect effect)
{
    switch (effect) {
    case DCPK_KNOB_VALUE:
        return "the run: what it trains, on which ranks, for how long; what it loads, saves and "
               "logs";
    case DCPK_KNOB_CHECKED:
        return "some values are refused";
    case DCPK_KNOB_ADJUSTED:
        return "a rule may set it, with a notice";
    case DCPK_KNOB_SCHEDULE:
        return "order and memory of the work; the result is the same bit for bit";
    case DCPK_KNOB_NUMERIC:
        return "the numbers of the result";
    case DCPK_KNOB_NO_EFFECT:
        return "nothing here: accepted, with a notice";
    }
    return "";
}

static const char *help_of_kind(const struct dcpk_option *knob, struct dcpk_doc *doc)
{
    char takes[DCPK_OPTION_TAKES_BYTES];

    if (knob->kind == DCPK_OPTION_LENGTH)
        return dcpk_doc_format(doc, "a whole number, %d or more", (int)knob->least);
    return dcpk_doc_format(doc, "%s", dcpk_option_takes(knob, takes));
}

static bool help_is_of_name(char c)
{
    return isalnum((unsigned char)c) || c == '_' || c == '-';
}

/* True if a sentence names the knob, with underscores or dashes. One word alone is also plain
 * English, "optimizer": such a knob's help has to name its rules. */
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
    struct dcpk_knob_walk walk = {0};
    const struct dcpk_option *knob;
    const char *sections = NULL;

    while ((knob = dcpk_knob_next(&walk)) != NULL) {
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
    const struct dcpk_knob_rule *rule;

    for (size_t i = 0; (rule = dcpk_knob_rule_at(i)) != NULL; i++) {
        const char *kind = rule->remedy != NULL ? "refused" : "notice";

        if (!help_names(rule->text, name) && !help_names(rule->remedy, name))
            continue;
        DCPK_DOC_PUT(rows, {"kind", "kind", .fact = dcpk_fact_text(kind)},
                     {"text", "text", .fact = dcpk_fact_text(rule->text)},
                     DCPK_DOC_SHOWN(rule->remedy != NULL, .key = "remedy", .title = "remedy",
                                    .fact = dcpk_fact_text(rule->remedy)));
    }
}

static void help_rules(struct dcpk_doc *doc, const char *name)
{
    dcpk_doc_table(doc, "rules",
                   &(struct dcpk_doc_table){.fill = fill_rules,
                                            .context = name,
                                            .flags = DCPK_DOC_PARAGRAPHS,
                                            .indent = doc->style.indent});
}

static dcpk_status help_variable(const struct dcpk_variable *variable, struct dcpk_doc *doc,
                                 struct dcpk_error *err)
{
    dcpk_doc_fact(doc, "variable", "name", dcpk_fact_text(variable->name));
    dcpk_doc_fact(doc, "what", "help", dcpk_fact_text(variable->help));
    dcpk_doc_fact(doc, "wanted", "wanted", dcpk_fact_text(variable->wanted));
    help_rules(doc, variable->name);
    return dcpk_doc_status(doc, err);
}

dcpk_status dcpk_knob_explain(const char *name, struct dcpk_doc *doc, struct dcpk_error *err)
{
    struct dcpk_knob_walk walk;
    const struct dcpk_option *knob = dcpk_knob_find(name, &walk);
    const char *absence = dcpk_knob_absence(name), *own;

    if (dcpk_variable_find(name) != NULL)
        return help_variable(dcpk_variable_find(name), doc, err);
    if (absence != NULL)
        return dcpk_fail(err, DCPK_EUSAGE, "%s is not in this loop: %s", name, absence);
    if (knob == NULL)
        return dcpk_fail(err, DCPK_EUSAGE, "%s: unknown knob", name);
    own = dcpk_doc_format(doc, "%s", knob->name);
    dcpk_doc_fact(doc, "knob", "name", dcpk_fact_text(own));
    if (knob->others != NULL)
        dcpk_doc_fact(doc, "other names", "other_names",
                      dcpk_fact_text(dcpk_doc_format(doc, "%s", knob->others)));
    dcpk_doc_fact(doc, "sections", "sections", dcpk_fact_text(help_sections(knob->name, doc)));
    dcpk_doc_set_text(doc, "help", knob->help);
    dcpk_doc_note(doc, "what", knob->help);
    dcpk_doc_fact(doc, "takes", "takes", dcpk_fact_text(help_of_kind(knob, doc)));
    dcpk_doc_fact(doc, "default", "default", dcpk_fact_text(dcpk_text_or(knob->initial, "none")));
    dcpk_doc_fact(doc, "changes", "changes",
                  dcpk_fact_text(help_of_effect((enum dcpk_knob_effect)knob->effect)));
    dcpk_doc_fact(doc, "source", "source", dcpk_fact_text(knob->source));
    help_rules(doc, own);
    return dcpk_doc_status(doc, err);
}

/* ---- all of them ---- */

/* A row a name, for programs with its part. context: the part; NULL: all. */
static void help_fill_part(const void *context, struct dcpk_doc_rows *rows)
{
    struct dcpk_knob_walk walk = {0}, first;
    const struct dcpk_option *knob;

    while ((knob = dcpk_knob_next(&walk)) != NULL) {
        if ((context != NULL && context != walk.part) ||
            (dcpk_knob_find(knob->name, &first) != NULL && first.number != walk.number))
            continue;
        DCPK_DOC_PUT(rows, {"name", "knob", .fact = dcpk_fact_text(knob->name)},
                     {"help", "what", .fact = dcpk_fact_text(knob->help)},
                     DCPK_MEMBER("part", dcpk_fact_text(walk.part)));
    }
}

static void fill_variables(const void *context, struct dcpk_doc_rows *rows)
{
    (void)context;
    for (size_t i = 0; i < dcpk_n_variables; i++) {
        const struct dcpk_variable *v = &dcpk_variables[i];

        DCPK_DOC_PUT(rows, {"name", "variable", .fact = dcpk_fact_text(v->name)},
                     {"help", "what", .fact = dcpk_fact_text(v->help)});
    }
}

dcpk_status dcpk_knob_list(struct dcpk_doc *doc, struct dcpk_error *err)
{
    struct dcpk_knob_walk walk = {0};

    while (dcpk_knob_next(&walk) != NULL) {
        if (!walk.begins_part)
            continue;
        dcpk_doc_heading(doc, walk.part);
        dcpk_doc_show(doc, &(struct dcpk_doc_table){.fill = help_fill_part,
                                                    .context = walk.part,
                                                    .flags = DCPK_DOC_PARAGRAPHS});
    }
    dcpk_doc_heading(doc, "variables of the environment");
    dcpk_doc_table(doc, "variables",
                   &(struct dcpk_doc_table){.fill = fill_variables, .flags = DCPK_DOC_PARAGRAPHS});
    dcpk_doc_set_table(doc, "knobs", &(struct dcpk_doc_table){.fill = help_fill_part});
    return dcpk_doc_status(doc, err);
}

/* ---- variables of the environment ---- */

const struct dcpk_variable dcpk_variables[] = {
    {"CUDA_DEVICE_MAX_CONNECTIONS",
     "how many queues a GPU takes work from; with one queue, communication waits for computation",
     "not set with Megatron-FSDP, which is refused with 1; 1 for tensor or context parallelism "
     "without it, before compute capability 10",
     "1"},
    {"PYTORCH_CUDA_ALLOC_CONF", "how PyTorch's allocator takes memory of a GPU",
     "without expandable_segments:True where nccl_ub is on, which registers memory pools",
     "expandable_segments:True"},
    {"PYTORCH_ALLOC_CONF", "how PyTorch's allocator takes memory; newer releases have this name",
     "without expandable_segments:True where nccl_ub is on", "expandable_segments:True"},
    {"NCCL_ALGO", "the algorithms that NCCL may choose from",
     "of Ring, CollnetDirect, CollnetChain and ^NVLS alone in deterministic_mode", NULL},
    {"NVTE_ALLOW_NONDETERMINISTIC_ALGO",
     "lets Transformer Engine take attention whose sums change from run to run",
     "0 in deterministic_mode", NULL},
    {"CUBLAS_WORKSPACE_CONFIG", "the workspace of cuBLAS, which decides the order of its sums",
     ":4096:8 or :16:8 in deterministic_mode", NULL},
};
const size_t dcpk_n_variables = DCPK_COUNT(dcpk_variables);

const struct dcpk_variable *dcpk_variable_find(const char *name)
{
    for (size_t i = 0; i < dcpk_n_variables; i++)
        if (strcmp(dcpk_variables[i].name, name) == 0)
            return &dcpk_variables[i];
    return NULL;
}
