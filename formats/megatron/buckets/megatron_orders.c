/* SPDX-License-Identifier: Apache-2.0 */
/* megatron_orders.c - orders of registration, releases and sizes of buckets, tried until one
 * explains the stored buckets. */
#include "formats/megatron/buckets/megatron_replay.h"

#include <stdlib.h>
#include <string.h>

#include "lib/base/order.h"

#define MAX_BUCKETINGS 3

static int compare_slots(const void *left, const void *right)
{
    const struct dcpk_replay_slot *a = left, *b = right;
    const int order = dcpk_registered_compare(&a->reg, &b->reg);

    if (order != 0)
        return order;
    return DCPK_THREE_WAY(a->param, b->param);
}

dcpk_status dcpk_replay_order(const struct dcpk_model *model, unsigned spec,
                              struct dcpk_replay *replay, struct dcpk_error *err)
{
    for (size_t s = 0; s < replay->n_slots; s++) {
        struct dcpk_replay_slot *slot = &replay->slots[s];
        const char *name = model->params[slot->param].name;

        if (slot->is_output)
            name = "output_layer.weight";
        if (!dcpk_registered_find(name, spec, &slot->reg))
            return dcpk_fail(
                err, DCPK_EUNSUPPORTED,
                "the place of parameter '%s' in the order of registration is not known", name);
    }
    if (replay->n_slots > 0)
        qsort(replay->slots, replay->n_slots, sizeof *replay->slots, compare_slots);
    return DCPK_OK;
}

/*
 * Sizes of buckets that a run may have had: the user's or its args', Megatron's default, none at
 * all. Only coalesced buckets do not show theirs.
 */
static size_t list_bucketings(const struct dcpk_model *model, const struct dcpk_bucket_list *list,
                              const struct dcpk_cut *cut,
                              struct dcpk_bucketing bucketings[MAX_BUCKETINGS])
{
    size_t n = 0;

    if (model->ckpt->given.bucket_elems > 0) {
        bucketings[n++] = (struct dcpk_bucketing){.n_elems = model->ckpt->given.bucket_elems};
        return n;
    }
    bucketings[n++] = cut->bucketing;
    if (list->is_gathered && cut->bucketing.n_buckets != 0)
        bucketings[n++] = (struct dcpk_bucketing){.n_elems = cut->bucketing.n_elems};
    if (list->is_gathered && cut->bucketing.n_elems != 0)
        bucketings[n++] = (struct dcpk_bucketing){.n_elems = 0};
    return n;
}

/* One bucketing on the slots as they are ordered. */
static dcpk_status try_bucketing(const struct dcpk_model *model,
                                 const struct dcpk_bucket_list *list, struct dcpk_replay *replay,
                                 struct dcpk_error *err)
{
    if (dcpk_replay_fill(model, list, replay, err) ||
        (list->is_gathered && dcpk_replay_sample(model, list, replay, err)))
        return err->status;
    return DCPK_OK;
}

/* Tries one order of registration: sorts the slots and places them. The fault of the first size of
 * buckets is reported when none fits. */
static dcpk_status try_order(const struct dcpk_model *model, const struct dcpk_bucket_list *list,
                             unsigned spec, struct dcpk_replay *replay, struct dcpk_error *err)
{
    const struct dcpk_bucketing given = replay->cut.bucketing;
    struct dcpk_bucketing bucketings[MAX_BUCKETINGS];
    const size_t n = list_bucketings(model, list, &replay->cut, bucketings);
    dcpk_status st;

    if (dcpk_replay_order(model, spec, replay, err))
        return err->status;
    st = DCPK_EMISMATCH;
    for (size_t i = 0; i < n && st == DCPK_EMISMATCH; i++) {
        struct dcpk_error tried = DCPK_ERROR_INIT;

        replay->cut.bucketing = bucketings[i];
        st = try_bucketing(model, list, replay, &tried);
        if (i == 0 || st != DCPK_EMISMATCH)
            *err = tried;
    }
    replay->cut.bucketing = given;
    return st;
}

/* True if another value of that bit of enum dcpk_spec gives another order of this model. */
static bool makes_a_difference(const struct dcpk_model *model, const struct dcpk_replay *replay,
                               unsigned bit)
{
    if (bit == DCPK_SPEC_GROUPED)
        return replay->cut.n_experts > 0;
    for (size_t p = 0; p < model->n_params && bit == DCPK_SPEC_CONV_MODULE; p++)
        if (strstr(model->params[p].name, "mixer.conv1d") != NULL)
            return true;
    return bit == DCPK_SPEC_TE;
}

/* The order that args name, then the others; what is wrong with the first is reported when none
 * fits. */
static dcpk_status try_orders(struct dcpk_model *model, const struct dcpk_bucket_list *list,
                              struct dcpk_replay *replay, struct dcpk_error *err)
{
    const unsigned given = replay->cut.spec;
    dcpk_status st = try_order(model, list, given, replay, err);
    unsigned bits = 0;

    for (unsigned bit = DCPK_SPEC_TE; bit <= DCPK_SPEC_CONV_MODULE; bit *= 2)
        if (makes_a_difference(model, replay, bit))
            bits |= bit;
    for (unsigned other = 1; other <= bits && st == DCPK_EMISMATCH; other++) {
        struct dcpk_error ignored = DCPK_ERROR_INIT;
        const unsigned spec = given ^ other;

        if ((other & ~bits) != 0 || try_order(model, list, spec, replay, &ignored) != DCPK_OK)
            continue;
        if ((other & (DCPK_SPEC_TE | DCPK_SPEC_GROUPED)) != 0)
            dcpk_checkpoint_note(model->ckpt,
                                 "the buckets follow the order of registration of %s layers%s, "
                                 "which contradicts args.transformer_impl",
                                 (spec & DCPK_SPEC_TE) != 0 ? "Transformer Engine" : "local",
                                 (spec & DCPK_SPEC_GROUPED) != 0 ? " with grouped experts" : "");
        dcpk_error_clear(err);
        return DCPK_OK;
    }
    if (st != DCPK_EMISMATCH)
        return st;
    dcpk_context(err, "no known order of registration fits the buckets%s",
                 list->is_gathered ? " (where they end is not recorded)" : "");
    if (list->is_gathered)
        err->fixes |= DCPK_FIX_BUCKET_SIZE;
    return st;
}

/* The release that args look like, then later and earlier ones. */
static dcpk_status try_releases(struct dcpk_model *model, const struct dcpk_bucket_list *list,
                                struct dcpk_replay *replay, struct dcpk_error *err)
{
    const struct dcpk_replay_rules *given = dcpk_replay_rules_find(model->args);
    const size_t n = DCPK_N_REPLAY_RULES, first = (size_t)(given - dcpk_replay_rules);
    dcpk_status st;

    replay->rules = given;
    st = try_orders(model, list, replay, err);
    for (size_t i = 1; i < n && st == DCPK_EMISMATCH; i++) {
        struct dcpk_error ignored = DCPK_ERROR_INIT;

        replay->rules = &dcpk_replay_rules[(first + n - i) % n];
        if (try_orders(model, list, replay, &ignored) != DCPK_OK)
            continue;
        dcpk_checkpoint_note(model->ckpt, "the buckets are laid out as by %s, args look like %s",
                             replay->rules->releases, given->releases);
        dcpk_error_clear(err);
        return DCPK_OK;
    }
    return st;
}

/* True if every bucket is cut into its data-parallel slices and nowhere else. Then the cuts do not
 * show where parameters begin: chunks of zarr are of one size. */
static bool has_slices_only(const struct dcpk_bucket_list *list, const struct dcpk_cut *cut)
{
    for (size_t i = 0; i < list->n; i++) {
        const struct dcpk_bucket *b = &list->buckets[i];
        const int64_t n_slices = b->is_expert ? cut->n_expert_slices : cut->n_slices;

        if (b->n_cuts != (size_t)n_slices)
            return false;
        for (size_t c = 0; c < b->n_cuts; c++)
            if (b->cuts[c] != b->n_padded_elems / n_slices * (int64_t)c)
                return false;
    }
    return true;
}

dcpk_status dcpk_replay_run(struct dcpk_model *model, const struct dcpk_bucket_list *list,
                            const struct dcpk_replay_rules *rules, struct dcpk_replay *replay,
                            struct dcpk_error *err)
{
    *replay = (struct dcpk_replay){0};
    if (dcpk_cut_read(model->args, model->arena, &replay->cut, err) ||
        dcpk_replay_collect(model, replay, err))
        return err->status;
    replay->n_ranks = dcpk_max_i64(replay->cut.tp, replay->cut.etp);
    replay->places = dcpk_arena_array(model->arena, replay->n_slots * (size_t)replay->n_ranks,
                                      sizeof *replay->places, err);
    if (replay->places == NULL)
        return err->status;
    replay->has_slices_only = has_slices_only(list, &replay->cut);
    replay->rules = rules;
    if (rules != NULL)
        return try_orders(model, list, replay, err);
    return try_releases(model, list, replay, err);
}
