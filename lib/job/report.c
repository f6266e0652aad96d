/* SPDX-License-Identifier: Apache-2.0 */
/* report.c - what became of every key, read off the plan; nothing is kept for it while converting.
 */
#include <inttypes.h>
#include <string.h>

#include "lib/job/convert.h"

const struct dcpk_tensor *dcpk_report_source(const struct dcpk_conversion *c,
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
        const struct dcpk_tensor *source = dcpk_report_source(c, t);

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

/*
 * The losses of a model's list, which are all harmless or all not. Returns false when `each` does.
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
