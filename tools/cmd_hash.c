/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_hash.c - dcpkit hash: what a checkpoint holds, or its files, as hashes; and whether a
 * recorded list still holds. */
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "lib/base/alloc.h"
#include "lib/base/digest.h"
#include "lib/base/hex.h"
#include "lib/ckpt/format.h"
#include "lib/ckpt/integrity.h"
#include "lib/exec/ranks.h"
#include "lib/job/delta.h"
#include "lib/job/hash_list.h"
#include "tools/bar.h"
#include "tools/cmd.h"
#include "tools/print_doc.h"
#include "tools/run_args.h"

#define NAME         "hash"
#define DIGITS_BYTES (2 * DCPK_SHA256_BYTES + 1)

struct hashing {
    const char *check_path; /* NULL: print */
    const char *format, *iteration;
    bool as_json, of_files, of_fingerprints, of_blocks, is_one_of_many;
    struct dcpk_verbosity verbosity;
    struct dcpk_env env;
    struct dcpk_checkpoint *ckpt;
    struct dcpk_hash_list list, recorded;
    struct dcpk_integrity files, recorded_files; /* of_files */
    struct dcpk_block_list blocks;               /* of_blocks */
    struct dcpk_error lost;                      /* found by check_whole */
    bool ok;
};

/* ---- the report ---- */

/* As text, or as the document of hash_list.h. A line or a member for each of perhaps 100 000
 * tensors: not a document, but a stream. */
static dcpk_status print_list(const struct hashing *h, struct dcpk_error *err)
{
    struct dcpk_bytes bytes = {0};

    if (h->as_json) {
        if (dcpk_hash_list_print(&h->list, h->ckpt, &bytes, err) == DCPK_OK)
            return dcpk_cli_print_bytes(&bytes, err);
    } else {
        dcpk_hash_list_put_text(&h->list, &bytes);
        if (dcpk_bytes_status(&bytes, err) == DCPK_OK) {
            dcpk_cli_put_lines(stdout, (const char *)bytes.data, bytes.n_bytes);
            (void)dcpk_cli_flush(err);
        }
    }
    dcpk_bytes_release(&bytes);
    return err->status;
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
    const struct hashing *h = context;

    dcpk_hash_list_compare(&h->recorded, &h->list, put_hash_difference, rows);
}

/* Counts the items of DIR that FILE does not cover, or that have no hash. */
static size_t count_not_covered(const struct hashing *h)
{
    const struct dcpk_hash_list *found = &h->list;

    if ((h->recorded.lacks & DCPK_LACKS_OBJECTS) != 0)
        return found->n_of[DCPK_HASHED_OBJECT] + found->n_of[DCPK_HASHED_COMMON];
    return found->n_not_covered;
}

/* Text does not record dtypes and shapes; the hash of the whole knows them. */
static bool is_whole_same(const struct hashing *h)
{
    return (h->recorded.lacks & DCPK_LACKS_WHOLE) != 0 ||
           memcmp(h->recorded.whole, h->list.whole, DCPK_SHA256_BYTES) == 0;
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

static void count_differences(const struct hashing *h, struct hash_counts counts[N_COUNTED])
{
    const struct dcpk_hash_list *recorded = &h->recorded, *found = &h->list;

    counts[TENSORS] = (struct hash_counts){"tensors", recorded->n_of[DCPK_HASHED_TENSOR],
                                           found->n_of[DCPK_HASHED_TENSOR], 0, 0};
    counts[OBJECTS] = (struct hash_counts){"objects", n_values(recorded), n_values(found), 0, 0};
    (void)dcpk_hash_list_compare(recorded, found, count_difference, counts);
}

/* True for a list of another format, or of something without a tensor in common. */
static bool is_foreign(const struct hashing *h, const struct hash_counts counts[N_COUNTED])
{
    const char *recorded = h->recorded.format;

    if (counts[TENSORS].n_different + counts[OBJECTS].n_different == 0)
        return false;
    if (recorded != NULL)
        return strcmp(recorded, h->ckpt->format->name) != 0;
    return counts[TENSORS].n_recorded > 0 && counts[TENSORS].n_lost == counts[TENSORS].n_recorded;
}

/* In the place of all its keys, which are others by nature. */
static void report_foreign(const struct hashing *h, struct dcpk_doc *doc)
{
    const char *why = "has no tensor of DIR";

    if (h->recorded.format != NULL)
        why =
            dcpk_doc_format(doc, "lists %s, DIR is %s", h->recorded.format, h->ckpt->format->name);
    dcpk_doc_row(doc, "format",
                 "FILE %s: 'verify --against' and 'compare-two-checkpoint' compare formats", why);
}

/* A verdict for tensors and one for objects, where FILE records any. */
static const char *hash_verdict_text(const struct hashing *h,
                                     const struct hash_counts counts[N_COUNTED],
                                     struct dcpk_doc *doc)
{
    const char *texts[N_COUNTED];

    for (int i = 0; i < N_COUNTED; i++)
        texts[i] = dcpk_doc_format(doc, "%s %s (%zu recorded, %zu found, %zu differ)",
                                   counts[i].name, ok_word(counts[i].n_different == 0),
                                   counts[i].n_recorded, counts[i].n_found, counts[i].n_different);
    if ((h->recorded.lacks & DCPK_LACKS_OBJECTS) != 0)
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
    char digits[DIGITS_BYTES];

    if ((list->lacks & DCPK_LACKS_WHOLE) != 0)
        return dcpk_fact_null();
    return dcpk_fact_text(
        dcpk_doc_format(doc, "%s", dcpk_hex_put(list->whole, DCPK_SHA256_BYTES, digits)));
}

static void report_not_covered(const struct hashing *h, struct dcpk_doc *doc)
{
    const char *common = "", *why = "their values have no hash";
    const size_t n = count_not_covered(h);

    if (h->list.n_of[DCPK_HASHED_COMMON] > 0)
        common = ", common state among them";
    if ((h->recorded.lacks & DCPK_LACKS_OBJECTS) != 0)
        why = "FILE records tensors alone";
    dcpk_doc_set_count(doc, "n_not_covered", n);
    if (n > 0)
        dcpk_doc_row(doc, "not covered", "%zu objects%s: %s", n, common, why);
}

/*
 * Reports what differs, what FILE does not cover, and a verdict for tensors and for objects. A list
 * of another format gets one line in the place of its keys. As JSON: {"differences": {key:
 * {"found", "recorded"}}, "format": {"found", "recorded"}, "lost": text or null, "n_not_covered",
 * "objects": counts, "ok", "tensors": counts, "version", "whole": {"found", "recorded"}}.
 */
static void report_hash_check(struct hashing *h, struct dcpk_doc *doc)
{
    const struct dcpk_doc_table differences = {
        .flags = DCPK_DOC_KEYED | DCPK_DOC_LINES, .fill = fill_hash_differences, .context = h};
    struct hash_counts counts[N_COUNTED];
    const char *lost = NULL;
    size_t n_different;

    count_differences(h, counts);
    n_different = counts[TENSORS].n_different + counts[OBJECTS].n_different;
    h->ok = n_different == 0 && is_whole_same(h) && h->lost.status == DCPK_OK;
    if (is_foreign(h, counts)) {
        report_foreign(h, doc);
        dcpk_doc_set_table(doc, "differences", &differences);
    } else {
        dcpk_doc_table(doc, "differences", &differences);
    }
    if (n_different == 0 && !is_whole_same(h))
        dcpk_doc_row(doc, "differs",
                     "the whole: a dtype or a shape, which FILE has only in this hash");
    if (h->lost.status != DCPK_OK) {
        lost = h->lost.text;
        dcpk_doc_row(doc, "lost", "%s", lost);
    }
    dcpk_doc_set_text(doc, "lost", lost);
    report_not_covered(h, doc);
    dcpk_doc_verdict(doc, h->ok, "%s: %s", ok_word(h->ok), hash_verdict_text(h, counts, doc));
    set_counts(counts, doc);
    dcpk_doc_set_text(doc, "format.found", h->ckpt->format->name);
    dcpk_doc_set_text(doc, "format.recorded", h->recorded.format);
    dcpk_doc_set(doc, "whole.found", whole_fact(doc, &h->list));
    dcpk_doc_set(doc, "whole.recorded", whole_fact(doc, &h->recorded));
}

/* ---- files ---- */

/* As lines of sha256sum, or as {"algorithm", "files": {name: hex}, "version"}. */
static dcpk_status print_files(const struct dcpk_integrity *list, bool as_json,
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
static size_t compare_files(const struct hashing *h, struct dcpk_doc_rows *rows)
{
    const struct dcpk_integrity *recorded = &h->recorded_files, *found = &h->files;
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

/* Files that differ, are missing or new, and the verdict. As JSON: {"differences": {name:
 * {"found", "recorded"}}, "ok", "version"}. */
static void report_files_check(struct hashing *h, struct dcpk_doc *doc)
{
    const struct dcpk_doc_table differences = {
        .flags = DCPK_DOC_KEYED | DCPK_DOC_LINES, .fill = fill_file_differences, .context = h};
    const size_t n_different = compare_files(h, NULL);

    h->ok = n_different == 0;
    dcpk_doc_table(doc, "differences", &differences);
    dcpk_doc_verdict(doc, h->ok, "%s: %zu files recorded, %zu found, %zu differ", ok_word(h->ok),
                     h->recorded_files.n_files, h->files.n_files, n_different);
}

static dcpk_status print_check(struct hashing *h, struct dcpk_error *err)
{
    const struct dcpk_doc_style style = {.label_columns = 12};
    struct dcpk_doc doc;

    dcpk_doc_init(&doc, NAME, &style);
    if (h->of_files)
        report_files_check(h, &doc);
    else
        report_hash_check(h, &doc);
    dcpk_doc_set_flag(&doc, "ok", h->ok);
    dcpk_doc_set_count(&doc, "version", 1);
    return dcpk_print_doc(&doc, &(struct dcpk_print_options){.as_json = h->as_json}, err);
}

/* A line for each block: its hash, its first byte, the file. */
static dcpk_status print_blocks(const struct dcpk_block_list *blocks, struct dcpk_error *err)
{
    char digits[DCPK_HASH_TEXT_BYTES];

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

static dcpk_status list_files(struct hashing *h, struct dcpk_exec *exec, struct dcpk_error *err)
{
    if (dcpk_integrity_collect_all(h->ckpt->store, &h->files, err) != DCPK_OK)
        return err->status;
    return dcpk_exec_sum_files(exec, &h->files, err);
}

static dcpk_status hash(struct hashing *h, struct dcpk_error *err)
{
    struct dcpk_exec *exec = NULL;
    struct dcpk_bar bar;
    dcpk_status st;

    h->env.progress = dcpk_bar_begin(
        &bar, h->of_files || h->of_blocks ? "hashing files" : "hashing", &h->verbosity);
    if (h->of_blocks) {
        st = dcpk_blocks_hash(h->ckpt->store, &h->env, &h->blocks, err);
        dcpk_bar_end(&bar);
        return st;
    }
    st = dcpk_exec_new(h->ckpt, &h->env, &exec, err);
    if (st == DCPK_OK && h->of_files)
        st = list_files(h, exec, err);
    else if (st == DCPK_OK && h->of_fingerprints)
        st = dcpk_hash_list_make_fingerprints(exec, h->ckpt, &h->list, err);
    else if (st == DCPK_OK)
        st = dcpk_hash_list_make(exec, h->ckpt, &h->list, err);
    dcpk_bar_end(&bar);
    dcpk_exec_free(exec);
    return st;
}

/* The list to check records itself what it is of. */
static dcpk_status read_recorded(struct hashing *h, struct dcpk_error *err)
{
    char *text = NULL;
    size_t n_bytes;
    dcpk_status st =
        dcpk_cli_read_file(h->check_path, DCPK_CLI_MAX_FILE_BYTES, &text, &n_bytes, err);

    if (st == DCPK_OK)
        st = dcpk_ranks_check_same(h->env.ranks,
                                   (uint64_t)n_bytes << 32 | dcpk_crc32(0, text, n_bytes),
                                   "list of hashes", err);
    if (st == DCPK_OK)
        h->of_files = h->of_files || dcpk_integrity_is_list(text, n_bytes);
    if (st == DCPK_OK && h->of_files)
        st = dcpk_integrity_parse(text, n_bytes, &h->recorded_files, err);
    else if (st == DCPK_OK)
        st = dcpk_hash_list_parse(text, n_bytes, &h->recorded, err);
    if (st == DCPK_OK && h->of_fingerprints && !h->recorded.has_fingerprints)
        st = dcpk_fail(err, DCPK_EUSAGE, "it has no fingerprints: leave --fingerprint out");
    h->of_fingerprints = h->recorded.has_fingerprints || h->of_fingerprints;
    dcpk_free(text);
    if (st != DCPK_OK)
        dcpk_context(err, "reading the hashes in '%s'", h->check_path);
    return st;
}

/* Finds parts that the folder has lost in addition to tensors and objects: no difference of theirs,
 * and yet the answer is no. */
static dcpk_status find_lost(struct hashing *h, struct dcpk_error *err)
{
    dcpk_status st = DCPK_OK;

    if (!h->of_files && !h->of_blocks && h->ckpt->format->check_whole != NULL)
        st = h->ckpt->format->check_whole(h->ckpt, &h->lost);
    if (st == DCPK_OK || st == DCPK_EFORMAT)
        return DCPK_OK;
    *err = h->lost;
    return st;
}

static dcpk_status print_hashes(struct hashing *h, struct dcpk_error *err)
{
    if (h->of_blocks)
        return print_blocks(&h->blocks, err);
    if (h->check_path != NULL)
        return print_check(h, err);
    if (h->of_files)
        return print_files(&h->files, h->as_json, err);
    return print_list(h, err);
}

static void print_notes(const struct hashing *h)
{
    size_t i = 0;

    if (h->check_path == NULL && h->lost.status != DCPK_OK)
        dcpk_cli_note(&h->verbosity, "the folder is incomplete: %s", h->lost.text);
    if (h->list.n_not_covered == 0)
        return; /* as of fingerprints, which are of tensors alone */
    while (h->list.items[i].not_covered == NULL)
        i++;
    dcpk_cli_note(&h->verbosity, "%zu objects have no hash, the first is '%s': %s",
                  h->list.n_not_covered, h->list.items[i].key, h->list.items[i].not_covered);
}

static int run_hash(void *asked, const char *arg)
{
    struct hashing hashing = *(const struct hashing *)asked, *h = &hashing;
    struct dcpk_ranks *ranks = h->env.ranks;
    struct dcpk_error err = DCPK_ERROR_INIT;
    char path[DCPK_RUN_PATH_BYTES];
    dcpk_status st = dcpk_choose_iteration(arg, h->iteration, path, &err);

    if (h->is_one_of_many)
        dcpk_cli_printf(stdout, "# %s\n", arg);
    if (st == DCPK_OK && h->check_path != NULL)
        st = read_recorded(h, &err);
    if (st == DCPK_OK)
        st = dcpk_cli_open(path, h->format, &h->verbosity, &h->ckpt, NULL, &err);
    if (st == DCPK_OK)
        st = find_lost(h, &err);
    if (st == DCPK_OK)
        st = hash(h, &err);
    st = dcpk_ranks_agree(ranks, st, &err);
    h->ok = true;
    if (st == DCPK_OK)
        st = print_hashes(h, &err);
    if (st == DCPK_OK && dcpk_ranks_self(ranks) == 0)
        print_notes(h);
    st = dcpk_ranks_agree(ranks, st, &err);
    dcpk_hash_list_release(&h->recorded);
    dcpk_hash_list_release(&h->list);
    dcpk_integrity_release(&h->recorded_files);
    dcpk_integrity_release(&h->files);
    dcpk_blocks_release(&h->blocks);
    dcpk_checkpoint_close(h->ckpt);
    if (st != DCPK_OK)
        return dcpk_cli_fail(NAME, &err);
    return h->ok ? DCPK_EXIT_OK : DCPK_EXIT_NO;
}

#define DCPK_OPT_STRUCT struct hashing
static const struct dcpk_option option_rows[] = {
    DCPK_OPT_FORMAT(format),
    DCPK_OPT_ITERATION(iteration),
    DCPK_OPT_FILE("check", "FILE", check_path,
                  "compare with the hashes in FILE, the text or JSON of this command or of convert "
                  "--hashes, and list the differences; exit 1 if there are any"),
    DCPK_OPT_FLAG(
        "fingerprint", of_fingerprints,
        "print a fingerprint of every tensor instead, a sum over the shards of all ranks, as remap "
        "checks it; no objects. Not cryptographic. --check accepts such a FILE"),
    DCPK_OPT_FLAG(
        "files", of_files,
        "print the SHA-256 of every file of the folder instead, as sha256sum does, before a copy; "
        "--json: as Megatron's integrity.json. --check accepts such a FILE"),
    DCPK_OPT_FLAG("blocks", of_blocks,
                  "print the XXH3-128 of every MiB of every file instead, with its first byte, to "
                  "find with diff where two copies differ; text alone, in one process"),
    DCPK_OPT_JSON(as_json),
    DCPK_OPT_THREADS(env.n_threads),
    DCPK_OPT_MEMORY(env.memory_bytes),
    DCPK_OPT_VERBOSITY(verbosity),
    DCPK_OPT_END};

static int hash_main(void *values, const struct dcpk_cli_args *args, struct dcpk_error *err)
{
    struct hashing *h = values;

    (void)err;
    if (h->of_files && h->of_fingerprints)
        return dcpk_cli_usage(NAME, "--files and --fingerprint are two kinds of lists: choose one");
    if (h->of_blocks && (h->of_files || h->of_fingerprints || h->as_json || h->check_path != NULL ||
                         h->env.ranks != NULL))
        return dcpk_cli_usage(NAME, "--blocks is a list of its own, printed as text by one "
                                    "process: it takes no --files, --fingerprint, --json or "
                                    "--check");
    if (args->n > 1 && (h->as_json || h->check_path != NULL))
        return dcpk_cli_usage(NAME, "--json and --check take one DIR, not %d", args->n);
    h->is_one_of_many = args->n > 1;
    return dcpk_cli_each(args, run_hash, h);
}

static struct hashing values = {.verbosity = {.command = NAME}};
const struct dcpk_cli dcpk_cmd_hash = {
    .name = NAME,
    .usage = "[options] DIR...",
    .summary = "Print the XXH3-128 of every tensor (its elements in row-major order, all "
               "chunks joined), of every object (\"*\") and of the common state (\"+\"), in "
               "key order, and the SHA-256 of the whole at the end. Objects are hashed by "
               "value. The layout of chunks, files and pickles changes no hash.",
    .options = option_rows,
    .values = &values,
    .env = &values.env,
    .example = "dcpkit hash --threads 2 checkpoints/run/iter_0000004",
    .n_args = {1, INT_MAX},
    .run = hash_main,
};
