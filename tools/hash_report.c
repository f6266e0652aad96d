/* SPDX-License-Identifier: Apache-2.0 */
/* hash_report.c - hashes of tensors or of files as text and JSON, and the answer of hash --check.
 */
#include "tools/hash_report.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "lib/base/hex.h"
#include "tools/cmd.h"
#include "tools/print_doc.h"

#define WHOLE_TEXT_BYTES (2 * DCPK_SHA256_BYTES + 1)

/* A line or a member for each of perhaps 100 000 tensors: not a document, but a stream. */
dcpk_status dcpk_hash_print(const struct dcpk_hash_list *list, const struct dcpk_checkpoint *ckpt,
                            bool as_json, struct dcpk_error *err)
{
    struct dcpk_bytes bytes = {0};
    dcpk_status st = DCPK_OK;

    if (as_json) {
        st = dcpk_hash_list_print(list, ckpt, &bytes, err);
        if (st == DCPK_OK)
            return dcpk_cli_print_bytes(&bytes, err);
    } else {
        dcpk_hash_list_put_text(list, &bytes);
        st = dcpk_bytes_status(&bytes, err);
        if (st == DCPK_OK)
            dcpk_cli_put_lines(stdout, (const char *)bytes.data, bytes.n_bytes);
        if (st == DCPK_OK)
            st = dcpk_cli_flush(err);
    }
    dcpk_bytes_release(&bytes);
    return st;
}

static const char *ok_word(bool is_ok)
{
    return is_ok ? "ok" : "NOT ok";
}

/* "FILE has bfloat16 [4, 64] 662ef41f3aed3142ce8c66ff7dc8ae38" */
static void describe_side(const char *side, const struct dcpk_hashed *item, char *text, size_t n)
{
    char shape[256], digits[DCPK_HASH_TEXT_BYTES], form[320] = "";

    if (item == NULL) {
        snprintf(text, n, "%s has none", side);
        return;
    }
    if (item->kind == DCPK_HASHED_OBJECT)
        snprintf(form, sizeof form, "an object ");
    else if (item->kind == DCPK_HASHED_TENSOR && item->dtype != DCPK_DTYPE_NONE)
        snprintf(form, sizeof form, "%s %s ", dcpk_dtype_name(item->dtype),
                 dcpk_shape_format(item->shape, item->rank, shape, sizeof shape));
    if (item->not_covered != NULL)
        snprintf(text, n, "%s has %swithout a hash", side, form);
    else
        snprintf(text, n, "%s has %s%s", side, form, dcpk_hashed_text(item, digits));
}

static void put_hashed(const void *item, struct dcpk_json_out *j)
{
    dcpk_hashed_put(item, j);
}

static struct dcpk_fact hashed_fact(const struct dcpk_hashed *item)
{
    return dcpk_fact_if(item != NULL, dcpk_fact_json(put_hashed, item));
}

static void put_hash_difference(void *context, const struct dcpk_hashed *recorded,
                                const struct dcpk_hashed *found)
{
    const struct dcpk_hashed *item = recorded == NULL ? found : recorded;
    const char *name = item->kind == DCPK_HASHED_COMMON ? "common state" : item->key;
    char in_file[512], in_folder[512];

    describe_side("FILE", recorded, in_file, sizeof in_file);
    describe_side("DIR", found, in_folder, sizeof in_folder);
    DCPK_DOC_PUT((struct dcpk_doc_rows *)context,
                 {.title = "what", .fact = dcpk_fact_text(name), .label = "differs     "},
                 {.title = "FILE", .fact = dcpk_fact_text(in_file)},
                 {.title = "DIR", .fact = dcpk_fact_text(in_folder)},
                 DCPK_MEMBER("found", hashed_fact(found)),
                 DCPK_MEMBER("recorded", hashed_fact(recorded)));
}

static void fill_hash_differences(const void *context, struct dcpk_doc_rows *rows)
{
    const struct dcpk_hash_check *check = context;

    dcpk_hash_list_compare(check->recorded, check->found, put_hash_difference, rows);
}

/* Counts the items of DIR that FILE does not cover, or that have no hash. */
static size_t count_not_covered(const struct dcpk_hash_check *check)
{
    const struct dcpk_hash_list *found = check->found;

    if ((check->recorded->lacks & DCPK_LACKS_OBJECTS) != 0)
        return found->n_of[DCPK_HASHED_OBJECT] + found->n_of[DCPK_HASHED_COMMON];
    return found->n_not_covered;
}

/* Text does not record dtypes and shapes; the hash of the whole knows them. */
static bool is_whole_same(const struct dcpk_hash_check *check)
{
    return (check->recorded->lacks & DCPK_LACKS_WHOLE) != 0 ||
           memcmp(check->recorded->whole, check->found->whole, DCPK_SHA256_BYTES) == 0;
}

/* Counts of tensors, or of objects with the common state. */
struct hash_counts {
    const char *name;                                /* "tensors", "objects" */
    size_t n_recorded, n_found, n_different, n_lost; /* lost: recorded, and not found */
};
enum { TENSORS, OBJECTS, N_COUNTED };

static enum dcpk_hashed_kind hash_kind_of(const struct dcpk_hashed *recorded,
                                          const struct dcpk_hashed *found)
{
    return recorded == NULL ? found->kind : recorded->kind;
}

static void count_difference(void *context, const struct dcpk_hashed *recorded,
                             const struct dcpk_hashed *found)
{
    struct hash_counts *counts = context;
    struct hash_counts *c =
        &counts[hash_kind_of(recorded, found) == DCPK_HASHED_TENSOR ? TENSORS : OBJECTS];

    c->n_different++;
    c->n_lost += found == NULL;
}

static size_t n_values(const struct dcpk_hash_list *list)
{
    return list->n_of[DCPK_HASHED_OBJECT] + list->n_of[DCPK_HASHED_COMMON];
}

static void count_differences(const struct dcpk_hash_check *check,
                              struct hash_counts counts[N_COUNTED])
{
    const struct dcpk_hash_list *recorded = check->recorded, *found = check->found;

    counts[TENSORS] = (struct hash_counts){"tensors", recorded->n_of[DCPK_HASHED_TENSOR],
                                           found->n_of[DCPK_HASHED_TENSOR], 0, 0};
    counts[OBJECTS] = (struct hash_counts){"objects", n_values(recorded), n_values(found), 0, 0};
    (void)dcpk_hash_list_compare(recorded, found, count_difference, counts);
}

/* True for a list of another format, or of something without a tensor in common. */
static bool is_foreign(const struct dcpk_hash_check *check,
                       const struct hash_counts counts[N_COUNTED])
{
    const char *recorded = check->recorded->format;

    if (counts[TENSORS].n_different + counts[OBJECTS].n_different == 0)
        return false;
    if (recorded != NULL)
        return strcmp(recorded, check->format) != 0;
    return counts[TENSORS].n_recorded > 0 && counts[TENSORS].n_lost == counts[TENSORS].n_recorded;
}

/* In the place of all its keys, which are others by nature. */
static void report_foreign(const struct dcpk_hash_check *check, struct dcpk_doc *doc)
{
    const char *why = "has no tensor of DIR";

    if (check->recorded->format != NULL)
        why = dcpk_doc_format(doc, "lists %s, DIR is %s", check->recorded->format, check->format);
    dcpk_doc_row(doc, "format",
                 "FILE %s: 'verify --against' and 'compare-two-checkpoint' compare formats", why);
}

/* A verdict for tensors and one for objects, where FILE records any. */
static const char *hash_verdict_text(const struct dcpk_hash_check *check,
                                     const struct hash_counts counts[N_COUNTED],
                                     struct dcpk_doc *doc)
{
    const char *texts[N_COUNTED];

    for (int i = 0; i < N_COUNTED; i++)
        texts[i] = dcpk_doc_format(doc, "%s %s (%zu recorded, %zu found, %zu differ)",
                                   counts[i].name, ok_word(counts[i].n_different == 0),
                                   counts[i].n_recorded, counts[i].n_found, counts[i].n_different);
    if ((check->recorded->lacks & DCPK_LACKS_OBJECTS) != 0)
        return texts[TENSORS];
    return dcpk_doc_format(doc, "%s, %s", texts[TENSORS], texts[OBJECTS]);
}

static void set_counts(const struct hash_counts counts[N_COUNTED], struct dcpk_doc *doc)
{
    for (int i = 0; i < N_COUNTED; i++) {
        const struct hash_counts *c = &counts[i];

        dcpk_doc_set_count(doc, dcpk_doc_format(doc, "%s.n_different", c->name), c->n_different);
        dcpk_doc_set_count(doc, dcpk_doc_format(doc, "%s.n_found", c->name), c->n_found);
        dcpk_doc_set_count(doc, dcpk_doc_format(doc, "%s.n_recorded", c->name), c->n_recorded);
    }
}

static struct dcpk_fact whole_fact(struct dcpk_doc *doc, const struct dcpk_hash_list *list)
{
    char digits[WHOLE_TEXT_BYTES];

    if ((list->lacks & DCPK_LACKS_WHOLE) != 0)
        return dcpk_fact_null();
    return dcpk_fact_text(
        dcpk_doc_format(doc, "%s", dcpk_hex_put(list->whole, DCPK_SHA256_BYTES, digits)));
}

static void report_not_covered(const struct dcpk_hash_check *check, struct dcpk_doc *doc)
{
    const char *common = "", *why = "their values have no hash";
    const size_t n = count_not_covered(check);

    if (check->found->n_of[DCPK_HASHED_COMMON] > 0)
        common = ", common state among them";
    if ((check->recorded->lacks & DCPK_LACKS_OBJECTS) != 0)
        why = "FILE records tensors alone";
    dcpk_doc_set_count(doc, "n_not_covered", n);
    if (n > 0)
        dcpk_doc_row(doc, "not covered", "%zu objects%s: %s", n, common, why);
}

static void report_hash_check(const struct dcpk_hash_check *check, struct dcpk_doc *doc, bool *ok)
{
    const struct dcpk_doc_table differences = {
        .flags = DCPK_DOC_KEYED | DCPK_DOC_LINES, .fill = fill_hash_differences, .context = check};
    struct hash_counts counts[N_COUNTED];
    const char *lost = NULL;
    size_t n_different;

    count_differences(check, counts);
    n_different = counts[TENSORS].n_different + counts[OBJECTS].n_different;
    *ok = n_different == 0 && is_whole_same(check) && check->lost->status == DCPK_OK;
    if (is_foreign(check, counts)) {
        report_foreign(check, doc);
        dcpk_doc_set_table(doc, "differences", &differences);
    } else {
        dcpk_doc_table(doc, "differences", &differences);
    }
    if (n_different == 0 && !is_whole_same(check))
        dcpk_doc_row(doc, "differs",
                     "the whole: a dtype or a shape, which FILE has only in this hash");
    if (check->lost->status != DCPK_OK) {
        lost = check->lost->text;
        dcpk_doc_row(doc, "lost", "%s", lost);
    }
    dcpk_doc_set_text(doc, "lost", lost);
    report_not_covered(check, doc);
    dcpk_doc_verdict(doc, *ok, "%s: %s", ok_word(*ok), hash_verdict_text(check, counts, doc));
    set_counts(counts, doc);
    dcpk_doc_set_text(doc, "format.found", check->format);
    dcpk_doc_set_text(doc, "format.recorded", check->recorded->format);
    dcpk_doc_set_flag(doc, "ok", *ok);
    dcpk_doc_set_count(doc, "version", 1);
    dcpk_doc_set(doc, "whole.found", whole_fact(doc, check->found));
    dcpk_doc_set(doc, "whole.recorded", whole_fact(doc, check->recorded));
}

dcpk_status dcpk_hash_print_check(const struct dcpk_hash_check *check, bool as_json, bool *ok,
                                  struct dcpk_error *err)
{
    const struct dcpk_doc_style style = {.label_columns = 12};
    struct dcpk_doc doc;

    dcpk_doc_init(&doc, "hash", &style);
    report_hash_check(check, &doc, ok);
    return dcpk_print_doc(&doc, &(struct dcpk_print_options){.as_json = as_json}, err);
}

/* ---- files ---- */

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

struct files_check {
    const struct dcpk_integrity *recorded, *found;
};

/* A file that differs; NULL: that side has none. */
static void put_file_difference(struct dcpk_doc_rows *rows, const struct dcpk_file_sum *recorded,
                                const struct dcpk_file_sum *found)
{
    struct dcpk_fact was = dcpk_fact_null(), is = dcpk_fact_null();
    char digits[2][DIGITS_BYTES];
    const char *name = NULL, *label = "differs     ";

    if (recorded != NULL) {
        name = recorded->name;
        was = dcpk_fact_text(dcpk_hex_put(recorded->sha256, DCPK_SHA256_BYTES, digits[0]));
    } else {
        label = "new         ";
    }
    if (found != NULL) {
        name = found->name;
        is = dcpk_fact_text(dcpk_hex_put(found->sha256, DCPK_SHA256_BYTES, digits[1]));
    } else {
        label = "missing     ";
    }
    DCPK_DOC_PUT(rows, {.title = "what", .fact = dcpk_fact_text(name), .label = label},
                 DCPK_MEMBER("found", is), DCPK_MEMBER("recorded", was));
}

/* Both in the order of the names. Returns how many differ; rows NULL: they are counted. */
static size_t compare_files(const struct files_check *check, struct dcpk_doc_rows *rows)
{
    const struct dcpk_integrity *recorded = check->recorded, *found = check->found;
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
        if (rows != NULL)
            put_file_difference(rows, x, y);
    }
    return n;
}

static void fill_file_differences(const void *context, struct dcpk_doc_rows *rows)
{
    (void)compare_files(context, rows);
}

dcpk_status dcpk_hash_files_print_check(const struct dcpk_integrity *recorded,
                                        const struct dcpk_integrity *found, bool as_json, bool *ok,
                                        struct dcpk_error *err)
{
    const struct files_check check = {recorded, found};
    const size_t n_different = compare_files(&check, NULL);
    const struct dcpk_doc_style style = {.label_columns = 12};
    struct dcpk_doc doc;

    *ok = n_different == 0;
    dcpk_doc_init(&doc, "hash", &style);
    dcpk_doc_table(&doc, "differences",
                   &(struct dcpk_doc_table){.flags = DCPK_DOC_KEYED | DCPK_DOC_LINES,
                                            .fill = fill_file_differences,
                                            .context = &check});
    dcpk_doc_verdict(&doc, *ok, "%s: %zu files recorded, %zu found, %zu differ", ok_word(*ok),
                     recorded->n_files, found->n_files, n_different);
    dcpk_doc_set_flag(&doc, "ok", *ok);
    dcpk_doc_set_count(&doc, "version", 1);
    return dcpk_print_doc(&doc, &(struct dcpk_print_options){.as_json = as_json}, err);
}

dcpk_status dcpk_hash_blocks_print(const struct dcpk_block_list *blocks, struct dcpk_error *err)
{
    char digits[2 * sizeof((struct dcpk_hash *)0)->digest + 1];

    for (size_t i = 0; i < blocks->n_files; i++) {
        const struct dcpk_file_blocks *file = &blocks->files[i];

        for (uint64_t at = 0, k = 0; at < file->n_bytes; at += DCPK_BLOCK_BYTES, k++) {
            dcpk_hex_put(file->hashes[k].digest, sizeof file->hashes[k].digest, digits);
            dcpk_cli_printf(stdout, "%s %12" PRIu64 "  ", digits, at);
            dcpk_cli_put_text(stdout, file->name);
            dcpk_cli_printf(stdout, "\n");
        }
    }
    return dcpk_cli_flush(err);
}
