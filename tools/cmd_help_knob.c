/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_help_knob.c - dcpkit help knob: what a knob of training means, or all of them. */
#include <string.h>

#include "lib/base/text.h"
#include "lib/knobs/knobs.h"
#include "tools/cmd.h"
#include "tools/print_doc.h"

#define NAME "help knob"

static const struct dcpk_doc_style style = {.label_columns = 12};

static dcpk_status help_one(const char *name, struct dcpk_doc *doc, struct dcpk_error *err)
{
    const struct dcpk_option *near;
    struct dcpk_knob_walk walk;

    if (name == NULL)
        return dcpk_knob_list(doc, err);
    if (dcpk_knob_explain(name, doc, err) == DCPK_OK)
        return DCPK_OK;
    if (dcpk_knob_absence(name) != NULL)
        return err->status;
    near = dcpk_knob_find_near(name + strspn(name, "-"), NULL, 0, &walk);
    if (near != NULL)
        dcpk_append(err, "; did you mean '%s'?", near->name);
    else
        dcpk_append(err, "; 'dcpkit help knob' lists all names");
    return err->status;
}

#define DCPK_OPT_STRUCT struct dcpk_print_options
static const struct dcpk_option option_rows[] = {DCPK_OPT_JSON(as_json), DCPK_OPT_END};

static int help_knob_main(void *values, const struct dcpk_cli_args *args, struct dcpk_error *err)
{
    const char *name = args->n > 0 ? args->words[0] : NULL;
    struct dcpk_doc doc;

    dcpk_doc_init(&doc, NAME, &style);
    dcpk_doc_set_count(&doc, "version", 1);
    if (help_one(name, &doc, err) == DCPK_OK)
        (void)dcpk_print_doc(&doc, values, err);
    else
        dcpk_doc_release(&doc);
    return DCPK_EXIT_OK;
}

/* A knob may be named as the flag that it is. */
static int help_knob_begin(const struct dcpk_cli *cli, int argc, char **argv)
{
    struct dcpk_knob_walk walk;

    for (int i = 1; i < argc; i++)
        if (dcpk_starts_with(argv[i], "--") &&
            (dcpk_knob_find(argv[i], &walk) != NULL || dcpk_knob_absence(argv[i]) != NULL))
            argv[i] += 2; /* a name, not an option */
    return dcpk_cli_perform(cli, argc, argv);
}

static struct dcpk_print_options values;
const struct dcpk_cli dcpk_cmd_help_knob = {
    .name = NAME,
    .usage = "[options] [NAME]",
    .summary = "Explain a knob (a setting) of 'dcpkit train' by any of its names: its values, "
               "its effect, the rules that name it, its source. Without NAME, list all.",
    .options = option_rows,
    .values = &values,
    .example = "dcpkit help knob --data-parallel-sharding-strategy",
    .n_args = {0, 1},
    .paths = DCPK_CLI_NO_PATHS,
    .begin = help_knob_begin,
    .run = help_knob_main,
};
