/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_print_tensor.c - dcpkit print-tensor: elements of a stored tensor, the value of an object. */
#include <inttypes.h>
#include <string.h>

#include "kernels/kernels.h"
#include "lib/base/alloc.h"
#include "lib/base/json.h"
#include "lib/job/tensor_text.h"
#include "tools/cmd.h"
#include "tools/print_value.h"
#include "tools/run_args.h"

#define NAME "print-tensor"

/* The request, and the place where the object was found. */
struct request {
    const char *text; /* "KEY" or "KEY[0, 3:5]" */
    bool all, as_json;
    const char *format, *iteration;
    struct dcpk_npy_request npy; /* its path: NULL without --npy */
    struct dcpk_verbosity verbosity;
    const char *key;
    const struct dcpk_tensor *tensor;
    struct dcpk_slice slice;
    struct dcpk_view view;
};

/* A key may hold brackets itself: the whole text first, then what stands before the last '['.
 * r->tensor NULL: there is none. */
static dcpk_status find_tensor(struct dcpk_checkpoint *ckpt, struct request *r,
                               struct dcpk_arena *arena, struct dcpk_error *err)
{
    const size_t n = strlen(r->text);
    const char *bracket = strrchr(r->text, '['), *slice = NULL;
    size_t n_slice = 0;

    r->key = r->text;
    r->tensor = dcpk_checkpoint_tensor(ckpt, r->key);
    if (r->tensor == NULL && bracket != NULL && r->text[n - 1] == ']') {
        r->key = dcpk_arena_strndup(arena, r->text, (size_t)(bracket - r->text), err);
        if (r->key == NULL)
            return err->status;
        r->tensor = dcpk_checkpoint_tensor(ckpt, r->key);
        slice = bracket + 1;
        n_slice = n - (size_t)(slice - r->text) - 1;
    }
    if (r->tensor == NULL && bracket != NULL && r->text[n - 1] != ']')
        return dcpk_fail(err, DCPK_EUSAGE, "the slice '%s' does not end with ']'", bracket);
    if (r->tensor == NULL)
        return DCPK_OK;
    if (dcpk_slice_parse(slice, n_slice, r->tensor->shape, r->tensor->rank, &r->slice, err) ||
        dcpk_view_stored(ckpt, (uint32_t)(r->tensor - ckpt->tensors), arena, &r->view, err))
        return err->status;
    return DCPK_OK;
}

static dcpk_status put_stdout(void *context, const void *data, size_t n_bytes,
                              struct dcpk_error *err)
{
    (void)context;
    if (dcpk_cli_interrupted())
        return dcpk_fail(err, DCPK_ECANCELLED, "stopped on request");
    dcpk_cli_put_lines(stdout, data, n_bytes);
    if (ferror(stdout))
        return dcpk_cli_flush(err);
    return DCPK_OK;
}

static void print_head(const struct request *r)
{
    int64_t shape[DCPK_MAX_RANK];
    const int rank = dcpk_slice_shape(&r->slice, shape);
    char text[256];

    dcpk_cli_put_text(stdout, r->text);
    dcpk_cli_printf(stdout, "  %s %s\n", dcpk_dtype_name(r->tensor->dtype),
                    dcpk_shape_format(shape, rank, text, sizeof text));
}

/* The document around the values, which are printed piece by piece: they may be many. */
static dcpk_status print_json_head(const struct request *r, struct dcpk_error *err)
{
    int64_t shape[DCPK_MAX_RANK];
    const int rank = dcpk_slice_shape(&r->slice, shape);
    struct dcpk_bytes bytes = {0};
    struct dcpk_json_out j;

    dcpk_json_out_init(&j, &bytes, 0);
    dcpk_json_begin_object(&j);
    dcpk_json_add_string(&j, "dtype", dcpk_dtype_name(r->tensor->dtype));
    dcpk_json_add_string(&j, "key", r->key);
    dcpk_json_add_ints(&j, "shape", shape, rank);
    dcpk_json_put_key(&j, "values");
    if (dcpk_bytes_status(&bytes, err) == DCPK_OK)
        (void)put_stdout(NULL, bytes.data, bytes.n_bytes, err);
    dcpk_bytes_release(&bytes);
    return err->status;
}

static dcpk_status print_tensor(struct dcpk_exec *exec, const struct request *r,
                                struct dcpk_error *err)
{
    const struct dcpk_text_options options = {
        .all = r->all, .as_json = r->as_json, .put = put_stdout};

    if (!r->as_json)
        print_head(r);
    else if (print_json_head(r, err) != DCPK_OK)
        return err->status;
    if (dcpk_tensor_text(exec, &r->view, &r->slice, &options, err) != DCPK_OK)
        return err->status;
    dcpk_cli_printf(stdout, "%s\n", r->as_json ? ", \"version\": 1}" : "");
    return dcpk_cli_flush(err);
}

static dcpk_status print_elements(struct dcpk_checkpoint *ckpt, struct request *r,
                                  struct dcpk_error *err)
{
    const struct dcpk_env env = {
        .kernels = dcpk_host_kernel_sets[0], .n_threads = 1, .memory_bytes = 1}; /* the least */
    struct dcpk_exec *exec = NULL;

    r->npy.key = r->key;
    r->npy.text = r->text;
    r->npy.view = &r->view;
    r->npy.slice = &r->slice;
    r->npy.verbosity = &r->verbosity;
    if (dcpk_exec_new(ckpt, &env, &exec, err) != DCPK_OK)
        return err->status;
    if (r->npy.path != NULL)
        (void)dcpk_print_npy(exec, &r->npy, r->as_json, err);
    else
        (void)print_tensor(exec, r, err);
    dcpk_exec_free(exec);
    return err->status;
}

static dcpk_status print_key(struct dcpk_checkpoint *ckpt, struct request *r,
                             struct dcpk_arena *arena, struct dcpk_error *err)
{
    bool found = false;

    if (find_tensor(ckpt, r, arena, err) != DCPK_OK)
        return err->status;
    if (r->tensor != NULL)
        return print_elements(ckpt, r, err);
    if (r->npy.path != NULL)
        return dcpk_fail(err, DCPK_EUSAGE, "there is no tensor '%s' to write", r->key);
    if (dcpk_print_value(ckpt, r->text, r->as_json, &r->verbosity, &found, err) != DCPK_OK || found)
        return err->status;
    return dcpk_print_named(ckpt, r->text, r->as_json, err);
}

static dcpk_status print_at(const char *path, struct request *r, struct dcpk_error *err)
{
    struct dcpk_arena *arena = dcpk_arena_new();
    struct dcpk_checkpoint *ckpt = NULL;

    if (dcpk_cli_open(path, r->format, &r->verbosity, &ckpt, NULL, err) ||
        (r->npy.path != NULL && dcpk_run_check_apart(path, r->npy.path, err)))
        goto out;
    dcpk_cli_keep_private(ckpt);
    (void)print_key(ckpt, r, arena, err);
out:
    dcpk_checkpoint_close(ckpt);
    dcpk_arena_free(arena);
    return err->status;
}

#define DCPK_OPT_STRUCT struct request
static const struct dcpk_option option_rows[] = {
    DCPK_OPT_FLAG(
        "all", all,
        "print every element (default: of more than 1000 the first and last 3 of each axis)"),
    DCPK_OPT_OUT_FILE("npy", "FILE", npy.path,
                      "write the elements to FILE as numpy.save does, instead of printing them; "
                      "bfloat16 and float8 are written as bits, for .view(ml_dtypes.bfloat16)"),
    DCPK_OPT_FLAG("cast", npy.widens,
                  "with --npy: write bfloat16 and float8 as float32, which is exact"),
    DCPK_OPT_FLAG("force", npy.may_replace, "replace a FILE that exists"),
    DCPK_OPT_FORMAT(format),
    DCPK_OPT_ITERATION(iteration),
    DCPK_OPT_FLAG(
        "json", as_json,
        "print one JSON document with every element; floats as doubles, NaN and infinities as "
        "text"),
    DCPK_OPT_END};

static int print_tensor_main(void *values, const struct dcpk_cli_args *args, struct dcpk_error *err)
{
    struct request *r = values;

    r->text = args->words[1];
    (void)print_at(args->words[0], r, err);
    return DCPK_EXIT_OK;
}

static struct request values = {.verbosity = {.command = NAME}};
const struct dcpk_cli dcpk_cmd_print_tensor = {
    .name = NAME,
    .usage = "[options] DIR KEY[SLICE]",
    .summary = "Print elements of a stored tensor; SLICE as in Python: [0, 3:5, ..., ::2, -1]. "
               "Of an object, or an entry of the common state (args, args.lr, iteration, ...; "
               "common is all of it), print the value as JSON, the same in every format.",
    .options = option_rows,
    .values = &values,
    .example = "dcpkit print-tensor checkpoints/run "
               "'decoder.layers.mlp.linear_fc2.weight[0, 3:5, :8]'",
    .n_args = {2, 2},
    .paths = DCPK_CLI_SECOND_IS_KEY,
    .iteration = &values.iteration,
    .run = print_tensor_main,
};
