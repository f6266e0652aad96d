/* SPDX-License-Identifier: Apache-2.0 */
/* hash_files.c - SHA-256 of files as text and JSON, and how two lists of them differ. */
#include "tools/hash_files.h"

#include <string.h>

#include "lib/base/hex.h"
#include "tools/cmd.h"

#define DIGITS_BYTES (2 * DCPK_SHA256_BYTES + 1)

dcpk_status dcpk_hash_files_print(const struct dcpk_integrity *list, bool as_json,
                                  struct dcpk_error *err)
{
    struct dcpk_bytes bytes = {0};
    char digits[DIGITS_BYTES];
    struct dcpk_json_out j;

    if (as_json) {
        dcpk_json_out_init(&j, &bytes, 2);
        dcpk_json_begin_object(&j);
        dcpk_integrity_put_members(list, &j);
        dcpk_json_add_uint(&j, "version", 1);
        dcpk_json_end_object(&j);
        return dcpk_cli_print_bytes(&bytes, err);
    }
    for (size_t i = 0; i < list->n_files; i++) {
        dcpk_cli_printf(stdout, "%s  ",
                        dcpk_hex_put(list->files[i].sha256, DCPK_SHA256_BYTES, digits));
        dcpk_cli_put_text(stdout, list->files[i].name);
        dcpk_cli_printf(stdout, "\n");
    }
    return dcpk_cli_flush(err);
}

typedef void dcpk_files_differ(void *context, const struct dcpk_file_sum *recorded,
                               const struct dcpk_file_sum *found);

/* Both in the order of the names. Returns how many differ; NULL: that side has none. */
static size_t compare_files(const struct dcpk_integrity *recorded,
                            const struct dcpk_integrity *found, dcpk_files_differ *each,
                            void *context)
{
    size_t i = 0, k = 0, n = 0;

    while (i < recorded->n_files || k < found->n_files) {
        const struct dcpk_file_sum *x = NULL, *y = NULL;

        if (i < recorded->n_files)
            x = &recorded->files[i];
        if (k < found->n_files)
            y = &found->files[k];
        if (x != NULL && y != NULL) {
            const int order = strcmp(x->name, y->name);

            if (order < 0)
                y = NULL;
            else if (order > 0)
                x = NULL;
        }
        i += x != NULL;
        k += y != NULL;
        if (x != NULL && y != NULL && memcmp(x->sha256, y->sha256, DCPK_SHA256_BYTES) == 0)
            continue;
        n++;
        each(context, x, y);
    }
    return n;
}

static void print_difference(void *context, const struct dcpk_file_sum *recorded,
                             const struct dcpk_file_sum *found)
{
    const struct dcpk_file_sum *file = recorded;
    const char *what = "differs";

    (void)context;
    if (recorded == NULL) {
        file = found;
        what = "new";
    } else if (found == NULL) {
        what = "missing";
    }
    dcpk_cli_printf(stdout, "%-10s  ", what);
    dcpk_cli_put_text(stdout, file->name);
    dcpk_cli_printf(stdout, "\n");
}

static void put_side(struct dcpk_json_out *j, const char *side, const struct dcpk_file_sum *file)
{
    char digits[DIGITS_BYTES];

    dcpk_json_put_key(j, side);
    if (file == NULL)
        dcpk_json_put_null(j);
    else
        dcpk_json_put_string(j, dcpk_hex_put(file->sha256, DCPK_SHA256_BYTES, digits));
}

static void put_difference(void *context, const struct dcpk_file_sum *recorded,
                           const struct dcpk_file_sum *found)
{
    struct dcpk_json_out *j = context;

    dcpk_json_put_key(j, recorded == NULL ? found->name : recorded->name);
    dcpk_json_begin_object(j);
    put_side(j, "found", found);
    put_side(j, "recorded", recorded);
    dcpk_json_end_object(j);
}

dcpk_status dcpk_hash_files_print_check(const struct dcpk_integrity *recorded,
                                        const struct dcpk_integrity *found, bool as_json, bool *ok,
                                        struct dcpk_error *err)
{
    struct dcpk_bytes bytes = {0};
    struct dcpk_json_out j;
    size_t n_different;

    if (!as_json) {
        n_different = compare_files(recorded, found, print_difference, NULL);
        *ok = n_different == 0;
        dcpk_cli_printf(stdout, "verdict     %s: %zu files recorded, %zu found, %zu differ\n",
                        *ok ? "ok" : "NOT ok", recorded->n_files, found->n_files, n_different);
        return dcpk_cli_flush(err);
    }
    dcpk_json_out_init(&j, &bytes, 2);
    dcpk_json_begin_object(&j);
    dcpk_json_put_key(&j, "differences");
    dcpk_json_begin_object(&j);
    *ok = compare_files(recorded, found, put_difference, &j) == 0;
    dcpk_json_end_object(&j);
    dcpk_json_add_bool(&j, "ok", *ok);
    dcpk_json_add_uint(&j, "version", 1);
    dcpk_json_end_object(&j);
    return dcpk_cli_print_bytes(&bytes, err);
}
