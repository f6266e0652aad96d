/* SPDX-License-Identifier: Apache-2.0 */
/* print_value.c - an object of a checkpoint as JSON. */
#include "tools/print_value.h"

#include <stdio.h>
#include <string.h>

#include "kernels/kernels.h"
#include "lib/base/json.h"
#include "lib/base/text.h"
#include "lib/ckpt/format.h"
#include "lib/io/file.h"
#include "lib/job/npy.h"
#include "lib/model/named_state.h"
#include "tools/cmd.h"
#include "tools/print_doc.h"

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

/* Nothing but the value, so that jq can read it. */
static dcpk_status print_value_text(const struct dcpk_value *value, struct dcpk_error *err)
{
    struct dcpk_bytes bytes = {0};
    struct dcpk_json_out j;

    dcpk_json_out_init(&j, &bytes, 2);
    dcpk_value_to_json(value, &j);
    return dcpk_cli_print_bytes(&bytes, err);
}

static dcpk_status print_value_json(const char *key, const struct dcpk_value *value,
                                    struct dcpk_error *err)
{
    struct dcpk_bytes bytes = {0};
    struct dcpk_json_out j;

    dcpk_json_out_init(&j, &bytes, 2);
    dcpk_json_begin_object(&j);
    dcpk_json_add_string(&j, "key", key);
    dcpk_json_put_key(&j, "value");
    dcpk_value_to_json(value, &j);
    dcpk_json_add_int(&j, "version", 1);
    dcpk_json_end_object(&j);
    return dcpk_cli_print_bytes(&bytes, err);
}

static dcpk_status print_value(const char *key, const struct dcpk_value *value, bool as_json,
                               struct dcpk_error *err)
{
    if (as_json)
        return print_value_json(key, value, err);
    return print_value_text(value, err);
}

dcpk_status dcpk_print_value(struct dcpk_checkpoint *ckpt, const char *key, bool as_json,
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

dcpk_status dcpk_print_named(struct dcpk_checkpoint *ckpt, const char *name, bool as_json,
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

static unsigned npy_flags_of(const struct dcpk_npy_request *r)
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

static dcpk_status write_file(struct dcpk_exec *exec, const struct dcpk_npy_request *r,
                              struct dcpk_error *err)
{
    struct dcpk_npy_options options = {
        .flags = npy_flags_of(r), .kernels = dcpk_host_kernel_sets[0], .put = put_elements};
    struct dcpk_file *file;

    if (dcpk_check_file_path(".npy file", r->path, r->may_replace, err) ||
        dcpk_file_begin(r->path, DCPK_FILE_INTO, &file, err))
        return err->status;
    options.context = file;
    if (dcpk_npy_write(exec, r->view, r->slice, &options, err) == DCPK_OK)
        return dcpk_file_publish(file, err);
    dcpk_file_abandon(file);
    return err->status;
}

static dcpk_status print_npy_json(const struct dcpk_npy_request *r, const char *descr,
                                  struct dcpk_error *err)
{
    int64_t shape[DCPK_MAX_RANK];
    const int rank = dcpk_slice_shape(r->slice, shape);
    struct dcpk_bytes bytes = {0};
    struct dcpk_json_out j;

    dcpk_json_out_init(&j, &bytes, 2);
    dcpk_json_begin_object(&j);
    dcpk_json_add_string(&j, "dtype", dcpk_dtype_name(r->view->dtype));
    dcpk_json_add_string(&j, "key", r->key);
    dcpk_json_add_string(&j, "npy", r->path);
    dcpk_json_add_string(&j, "npy_dtype", descr);
    dcpk_json_add_ints(&j, "shape", shape, rank);
    dcpk_json_add_int(&j, "version", 1);
    dcpk_json_end_object(&j);
    return dcpk_cli_print_bytes(&bytes, err);
}

static dcpk_status print_npy_text(const struct dcpk_npy_request *r, const char *descr,
                                  struct dcpk_error *err)
{
    int64_t shape[DCPK_MAX_RANK];
    const int rank = dcpk_slice_shape(r->slice, shape);
    char text[256];

    dcpk_cli_printf(stdout, "wrote ");
    dcpk_cli_put_text(stdout, r->path);
    dcpk_cli_printf(stdout, "  ");
    dcpk_cli_put_text(stdout, r->text);
    dcpk_cli_printf(stdout, "  %s %s as %s\n", dcpk_dtype_name(r->view->dtype),
                    dcpk_shape_format(shape, rank, text, sizeof text), descr);
    return dcpk_cli_flush(err);
}

dcpk_status dcpk_print_npy(struct dcpk_exec *exec, const struct dcpk_npy_request *request,
                           bool as_json, struct dcpk_error *err)
{
    const char *descr = dcpk_npy_descr(request->view->dtype, npy_flags_of(request));

    if (dcpk_cli_check_stdout(err) || write_file(exec, request, err))
        return err->status;
    if (strncmp(descr, "|V", 2) == 0)
        dcpk_cli_note(request->verbosity,
                      "numpy has no %s: numpy.load(FILE).view(ml_dtypes.%s) reads the file, or "
                      "write float32 with --cast",
                      dcpk_dtype_name(request->view->dtype), dcpk_dtype_name(request->view->dtype));
    if (as_json)
        (void)print_npy_json(request, descr, err);
    else
        (void)print_npy_text(request, descr, err);
    if (err->status != DCPK_OK)
        dcpk_context(err, "'%s' is in place, and then", request->path);
    return err->status;
}
