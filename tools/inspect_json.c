/* SPDX-License-Identifier: Apache-2.0 */
/* inspect_json.c - dcpkit inspect --json: one document with every key, in key order. */
#include <stdlib.h>
#include <string.h>

#include "lib/base/alloc.h"
#include "lib/base/json.h"
#include "lib/ckpt/format.h"
#include "lib/ckpt/generation.h"
#include "lib/model/model.h"
#include "tools/cmd.h"
#include "tools/inspect.h"

static void put_size(struct dcpk_json_out *j, const char *key, int64_t size)
{
    if (size > 0)
        dcpk_json_add_int(j, key, size);
    else
        dcpk_json_add_null(j, key);
}

static void put_layout(struct dcpk_json_out *j, const struct dcpk_layout *l)
{
    dcpk_json_put_key(j, "layout");
    dcpk_json_begin_object(j);
    put_size(j, "cp", l->cp);
    put_size(j, "dp", l->dp);
    put_size(j, "ep", l->ep);
    put_size(j, "pp", l->pp);
    put_size(j, "tp", l->tp);
    put_size(j, "world", l->world);
    dcpk_json_end_object(j);
}

static void put_saved_layout(struct dcpk_json_out *j, const struct dcpk_saved_layout *l)
{
    static const char *const strategies[] = {"optim", "optim_grads", "optim_grads_params"};

    dcpk_json_put_key(j, "layout_by_chunks");
    dcpk_json_begin_object(j);
    put_size(j, "dp", l->dp);
    put_size(j, "ep", l->ep);
    put_size(j, "etp", l->etp);
    put_size(j, "hsdp", l->hsdp);
    put_size(j, "n_ranks", l->n_ranks);
    put_size(j, "pp", l->pp);
    dcpk_json_put_key(j, "strategies"); /* those that leave such chunks */
    dcpk_json_begin_array(j);
    if (l->sharding == DCPK_SHARDING_NONE)
        dcpk_json_put_string(j, "no_shard");
    for (size_t i = 0; i < 3 && l->sharding == DCPK_SHARDING_ROWS; i++)
        dcpk_json_put_string(j, strategies[i]);
    dcpk_json_end_array(j);
    put_size(j, "tp", l->tp);
    dcpk_json_end_object(j);
}

static int compare_facts(const void *left, const void *right)
{
    const struct dcpk_model_fact *const *a = left, *const *b = right;

    return strcmp((*a)->name, (*b)->name);
}

static dcpk_status put_model(struct dcpk_json_out *j, const struct dcpk_value *args,
                             struct dcpk_error *err)
{
    const struct dcpk_model_fact **facts = dcpk_alloc_array(dcpk_n_model_facts, sizeof *facts, err);

    if (facts == NULL)
        return err->status;
    for (size_t i = 0; i < dcpk_n_model_facts; i++)
        facts[i] = &dcpk_model_facts[i];
    qsort(facts, dcpk_n_model_facts, sizeof *facts, compare_facts);
    dcpk_json_put_key(j, "model");
    dcpk_json_begin_object(j);
    for (size_t i = 0; i < dcpk_n_model_facts; i++) {
        const struct dcpk_value *v = dcpk_value_get(args, facts[i]->name);

        if (v == NULL)
            continue;
        dcpk_json_put_key(j, facts[i]->name);
        if (v->kind == DCPK_V_GLOBAL)
            dcpk_json_put_string(j, v->as.global.name);
        else
            dcpk_value_to_json(v, j);
    }
    dcpk_json_end_object(j);
    dcpk_free(facts);
    return DCPK_OK;
}

static void put_notes(struct dcpk_json_out *j, const struct dcpk_checkpoint *ckpt)
{
    dcpk_json_put_key(j, "notes");
    dcpk_json_begin_array(j);
    for (const struct dcpk_note *note = ckpt->notes; note != NULL; note = note->next)
        dcpk_json_put_string(j, note->text);
    dcpk_json_end_array(j);
}

static int compare_objects(const void *left, const void *right)
{
    const struct dcpk_object *const *a = left, *const *b = right;

    return strcmp((*a)->key, (*b)->key);
}

static dcpk_status put_objects(struct dcpk_json_out *j, const struct dcpk_inspection *in,
                               struct dcpk_error *err)
{
    const struct dcpk_checkpoint *ckpt = in->ckpt;
    const struct dcpk_object **sorted = dcpk_alloc_array(ckpt->n_objects, sizeof *sorted, err);
    size_t n = 0;

    if (sorted == NULL)
        return err->status;
    for (size_t i = 0; i < ckpt->n_objects; i++)
        if (in->chosen == NULL || in->chosen->objects[i])
            sorted[n++] = &ckpt->objects[i];
    qsort(sorted, n, sizeof *sorted, compare_objects);
    dcpk_json_put_key(j, "objects");
    dcpk_json_begin_object(j);
    for (size_t i = 0; i < n; i++) {
        dcpk_json_put_key(j, sorted[i]->key);
        dcpk_json_begin_object(j);
        dcpk_json_add_string(j, "file", dcpk_source_name(ckpt->files[sorted[i]->place.file]));
        dcpk_json_add_uint(j, "n_bytes", sorted[i]->place.n_bytes);
        dcpk_json_add_uint(j, "offset_bytes", sorted[i]->place.offset_bytes);
        dcpk_json_end_object(j);
    }
    dcpk_json_end_object(j);
    dcpk_free(sorted);
    return DCPK_OK;
}

static void put_chunks(struct dcpk_json_out *j, const struct dcpk_checkpoint *ckpt,
                       const struct dcpk_tensor *tensor)
{
    dcpk_json_put_key(j, "chunks");
    dcpk_json_begin_array(j);
    for (size_t i = 0; i < tensor->n_chunks; i++) {
        const struct dcpk_chunk *c = &ckpt->chunks[tensor->first_chunk + i];

        dcpk_json_begin_object(j);
        dcpk_json_add_ints(j, "extents", c->span + tensor->rank, tensor->rank);
        dcpk_json_add_string(j, "file", dcpk_source_name(ckpt->files[c->place.file]));
        dcpk_json_add_uint(j, "n_bytes", c->place.n_bytes);
        dcpk_json_add_uint(j, "offset_bytes", c->place.offset_bytes);
        dcpk_json_add_ints(j, "offsets", c->span, tensor->rank);
        dcpk_json_end_object(j);
    }
    dcpk_json_end_array(j);
}

/* Without a finite element there is no number. */
static void put_known(struct dcpk_json_out *j, const char *key, bool is_known, double v)
{
    if (is_known)
        dcpk_json_add_double(j, key, v);
    else
        dcpk_json_add_null(j, key);
}

static void put_stats(struct dcpk_json_out *j, const struct dcpk_stats *s)
{
    const bool is_known = s->n_finite > 0;

    dcpk_json_put_key(j, "stats");
    if (!s->has_numbers) {
        dcpk_json_put_null(j);
        return;
    }
    dcpk_json_begin_object(j);
    put_known(j, "max", is_known, s->max);
    put_known(j, "mean", is_known, dcpk_stats_mean(s));
    put_known(j, "min", is_known, s->min);
    dcpk_json_add_uint(j, "n_elems", s->n_elems);
    dcpk_json_add_uint(j, "n_inf", s->n_inf);
    dcpk_json_add_uint(j, "n_nan", s->n_nan);
    dcpk_json_add_uint(j, "n_zero", s->n_zero);
    put_known(j, "norm", is_known, dcpk_stats_norm(s));
    dcpk_json_end_object(j);
}

static int compare_tensors(const void *left, const void *right)
{
    const struct dcpk_tensor *const *a = left, *const *b = right;

    return strcmp((*a)->key, (*b)->key);
}

static dcpk_status put_tensors(struct dcpk_json_out *j, const struct dcpk_inspection *in,
                               struct dcpk_error *err)
{
    const struct dcpk_checkpoint *ckpt = in->ckpt;
    const struct dcpk_tensor **sorted = dcpk_alloc_array(ckpt->n_tensors, sizeof *sorted, err);
    dcpk_status st = sorted == NULL ? err->status : DCPK_OK;
    size_t n = 0;

    if (st != DCPK_OK)
        return st;
    for (size_t i = 0; i < ckpt->n_tensors; i++)
        if (in->chosen == NULL || in->chosen->tensors[i])
            sorted[n++] = &ckpt->tensors[i];
    qsort(sorted, n, sizeof *sorted, compare_tensors);
    dcpk_json_put_key(j, "tensors");
    dcpk_json_begin_object(j);
    for (size_t i = 0; i < n && st == DCPK_OK; i++) {
        const struct dcpk_tensor *t = sorted[i];
        int64_t n_elems = 0;

        st = dcpk_shape_count(t->shape, t->rank, &n_elems, err);
        dcpk_json_put_key(j, t->key);
        dcpk_json_begin_object(j);
        if (in->has_chunks)
            put_chunks(j, ckpt, t);
        dcpk_json_add_string(j, "dtype", dcpk_dtype_name(t->dtype));
        if (t->model_shape != NULL) /* flattened by Megatron 0.8 to 0.15 */
            dcpk_json_add_ints(j, "model_shape", t->model_shape, t->model_rank);
        dcpk_json_add_uint(j, "n_bytes", (uint64_t)n_elems * dcpk_dtype_bytes(t->dtype));
        dcpk_json_add_uint(j, "n_chunks", t->n_chunks);
        dcpk_json_add_ints(j, "shape", t->shape, t->rank);
        if (in->stats != NULL)
            put_stats(j, &in->stats[t - ckpt->tensors]);
        dcpk_json_end_object(j);
    }
    dcpk_json_end_object(j);
    dcpk_free(sorted);
    return st;
}

/* What the tensors are, aliases once. */
static void put_contents(struct dcpk_json_out *j, const struct dcpk_totals *t)
{
    static const enum dcpk_content sorted[DCPK_N_CONTENTS] = {
        DCPK_CONTENT_MASTERS, DCPK_CONTENT_MOMENTS, DCPK_CONTENT_OTHER, DCPK_CONTENT_WEIGHTS};

    dcpk_json_put_key(j, "by_content");
    dcpk_json_begin_object(j);
    for (size_t i = 0; i < DCPK_N_CONTENTS; i++) {
        const struct dcpk_content_totals *c = &t->by_content[sorted[i]];

        dcpk_json_put_key(j, dcpk_content_name(sorted[i]));
        dcpk_json_begin_object(j);
        dcpk_json_add_uint(j, "n_elems", c->n_elems);
        dcpk_json_add_uint(j, "n_tensors", c->n_tensors);
        dcpk_json_add_uint(j, "tensor_bytes", c->tensor_bytes);
        dcpk_json_end_object(j);
    }
    dcpk_json_end_object(j);
}

/* What --stats found in all of them; null without. */
static void put_findings(struct dcpk_json_out *j, const struct dcpk_inspection *in)
{
    struct dcpk_stats_findings found;

    dcpk_json_put_key(j, "stats_totals");
    if (in->stats == NULL) {
        dcpk_json_put_null(j);
        return;
    }
    dcpk_inspect_findings(in, &found);
    dcpk_json_begin_object(j);
    dcpk_json_add_uint(j, "n_all_zero_tensors", found.n_zero);
    dcpk_json_add_uint(j, "n_inf", found.n_inf);
    dcpk_json_add_uint(j, "n_nan", found.n_nan);
    dcpk_json_add_uint(j, "n_nonfinite_tensors", found.n_not_finite);
    dcpk_json_add_uint(j, "n_tensors", found.n_tensors);
    dcpk_json_end_object(j);
}

static void put_totals(struct dcpk_json_out *j, const struct dcpk_totals *t)
{
    dcpk_json_put_key(j, "totals");
    dcpk_json_begin_object(j);
    put_contents(j, t);
    dcpk_json_add_uint(j, "file_bytes", t->file_bytes);
    dcpk_json_add_uint(j, "n_alias_chunks", t->n_alias_chunks);
    dcpk_json_add_uint(j, "n_alias_objects", t->n_alias_objects);
    dcpk_json_add_uint(j, "n_alias_tensors", t->n_alias_tensors);
    dcpk_json_add_uint(j, "n_chunks", t->n_chunks);
    dcpk_json_add_uint(j, "n_elems", t->n_elems);
    dcpk_json_add_uint(j, "n_files", t->n_files);
    dcpk_json_add_uint(j, "n_objects", t->n_objects);
    dcpk_json_add_uint(j, "n_params", t->n_params);
    dcpk_json_add_uint(j, "n_tensors", t->n_tensors);
    dcpk_json_add_uint(j, "object_bytes", t->object_bytes);
    dcpk_json_add_uint(j, "stored_bytes", t->stored_bytes);
    dcpk_json_add_uint(j, "tensor_bytes", t->tensor_bytes);
    dcpk_json_end_object(j);
}

dcpk_status dcpk_inspect_print_json(const struct dcpk_inspection *in, struct dcpk_error *err)
{
    struct dcpk_bytes bytes = {0};
    struct dcpk_json_out j;
    dcpk_status st;

    dcpk_json_out_init(&j, &bytes, 2);
    dcpk_json_begin_object(&j);
    dcpk_json_add_string(&j, "folder", in->run->folder);
    dcpk_json_add_string(&j, "format", in->ckpt->format->name);
    dcpk_generation_add_json(in->ckpt, &j);
    dcpk_json_put_key(&j, "iteration");
    if (in->iteration >= 0)
        dcpk_json_put_int(&j, in->iteration);
    else if (in->iteration == DCPK_ITERATION_RELEASE)
        dcpk_json_put_string(&j, "release");
    else
        dcpk_json_put_null(&j);
    dcpk_inspect_put_list(in->list, &j);
    if (in->keys == NULL)
        dcpk_json_add_null(&j, "keys");
    else
        dcpk_json_add_string(&j, "keys", in->keys);
    put_layout(&j, &in->state->layout);
    put_saved_layout(&j, in->saved);
    st = put_model(&j, in->state->args, err);
    put_notes(&j, in->ckpt);
    if (st == DCPK_OK)
        st = put_objects(&j, in, err);
    dcpk_json_add_string(&j, "optimizer_layout", in->state->optimizer_layout);
    dcpk_releases_add_json(in->ckpt, &j);
    dcpk_json_put_key(&j, "state");
    dcpk_json_begin_array(&j);
    for (const char *const *name = in->state->names; *name != NULL; name++)
        dcpk_json_put_string(&j, *name);
    dcpk_json_end_array(&j);
    put_findings(&j, in);
    if (st == DCPK_OK)
        st = put_tensors(&j, in, err);
    put_totals(&j, &in->summary->totals);
    dcpk_json_add_int(&j, "version", 1);
    dcpk_json_end_object(&j);
    if (st == DCPK_OK)
        st = dcpk_cli_print_bytes(&bytes, err);
    dcpk_bytes_release(&bytes);
    return st;
}
