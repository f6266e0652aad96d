/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_hash.c - dcpkit hash: the XXH3-128 of every tensor as stored. */
#include <inttypes.h>

#include "kernels/kernels.h"
#include "lib/base/alloc.h"
#include "lib/ckpt/format.h"
#include "lib/exec/hash_list.h"
#include "lib/exec/ranks.h"
#include "tools/bar.h"
#include "tools/cmd.h"
#include "tools/run_args.h"

#define NAME "hash"

static dcpk_status hash(struct dcpk_checkpoint *ckpt, struct dcpk_exec_options *options,
                        const struct dcpk_voice *voice, struct dcpk_hash_list *list,
                        struct dcpk_error *err)
{
    struct dcpk_exec *exec = NULL;
    struct dcpk_bar bar;
    dcpk_status st;

    options->progress = dcpk_bar_begin(&bar, "hashing", voice);
    st = dcpk_exec_new(ckpt, dcpk_backends[0], options, &exec, err);
    if (st == DCPK_OK)
        st = dcpk_hash_list_make(exec, ckpt, list, err);
    dcpk_bar_end(&bar);
    dcpk_exec_free(exec);
    return st;
}

static dcpk_status print_text(const struct dcpk_hash_list *list, struct dcpk_error *err)
{
    char text[DCPK_HASH_TEXT_BYTES];

    for (size_t i = 0; i < list->n; i++) {
        printf("%s  ", dcpk_hash_text(&list->tensors[i].hash, text));
        dcpk_cli_put_text(stdout, list->tensors[i].key);
        putchar('\n');
    }
    return dcpk_cli_flush(err);
}

static dcpk_status print_json(const struct dcpk_hash_list *list, const struct dcpk_checkpoint *ckpt,
                              struct dcpk_error *err)
{
    struct dcpk_bytes bytes = {0};
    dcpk_status st = dcpk_hash_list_print(list, ckpt, &bytes, err);

    if (st == DCPK_OK)
        return dcpk_cli_print_bytes(&bytes, err);
    dcpk_bytes_release(&bytes);
    return st;
}

/* "bfloat16 [4, 64] 662ef41f3aed3142ce8c66ff7dc8ae38" */
static void print_side(const char *side, const struct dcpk_hashed *tensor)
{
    char shape[256], digits[DCPK_HASH_TEXT_BYTES];

    if (tensor == NULL)
        printf("  %s has none\n", side);
    else
        printf("  %s has %s %s %s\n", side, dcpk_dtype_name(tensor->dtype),
               dcpk_shape_format(tensor->shape, tensor->rank, shape, sizeof shape),
               dcpk_hash_text(&tensor->hash, digits));
}

static void print_difference(void *context, const struct dcpk_hashed *recorded,
                             const struct dcpk_hashed *found)
{
    (void)context;
    fputs("differs     ", stdout);
    dcpk_cli_put_text(stdout, recorded == NULL ? found->key : recorded->key);
    putchar('\n');
    print_side("FILE", recorded);
    print_side("DIR", found);
}

static void put_side(struct dcpk_json_out *j, const char *side, const struct dcpk_hashed *tensor)
{
    dcpk_json_put_key(j, side);
    if (tensor == NULL)
        dcpk_json_put_null(j);
    else
        dcpk_hashed_put(tensor, j);
}

static void put_difference(void *context, const struct dcpk_hashed *recorded,
                           const struct dcpk_hashed *found)
{
    struct dcpk_json_out *j = context;

    dcpk_json_put_key(j, recorded == NULL ? found->key : recorded->key);
    dcpk_json_begin_object(j);
    put_side(j, "found", found);
    put_side(j, "recorded", recorded);
    dcpk_json_end_object(j);
}

static dcpk_status read_recorded(const char *path, struct dcpk_hash_list *recorded,
                                 struct dcpk_error *err)
{
    char *text = NULL;
    size_t n_bytes;
    dcpk_status st = dcpk_cli_read_file(path, &text, &n_bytes, err);

    if (st == DCPK_OK)
        st = dcpk_hash_list_parse(text, n_bytes, recorded, err);
    dcpk_free(text);
    if (st != DCPK_OK)
        dcpk_context(err, "reading the hashes in '%s'", path);
    return st;
}

/* *n_different: how many tensors are not as recorded. */
static dcpk_status print_check(const struct dcpk_hash_list *recorded,
                               const struct dcpk_hash_list *list, size_t *n_different,
                               struct dcpk_error *err)
{
    *n_different = dcpk_hash_list_compare(recorded, list, print_difference, NULL);
    printf("verdict     %s: %zu tensors recorded, %zu found, %zu differ\n",
           *n_different == 0 ? "ok" : "NOT ok", recorded->n, list->n, *n_different);
    return dcpk_cli_flush(err);
}

/* The same as a document: {"differences": {key: {"found", "recorded"}}, "ok", "version"}. */
static dcpk_status print_check_json(const struct dcpk_hash_list *recorded,
                                    const struct dcpk_hash_list *list, size_t *n_different,
                                    struct dcpk_error *err)
{
    struct dcpk_bytes bytes = {0};
    struct dcpk_json_out j;

    dcpk_json_out_init(&j, &bytes, 2);
    dcpk_json_begin_object(&j);
    dcpk_json_put_key(&j, "differences");
    dcpk_json_begin_object(&j);
    *n_different = dcpk_hash_list_compare(recorded, list, put_difference, &j);
    dcpk_json_end_object(&j);
    dcpk_json_add_bool(&j, "ok", *n_different == 0);
    dcpk_json_add_uint(&j, "version", 1);
    dcpk_json_end_object(&j);
    return dcpk_cli_print_bytes(&bytes, err);
}

int dcpk_cmd_hash(int argc, char **argv, struct dcpk_ranks *ranks)
{
    struct dcpk_exec_options options = {.ranks = ranks};
    struct dcpk_voice voice = {.command = NAME};
    bool as_json = false;
    const char *iteration = NULL, *format = NULL, *check_path = NULL;
    const struct dcpk_cli_option rows[] = {
        DCPK_CLI_FORMAT(format),
        DCPK_CLI_ITERATION(iteration),
        {"check", 0, DCPK_CLI_FILE, &check_path, "FILE",
         "compare with the hashes in FILE, of hash --json or convert --hashes: say which "
         "tensors differ; exit 1 when some do"},
        DCPK_CLI_JSON(as_json),
        DCPK_CLI_THREADS(options.n_threads),
        DCPK_CLI_MEMORY(options.memory_bytes),
        DCPK_CLI_VOICE(voice),
    };
    const struct dcpk_cli cli = {
        .name = NAME,
        .usage = "[options] DIR",
        .summary = "Print the XXH3-128 of every tensor as stored, all its chunks put together "
                   "row-major, in key order.",
        .options = rows,
        .n_options = sizeof rows / sizeof *rows,
        .example = "dcpkit hash --threads 2 checkpoints/run/iter_0000004",
        .min_args = 1,
        .max_args = 1,
    };
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_checkpoint *ckpt = NULL;
    struct dcpk_hash_list list = {0}, recorded = {0};
    size_t n_different = 0;
    dcpk_status st;
    char place[DCPK_RUN_PATH_BYTES];
    char **args;
    int n_args;
    const int code = dcpk_cli_parse(&cli, argc, argv, &args, &n_args);

    if (code >= 0)
        return code;
    if (dcpk_choose_iteration(args[0], iteration, place, &err) != DCPK_OK)
        return dcpk_cli_fail(NAME, &err);
    st = check_path == NULL ? DCPK_OK : read_recorded(check_path, &recorded, &err);
    if (st == DCPK_OK)
        st = dcpk_cli_open(place, format, &voice, &ckpt, NULL, &err);
    if (st == DCPK_OK)
        st = hash(ckpt, &options, &voice, &list, &err);
    st = dcpk_ranks_agree(ranks, st, &err);
    if (st == DCPK_OK && check_path != NULL)
        st = as_json ? print_check_json(&recorded, &list, &n_different, &err)
                     : print_check(&recorded, &list, &n_different, &err);
    else if (st == DCPK_OK)
        st = as_json ? print_json(&list, ckpt, &err) : print_text(&list, &err);
    st = dcpk_ranks_agree(ranks, st, &err);
    dcpk_hash_list_release(&recorded);
    dcpk_hash_list_release(&list);
    dcpk_checkpoint_close(ckpt);
    if (st != DCPK_OK)
        return dcpk_cli_fail(NAME, &err);
    return n_different == 0 ? DCPK_EXIT_OK : DCPK_EXIT_NO;
}
