/* SPDX-License-Identifier: Apache-2.0 */
/* report.c - what became of every key, read off the plan; nothing is kept for it while converting.
 */
#include <inttypes.h>
#include <string.h>

#include "lib/ckpt/generation.h"
#include "lib/exec/convert.h"
#include "lib/exec/target.h"

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

static bool count_one(void *context, const char *key, size_t key_bytes, const char *reason)
{
    uint64_t *n = context;

    (void)key;
    (void)key_bytes;
    (void)reason;
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
    dcpk_report_each_dropped(c, count_one, &counts->dropped);
}

bool dcpk_report_each_dropped(const struct dcpk_conversion *c, dcpk_report_dropped *each,
                              void *context)
{
    if (c->model != NULL)
        for (const struct dcpk_note *note = c->model->dropped; note != NULL; note = note->next) {
            size_t key_bytes;
            const char *reason = dcpk_model_drop_reason(note, &key_bytes);

            if (!each(context, note->text, key_bytes, reason))
                return false;
        }
    for (const struct dcpk_out_event *event = c->out->events; event != NULL; event = event->next)
        if (event->kind == DCPK_EVENT_DROPPED &&
            !each(context, event->key, strlen(event->key), event->text))
            return false;
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

static bool put_dropped(void *context, const char *key, size_t key_bytes, const char *reason)
{
    struct dcpk_json_out *j = context;

    dcpk_json_begin_object(j);
    dcpk_json_put_key(j, "key");
    dcpk_json_put_text(j, key, key_bytes);
    dcpk_json_add_string(j, "reason", reason);
    dcpk_json_end_object(j);
    return true;
}

static void put_counts(const struct dcpk_conversion *c, struct dcpk_json_out *j)
{
    struct dcpk_report_counts n;

    dcpk_report_count(c, &n);
    dcpk_json_put_key(j, "counts");
    dcpk_json_begin_object(j);
    dcpk_json_add_uint(j, "aliased", n.aliased);
    dcpk_json_add_uint(j, "cast", n.cast);
    dcpk_json_add_uint(j, "dropped", n.dropped);
    dcpk_json_add_uint(j, "kept", n.kept);
    dcpk_json_add_uint(j, "made", n.made);
    dcpk_json_add_uint(j, "renamed", n.renamed);
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
    dcpk_json_add_uint(j, "masters", c->proof.n_masters);
    dcpk_json_add_uint(j, "parameters", c->proof.n_params);
    dcpk_json_add_uint(j, "tensor_bytes", c->proof.tensor_bytes);
    dcpk_json_add_uint(j, "tensors", c->proof.n_tensors);
    dcpk_json_add_uint(j, "values", c->proof.n_values);
    dcpk_json_end_object(j);
}

void dcpk_report_json(const struct dcpk_conversion *c, struct dcpk_json_out *j)
{
    dcpk_json_begin_object(j);
    put_counts(c, j);
    dcpk_json_put_key(j, "dropped");
    dcpk_json_begin_array(j);
    dcpk_report_each_dropped(c, put_dropped, j);
    dcpk_json_end_array(j);
    dcpk_json_add_string(j, "from", c->ckpt->format->name);
    dcpk_generation_add_json(c->ckpt, j);
    dcpk_json_add_string(j, "input", c->source.folder);
    put_notes(c, j);
    dcpk_json_add_uint(j, "object_keys", c->out->n_objects);
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
}
