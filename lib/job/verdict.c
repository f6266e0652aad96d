/* SPDX-License-Identifier: Apache-2.0 */
/* verdict.c - what loaders ask for is looked up; what is not there is kept by name. */
#include "lib/job/verdict.h"

#include <inttypes.h>
#include <string.h>

#include "lib/base/alloc.h"
#include "lib/base/order.h"
#include "lib/base/text.h"
#include "lib/ckpt/foreign.h"
#include "lib/model/sizes.h"
#include "lib/rules/expect.h"
#include "lib/rules/rules.h"

#define MAX_RANKS (1 << 20) /* of a mesh; args come from a file */

/* A check under way. */
struct checking {
    struct dcpk_verdict *check;
    struct dcpk_holding *holding;
    bool *is_claimed; /* by tensor: some loader asks for it */
};

/* --- one request --- */

static dcpk_status add_finding(struct checking *c, enum dcpk_lack lack,
                               const struct dcpk_request *request, const char *text,
                               struct dcpk_error *err)
{
    struct dcpk_verdict *check = c->check;
    struct dcpk_check_finding *finding;
    const char *dot = "", *field = "";

    if (request->field != NULL) {
        dot = ".";
        field = request->field;
    }
    check->lacking[request->purpose] |= request->loaders;
    check->n_findings++;
    if ((request->loaders & check->loader) != 0)
        check->n_lacking[request->purpose]++;
    if (check->n_findings > DCPK_MAX_FINDINGS)
        return DCPK_OK;
    finding = dcpk_arena_alloc(check->arena, sizeof *finding, err);
    if (finding == NULL)
        return err->status;
    *finding = (struct dcpk_check_finding){.lack = lack,
                                           .purpose = request->purpose,
                                           .loaders = request->loaders,
                                           .key = dcpk_arena_printf(check->arena, err, "%.*s%s%s",
                                                                    (int)request->key_bytes,
                                                                    request->key, dot, field),
                                           .text = text};
    if (finding->key == NULL)
        return err->status;
    *check->findings_end = finding;
    check->findings_end = &finding->next;
    return DCPK_OK;
}

/* "[4, 8]" */
static void put_shape(struct dcpk_bytes *text, const int64_t *shape, int rank)
{
    dcpk_bytes_text(text, "[");
    for (int a = 0; a < rank; a++)
        dcpk_bytes_printf(text, "%s%" PRId64, dcpk_joint(a > 0, ", "), shape[a]);
    dcpk_bytes_text(text, "]");
}

static dcpk_status add_shape(struct checking *c, const struct dcpk_request *request,
                             const struct dcpk_found_tensor *found, struct dcpk_error *err)
{
    struct dcpk_bytes bytes = {.data = NULL};
    const char *text;

    dcpk_bytes_text(&bytes, "is ");
    put_shape(&bytes, found->shape, found->rank);
    dcpk_bytes_text(&bytes, ", ");
    put_shape(&bytes, request->shape, request->rank);
    dcpk_bytes_text(&bytes, " is asked for");
    text = dcpk_bytes_to_arena(&bytes, c->check->arena, err);
    if (text == NULL)
        return err->status;
    return add_finding(c, DCPK_LACK_SHAPE, request, text, err);
}

static bool same_shape(const struct dcpk_request *request, const struct dcpk_found_tensor *found)
{
    if (request->rank < 0)
        return true;
    if (request->rank != found->rank)
        return false;
    for (int a = request->may_differ; a < request->rank; a++)
        if (request->shape[a] != found->shape[a])
            return false;
    return true;
}

/* True if the tensor exists under either of its names. */
static bool find_tensor(const struct dcpk_holding *h, const struct dcpk_request *request,
                        struct dcpk_found_tensor *found)
{
    return dcpk_holding_tensor(h, request->key, request->key_bytes, found) ||
           (request->other != NULL &&
            dcpk_holding_tensor(h, request->other, request->other_bytes, found));
}

static dcpk_status take_request(void *context, const struct dcpk_request *request,
                                struct dcpk_error *err)
{
    struct checking *c = context;
    struct dcpk_found_tensor found;

    if ((request->loaders & c->check->loader) != 0)
        c->check->n_asked[request->purpose]++;
    if (!request->is_tensor) {
        if (dcpk_holding_object(c->holding, request->key, request->key_bytes, request->field))
            return DCPK_OK;
        return add_finding(c, DCPK_LACK_MISSING, request, "is missing", err);
    }
    if (!find_tensor(c->holding, request, &found))
        return add_finding(c, DCPK_LACK_MISSING, request, "is missing", err);
    c->is_claimed[found.index] = true;
    if (!same_shape(request, &found))
        return add_shape(c, request, &found, err);
    return DCPK_OK;
}

static dcpk_status take_fault(void *context, const struct dcpk_request *about, const char *text,
                              struct dcpk_error *err)
{
    struct checking *c = context;

    if ((about->loaders & c->check->loader) != 0)
        c->check->n_asked[about->purpose]++;
    return add_finding(c, DCPK_LACK_FAULT, about, text, err);
}

static dcpk_status load_held_value(void *context, const char *key, const struct dcpk_value **found,
                                   struct dcpk_error *err)
{
    struct checking *c = context;

    return dcpk_holding_value(c->holding, key, c->check->arena, found, err);
}

/* --- which loader --- */

/* Facts about the run that saved. */
struct saved {
    const struct dcpk_value *attrs, *common;
    struct dcpk_grid layout;
};

static dcpk_status read_saved(struct checking *c, struct saved *saved, struct dcpk_error *err)
{
    struct dcpk_arena *arena = c->check->arena;
    const struct dcpk_value *args = NULL;

    if (dcpk_holding_common(c->holding, arena, &saved->common, err))
        return err->status;
    if (saved->common != NULL)
        args = dcpk_value_get(saved->common, "args");
    else if (dcpk_holding_value(c->holding, "args", arena, &args, err))
        return err->status;
    /* A planned output has what the caller set in its own. */
    if (c->holding->out == NULL && dcpk_args_merge_given(c->holding->ckpt, arena, &args, err))
        return err->status;
    saved->attrs = dcpk_value_attrs(args);
    if (saved->attrs == NULL)
        return dcpk_fail(err, DCPK_EUNSUPPORTED,
                         "there are no args, which decide what a loader asks for");
    dcpk_layout_read(saved->attrs, &saved->layout);
    return DCPK_OK;
}

/* True if the name of an item has this end. Some facts show in names alone. */
static bool holds_field(struct dcpk_holding *h, const char *end)
{
    for (size_t i = 0; h->out == NULL && i < h->ckpt->n_objects; i++)
        if (dcpk_ends_with(h->ckpt->objects[i].key, end))
            return true;
    for (size_t i = 0; h->out != NULL && i < h->out->n_objects; i++)
        if (h->out->objects[i].field != NULL && dcpk_ends_with(h->out->objects[i].field, end))
            return true;
    return false;
}

/* RNG states in three numbers are younger than what options of args can show. */
static bool has_new_rng(const struct dcpk_holding *h)
{
    static const char key[] = "rng_state/shard_";

    for (size_t i = 0; h->out == NULL && i < h->ckpt->n_objects; i++)
        if (dcpk_starts_with(h->ckpt->objects[i].key, key)) {
            const char *first = h->ckpt->objects[i].key + strlen(key), *end = strchr(first, '_');
            const char *dot = strchr(first, '.');

            return dot != NULL && end != NULL && strchr(dot + 1, '.') < end;
        }
    return false;
}

/*
 * A conversion keeps args of the release that trained. The output may have the form of another
 * release: *release is then the nearest that reads it.
 */
static bool fit_format(const struct dcpk_holding *h, enum dcpk_release *release)
{
    const char *since = h->out == NULL ? h->ckpt->releases.from : NULL;
    enum dcpk_release first, last;

    if (h->format->last_release != NULL && dcpk_release_find(h->format->last_release, &last) &&
        *release > last) {
        *release = last;
        return true;
    }
    if (since != NULL && dcpk_release_find(since, &first) && *release < first) {
        *release = first;
        return true;
    }
    return false;
}

static dcpk_status choose_release(struct checking *c, const struct dcpk_check_options *options,
                                  const struct saved *saved, struct dcpk_error *err)
{
    struct dcpk_verdict *check = c->check;

    if (options->release != NULL) {
        check->release_by = "given";
        if (dcpk_release_find(options->release, &check->release))
            return DCPK_OK;
        return dcpk_fail(
            err, DCPK_EUSAGE,
            "no release is called '%s' (core-0.15 to core-0.19, main-2026-08-22, main)",
            options->release);
    }
    check->release_by = "args";
    if (!dcpk_release_of_args(saved->attrs, &check->release)) {
        check->release = DCPK_MAIN;
        check->release_by = NULL; /* chosen when the outcome is known */
    } else if (check->release == DCPK_MAIN_2026_08_22 && has_new_rng(c->holding)) {
        check->release = DCPK_MAIN;
    } else if (fit_format(c->holding, &check->release)) {
        check->release_by = "format";
    }
    return DCPK_OK;
}

static dcpk_status choose_impl(struct checking *c, const struct dcpk_check_options *options,
                               const struct saved *saved, enum dcpk_loader_impl *impl,
                               struct dcpk_error *err)
{
    struct dcpk_verdict *check = c->check;
    const char *named = dcpk_value_as_str(dcpk_value_get(saved->attrs, "transformer_impl"));
    const char *name = options->impl;

    check->impl_by = "given";
    if (name == NULL) {
        check->impl_by = "assumed";
        name = "te";
        if (named != NULL)
            check->impl_by = "args";
        if (named != NULL && strcmp(named, "local") == 0)
            name = "local";
    }
    if (strcmp(name, "te") != 0 && strcmp(name, "local") != 0)
        return dcpk_fail(err, DCPK_EUSAGE, "no implementation is called '%s' (te, local)", name);
    if (*name == 't') {
        *impl = DCPK_LOADER_TE;
        check->impl = "te";
    } else {
        *impl = DCPK_LOADER_LOCAL;
        check->impl = "local";
    }
    return DCPK_OK;
}

static dcpk_status choose_adam(struct checking *c, const struct dcpk_check_options *options,
                               enum dcpk_loader_adam *adam, struct dcpk_error *err)
{
    struct dcpk_verdict *check = c->check;
    const char *name = options->adam;

    check->adam_by = "given";
    if (name == NULL) {
        check->adam_by = "assumed";
        name = "te";
        if (holds_field(c->holding, "amsgrad") && !holds_field(c->holding, "bias_correction")) {
            check->adam_by = "groups";
            name = "torch";
        }
    }
    if (strcmp(name, "te") != 0 && strcmp(name, "torch") != 0)
        return dcpk_fail(err, DCPK_EUSAGE, "no Adam is called '%s' (te, torch)", name);
    if (strcmp(name, "te") == 0) {
        *adam = DCPK_LOADER_TE_ADAM;
        check->adam = "te";
    } else {
        *adam = DCPK_LOADER_TORCH_ADAM;
        check->adam = "torch";
    }
    return DCPK_OK;
}

/*
 * A mesh without its data-parallel size gets that of the run that saved, if the rest is the same.
 */
static dcpk_status choose_mesh(struct checking *c, const struct dcpk_check_options *options,
                               const struct saved *saved, struct dcpk_error *err)
{
    struct dcpk_grid *mesh = &c->check->mesh;

    *mesh = options->mesh.tp > 0 ? options->mesh : saved->layout;
    if (mesh->dp == 0 && mesh->tp == saved->layout.tp && mesh->pp == saved->layout.pp)
        mesh->dp = saved->layout.dp;
    for (size_t i = 0; i < DCPK_LAYOUT_N_SIZES; i++)
        if (dcpk_layout_get(mesh, &dcpk_layout_sizes[i]) > MAX_RANKS)
            return dcpk_fail(err, DCPK_EFORMAT, "args.%s is more than %d",
                             dcpk_layout_sizes[i].name, MAX_RANKS);
    return DCPK_OK;
}

static dcpk_status choose_loader(struct checking *c, const struct dcpk_check_options *options,
                                 const struct saved *saved, struct dcpk_error *err)
{
    enum dcpk_loader_impl impl = DCPK_LOADER_TE;
    enum dcpk_loader_adam adam = DCPK_LOADER_TE_ADAM;
    struct dcpk_verdict *check = c->check;

    if (choose_release(c, options, saved, err) || choose_impl(c, options, saved, &impl, err) ||
        choose_adam(c, options, &adam, err) || choose_mesh(c, options, saved, err))
        return err->status;
    check->variants = dcpk_loaders_with_impl(impl);
    if (!options->is_planned)
        check->variants &= dcpk_loaders_with_adam(adam);
    check->loader = dcpk_loaders_of(check->release, check->release) & check->variants;
    return DCPK_OK;
}

/* Assumes a release if args show none: the newest of those with the best answer. */
static void choose_best(struct dcpk_verdict *check)
{
    enum dcpk_loads best = DCPK_LOADS_NOT;

    check->release_by = "assumed";
    for (unsigned r = 0; r < DCPK_N_RELEASES; r++) {
        const enum dcpk_release release = (enum dcpk_release)r;
        const enum dcpk_loads loads =
            dcpk_verdict_loads(check, dcpk_loaders_of(release, release) & check->variants);

        if (loads > best)
            continue;
        best = loads;
        check->release = release;
    }
    check->loader = dcpk_loaders_of(check->release, check->release) & check->variants;
}

/* --- what no loader asks for --- */

/* A weight by its name; optimizer states and what no release has as a parameter are left out. */
static bool is_weight(const char *name)
{
    static const char *const others[] = {"optimizer.", "chained_", "rng_state"};
    static const char *const ends[] = {".local_tokens_per_expert", ".inv_freq", "._extra_state"};

    for (size_t i = 0; i < DCPK_COUNT(others); i++)
        if (dcpk_starts_with(name, others[i]))
            return false;
    for (size_t i = 0; i < DCPK_COUNT(ends); i++)
        if (dcpk_ends_with(name, ends[i]))
            return false;
    return true;
}

/* The place where a tensor's bytes begin. A value, and the key of a map, which copies nothing. */
struct start {
    uint64_t file, offset_bytes;
};

/* False when it has none, or is planned. */
static bool find_start(const struct checking *c, size_t tensor, struct start *start)
{
    const struct dcpk_checkpoint *ckpt = c->holding->ckpt;
    const struct dcpk_place *place;

    if (c->holding->out != NULL || ckpt->tensors[tensor].n_chunks == 0)
        return false;
    place = &ckpt->chunks[ckpt->tensors[tensor].first_chunk].place;
    *start = (struct start){place->file, place->offset_bytes};
    return true;
}

/* The places of what is asked for: other names of the same bytes are asked for as well. */
static dcpk_status map_starts(struct checking *c, struct start *list, struct dcpk_map *starts,
                              struct dcpk_error *err)
{
    bool existed;
    uint64_t found;

    for (size_t t = 0; t < c->holding->n_tensors; t++)
        if (c->is_claimed[t] && find_start(c, t, &list[t]) &&
            dcpk_map_put(starts, (const char *)&list[t], sizeof *list, t, &existed, &found, err))
            return err->status;
    return DCPK_OK;
}

static bool is_unclaimed(const struct checking *c, const struct dcpk_map *starts, size_t tensor)
{
    const char *name = dcpk_holding_name(c->holding, tensor);
    struct start start;
    uint64_t found;

    return !c->is_claimed[tensor] && name != NULL && is_weight(name) &&
           (!find_start(c, tensor, &start) ||
            !dcpk_map_get(starts, (const char *)&start, sizeof start, &found));
}

/* Weights that no loader of these args asks for are of a model that args do not describe. */
static dcpk_status find_unclaimed(struct checking *c, struct dcpk_error *err)
{
    struct start *list = dcpk_alloc_array(c->holding->n_tensors + 1, sizeof *list, err);
    struct dcpk_map starts = {0};
    const char *first = NULL;
    uint64_t n = 0;
    dcpk_status st;

    if (list == NULL)
        return err->status;
    st = map_starts(c, list, &starts, err);
    for (size_t t = 0; t < c->holding->n_tensors && st == DCPK_OK; t++)
        if (is_unclaimed(c, &starts, t) && n++ == 0)
            first = dcpk_holding_name(c->holding, t);
    dcpk_map_release(&starts);
    dcpk_free(list);
    if (st != DCPK_OK || n == 0)
        return st;
    c->check->unknown = dcpk_arena_printf(
        c->check->arena, err,
        "%" PRIu64 " stored weights are of no module that args name, the first: '%s'", n, first);
    if (c->check->unknown == NULL)
        return err->status;
    return DCPK_OK;
}

static dcpk_status ask_loaders(struct checking *c, const struct dcpk_check_options *options,
                               const struct saved *saved, struct dcpk_error *err)
{
    struct dcpk_verdict *check = c->check;
    struct dcpk_expected expected;
    const struct dcpk_loading loading = {.model = &expected,
                                         .attrs = saved->attrs,
                                         .common = saved->common,
                                         .saved = saved->layout,
                                         .mesh = check->mesh,
                                         .loaders = check->asked,
                                         .flags = options->flags,
                                         .ckpt = c->holding->ckpt,
                                         .out = c->holding->out,
                                         .arena = check->arena,
                                         .context = c,
                                         .take = take_request,
                                         .fault = take_fault,
                                         .value = load_held_value};

    if (dcpk_rules_expect(saved->attrs, &check->mesh, check->arena, &expected, err) ||
        dcpk_rules_forbidden(saved->attrs, check->arena, &check->warnings, err))
        return err->status;
    check->assumed = expected.assumed;
    if (expected.unknown != NULL) {
        check->unknown = dcpk_arena_printf(
            check->arena, err, "no table has the requests of loaders for %s", expected.unknown);
        if (check->unknown == NULL)
            return err->status;
        return DCPK_OK;
    }
    if (c->holding->format->mapping->request(&loading, err) || find_unclaimed(c, err))
        return err->status;
    return DCPK_OK;
}

/* Counts are those of one loader: another one begins with none. */
static void clear_counts(struct dcpk_verdict *check)
{
    memset(check->lacking, 0, sizeof check->lacking);
    memset(check->n_asked, 0, sizeof check->n_asked);
    memset(check->n_lacking, 0, sizeof check->n_lacking);
    check->n_findings = 0;
    check->findings = NULL;
    check->findings_end = &check->findings;
    check->unknown = NULL;
    check->assumed = check->warnings = NULL;
}

dcpk_status dcpk_check_run(struct dcpk_holding *holding, const struct dcpk_check_options *options,
                           struct dcpk_verdict *check, struct dcpk_error *err)
{
    struct checking c = {.check = check, .holding = holding};
    struct saved saved = {.attrs = NULL};
    dcpk_status st = DCPK_OK;

    check->findings_end = &check->findings;
    check->asked = DCPK_ALL_LOADERS;
    if (holding->format->mapping == NULL && dcpk_foreign_check_keys(holding->ckpt, err) != DCPK_OK)
        return err->status;
    if (!dcpk_format_has_loaders(holding->format))
        return dcpk_fail(err, DCPK_EUNSUPPORTED,
                         "this is %s: the requests of its loaders are not known",
                         holding->format->name);
    check->arena = dcpk_arena_new();
    c.is_claimed = dcpk_alloc_array(holding->n_tensors + 1, sizeof *c.is_claimed, err);
    if (c.is_claimed == NULL || read_saved(&c, &saved, err) ||
        choose_loader(&c, options, &saved, err) || ask_loaders(&c, options, &saved, err)) {
        st = err->status;
        goto out;
    }
    if (check->release_by == NULL) {
        choose_best(check);
        clear_counts(check);
        st = ask_loaders(&c, options, &saved, err);
    }
out:
    dcpk_free(c.is_claimed);
    return st;
}

dcpk_status dcpk_verdict_of_plan(struct dcpk_holding *holding,
                                 const struct dcpk_check_options *options,
                                 struct dcpk_verdict *verdict, struct dcpk_error *err)
{
    struct dcpk_error why = DCPK_ERROR_INIT;
    dcpk_status st;

    if (!dcpk_format_has_loaders(holding->format))
        return DCPK_OK;
    st = dcpk_check_run(holding, options, verdict, &why);
    if (st == DCPK_ENOMEM || st == DCPK_EIO || st == DCPK_ECANCELLED || verdict->arena == NULL) {
        *err = why;
        return st;
    }
    if (st != DCPK_OK) {
        verdict->unknown = dcpk_arena_strdup(verdict->arena, why.text, err);
        if (verdict->unknown == NULL)
            return err->status;
    }
    return DCPK_OK;
}

bool dcpk_verdict_is_no(const struct dcpk_verdict *verdict)
{
    if (verdict->arena == NULL || verdict->unknown != NULL)
        return false;
    for (unsigned r = 0; r < DCPK_N_RELEASES; r++) {
        const enum dcpk_release release = (enum dcpk_release)r;

        if (dcpk_verdict_loads(verdict, dcpk_loaders_of(release, release) & verdict->variants) !=
            DCPK_LOADS_NOT)
            return false;
    }
    return true;
}

void dcpk_verdict_release(struct dcpk_verdict *check)
{
    dcpk_arena_free(check->arena);
    memset(check, 0, sizeof *check);
}
