/* SPDX-License-Identifier: Apache-2.0 */
/* report.c - what became of every key, read off the plan; nothing is kept for it while converting.
 */
#include <inttypes.h>
#include <string.h>

#include "lib/base/alloc.h"
#include "lib/ckpt/generation.h"
#include "lib/job/convert.h"
#include "lib/job/target.h"

/* The source tensor of an output tensor's first element, or NULL for literals and fills. */
static const struct dcpk_tensor *source_of(const struct dcpk_conversion *c,
                                           const struct dcpk_out_tensor *t)
{
    if (t->n_pieces == 0 || t->pieces[0].src == DCPK_PIECE_FILL)
        return NULL;
    return &c->ckpt->tensors[t->pieces[0].src];
}

/* Names beyond the first of each object payload. */
static uint64_t count_object_aliases(const struct dcpk_output *out)
{
    return out->n_objects > out->n_payloads ? out->n_objects - out->n_payloads : 0;
}

static bool count_one(void *context, const struct dcpk_report_loss *loss)
{
    uint64_t *n = context;

    (void)loss;
    ++*n;
    return true;
}

void dcpk_report_count(const struct dcpk_conversion *c, struct dcpk_report_counts *counts)
{
    *counts = (struct dcpk_report_counts){.aliased = count_object_aliases(c->out)};
    for (size_t i = 0; i < c->out->n_tensors; i++) {
        const struct dcpk_out_tensor *t = &c->out->tensors[i];
        const struct dcpk_tensor *source = source_of(c, t);

        counts->aliased += t->n_keys - 1;
        if (source == NULL) {
            counts->made++;
            continue;
        }
        counts->cast += source->dtype != t->dtype;
        if (strcmp(source->key, t->keys[0]) == 0)
            counts->kept++;
        else
            counts->renamed++;
    }
    for (size_t i = 0; i < c->out->n_payloads; i++)
        counts->made += c->out->payloads[i].source == NULL;
    dcpk_report_each_loss(c, count_one, &counts->dropped);
}

/* The losses of a model's list, which are all harmless or all not. Returns false when `each` does.
 */
static bool each_note(const struct dcpk_note *notes, bool is_harmless, dcpk_report_take *take,
                      void *context)
{
    for (const struct dcpk_note *note = notes; note != NULL; note = note->next) {
        struct dcpk_report_loss loss = {.key = note->text, .is_harmless = is_harmless};

        loss.reason = dcpk_model_drop_reason(note, &loss.key_bytes);
        if (!take(context, &loss))
            return false;
    }
    return true;
}

bool dcpk_report_each_loss(const struct dcpk_conversion *c, dcpk_report_take *take, void *context)
{
    if (c->model != NULL && !(each_note(c->model->omitted, true, take, context) &&
                              each_note(c->model->dropped, false, take, context)))
        return false;
    for (const struct dcpk_out_event *event = c->out->events; event != NULL; event = event->next) {
        const struct dcpk_report_loss loss = {event->key, strlen(event->key), event->text,
                                              event->kind == DCPK_EVENT_OMITTED};

        if (event->kind != DCPK_EVENT_NOTE && !take(context, &loss))
            return false;
    }
    return true;
}

static void put_tensor(const struct dcpk_conversion *c, const struct dcpk_out_tensor *t,
                       struct dcpk_json_out *j)
{
    const struct dcpk_tensor *source = source_of(c, t);

    dcpk_json_begin_object(j);
    dcpk_json_put_key(j, "aliases");
    dcpk_json_begin_array(j);
    for (size_t i = 1; i < t->n_keys; i++)
        dcpk_json_put_string(j, t->keys[i]);
    dcpk_json_end_array(j);
    dcpk_json_add_string(j, "dtype", dcpk_dtype_name(t->dtype));
    dcpk_json_add_string(j, "key", t->keys[0]);
    dcpk_json_add_ints(j, "shape", t->shape, t->rank);
    dcpk_json_add_string(j, "source", source == NULL ? NULL : source->key);
    if (source != NULL && source->dtype != t->dtype)
        dcpk_json_add_string(j, "source_dtype", dcpk_dtype_name(source->dtype));
    dcpk_json_end_object(j);
}

static bool put_loss(void *context, const struct dcpk_report_loss *loss)
{
    struct dcpk_json_out *j = context;

    dcpk_json_begin_object(j);
    dcpk_json_add_bool(j, "harmless", loss->is_harmless);
    dcpk_json_put_key(j, "key");
    dcpk_json_put_text(j, loss->key, loss->key_bytes);
    dcpk_json_add_string(j, "reason", loss->reason);
    dcpk_json_end_object(j);
    return true;
}

/* Object keys in the order of their payloads: order[i] is an index of out->objects. */
static dcpk_status sort_objects(const struct dcpk_output *out, size_t **order,
                                struct dcpk_error *err)
{
    size_t *first = dcpk_alloc_array(out->n_payloads + 1, sizeof *first, err);

    *order = first == NULL ? NULL : dcpk_alloc_array(out->n_objects, sizeof **order, err);
    if (*order == NULL) {
        dcpk_free(first);
        return err->status;
    }
    for (size_t i = 0; i < out->n_objects; i++)
        first[out->objects[i].payload + 1]++;
    for (size_t i = 0; i < out->n_payloads; i++)
        first[i + 1] += first[i];
    for (size_t i = 0; i < out->n_objects; i++)
        (*order)[first[out->objects[i].payload]++] = i;
    dcpk_free(first);
    return DCPK_OK;
}

static void put_name(const struct dcpk_out_object *object, struct dcpk_json_out *j)
{
    struct dcpk_bytes name = {0};

    dcpk_out_object_name(object, &name);
    dcpk_json_put_text(j, (const char *)name.data, name.n_bytes);
    dcpk_bytes_release(&name);
}

/* One payload under its names objects[order[0 .. n)]. */
static void put_object(const struct dcpk_output *out, const size_t *order, size_t n,
                       struct dcpk_json_out *j)
{
    const struct dcpk_out_payload *payload = &out->payloads[out->objects[order[0]].payload];

    dcpk_json_begin_object(j);
    dcpk_json_put_key(j, "aliases");
    dcpk_json_begin_array(j);
    for (size_t i = 1; i < n; i++)
        put_name(&out->objects[order[i]], j);
    dcpk_json_end_array(j);
    dcpk_json_put_key(j, "key");
    put_name(&out->objects[order[0]], j);
    dcpk_json_add_string(j, "source", payload->source == NULL ? NULL : payload->source->key);
    dcpk_json_end_object(j);
}

static dcpk_status put_objects(const struct dcpk_output *out, struct dcpk_json_out *j,
                               struct dcpk_error *err)
{
    size_t *order = NULL;
    dcpk_status st = sort_objects(out, &order, err);

    dcpk_json_put_key(j, "objects");
    dcpk_json_begin_array(j);
    for (size_t i = 0, n; st == DCPK_OK && i < out->n_objects; i += n) {
        const uint32_t payload = out->objects[order[i]].payload;

        for (n = 1; i + n < out->n_objects && out->objects[order[i + n]].payload == payload; n++)
            continue;
        put_object(out, order + i, n, j);
    }
    dcpk_json_end_array(j);
    dcpk_free(order);
    return st;
}

static void put_counts(const struct dcpk_conversion *c, struct dcpk_json_out *j)
{
    struct dcpk_report_counts n;

    dcpk_report_count(c, &n);
    dcpk_json_put_key(j, "counts");
    dcpk_json_begin_object(j);
    dcpk_json_add_uint(j, "n_aliased", n.aliased);
    dcpk_json_add_uint(j, "n_cast", n.cast);
    dcpk_json_add_uint(j, "n_dropped", n.dropped);
    dcpk_json_add_uint(j, "n_kept", n.kept);
    dcpk_json_add_uint(j, "n_made", n.made);
    dcpk_json_add_uint(j, "n_renamed", n.renamed);
    dcpk_json_end_object(j);
}

/* What a run that loads the output has to be given. */
static void put_load(const struct dcpk_conversion *c, struct dcpk_json_out *j)
{
    const unsigned needs = c->out->load_needs;

    dcpk_json_put_key(j, "load");
    dcpk_json_begin_object(j);
    dcpk_json_add_string(j, "expert_parallel",
                         (needs & DCPK_LOAD_WITH_EP) != 0      ? "above_1"
                         : (needs & DCPK_LOAD_WITHOUT_EP) != 0 ? "1"
                                                               : NULL);
    dcpk_json_add_bool(j, "no_load_optim", (needs & DCPK_LOAD_WITHOUT_OPTIM) != 0);
    dcpk_json_add_bool(j, "no_load_rng", (needs & DCPK_LOAD_WITHOUT_RNG) != 0);
    dcpk_json_end_object(j);
}

static void put_notes(const struct dcpk_conversion *c, struct dcpk_json_out *j)
{
    dcpk_json_put_key(j, "notes");
    dcpk_json_begin_array(j);
    for (const struct dcpk_note *note = c->ckpt->notes; note != NULL; note = note->next)
        dcpk_json_put_string(j, note->text);
    for (const struct dcpk_out_event *event = c->out->events; event != NULL; event = event->next)
        if (event->kind == DCPK_EVENT_NOTE)
            dcpk_json_put_string(j, event->text);
    dcpk_json_end_array(j);
}

/* What --verify compared; null without it. */
static void put_proof(const struct dcpk_conversion *c, struct dcpk_json_out *j)
{
    dcpk_json_put_key(j, "verified");
    if (c->proof.n_params == 0) {
        dcpk_json_put_null(j);
        return;
    }
    dcpk_json_begin_object(j);
    dcpk_json_add_uint(j, "n_masters", c->proof.n_masters);
    dcpk_json_add_uint(j, "n_parameters", c->proof.n_params);
    dcpk_json_add_uint(j, "n_source_objects", c->proof.left.n_objects);
    dcpk_json_add_uint(j, "n_source_objects_left_out", c->proof.left.n_objects_left);
    dcpk_json_add_uint(j, "n_source_tensors", c->proof.left.n_tensors);
    dcpk_json_add_uint(j, "n_source_tensors_left_out", c->proof.left.n_tensors_left);
    dcpk_json_add_uint(j, "n_tensors", c->proof.n_tensors);
    dcpk_json_add_uint(j, "n_values", c->proof.n_values);
    dcpk_json_add_uint(j, "tensor_bytes", c->proof.tensor_bytes);
    dcpk_json_end_object(j);
}

dcpk_status dcpk_report_json(const struct dcpk_conversion *c, struct dcpk_json_out *j,
                             struct dcpk_error *err)
{
    dcpk_status st;

    dcpk_json_begin_object(j);
    dcpk_json_add_bool(j, "already_complete", c->is_complete);
    dcpk_json_add_uint(j, "compared_bytes", c->compared_bytes);
    put_counts(c, j);
    dcpk_json_put_key(j, "dropped");
    dcpk_json_begin_array(j);
    dcpk_report_each_loss(c, put_loss, j);
    dcpk_json_end_array(j);
    dcpk_json_add_string(j, "from", c->ckpt->format->name);
    dcpk_generation_add_json(c->ckpt, j);
    dcpk_json_add_string(j, "input", c->source.folder);
    put_load(c, j);
    dcpk_json_put_key(j, "loads");
    dcpk_verdict_json(&c->verdict, c->verdict.variants, j);
    dcpk_json_add_uint(j, "n_object_keys", c->out->n_objects);
    put_notes(c, j);
    st = put_objects(c->out, j, err);
    dcpk_json_add_string(j, "output", c->target.folder);
    dcpk_json_add_uint(j, "output_file_bytes", c->totals.file_bytes);
    dcpk_json_add_uint(j, "read_bytes", c->stats.read_bytes);
    dcpk_releases_add_json(c->ckpt, j);
    dcpk_json_add_uint(j, "resumed_bytes", c->resumed_bytes);
    dcpk_json_add_double(j, "seconds", c->stats.seconds);
    dcpk_json_add_uint(j, "tensor_bytes", c->totals.tensor_bytes);
    dcpk_json_put_key(j, "tensors");
    dcpk_json_begin_array(j);
    for (size_t i = 0; i < c->out->n_tensors; i++)
        put_tensor(c, &c->out->tensors[i], j);
    dcpk_json_end_array(j);
    dcpk_json_add_string(j, "to", c->options->to->name);
    dcpk_target_put_tracker(&c->target, j);
    put_proof(c, j);
    dcpk_json_add_int(j, "version", 1);
    dcpk_json_add_uint(j, "written_bytes", c->stats.written_bytes);
    dcpk_json_end_object(j);
    return st;
}
