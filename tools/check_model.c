/* SPDX-License-Identifier: Apache-2.0 */
/* check_model.c - plans the conversion of a model's folder, or to one, and writes nothing. */
#include "tools/check_model.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "formats/formats.h"
#include "lib/base/order.h"
#include "lib/base/text.h"
#include "lib/job/convert.h"

/* Prints what a person should know of the model, but not of the folder that would be made. */
static void note_remarks(const struct dcpk_conversion *c, const struct dcpk_verbosity *verbosity)
{
    for (const struct dcpk_out_event *event = c->out->events; event != NULL; event = event->next)
        if (event->kind == DCPK_EVENT_NOTE && strcmp(event->key, "family") != 0 &&
            strcmp(event->key, "tokenizer") != 0)
            dcpk_cli_note(verbosity, "%s", event->text);
}

void dcpk_check_model(struct dcpk_checkpoint *ckpt, const struct dcpk_env *env,
                      const struct dcpk_verbosity *verbosity, struct dcpk_checks *checks)
{
    const bool is_folder = ckpt->format->is_model && ckpt->format->container == NULL;
    const char *to = is_folder ? "torch_dist" : "huggingface";
    const struct dcpk_convert_options options = {
        .env = *env, .to = dcpk_format_find(to), .opened = ckpt};
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_conversion c = {0};
    dcpk_status st;

    if (ckpt->format->mapping != NULL && ckpt->format->mapping->check_class != NULL) {
        st = ckpt->format->mapping->check_class(ckpt, &err);
        dcpk_checks_add(checks, "config", st, &err, "its class accepts config.json");
        dcpk_error_clear(&err);
    }
    st = dcpk_conversion_plan(&c, &options, &err);
    if (st == DCPK_OK && !is_folder) {
        note_remarks(&c, verbosity);
        st = dcpk_fail(&err, DCPK_EMISMATCH,
                       "it does not load as stored: 'dcpkit convert --to huggingface %s OUT' makes "
                       "%" PRIu64 " tensors of it; the family is %s",
                       dcpk_store_path(ckpt->store), c.totals.n_tensors, c.out->family);
    }
    if (st == DCPK_OK)
        dcpk_checks_add(checks, "model", st, &err,
                        "the family is %s; its %zu tensors are what config.json asks for",
                        c.model->family, ckpt->n_tensors);
    else
        dcpk_checks_add(checks, "model", st, &err, "%s", "");
    dcpk_conversion_free(&c);
}

/* True if a run of some release loads it, in part at least. */
static bool any_release_loads(const struct dcpk_verdict *verdict)
{
    unsigned r = 0;

    while (r < DCPK_N_RELEASES &&
           dcpk_verdict_loads(verdict, verdict->variants & dcpk_loaders_of((enum dcpk_release)r,
                                                                           (enum dcpk_release)r)) ==
               DCPK_LOADS_NOT)
        r++;
    return r < DCPK_N_RELEASES;
}

void dcpk_check_converted(struct dcpk_checkpoint *ckpt, const struct dcpk_env *env,
                          const struct dcpk_verbosity *verbosity, struct dcpk_checks *checks)
{
    const struct dcpk_convert_options options = {
        .env = *env, .to = dcpk_format_find("torch_dist"), .opened = ckpt};
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_conversion c = {0};
    struct dcpk_bytes text = {0};

    if (dcpk_conversion_plan(&c, &options, &err) == DCPK_OK) {
        note_remarks(&c, verbosity);
        dcpk_verdict_sentence(&c.verdict, &text);
        if (dcpk_bytes_status(&text, &err) == DCPK_OK && !any_release_loads(&c.verdict))
            (void)dcpk_fail(&err, DCPK_EMISMATCH, "made torch_dist it loads in %.*s",
                            (int)text.n_bytes, (const char *)text.data);
    }
    dcpk_checks_add(checks, "model", err.status, &err,
                    "the requests of the loaders of %s are not known; 'dcpkit convert --to "
                    "torch_dist %s OUT' makes a folder that loads in %.*s",
                    ckpt->format->name, dcpk_store_path(ckpt->store), (int)text.n_bytes,
                    dcpk_text_or((const char *)text.data, ""));
    dcpk_bytes_release(&text);
    dcpk_conversion_free(&c);
}

/* Conversions that mend a folder: where one to its own format does, no other one is tried. */
static const struct way {
    const char *to, *generation, *option;
} ways[] = {{"torch_dist", "B", " --target-generation B"}, {"fsdp_dtensor", NULL, ""}};

/* Finds how a run of the verdict's release would load the folder once it is converted. */
static enum dcpk_loads try_way(struct dcpk_checkpoint *ckpt, const struct dcpk_env *env,
                               const struct way *way, const struct dcpk_verdict *verdict)
{
    const struct dcpk_convert_options options = {.env = *env,
                                                 .to = dcpk_format_find(way->to),
                                                 .target.generation = way->generation,
                                                 .opened = ckpt};
    struct dcpk_error err = DCPK_ERROR_INIT;
    enum dcpk_loads loads = DCPK_LOADS_NOT;
    struct dcpk_conversion c = {0};

    if (dcpk_conversion_plan(&c, &options, &err) == DCPK_OK && c.verdict.arena != NULL)
        loads = dcpk_verdict_loads(&c.verdict, dcpk_loaders_of(verdict->release, verdict->release) &
                                                   c.verdict.variants);
    dcpk_conversion_free(&c);
    return loads;
}

bool dcpk_check_remedy(struct dcpk_checkpoint *ckpt, const struct dcpk_env *env,
                       const struct dcpk_verdict *verdict, char text[DCPK_REMEDY_BYTES])
{
    enum dcpk_loads best = dcpk_verdict_loads(verdict, verdict->loader);
    const struct way *found = NULL;

    for (int own = 1; own >= 0 && found == NULL; own--)
        for (size_t i = 0; i < DCPK_COUNT(ways) && best != DCPK_LOADS; i++) {
            enum dcpk_loads loads;

            if ((strcmp(ways[i].to, ckpt->format->name) == 0) != own)
                continue;
            loads = try_way(ckpt, env, &ways[i], verdict);
            if (loads >= best)
                continue;
            best = loads;
            found = &ways[i];
        }
    if (found == NULL)
        return false;
    snprintf(text, DCPK_REMEDY_BYTES, "dcpkit convert --to %s%s %s OUT", found->to, found->option,
             dcpk_store_path(ckpt->store));
    if (best != DCPK_LOADS)
        snprintf(text + strlen(text), DCPK_REMEDY_BYTES - strlen(text), "; load that with %s",
                 dcpk_loads_text(best));
    return true;
}
