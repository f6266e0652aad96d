/* SPDX-License-Identifier: Apache-2.0 */
/* inspect_list.c - dcpkit inspect of a run folder: which iterations it has. */
#include <inttypes.h>
#include <string.h>

#include "tools/cmd.h"
#include "tools/inspect.h"

static int name_column(const struct dcpk_run_list *list)
{
    size_t widest = 0;

    for (size_t i = 0; i < list->n; i++)
        if (strlen(list->entries[i].name) > widest)
            widest = strlen(list->entries[i].name);
    return (int)widest;
}

void dcpk_inspect_print_list(const char *path, const struct dcpk_run_list *list)
{
    const int column = name_column(list);
    char size[DCPK_SIZE_TEXT_BYTES];

    dcpk_cli_printf(stdout, "iterations   %zu in ", list->n);
    dcpk_cli_put_text(stdout, path);
    dcpk_cli_printf(stdout, "\n");
    for (size_t i = 0; i < list->n; i++) {
        const struct dcpk_run_entry *entry = &list->entries[i];

        dcpk_cli_printf(stdout, "  %-*s  %-12s  %12s  %6" PRIu64 " file%s  %s", column, entry->name,
                        entry->format == NULL ? "-" : entry->format,
                        dcpk_cli_short_size(entry->n_bytes, size), entry->n_files,
                        entry->n_files == 1 ? " " : "s",
                        entry->is_complete ? "complete" : "incomplete");
        if (entry->is_named)
            dcpk_cli_printf(stdout, ", named by the tracker");
        if (!entry->is_complete)
            dcpk_cli_printf(stdout, ": ");
        dcpk_cli_put_text(stdout, entry->why);
        dcpk_cli_printf(stdout, "\n");
    }
}

void dcpk_inspect_put_list(const struct dcpk_run_list *list, struct dcpk_json_out *j)
{
    dcpk_json_put_key(j, "iterations");
    dcpk_json_begin_array(j);
    for (size_t i = 0; i < list->n; i++) {
        const struct dcpk_run_entry *entry = &list->entries[i];

        dcpk_json_begin_object(j);
        dcpk_json_add_bool(j, "complete", entry->is_complete);
        dcpk_json_add_uint(j, "file_bytes", entry->n_bytes);
        dcpk_json_add_string(j, "folder", entry->name);
        dcpk_json_add_string(j, "format", entry->format);
        if (entry->iteration >= 0)
            dcpk_json_add_int(j, "iteration", entry->iteration);
        else
            dcpk_json_add_string(j, "iteration", "release");
        dcpk_json_add_uint(j, "n_files", entry->n_files);
        dcpk_json_add_bool(j, "named_by_tracker", entry->is_named);
        dcpk_json_add_string(j, "why", entry->is_complete ? NULL : entry->why);
        dcpk_json_end_object(j);
    }
    dcpk_json_end_array(j);
}
