/* SPDX-License-Identifier: Apache-2.0 */
/* check_model.c - plans the conversion of a model's folder, or to one, and writes nothing. */
#include "tools/check_model.h"

#include <inttypes.h>
#include <string.h>

#include "formats/formats.h"
#include "lib/job/convert.h"

/* Of the folder that would be made. */
static void note_remarks(const struct dcpk_conversion *c, const struct dcpk_voice *voice)
{
    for (const struct dcpk_out_event *event = c->out->events; event != NULL; event = event->next)
        if (event->kind == DCPK_EVENT_NOTE && strcmp(event->key, "family") != 0)
            dcpk_cli_note(voice, "%s", event->text);
}

void dcpk_check_model(struct dcpk_checkpoint *ckpt, const struct dcpk_env *env,
                      const struct dcpk_voice *voice, struct dcpk_checks *checks)
{
    const char *to = ckpt->format->is_model ? "torch_dist" : "huggingface";
    const struct dcpk_convert_options options = {
        .env = *env, .to = dcpk_format_find(to), .opened = ckpt};
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_conversion c = {0};
    dcpk_status st;

    if (ckpt->format->mapping != NULL && ckpt->format->mapping->check_class != NULL) {
        st = ckpt->format->mapping->check_class(ckpt, &err);
        dcpk_checks_add(checks, "config", st, &err, "its class takes what config.json has");
        err = (struct dcpk_error)DCPK_ERROR_INIT;
    }
    st = dcpk_conversion_plan(&c, &options, &err);
    if (st == DCPK_OK && !ckpt->format->is_model) {
        note_remarks(&c, voice);
        st = dcpk_fail(&err, DCPK_EMISMATCH,
                       "it does not load as it is: 'convert --to huggingface' makes %" PRIu64
                       " tensors of it; the family is %s",
                       c.totals.n_tensors, c.out->family);
    }
    if (st == DCPK_OK)
        dcpk_checks_add(checks, "model", st, &err,
                        "the family is %s; its %zu tensors are what config.json asks for",
                        c.model->family, ckpt->n_tensors);
    else
        dcpk_checks_add(checks, "model", st, &err, "%s", "");
    dcpk_conversion_free(&c);
}
