/* SPDX-License-Identifier: Apache-2.0 */
/* inspect_list.c - dcpkit inspect of a run folder: which iterations it has. */
#include <inttypes.h>
#include <stdio.h>

#include "tools/inspect.h"

static void put_entry(struct dcpk_doc_rows *rows, const struct dcpk_run_entry *entry)
{
    const char *named = entry->is_named ? ", named by the tracker" : "", *why = NULL;
    struct dcpk_fact iteration = dcpk_fact_text("release");
    char files[64], how[DCPK_RUN_WHY_BYTES + 64];

    if (entry->iteration >= 0)
        iteration = dcpk_fact_int(entry->iteration);
    if (!entry->is_complete)
        why = entry->why;
    snprintf(files, sizeof files, "%6" PRIu64 " file%s", entry->n_files,
             entry->n_files == 1 ? " " : "s");
    if (entry->is_complete)
        snprintf(how, sizeof how, "complete%s", named);
    else
        snprintf(how, sizeof how, "incomplete%s: %s", named, why);
    DCPK_DOC_PUT(
        rows,
        {.key = "folder",
         .title = "folder",
         .fact = dcpk_fact_text(entry->name),
         .flags = DCPK_DOC_MEASURED},
        {.key = "format", .title = "format", .fact = dcpk_fact_text(entry->format), .width = 12},
        {.key = "file_bytes",
         .title = "size",
         .fact = dcpk_fact_bytes(entry->n_bytes),
         .flags = DCPK_DOC_RIGHT,
         .width = 12},
        {.title = "files", .fact = dcpk_fact_text(files), .flags = DCPK_DOC_RIGHT},
        {.title = "state", .fact = dcpk_fact_text(how)},
        DCPK_MEMBER("complete", dcpk_fact_flag(entry->is_complete)),
        DCPK_MEMBER("iteration", iteration),
        DCPK_MEMBER("n_files", dcpk_fact_count(entry->n_files)),
        DCPK_MEMBER("named_by_tracker", dcpk_fact_flag(entry->is_named)),
        DCPK_MEMBER("why", dcpk_fact_text(why)));
}

static void fill_entries(const void *context, struct dcpk_doc_rows *rows)
{
    const struct dcpk_run_list *list = context;

    for (size_t i = 0; i < list->n; i++)
        put_entry(rows, &list->entries[i]);
}

struct dcpk_doc_table dcpk_inspect_iterations(const struct dcpk_run_list *list)
{
    return (struct dcpk_doc_table){.indent = 2, .fill = fill_entries, .context = list};
}
