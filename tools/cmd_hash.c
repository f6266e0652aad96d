/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_hash.c - dcpkit hash: what a checkpoint holds, or its files, as hashes; and whether a
 * recorded list still holds. */
#include <limits.h>

#include "lib/base/alloc.h"
#include "lib/base/digest.h"
#include "lib/ckpt/format.h"
#include "lib/exec/ranks.h"
#include "tools/bar.h"
#include "tools/cmd.h"
#include "tools/hash_report.h"
#include "tools/run_args.h"

#define NAME "hash"

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
    const struct dcpk_hash_check check = {&h->recorded, &h->list, h->ckpt->format->name, &h->lost};

    if (h->of_blocks)
        return dcpk_hash_blocks_print(&h->blocks, err);
    if (h->of_files && h->check_path != NULL)
        return dcpk_hash_files_print_check(&h->recorded_files, &h->files, h->as_json, &h->ok, err);
    if (h->of_files)
        return dcpk_hash_files_print(&h->files, h->as_json, err);
    if (h->check_path != NULL)
        return dcpk_hash_print_check(&check, h->as_json, &h->ok, err);
    return dcpk_hash_print(&h->list, h->ckpt, h->as_json, err);
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
        return dcpk_cli_usage(NAME, "--json and --check take one DIR, given are %d", args->n);
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
