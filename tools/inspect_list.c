/* SPDX-License-Identifier: Apache-2.0 */
/* inspect_list.c - dcpkit inspect of a run folder: which iterations it has. */
#include <inttypes.h>
#include <stdio.h>

#include "tools/inspect.h"

static void put_entry(struct dcpk_doc_rows *rows, const struct dcpk_run_entry *entry)
{
    char files[64], how[DCPK_RUN_WHY_BYTES + 64];

    snprintf(files, sizeof files, "%6" PRIu64 " file%s", entry->n_files,
             entry->n_files == 1 ? " " : "s");
    snprintf(how, sizeof how, "%s%s%s%s", entry->is_complete ? "complete" : "incomplete",
             entry->is_named ? ", named by the tracker" : "", entry->is_complete ? "" : ": ",
             entry->why);
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
        DCPK_MEMBER("iteration", entry->iteration >= 0 ? dcpk_fact_int(entry->iteration)
                                                       : dcpk_fact_text("release")),
        DCPK_MEMBER("n_files", dcpk_fact_count(entry->n_files)),
        DCPK_MEMBER("named_by_tracker", dcpk_fact_flag(entry->is_named)),
        DCPK_MEMBER("why", dcpk_fact_text(entry->is_complete ? NULL : entry->why)));
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
