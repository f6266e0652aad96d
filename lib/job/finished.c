/* SPDX-License-Identifier: Apache-2.0 */
/* finished.c - an output that is there already: proves that it is whole, and the one planned. */
#include <inttypes.h>
#include <string.h>

#include "lib/base/alloc.h"
#include "lib/ckpt/overlaps.h"
#include "lib/exec/ranks.h"
#include "lib/job/compare_priv.h"
#include "lib/job/output_job.h"
#include "lib/job/verify.h"

/* ---- files and objects ---- */

/* The plain file of that name and length. */
static dcpk_status find_file(const struct dcpk_output_job *job, const char *name, uint64_t n_bytes,
                             struct dcpk_source **file, struct dcpk_error *err)
{
    struct dcpk_store *store = job->there->store;
    enum dcpk_path_kind kind;

    if (dcpk_store_look(store, name, &kind, err) ||
        (kind == DCPK_PATH_FILE && dcpk_store_find(store, name, file, err)))
        return err->status;
    if (kind != DCPK_PATH_FILE || dcpk_source_bytes(*file) != n_bytes)
        return dcpk_fail(err, DCPK_EUSAGE, "'%s' is missing, or does not have %" PRIu64 " bytes",
                         name, n_bytes);
    return DCPK_OK;
}

/* Compares a range of the output with one that should be the same. */
static dcpk_status check_range(const struct dcpk_output_job *job, const struct dcpk_range range[2],
                               struct dcpk_error *err)
{
    uint64_t same;

    if (dcpk_ranges_compare(range, &job->env->progress, &same, err) != DCPK_OK)
        return err->status;
    if (same == range[0].n_bytes)
        return DCPK_OK;
    return dcpk_fail(err, DCPK_EUSAGE, "'%s' differs at byte %" PRIu64,
                     dcpk_source_name(range[0].file), range[0].offset_bytes + same);
}

dcpk_status dcpk_output_job_check_file(const struct dcpk_output_job *job, const char *name,
                                       struct dcpk_source *source, struct dcpk_error *err)
{
    const uint64_t n_bytes = dcpk_source_bytes(source);
    struct dcpk_range range[2] = {{.n_bytes = n_bytes}, {source, 0, n_bytes}};

    if (find_file(job, name, n_bytes, &range[0].file, err) != DCPK_OK)
        return err->status;
    return check_range(job, range, err);
}

/* The same with bytes in memory. */
static dcpk_status check_bytes(struct dcpk_range there, const void *data, size_t n_bytes,
                               struct dcpk_error *err)
{
    void *bytes = dcpk_alloc(n_bytes, err);
    dcpk_status st;

    if (bytes == NULL)
        return err->status;
    st = dcpk_source_read(there.file, there.offset_bytes, bytes, n_bytes, err);
    if (st == DCPK_OK && memcmp(bytes, data, n_bytes) != 0)
        st = dcpk_fail(err, DCPK_EUSAGE, "'%s' differs in %zu bytes from byte %" PRIu64 " on",
                       dcpk_source_name(there.file), n_bytes, there.offset_bytes);
    dcpk_free(bytes);
    return st;
}

static dcpk_status check_files(const struct dcpk_output_job *job, struct dcpk_error *err)
{
    const struct dcpk_output *out = job->out;

    for (size_t i = 0; i < out->n_kept; i++)
        if (dcpk_output_job_check_file(job, out->kept[i].name, out->kept[i].source, err) != DCPK_OK)
            return err->status;
    for (size_t i = 0; i < out->n_small_files; i++) {
        const struct dcpk_small_file *planned = &out->small_files[i];
        struct dcpk_range there = {0};

        if (find_file(job, planned->name, planned->n_bytes, &there.file, err) ||
            check_bytes(there, planned->data, planned->n_bytes, err))
            return err->status;
    }
    return DCPK_OK;
}

static dcpk_status check_payload(const struct dcpk_output_job *job,
                                 const struct dcpk_out_payload *payload, struct dcpk_range there,
                                 struct dcpk_error *err)
{
    struct dcpk_bytes bytes = {0};
    dcpk_status st;

    if (payload->source != NULL) {
        const struct dcpk_place *place = &payload->source->place;
        const struct dcpk_range range[2] = {
            there, {job->ckpt->files[place->file], place->offset_bytes, place->n_bytes}};

        return check_range(job, range, err);
    }
    st = job->out->format->writer->encode(job->out, payload, &bytes, err);
    if (st == DCPK_OK)
        st = dcpk_bytes_status(&bytes, err);
    if (st == DCPK_OK)
        st = check_bytes(there, bytes.data, bytes.n_bytes, err);
    dcpk_bytes_release(&bytes);
    return st;
}

/* Many objects may share a payload, which is compared with the first. */
static dcpk_status check_objects(const struct dcpk_output_job *job, struct dcpk_error *err)
{
    bool *done = dcpk_alloc_array(job->out->n_payloads, sizeof *done, err);
    struct dcpk_bytes name = {0};
    dcpk_status st = dcpk_made(done, err);

    for (size_t i = 0; i < job->out->n_objects && st == DCPK_OK; i++) {
        const uint32_t number = job->out->objects[i].payload;
        const struct dcpk_out_payload *payload = &job->out->payloads[number];
        const struct dcpk_object *object;

        name.n_bytes = 0;
        dcpk_out_object_name(&job->out->objects[i], &name);
        dcpk_bytes_put(&name, "", 1);
        if (dcpk_bytes_status(&name, err) != DCPK_OK)
            break;
        object = dcpk_checkpoint_object(job->there, (const char *)name.data);
        if (object == NULL || object->place.n_bytes != payload->n_bytes)
            dcpk_fail(err, DCPK_EUSAGE,
                      "object '%s' is missing, or does not have %" PRIu64 " bytes",
                      (const char *)name.data, payload->n_bytes);
        else if (!done[number])
            (void)check_payload(job, payload,
                                (struct dcpk_range){job->there->files[object->place.file],
                                                    object->place.offset_bytes,
                                                    object->place.n_bytes},
                                err);
        done[number] = true;
        st = err->status;
    }
    dcpk_bytes_release(&name);
    dcpk_free(done);
    return err->status;
}

/* ---- tensors ---- */

/* The tensor that is there under a planned key, in the planned dtype and shape. */
static dcpk_status tensor_find(const struct dcpk_output_job *job,
                               const struct dcpk_out_tensor *planned, const char *key,
                               uint32_t *number, struct dcpk_error *err)
{
    const struct dcpk_tensor *tensor = dcpk_checkpoint_tensor(job->there, key);
    const bool is_reshaped = planned->written_shape != NULL;
    const int64_t *shape = is_reshaped ? planned->written_shape : planned->shape;
    const int rank = is_reshaped ? planned->written_rank : planned->rank;
    char is[256], wanted[256];

    if (tensor == NULL)
        return dcpk_fail(err, DCPK_EUSAGE, "tensor '%s' is missing", key);
    if (tensor->dtype != planned->dtype ||
        !dcpk_shape_equal(tensor->shape, tensor->rank, shape, rank))
        return dcpk_fail(err, DCPK_EUSAGE, "tensor '%s' is %s %s, not %s %s", key,
                         dcpk_dtype_name(tensor->dtype),
                         dcpk_shape_format(tensor->shape, tensor->rank, is, sizeof is),
                         dcpk_dtype_name(planned->dtype),
                         dcpk_shape_format(shape, rank, wanted, sizeof wanted));
    *number = (uint32_t)(tensor - job->there->tensors);
    return DCPK_OK;
}

/* The tensor that is there, in the axes that were planned. */
static dcpk_status tensor_see(struct dcpk_checkpoint *there, uint32_t number,
                              const struct dcpk_out_tensor *planned, uint32_t *seen,
                              struct dcpk_error *err)
{
    int axis = 0;

    *seen = number;
    if (planned->written_shape == NULL)
        return DCPK_OK;
    while (planned->shape[axis] == planned->written_shape[axis] && axis < planned->written_rank - 1)
        axis++;
    return dcpk_checkpoint_pair_view(there, number, axis, seen, err);
}

/* Pairs a planned tensor with the one that is there; its further keys name the same bytes. */
static dcpk_status tensor_pair(const struct dcpk_output_job *job,
                               const struct dcpk_out_tensor *planned,
                               struct dcpk_tensor_pairs *pairs, struct dcpk_error *err)
{
    struct dcpk_tensor_pair pair = {.name = planned->keys[0], .view = {dcpk_write_view(planned)}};
    uint32_t first = 0, other;

    for (size_t i = 0; i < planned->n_keys; i++) {
        if (tensor_find(job, planned, planned->keys[i], i == 0 ? &first : &other, err) != DCPK_OK)
            return err->status;
        if (i > 0 && !dcpk_tensors_are_aliases(job->there, first, other))
            return dcpk_fail(err, DCPK_EUSAGE, "'%s' is not another name for '%s'",
                             planned->keys[i], planned->keys[0]);
    }
    if (planned->n_pieces == 0 && planned->literal == NULL)
        return DCPK_OK; /* it is empty, or lies in files that are kept */
    if (tensor_see(job->there, first, planned, &first, err) ||
        dcpk_view_stored(job->there, first, job->there->arena, &pair.view[1], err))
        return err->status;
    return dcpk_pairs_add(pairs, &pair, err);
}

static dcpk_status compare_elements(struct dcpk_output_job *job,
                                    const struct dcpk_tensor_pairs *pairs, struct dcpk_error *err)
{
    struct dcpk_pairs_options options = {.left = job->exec};
    struct dcpk_compare *results = dcpk_alloc_array(pairs->n, sizeof *results, err);
    dcpk_status st;

    if (results == NULL)
        return err->status;
    st = dcpk_exec_new(job->there, job->env, &options.right, err);
    if (st == DCPK_OK)
        st = dcpk_pairs_compare(pairs, &options, results, &job->stats, err);
    for (size_t i = 0; i < pairs->n && st == DCPK_OK; i++)
        if (!results[i].equal)
            st = dcpk_fail(err, DCPK_EUSAGE,
                           "%" PRIu64 " elements of '%s' differ, the first is number %" PRId64,
                           results[i].n_different, pairs->list[i].name, results[i].first_different);
    dcpk_exec_free(options.right);
    dcpk_free(results);
    return st;
}

/* ---- steps ---- */

dcpk_status dcpk_output_job_open_there(struct dcpk_output_job *job, struct dcpk_error *err)
{
    const struct dcpk_opening opening = {.formats = job->env->formats,
                                         .open_file = job->env->open_file,
                                         .progress = &job->env->progress};
    struct dcpk_verify_options options = {.env = *job->env};
    struct dcpk_verification v = {.has_checksums = false};
    struct dcpk_run found = {0};
    struct dcpk_store *store;

    dcpk_progress_begin(&job->env->progress, "comparing with the existing output");
    if (dcpk_run_open(job->target->folder, &opening, &found, &store, err) == DCPK_OK &&
        dcpk_checkpoint_open(store, job->env->formats, job->out->format->name, &job->there, err) ==
            DCPK_OK) {
        dcpk_verify(job->there, &options, &v);
        (void)dcpk_verification_status(&v, err);
    }
    dcpk_verification_release(&v);
    dcpk_run_release(&found);
    if (err->status == DCPK_EFORMAT || err->status == DCPK_EMISMATCH ||
        err->status == DCPK_EUNSUPPORTED)
        err->status = DCPK_EUSAGE; /* it is not the output that was asked for */
    return err->status;
}

/* Pairs what is planned with what is there; names, dtypes, shapes and lengths must be the same. */
static dcpk_status match_plan(const struct dcpk_output_job *job, struct dcpk_tensor_pairs *pairs,
                              struct dcpk_error *err)
{
    const size_t n_there = job->there->n_tensors + job->there->n_objects;
    const struct dcpk_output *out = job->out;
    struct dcpk_source *file;

    for (size_t i = 0; i < out->n_files; i++)
        if (find_file(job, out->files[i].name, out->files[i].n_bytes, &file, err) != DCPK_OK)
            return err->status;
    for (size_t i = 0; i < out->n_tensors; i++)
        if (tensor_pair(job, &out->tensors[i], pairs, err) != DCPK_OK)
            return err->status;
    if (dcpk_output_job_leads(job) && (check_objects(job, err) || check_files(job, err)))
        return err->status;
    if (n_there != job->n_keys)
        return dcpk_fail(err, DCPK_EUSAGE, "it has %zu keys, not %zu", n_there, job->n_keys);
    return DCPK_OK;
}

dcpk_status dcpk_output_job_compare_there(struct dcpk_output_job *job, struct dcpk_error *err)
{
    struct dcpk_tensor_pairs pairs = {0};
    dcpk_status st = dcpk_ranks_agree(job->env->ranks, match_plan(job, &pairs, err), err);

    dcpk_progress_begin(&job->env->progress, "comparing with the existing output");
    if (st == DCPK_OK)
        st = compare_elements(job, &pairs, err);
    dcpk_free(pairs.list);
    return st;
}
