/* SPDX-License-Identifier: Apache-2.0 */
/* merge_checkpoint.c - the sum as a checkpoint: every chunk of it is "decoded" by reading and
 * adding up what the inputs have there. */
#include <string.h>

#include "lib/base/alloc.h"
#include "lib/base/bytes.h"
#include "lib/base/text.h"
#include "lib/ckpt/seen.h"
#include "lib/job/merge_priv.h"
#include "lib/model/arg_table.h"
#include "lib/tensor/chunks.h"
#include "lib/write/journal.h"

#define SUMMARY_NAME "merge" /* the only file of the store: weights, and what the inputs are */
/* A chunk of the sum and what it is read from, together. */
#define MAX_CHARGE_BYTES (UINT64_C(4) << 20)

static struct dcpk_merge *merge_of(const struct dcpk_checkpoint *ckpt)
{
    struct dcpk_merge *const *state = ckpt->state;

    return *state;
}

/* ---- the format ---- */

static dcpk_status merge_probe(struct dcpk_store *store, int *score, struct dcpk_error *err)
{
    (void)store;
    (void)err;
    *score = 100; /* of a table of its own, for its own store */
    return DCPK_OK;
}

/* The tables are filled once the checkpoint is there. */
static dcpk_status merge_open_nothing(struct dcpk_checkpoint *ckpt, struct dcpk_error *err)
{
    (void)ckpt;
    (void)err;
    return DCPK_OK;
}

/* Bytes of an element in all inputs; tensors filled with zeros are not read. */
static uint64_t input_elem_bytes(const struct dcpk_merge *m, uint32_t sum)
{
    uint64_t n_bytes = 0;

    for (size_t i = 0; i < m->n_inputs; i++) {
        const struct dcpk_view *view = &m->inputs[i].views[sum];

        if (view->n_pieces > 0 && view->pieces[0].src != DCPK_PIECE_FILL)
            n_bytes += dcpk_dtype_bytes(m->inputs[i].ckpt->tensors[view->pieces[0].src].dtype);
    }
    return n_bytes;
}

static dcpk_status merge_locate(struct dcpk_checkpoint *ckpt, const struct dcpk_chunk *chunk,
                                const struct dcpk_reader *reader, struct dcpk_extent *where,
                                struct dcpk_error *err)
{
    const struct dcpk_tensor *tensor = &ckpt->tensors[chunk->tensor];
    const size_t elem_bytes = dcpk_dtype_bytes(tensor->dtype);
    const uint64_t n_elems = dcpk_count_elems(chunk->span + tensor->rank, tensor->rank);

    (void)reader;
    (void)err;
    *where = (struct dcpk_extent){.source = ckpt->files[0],
                                  .is_row_major = true,
                                  .decoded_bytes = n_elems * elem_bytes,
                                  .record_bytes =
                                      n_elems * input_elem_bytes(merge_of(ckpt), chunk->tensor)};
    dcpk_row_major_strides(elem_bytes, chunk->span + tensor->rank, tensor->rank,
                           where->stride_bytes);
    return DCPK_OK;
}

static dcpk_status merge_decode(struct dcpk_checkpoint *ckpt, const struct dcpk_chunk *chunk,
                                void *out, struct dcpk_error *err)
{
    struct dcpk_box box;

    dcpk_box_unpack(chunk->span, ckpt->tensors[chunk->tensor].rank, &box);
    return dcpk_weighted_sum_read(merge_of(ckpt)->sum, chunk->tensor, &box, out, err);
}

/* No file of a store without a disk is anybody else's. */
static bool merge_is_own(const struct dcpk_checkpoint *ckpt, const char *name)
{
    (void)ckpt;
    (void)name;
    return true;
}

/* ---- its view ---- */

/* The dtype that a sum is rounded to: that of the first weight that is stored. */
static enum dcpk_dtype sum_dtype(const struct dcpk_merge *m, size_t sum)
{
    const enum dcpk_dtype wanted = m->options->given.family.dtype;
    const char *name = m->params[sum]->name;

    if (m->inputs[0].views[sum].dtype != DCPK_F32)
        return m->inputs[0].views[sum].dtype;
    for (size_t i = 0; i < m->n_inputs; i++) {
        const struct dcpk_model *model = m->inputs[i].model;
        enum dcpk_dtype stored;
        uint64_t param;

        if (!dcpk_map_get(&model->param_by_name, name, strlen(name), &param) ||
            model->params[param].tensor[DCPK_WEIGHT] == DCPK_NO_TENSOR)
            continue;
        stored = model->tensors[model->params[param].tensor[DCPK_WEIGHT]].dtype;
        return wanted != DCPK_DTYPE_NONE && dcpk_dtype_bytes(stored) < 4 ? wanted : stored;
    }
    if (wanted != DCPK_DTYPE_NONE)
        return wanted;
    return dcpk_args_working_dtype(dcpk_value_attrs(m->inputs[0].model->args));
}

static dcpk_status sum_add_view(const struct dcpk_merge *m, uint32_t sum, struct dcpk_model *model,
                                struct dcpk_error *err)
{
    const struct dcpk_tensor *stored = &m->ckpt->tensors[sum];
    const struct dcpk_param *param = m->params[sum];
    struct dcpk_model_tensor tensor = {.role = DCPK_WEIGHT,
                                       .dtype = sum_dtype(m, sum),
                                       .rank = stored->rank,
                                       .shape = stored->shape,
                                       .n_pieces = 1};
    struct dcpk_piece *piece = dcpk_arena_alloc(model->arena, sizeof *piece, err);
    struct dcpk_box whole;

    if (piece == NULL)
        return err->status;
    dcpk_box_whole(stored->shape, stored->rank, &whole);
    tensor.pieces = piece;
    if (dcpk_piece_make(model->arena, sum, &whole, &whole, piece, err) ||
        dcpk_model_param(model, param->name, &tensor.param, err))
        return err->status;
    model->params[tensor.param].parts = param->parts;
    model->params[tensor.param].is_buffer = param->is_buffer;
    return dcpk_model_add(model, &tensor, err);
}

/* Args that a run needs in addition to weights, to begin from iteration 0. */
static dcpk_status put_merged_state(const struct dcpk_merge *m, struct dcpk_model *model,
                                    struct dcpk_error *err)
{
    const struct dcpk_model *first = m->inputs[0].model;

    model->args = first->args;
    model->family = first->family;
    model->foreign = first->foreign;
    for (size_t i = 0; i < m->n_inputs && model->command_line == NULL; i++)
        model->command_line = m->inputs[i].model->command_line;
    model->is_fp32 = first->is_fp32;
    model->optimizer_layout = "none";
    model->iteration = dcpk_value_int(model->arena, 0, err);
    model->version = dcpk_value_float(model->arena, 3.0, err);
    if (model->iteration == NULL || model->version == NULL)
        return err->status;
    dcpk_model_read_layout(model);
    return DCPK_OK;
}

/* Lists the keys of one input that the sum leaves out, for the report. */
static dcpk_status list_left_out(const struct dcpk_merged *in, struct dcpk_model *model,
                                 struct dcpk_error *err)
{
    static const char state[] = "state of the optimizer and of the run, which a sum of weights "
                                "does not have";
    static const char extra[] = "extra state of a module (FP8 scales), which a sum of weights does "
                                "not have";
    const struct dcpk_model *of = in->model;

    if (of->n_groups > 0 || of->scheduler != NULL)
        dcpk_model_omit(model, in->run.folder, state);
    for (size_t i = 0; i < of->n_extra_states; i++)
        dcpk_model_omit(model, of->extra_states[i].name, extra);
    for (const struct dcpk_note *note = of->dropped; note != NULL; note = note->next) {
        size_t n_bytes;
        const char *reason = dcpk_model_drop_reason(note, &n_bytes);
        const char *key = dcpk_arena_printf(model->arena, err, "%s: %.*s", in->run.folder,
                                            (int)n_bytes, note->text);

        if (key == NULL)
            return err->status;
        dcpk_model_drop(model, key, reason);
    }
    return DCPK_OK;
}

static dcpk_status merge_to_model(struct dcpk_checkpoint *ckpt, struct dcpk_model *model,
                                  struct dcpk_error *err)
{
    const struct dcpk_merge *m = merge_of(ckpt);

    for (uint32_t i = 0; i < m->n_params; i++)
        if (sum_add_view(m, i, model, err))
            return err->status;
    for (size_t i = 0; i < m->n_inputs; i++)
        if (list_left_out(&m->inputs[i], model, err))
            return err->status;
    return put_merged_state(m, model, err);
}

static const char *merge_optimizer_layout(const struct dcpk_checkpoint *ckpt,
                                          const struct dcpk_value *common)
{
    (void)ckpt;
    (void)common;
    return "none";
}

static const struct dcpk_format_reader merge_reader = {
    .locate = merge_locate, .decode = merge_decode, .is_own = merge_is_own};
static const struct dcpk_format_mapping merge_mapping = {
    .to_model = merge_to_model, .optimizer_layout = merge_optimizer_layout};
static const struct dcpk_mark merge_marks[1]; /* the row that ends a table */

/* ---- making it ---- */

/* Hashes the views that the sums take from an input; every option of viewing shows there. */
static void hash_views(const struct dcpk_merged *in, size_t n, struct dcpk_hash *hash)
{
    struct dcpk_hasher hasher;

    dcpk_hasher_begin(&hasher);
    for (size_t i = 0; i < n; i++) {
        dcpk_hasher_update(&hasher, &in->views[i].dtype, sizeof in->views[i].dtype);
        dcpk_journal_put_pieces(&hasher, in->views[i].pieces, in->views[i].n_pieces);
    }
    dcpk_journal_put_views(&hasher, in->ckpt);
    dcpk_hasher_digest(&hasher, hash);
}

static void put_hash(struct dcpk_bytes *text, const struct dcpk_hash *hash)
{
    dcpk_bytes_text(text, " ");
    for (size_t b = 0; b < sizeof hash->digest; b++)
        dcpk_bytes_printf(text, "%02x", hash->digest[b]);
}

/*
 * A line for each input: its weight, its files, and the state taken from it. A resumed run compares
 * it.
 */
static dcpk_status write_summary(const struct dcpk_merge *m, struct dcpk_bytes *text,
                                 struct dcpk_error *err)
{
    for (size_t i = 0; i < m->n_inputs; i++) {
        const struct dcpk_merge_input *input = &m->options->inputs[i];
        struct dcpk_hash files, views;

        if (dcpk_seen_checkpoint(m->inputs[i].ckpt, input->path, &files, err))
            return err->status;
        hash_views(&m->inputs[i], m->n_params, &views);
        dcpk_bytes_printf(text, "%.17g", input->weight);
        put_hash(text, &files);
        put_hash(text, &views);
        dcpk_bytes_text(text, "\n");
    }
    return dcpk_bytes_status(text, err);
}

/* "0.5 * a/run/iter_0000010 + 0.5 * b/hf" */
static dcpk_status write_formula(const struct dcpk_merge *m, struct dcpk_bytes *text,
                                 struct dcpk_error *err)
{
    for (size_t i = 0; i < m->n_inputs; i++)
        dcpk_bytes_printf(text, "%s%g * %s", dcpk_joint(i > 0, " + "), m->options->inputs[i].weight,
                          m->inputs[i].run.folder);
    dcpk_bytes_put(text, "", 1);
    return dcpk_bytes_status(text, err);
}

static dcpk_status open_merge_store(struct dcpk_merge *m, struct dcpk_error *err)
{
    const struct dcpk_format *const formats[] = {&m->format, NULL};
    struct dcpk_bytes formula = {0}, summary = {0};
    struct dcpk_store *store = NULL;

    if (write_formula(m, &formula, err) || write_summary(m, &summary, err) ||
        dcpk_store_new_memory((const char *)formula.data, &store, err))
        goto out;
    if (dcpk_store_add_memory(store, SUMMARY_NAME, summary.data, summary.n_bytes, err)) {
        dcpk_store_close(store);
        goto out;
    }
    if (dcpk_checkpoint_open(store, formats, NULL, &m->ckpt, err) == DCPK_OK)
        *(struct dcpk_merge **)m->ckpt->state = m;
out:
    dcpk_bytes_release(&summary);
    dcpk_bytes_release(&formula);
    return err->status;
}

static dcpk_status add_sum_tensor(struct dcpk_merge *m, size_t sum, struct dcpk_span_list *list,
                                  struct dcpk_error *err)
{
    const struct dcpk_view *view = &m->inputs[0].views[sum];
    const uint64_t most = MAX_CHARGE_BYTES / (sizeof(float) * (1 + m->n_inputs));
    struct dcpk_tensor tensor = {.key = m->params[sum]->name,
                                 .dtype = view->dtype,
                                 .rank = view->rank,
                                 .shape = view->shape,
                                 .first_chunk = m->ckpt->n_chunks};

    if (dcpk_row_chunks(view->shape, view->rank, most, m->ckpt->arena, list, err))
        return err->status;
    tensor.n_chunks = list->n;
    m->ckpt->n_chunks += list->n;
    return dcpk_checkpoint_add_tensor(m->ckpt, &tensor, err);
}

/* Chunks of the sum lie nowhere: their places distinguish them. */
static dcpk_status add_sum_chunks(struct dcpk_merge *m, const struct dcpk_span_list *lists,
                                  struct dcpk_error *err)
{
    struct dcpk_checkpoint *ckpt = m->ckpt;

    ckpt->chunks = dcpk_alloc_array(ckpt->n_chunks, sizeof *ckpt->chunks, err);
    if (ckpt->chunks == NULL)
        return err->status;
    for (uint32_t t = 0; t < ckpt->n_tensors; t++)
        for (size_t i = 0; i < lists[t].n; i++) {
            const size_t at = ckpt->tensors[t].first_chunk + i;

            ckpt->chunks[at] =
                (struct dcpk_chunk){.span = lists[t].spans[i], .place = {0, at, 1}, .tensor = t};
        }
    return DCPK_OK;
}

static dcpk_status fill_tables(struct dcpk_merge *m, struct dcpk_error *err)
{
    struct dcpk_span_list *lists = dcpk_alloc_array(m->n_params, sizeof *lists, err);
    struct dcpk_source *source;
    uint32_t file;

    if (lists == NULL || dcpk_store_find(m->ckpt->store, SUMMARY_NAME, &source, err) ||
        dcpk_checkpoint_add_file(m->ckpt, source, &file, err))
        goto out;
    for (size_t i = 0; i < m->n_params; i++)
        if (add_sum_tensor(m, i, &lists[i], err))
            goto out;
    (void)add_sum_chunks(m, lists, err);
out:
    dcpk_free(lists);
    return err->status;
}

/* True if every input has a note of that text. */
static bool all_note(const struct dcpk_merge *m, const char *text)
{
    for (size_t i = 0; i < m->n_inputs; i++) {
        const struct dcpk_note *note = m->inputs[i].ckpt->notes;

        while (note != NULL && strcmp(note->text, text) != 0)
            note = note->next;
        if (note == NULL)
            return false;
    }
    return true;
}

/* Puts notes about the inputs and the weights; one that all inputs have once. */
static void put_merge_notes(const struct dcpk_merge *m)
{
    double total = 0;

    for (size_t i = 0; i < m->n_inputs; i++) {
        const struct dcpk_merged *in = &m->inputs[i];

        total += m->options->inputs[i].weight;
        for (const struct dcpk_note *note = in->ckpt->notes; note != NULL; note = note->next)
            if (all_note(m, note->text))
                dcpk_checkpoint_note_once(m->ckpt, "%s", note->text);
            else
                dcpk_checkpoint_note_once(m->ckpt, "'%s': %s", in->run.folder, note->text);
    }
    dcpk_merge_note_args(m);
    if (total < 1 - 1e-6 || total > 1 + 1e-6)
        dcpk_checkpoint_note(m->ckpt, "the weights add up to %g; they are not scaled to 1", total);
}

dcpk_status dcpk_merge_make(struct dcpk_merge *merge, struct dcpk_error *err)
{
    merge->format = (struct dcpk_format){.name = "merge",
                                         .summary = "a weighted sum of checkpoints",
                                         .marks = merge_marks,
                                         .is_model = merge->inputs[0].ckpt->format->is_model,
                                         .state_bytes = sizeof(struct dcpk_merge *),
                                         .probe = merge_probe,
                                         .open = merge_open_nothing,
                                         .reader = &merge_reader,
                                         .mapping = &merge_mapping};
    if (open_merge_store(merge, err) || fill_tables(merge, err))
        return err->status;
    merge->ckpt->iteration = DCPK_ITERATION_RELEASE;
    put_merge_notes(merge);
    return DCPK_OK;
}
