/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_print_tensor.c - dcpkit print-tensor: elements of a stored tensor, the value of an object. */
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "kernels/kernels.h"
#include "lib/base/json.h"
#include "lib/base/text.h"
#include "lib/ckpt/checkpoint.h"
#include "lib/ckpt/format.h"
#include "lib/io/file.h"
#include "lib/job/npy.h"
#include "lib/job/tensor_text.h"
#include "lib/model/named_state.h"
#include "tools/cmd.h"
#include "tools/print_doc.h"
#include "tools/run_args.h"

#define NAME "print-tensor"

/* The request, and the place where the object was found. */
struct request {
    const char *text; /* "KEY" or "KEY[0, 3:5]" */
    bool all, as_json;
    const char *format, *iteration;
    const char *npy;          /* the file; NULL without it */
    bool may_replace, widens; /* of it: --force, --cast */
    struct dcpk_verbosity verbosity;
    const char *key;
    const struct dcpk_tensor *tensor;
    struct dcpk_slice slice;
    struct dcpk_view view;
};

/* A key may hold brackets itself: the whole text first, then what is before the last '['.
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

/* ---- a value ---- */

/* A value too large to be taken into memory is shown without its tensors' elements. */
static void note_outline(const struct dcpk_verbosity *verbosity, const struct dcpk_object *object)
{
    char size[DCPK_SIZE_TEXT_BYTES], limit[DCPK_SIZE_TEXT_BYTES];

    dcpk_cli_note(verbosity,
                  "'%s' has %s: past %s the elements of its tensors are not shown, and its "
                  "checksums are not checked ('verify' does)",
                  object->key, dcpk_cli_short_size(object->place.n_bytes, size),
                  dcpk_cli_short_size(DCPK_MAX_LOADED_BYTES, limit));
}

/* Text is nothing but the value, so that jq can read it. */
static dcpk_status print_value(const char *key, const struct dcpk_value *value, bool as_json,
                               struct dcpk_error *err)
{
    struct dcpk_bytes bytes = {0};
    struct dcpk_json_out j;

    dcpk_json_out_init(&j, &bytes, 2);
    if (as_json) {
        dcpk_json_begin_object(&j);
        dcpk_json_add_string(&j, "key", key);
        dcpk_json_put_key(&j, "value");
    }
    dcpk_value_to_json(value, &j);
    if (as_json) {
        dcpk_json_add_int(&j, "version", 1);
        dcpk_json_end_object(&j);
    }
    return dcpk_cli_print_bytes(&bytes, err);
}

/*
 * Print the object called `key` to stdout: a line with the key and its value as JSON, or as_json
 * one document {"key", "value", "version"}. *found: false, and nothing printed, when there is none
 * of that name. For an object past DCPK_MAX_LOADED_BYTES the outline is printed, with a note.
 * Errors: those of reading; DCPK_EIO when stdout is closed or full.
 */
static dcpk_status print_object(struct dcpk_checkpoint *ckpt, const char *key, bool as_json,
                                const struct dcpk_verbosity *verbosity, bool *found,
                                struct dcpk_error *err)
{
    struct dcpk_arena *arena = dcpk_arena_new();
    const struct dcpk_object *object = dcpk_checkpoint_object(ckpt, key);
    const struct dcpk_value *value;

    *found = false;
    if (object == NULL || dcpk_checkpoint_show_object(ckpt, object, arena, &value, err))
        goto out;
    *found = true;
    if (dcpk_object_is_large(object))
        note_outline(verbosity, object);
    (void)print_value(key, value, as_json, err);
out:
    dcpk_arena_free(arena);
    return err->status;
}

/* " (but there is 'near')", or nothing when near is NULL. */
static const char *hint_text(const char *near, char text[DCPK_ERROR_BYTES])
{
    text[0] = '\0';
    if (near != NULL)
        snprintf(text, DCPK_ERROR_BYTES, " (but there is '%s')", near);
    return text;
}

/* "args.lrr": what there is comes to an end within the name. */
static dcpk_status fail_member(const char *name, const struct dcpk_named_state *state,
                               struct dcpk_error *err)
{
    char hint[DCPK_ERROR_BYTES];
    const char *rest = name + state->n_parent_bytes + 1, *near = NULL, *member;

    for (size_t i = 0; (member = dcpk_named_state_member(state->parent, i)) != NULL; i++)
        if (near == NULL && (strstr(member, rest) != NULL || dcpk_option_is_near(rest, member)))
            near = member;
    return dcpk_fail(err, DCPK_EUSAGE, "there is no '%s' in '%.*s'%s", rest,
                     (int)state->n_parent_bytes, name, hint_text(near, hint));
}

static const char *near_key(struct dcpk_checkpoint *ckpt, const char *key)
{
    for (size_t i = 0; i < ckpt->n_tensors; i++)
        if (strstr(ckpt->tensors[i].key, key) != NULL)
            return ckpt->tensors[i].key;
    for (size_t i = 0; i < ckpt->n_objects; i++)
        if (strstr(ckpt->objects[i].key, key) != NULL)
            return ckpt->objects[i].key;
    for (size_t i = 0; i < ckpt->n_tensors; i++)
        if (dcpk_option_is_near(key, ckpt->tensors[i].key))
            return ckpt->tensors[i].key;
    return NULL;
}

static dcpk_status fail_name(struct dcpk_checkpoint *ckpt, const char *name,
                             struct dcpk_arena *arena, struct dcpk_error *err)
{
    const char *bracket = strrchr(name, '['), *near = NULL, *key;
    size_t n_key = strlen(name);
    const char *const *names;
    char hint[DCPK_ERROR_BYTES];

    if (dcpk_ends_with(name, "]") && bracket != NULL)
        n_key = (size_t)(bracket - name);
    key = dcpk_arena_strndup(arena, name, n_key, err);
    if (key == NULL || dcpk_named_state_list(ckpt, arena, &names, err) != DCPK_OK)
        return err->status;
    if (*key != '\0')
        near = near_key(ckpt, key);
    for (; near == NULL && *names != NULL; names++)
        if (dcpk_option_is_near(key, *names))
            near = *names;
    return dcpk_fail(err, DCPK_EUSAGE,
                     "there is no tensor or object '%s'%s; 'dcpkit inspect' lists them", key,
                     hint_text(near, hint));
}

/*
 * The same of the state that `name` names (lib/model/named_state.h). Errors also: DCPK_EUSAGE when
 * there is none, with a name that is near.
 */
static dcpk_status print_named(struct dcpk_checkpoint *ckpt, const char *name, bool as_json,
                               struct dcpk_error *err)
{
    struct dcpk_arena *arena = dcpk_arena_new();
    struct dcpk_named_state state = {0};

    if (dcpk_named_state_find(ckpt, name, arena, &state, err))
        goto out;
    if (state.value != NULL)
        (void)print_value(name, state.value, as_json, err);
    else if (state.n_parent_bytes > 0)
        (void)fail_member(name, &state, err);
    else
        (void)fail_name(ckpt, name, arena, err);
out:
    dcpk_arena_free(arena);
    return err->status;
}

/* ---- elements of a tensor as a .npy file ---- */

static unsigned npy_flags_of(const struct request *r)
{
    return r->widens ? DCPK_NPY_WIDEN : 0;
}

static dcpk_status put_elements(void *context, const void *data, size_t n_bytes,
                                struct dcpk_error *err)
{
    if (dcpk_cli_interrupted())
        return dcpk_fail(err, DCPK_ECANCELLED, "stopped on request");
    return dcpk_file_put(context, data, n_bytes, err);
}

static dcpk_status write_file(struct dcpk_exec *exec, const struct request *r,
                              struct dcpk_error *err)
{
    struct dcpk_npy_options options = {
        .flags = npy_flags_of(r), .kernels = dcpk_host_kernel_sets[0], .put = put_elements};
    struct dcpk_file *file;

    if (dcpk_check_file_path(".npy file", r->npy, r->may_replace, err) ||
        dcpk_file_begin(r->npy, DCPK_FILE_INTO, &file, err))
        return err->status;
    options.context = file;
    if (dcpk_npy_write(exec, &r->view, &r->slice, &options, err) == DCPK_OK)
        return dcpk_file_publish(file, err);
    dcpk_file_abandon(file);
    return err->status;
}

static dcpk_status report_npy(const struct request *r, const char *descr, struct dcpk_error *err)
{
    const char *dtype = dcpk_dtype_name(r->view.dtype);
    const struct dcpk_print_options way = {.as_json = r->as_json};
    const struct dcpk_doc_style style = {0};
    int64_t shape[DCPK_MAX_RANK];
    const int rank = dcpk_slice_shape(&r->slice, shape);
    struct dcpk_doc doc;
    char text[256];

    dcpk_doc_init(&doc, NAME, &style);
    dcpk_doc_line(&doc, "wrote %s  %s  %s %s as %s", r->npy, r->text, dtype,
                  dcpk_shape_format(shape, rank, text, sizeof text), descr);
    dcpk_doc_set_text(&doc, "dtype", dtype);
    dcpk_doc_set_text(&doc, "key", r->key);
    dcpk_doc_set_text(&doc, "npy", r->npy);
    dcpk_doc_set_text(&doc, "npy_dtype", descr);
    dcpk_doc_set(&doc, "shape", dcpk_fact_ints(shape, rank));
    dcpk_doc_set_count(&doc, "version", 1);
    return dcpk_print_doc(&doc, &way, err);
}

/*
 * Write the file, which appears whole or not at all, and report it on stdout; a note describes how
 * numpy reads a dtype that it has not. Errors: DCPK_EUSAGE when a file is there that may not be
 * replaced; those of dcpk_npy_write; DCPK_ECANCELLED after a signal.
 */
static dcpk_status print_npy(struct dcpk_exec *exec, const struct request *r,
                             struct dcpk_error *err)
{
    const char *descr = dcpk_npy_descr(r->view.dtype, npy_flags_of(r));

    if (dcpk_cli_check_stdout(err) || write_file(exec, r, err))
        return err->status;
    if (strncmp(descr, "|V", 2) == 0)
        dcpk_cli_note(&r->verbosity,
                      "numpy has no %s: numpy.load(FILE).view(ml_dtypes.%s) reads the file, or "
                      "write float32 with --cast",
                      dcpk_dtype_name(r->view.dtype), dcpk_dtype_name(r->view.dtype));
    if (report_npy(r, descr, err) != DCPK_OK)
        dcpk_context(err, "'%s' is in place, and then", r->npy);
    return err->status;
}

static dcpk_status print_elements(struct dcpk_checkpoint *ckpt, struct request *r,
                                  struct dcpk_error *err)
{
    const struct dcpk_env env = {
        .kernels = dcpk_host_kernel_sets[0], .n_threads = 1, .memory_bytes = 1}; /* the least */
    struct dcpk_exec *exec = NULL;

    if (dcpk_exec_new(ckpt, &env, &exec, err) != DCPK_OK)
        return err->status;
    if (r->npy != NULL)
        (void)print_npy(exec, r, err);
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
    if (r->npy != NULL)
        return dcpk_fail(err, DCPK_EUSAGE, "there is no tensor '%s' to write", r->key);
    if (print_object(ckpt, r->text, r->as_json, &r->verbosity, &found, err) != DCPK_OK || found)
        return err->status;
    return print_named(ckpt, r->text, r->as_json, err);
}

static dcpk_status print_at(const char *path, struct request *r, struct dcpk_error *err)
{
    struct dcpk_arena *arena = dcpk_arena_new();
    struct dcpk_checkpoint *ckpt = NULL;

    if (dcpk_cli_open(path, r->format, &r->verbosity, &ckpt, NULL, err) ||
        (r->npy != NULL && dcpk_run_check_apart(path, r->npy, err)))
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
    DCPK_OPT_OUT_FILE("npy", "FILE", npy,
                      "write the elements to FILE as numpy.save does, instead of printing them; "
                      "bfloat16 and float8 are written as bits, for .view(ml_dtypes.bfloat16)"),
    DCPK_OPT_FLAG("cast", widens,
                  "with --npy: write bfloat16 and float8 as float32, which is exact"),
    DCPK_OPT_FLAG("force", may_replace, "replace a FILE that exists"),
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
