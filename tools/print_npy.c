/* SPDX-License-Identifier: Apache-2.0 */
/* print_npy.c - elements of a tensor as a .npy file. */
#include "tools/print_npy.h"

#include <string.h>

#include "kernels/kernels.h"
#include "lib/base/json.h"
#include "lib/io/file.h"
#include "tools/print_doc.h"

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
        .flags = npy_flags_of(r), .device = dcpk_devices[0], .put = put_elements};
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
