/* SPDX-License-Identifier: Apache-2.0 */
/* api_jobs.c - verify, compare and convert for programs. */
#include <string.h>

#include "formats/formats.h"
#include "lib/api/api_priv.h"
#include "lib/base/bytes.h"
#include "lib/base/order.h"
#include "lib/job/convert.h"
#include "lib/job/verify.h"

#define MAX_SIZE (INT64_C(1) << 20) /* of a dimension of a mesh */

int dcpkit_verify(dcpkit_checkpoint *ckpt, dcpkit_checkpoint *source)
{
    struct dcpk_error *err = api_begin(ckpt->session);
    struct dcpk_verify_options options = {.env = ckpt->session->env};
    struct dcpk_verification v = {0};

    if (source != NULL) {
        options.source = source->ckpt;
        options.source_name = "the source";
    }
    dcpk_verify(ckpt->ckpt, &options, &v);
    (void)dcpk_verification_status(&v, err);
    dcpk_verification_release(&v);
    return (int)err->status;
}

/* "decoder.final_layernorm.weight (weight): 3 of 64 elements differ" */
static void difference_put(const struct dcpk_difference *d, struct dcpk_bytes *text)
{
    static const char *const kinds[DCPK_N_DIFFERENCES] = {
        [DCPK_ONLY_IN_A] = "only in the first",     [DCPK_ONLY_IN_B] = "only in the second",
        [DCPK_SHAPE_DIFFERS] = "the shapes differ", [DCPK_DTYPE_DIFFERS] = "the dtypes differ",
        [DCPK_ELEMENTS_DIFFER] = "elements differ", [DCPK_VALUE_DIFFERS] = "the values differ",
        [DCPK_NOT_FAITHFUL] = "it is not faithful",
    };

    dcpk_bytes_text(text, d->name);
    if (d->part != NULL) {
        dcpk_bytes_text(text, " (");
        dcpk_bytes_text(text, d->part);
        dcpk_bytes_text(text, ")");
    }
    dcpk_bytes_text(text, ": ");
    dcpk_bytes_text(text, kinds[d->kind]);
}

int dcpkit_compare(dcpkit_checkpoint *a, dcpkit_checkpoint *b, uint64_t *n_differences,
                   char **first)
{
    struct dcpk_error *err = api_begin(a->session);
    const struct dcpk_compare_options options = {.env = a->session->env};
    struct dcpk_compare_report report = {0};
    struct dcpk_bytes text = {0};

    if (dcpk_compare_checkpoints(a->ckpt, b->ckpt, &options, &report, err) == DCPK_OK) {
        if (first != NULL)
            *first = NULL;
        if (first != NULL && report.differences.first != NULL) {
            difference_put(report.differences.first, &text);
            api_give_text(&text, first, err);
        } else if (first != NULL && dcpk_compare_lacks(&report)) {
            dcpk_bytes_text(&text, report.verdict);
            api_give_text(&text, first, err);
        }
        *n_differences = report.differences.n;
    }
    dcpk_compare_release(&report);
    return (int)err->status;
}

/* ---- convert ---- */

static void flags_apply(unsigned flags, struct dcpk_convert_options *job)
{
    static const struct {
        unsigned api, job, folder;
    } rows[] = {
        {DCPKIT_REPLACE, 0, DCPK_FOLDER_REPLACE},
        {DCPKIT_RESUME, 0, DCPK_FOLDER_RESUME},
        {DCPKIT_WEIGHTS_ONLY, DCPK_CONVERT_WEIGHTS_ONLY, 0},
        {DCPKIT_CHECK_INPUT, DCPK_CONVERT_CHECK_INPUT, 0},
        {DCPKIT_PROVE, DCPK_CONVERT_VERIFY | DCPK_CONVERT_CHECK_INPUT, 0},
        {DCPKIT_INTEGRITY, DCPK_CONVERT_INTEGRITY, 0},
    };

    for (size_t i = 0; i < DCPK_COUNT(rows); i++)
        if (flags & rows[i].api) {
            job->flags |= rows[i].job;
            job->folder_flags |= rows[i].folder;
        }
    if ((flags & DCPKIT_TRUST_INPUT) != 0 && (flags & DCPKIT_CHECK_INPUT) == 0)
        job->flags &= ~(unsigned)DCPK_CONVERT_CHECK_INPUT;
}

static bool mesh_is_given(const struct dcpkit_mesh *m)
{
    return m->tp != 0 || m->pp != 0 || m->ep != 0 || m->cp != 0 || m->dp != 0 || m->etp != 0 ||
           m->vpp != 0;
}

/* Sizes below 1 are none; 0 of the first four is 1. */
static dcpk_status mesh_take(const struct dcpkit_mesh *from, struct dcpk_grid *mesh,
                             struct dcpk_error *err)
{
    const int64_t sizes[] = {from->tp, from->pp,  from->ep, from->cp,
                             from->dp, from->etp, from->vpp};

    for (size_t i = 0; i < DCPK_COUNT(sizes); i++)
        if (sizes[i] < 0 || sizes[i] > MAX_SIZE)
            return dcpk_fail(err, DCPK_EUSAGE, "a mesh has sizes of 1 to %lld, not %lld",
                             (long long)MAX_SIZE, (long long)sizes[i]);
    *mesh = (struct dcpk_grid){
        .tp = dcpk_max_i64(from->tp, 1),
        .pp = dcpk_max_i64(from->pp, 1),
        .ep = dcpk_max_i64(from->ep, 1),
        .cp = dcpk_max_i64(from->cp, 1),
        .dp = from->dp,
        .etp = from->etp,
        .vpp = from->vpp,
    };
    return DCPK_OK;
}

static dcpk_status family_take(const struct dcpkit_convert_options *from,
                               struct dcpk_convert_options *to, struct dcpk_error *err)
{
    to->target.family.config = from->hf_config;
    to->target.family.assets = from->hf_assets;
    if (from->dtype != NULL) {
        if (!to->to->is_model)
            return dcpk_fail(err, DCPK_EUSAGE, "a dtype is for Hugging Face's models, not for %s",
                             to->to->name);
        to->target.family.dtype = dcpk_dtype_from_name(from->dtype);
        if (to->target.family.dtype != DCPK_F32 && to->target.family.dtype != DCPK_BF16 &&
            to->target.family.dtype != DCPK_F16)
            return dcpk_fail(err, DCPK_EUSAGE, "the dtype '%s' is not float32, bfloat16 or float16",
                             from->dtype);
    }
    to->given.family = to->target.family;
    return DCPK_OK;
}

static dcpk_status options_apply(const struct dcpkit_convert_options *from,
                                 struct dcpk_convert_options *to, struct dcpk_error *err)
{
    to->from = from->from;
    flags_apply(from->flags, to);
    if (from->swiglu != 0)
        to->rules.swiglu = from->swiglu > 0 ? DCPK_SWIGLU_ON : DCPK_SWIGLU_OFF;
    if (family_take(from, to, err))
        return err->status;
    if (!mesh_is_given(&from->mesh))
        return DCPK_OK;
    if (strcmp(to->to->name, "fsdp_dtensor") == 0)
        return dcpk_fail(err, DCPK_EUSAGE, "a mesh is for torch_dist and zarr, not for %s",
                         to->to->name);
    if (mesh_take(&from->mesh, &to->target.mesh, err))
        return err->status;
    to->rules.mesh = to->target.mesh;
    to->rules.vocab.tp = to->target.mesh.tp;
    return DCPK_OK;
}

static bool loss_put(void *context, const struct dcpk_report_loss *loss)
{
    struct dcpk_json_out *j = context;

    dcpk_json_begin_object(j);
    dcpk_json_add_bool(j, "is_harmless", loss->is_harmless);
    dcpk_json_put_key(j, "key");
    dcpk_json_put_text(j, loss->key, loss->key_bytes);
    dcpk_json_add_string(j, "reason", loss->reason);
    dcpk_json_end_object(j);
    return true;
}

static dcpk_status report_put(const struct dcpk_conversion *c, char **report,
                              struct dcpk_error *err)
{
    struct dcpk_report_counts n;
    struct dcpk_bytes bytes = {0};
    struct dcpk_json_out j;

    dcpk_report_count(c, &n);
    dcpk_json_out_init(&j, &bytes, 0);
    dcpk_json_begin_object(&j);
    dcpk_json_put_key(&j, "left_out");
    dcpk_json_begin_array(&j);
    dcpk_report_each_loss(c, loss_put, &j);
    dcpk_json_end_array(&j);
    dcpk_json_add_uint(&j, "n_aliased", n.aliased);
    dcpk_json_add_uint(&j, "n_cast", n.cast);
    dcpk_json_add_uint(&j, "n_kept", n.kept);
    dcpk_json_add_uint(&j, "n_left_out", n.dropped);
    dcpk_json_add_uint(&j, "n_made", n.made);
    dcpk_json_add_uint(&j, "n_renamed", n.renamed);
    dcpk_json_add_string(&j, "out", c->target.folder);
    dcpk_json_add_uint(&j, "tensor_bytes", c->totals.tensor_bytes);
    dcpk_json_end_object(&j);
    return api_give_text(&bytes, report, err);
}

int dcpkit_convert(dcpkit *session, const char *in, const char *out, const char *to,
                   const struct dcpkit_convert_options *options, char **report)
{
    struct dcpk_error *err = api_begin(session);
    struct dcpkit_convert_options given = {0};
    struct dcpk_convert_options job = {.env = session->env, .in = in, .out = out};
    struct dcpk_conversion c = {0};

    if (options != NULL && api_take(&given, sizeof given, options, options->size, err))
        return (int)err->status;
    job.to = dcpk_format_find(to);
    if (job.to == NULL)
        return (int)dcpk_fail(err, DCPK_EUSAGE, "no format is called '%s'", to);
    if (options_apply(&given, &job, err))
        return (int)err->status;
    session->stage = "reading metadata";
    if (dcpk_conversion_plan(&c, &job, err) == DCPK_OK && dcpk_conversion_run(&c, err) == DCPK_OK &&
        report != NULL)
        report_put(&c, report, err);
    dcpk_conversion_free(&c);
    return (int)err->status;
}
