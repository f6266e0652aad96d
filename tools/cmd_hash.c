/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_hash.c - dcpkit hash: the XXH3-128 of every tensor as stored. */
#include <stdlib.h>
#include <string.h>

#include "kernels/kernels.h"
#include "lib/base/alloc.h"
#include "lib/base/json.h"
#include "lib/ckpt/format.h"
#include "lib/ckpt/summary.h"
#include "lib/exec/exec.h"
#include "tools/bar.h"
#include "tools/cmd.h"

#define NAME "hash"

/* What is to be hashed, in key order. */
struct work {
    struct dcpk_checkpoint *ckpt;
    struct dcpk_arena *arena;
    size_t n;
    const struct dcpk_tensor **tensors;
    struct dcpk_view *views;
    struct dcpk_hash *hashes;
};

static int compare_keys(const void *left, const void *right)
{
    const struct dcpk_tensor *const *a = left, *const *b = right;

    return strcmp((*a)->key, (*b)->key);
}

static dcpk_status prepare(struct dcpk_checkpoint *ckpt, struct work *w, struct dcpk_error *err)
{
    dcpk_status st = DCPK_OK;

    w->ckpt = ckpt;
    w->n = ckpt->n_tensors;
    w->arena = dcpk_arena_new(0, err);
    if (w->arena == NULL)
        return err->status;
    w->tensors = dcpk_arena_array(w->arena, w->n, sizeof *w->tensors, err);
    w->views = dcpk_arena_array(w->arena, w->n, sizeof *w->views, err);
    w->hashes = dcpk_arena_array(w->arena, w->n, sizeof *w->hashes, err);
    if (w->tensors == NULL || w->views == NULL || w->hashes == NULL)
        return err->status;
    for (size_t i = 0; i < w->n; i++)
        w->tensors[i] = &ckpt->tensors[i];
    qsort(w->tensors, w->n, sizeof *w->tensors, compare_keys);
    for (size_t i = 0; i < w->n && st == DCPK_OK; i++)
        st = dcpk_view_stored(ckpt, (uint32_t)(w->tensors[i] - ckpt->tensors), w->arena,
                              &w->views[i], err);
    return st;
}

static dcpk_status hash(struct work *w, struct dcpk_exec_options *options,
                        const struct dcpk_voice *voice, struct dcpk_error *err)
{
    struct dcpk_exec_stats stats;
    struct dcpk_exec *exec = NULL;
    struct dcpk_bar bar;
    dcpk_status st;

    options->progress = dcpk_bar_begin(&bar, "hashing", voice);
    st = dcpk_exec_new(w->ckpt, dcpk_backends[0], options, &exec, err);
    if (st == DCPK_OK)
        st = dcpk_exec_hash(exec, w->views, w->n, w->hashes, &stats, err);
    dcpk_bar_end(&bar);
    dcpk_exec_free(exec);
    return st;
}

static void hex(const struct dcpk_hash *h, char text[33])
{
    for (size_t i = 0; i < sizeof h->digest; i++)
        snprintf(text + 2 * i, 3, "%02x", h->digest[i]);
}

static dcpk_status print_text(const struct work *w, struct dcpk_error *err)
{
    char text[33];

    for (size_t i = 0; i < w->n; i++) {
        hex(&w->hashes[i], text);
        printf("%s  ", text);
        dcpk_cli_put_text(stdout, w->tensors[i]->key);
        putchar('\n');
    }
    return dcpk_cli_flush(err);
}

static dcpk_status put_tensor(struct dcpk_json_out *j, const struct dcpk_tensor *tensor,
                              const struct dcpk_hash *h, struct dcpk_error *err)
{
    char text[33];
    int64_t n_elems;
    dcpk_status st = dcpk_shape_count(tensor->shape, tensor->rank, &n_elems, err);

    if (st != DCPK_OK)
        return st;
    hex(h, text);
    dcpk_json_put_key(j, tensor->key);
    dcpk_json_begin_object(j);
    dcpk_json_put_key(j, "dtype");
    dcpk_json_put_string(j, dcpk_dtype_name(tensor->dtype));
    dcpk_json_put_key(j, "n_bytes");
    dcpk_json_put_uint(j, (uint64_t)n_elems * dcpk_dtype_bytes(tensor->dtype));
    dcpk_json_put_key(j, "shape");
    dcpk_json_begin_array(j);
    for (int a = 0; a < tensor->rank; a++)
        dcpk_json_put_int(j, tensor->shape[a]);
    dcpk_json_end_array(j);
    dcpk_json_put_key(j, "xxh3_128");
    dcpk_json_put_string(j, text);
    dcpk_json_end_object(j);
    return DCPK_OK;
}

static void put_totals(struct dcpk_json_out *j, const struct dcpk_totals *totals)
{
    dcpk_json_put_key(j, "totals");
    dcpk_json_begin_object(j);
    dcpk_json_put_key(j, "n_alias_tensors");
    dcpk_json_put_uint(j, totals->n_alias_tensors);
    dcpk_json_put_key(j, "n_tensors");
    dcpk_json_put_uint(j, totals->n_tensors);
    dcpk_json_put_key(j, "tensor_bytes"); /* aliases once */
    dcpk_json_put_uint(j, totals->tensor_bytes);
    dcpk_json_end_object(j);
}

static dcpk_status print_json(const struct work *w, struct dcpk_error *err)
{
    struct dcpk_summary *summary = NULL;
    struct dcpk_bytes bytes = {0};
    struct dcpk_json_out j;
    dcpk_status st = dcpk_summary_new(w->ckpt, &summary, err);

    if (st != DCPK_OK)
        return st;
    dcpk_json_out_init(&j, &bytes, 2);
    dcpk_json_begin_object(&j);
    dcpk_json_put_key(&j, "format");
    dcpk_json_put_string(&j, w->ckpt->format->name);
    dcpk_json_put_key(&j, "tensors");
    dcpk_json_begin_object(&j);
    for (size_t i = 0; i < w->n && st == DCPK_OK; i++)
        st = put_tensor(&j, w->tensors[i], &w->hashes[i], err);
    dcpk_json_end_object(&j);
    put_totals(&j, &summary->totals);
    dcpk_json_put_key(&j, "version");
    dcpk_json_put_int(&j, 1);
    dcpk_json_end_object(&j);
    dcpk_summary_free(summary);
    if (st == DCPK_OK)
        st = dcpk_cli_print_bytes(&bytes, err);
    dcpk_bytes_release(&bytes);
    return st;
}

int dcpk_cmd_hash(int argc, char **argv)
{
    struct dcpk_exec_options options = {0};
    struct dcpk_voice voice = {.command = NAME};
    bool as_json = false;
    const char *format = NULL;
    const struct dcpk_cli_option rows[] = {
        {"format", 0, DCPK_CLI_TEXT, &format, "NAME",
         "read DIR as this format (default: found by looking)"},
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
    struct work w = {0};
    dcpk_status st;
    char **args;
    int n_args;
    const int code = dcpk_cli_parse(&cli, argc, argv, &args, &n_args);

    if (code >= 0)
        return code;
    st = dcpk_cli_open(args[0], format, &voice, &ckpt, NULL, &err);
    if (st == DCPK_OK)
        st = prepare(ckpt, &w, &err);
    if (st == DCPK_OK)
        st = hash(&w, &options, &voice, &err);
    if (st == DCPK_OK)
        st = as_json ? print_json(&w, &err) : print_text(&w, &err);
    dcpk_arena_free(w.arena);
    dcpk_checkpoint_close(ckpt);
    return st == DCPK_OK ? DCPK_EXIT_OK : dcpk_cli_fail(NAME, &err);
}
