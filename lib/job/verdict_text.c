/* SPDX-License-Identifier: Apache-2.0 */
/* verdict_text.c - which releases load a checkpoint, in a sentence and in JSON. */
#include <string.h>

#include "lib/base/order.h"
#include "lib/base/text.h"
#include "lib/job/verdict.h"

static bool check_lacks(const struct dcpk_verdict *check, enum dcpk_purpose purpose,
                        uint32_t loaders)
{
    return (check->lacking[purpose] & loaders) != 0;
}

enum dcpk_loads dcpk_verdict_loads(const struct dcpk_verdict *check, uint32_t loaders)
{
    static const enum dcpk_purpose always[] = {DCPK_FOR_WEIGHTS, DCPK_FOR_EXTRA, DCPK_FOR_COMMON};
    static const enum dcpk_purpose optimizer[] = {DCPK_FOR_MASTERS, DCPK_FOR_MOMENTS,
                                                  DCPK_FOR_GROUPS, DCPK_FOR_SCHEDULER};
    bool no_optimizer = false;

    if (check->unknown != NULL)
        return DCPK_LOADS_NOT;
    for (size_t i = 0; i < DCPK_COUNT(always); i++)
        if (check_lacks(check, always[i], loaders))
            return DCPK_LOADS_NOT;
    for (size_t i = 0; i < DCPK_COUNT(optimizer); i++)
        no_optimizer |= check_lacks(check, optimizer[i], loaders);
    if (no_optimizer && check_lacks(check, DCPK_FOR_RNG, loaders))
        return DCPK_LOADS_WITHOUT_BOTH;
    if (no_optimizer)
        return DCPK_LOADS_WITHOUT_OPTIMIZER;
    return check_lacks(check, DCPK_FOR_RNG, loaders) ? DCPK_LOADS_WITHOUT_RNG : DCPK_LOADS;
}

/* The releases whose outcome is this: loaders of theirs, and how many. */
static uint32_t find_releases(const struct dcpk_verdict *check, enum dcpk_loads loads, unsigned *n)
{
    uint32_t found = 0;

    *n = 0;
    for (unsigned r = 0; r < DCPK_N_RELEASES; r++) {
        const uint32_t of =
            dcpk_loaders_of((enum dcpk_release)r, (enum dcpk_release)r) & check->variants;

        if (dcpk_verdict_loads(check, of) == loads) {
            found |= of;
            ++*n;
        }
    }
    return found;
}

/* "core 0.16, 0.17, main": the two of main are one word where both are meant, and have their dates
 * where one is. */
static void put_releases(const struct dcpk_verdict *check, uint32_t loaders,
                         struct dcpk_bytes *text)
{
    const uint32_t asked = loaders & check->variants;
    const bool is_any_main =
        (asked & dcpk_loaders_of(DCPK_MAIN, DCPK_MAIN)) != 0 &&
        (asked & dcpk_loaders_of(DCPK_MAIN_2026_08_22, DCPK_MAIN_2026_08_22)) != 0;
    bool has_core = false;
    unsigned n = 0;

    for (unsigned r = 0; r < DCPK_N_RELEASES; r++) {
        const uint32_t of = dcpk_loaders_of((enum dcpk_release)r, (enum dcpk_release)r);
        const char *title = dcpk_release_title((enum dcpk_release)r);
        const bool is_core = strncmp(title, "core ", 5) == 0;

        if ((of & loaders) == 0 || (r == DCPK_MAIN_2026_08_22 && is_any_main))
            continue;
        if (r == DCPK_MAIN && is_any_main)
            title = "main";
        dcpk_bytes_text(text, dcpk_joint(n++ > 0, ", "));
        dcpk_bytes_text(text, is_core && has_core ? title + 5 : title);
        has_core |= is_core;
    }
}

/* True if the lack of such items caused this outcome. */
static bool is_cause(enum dcpk_purpose purpose, enum dcpk_loads loads)
{
    const bool is_always =
        purpose == DCPK_FOR_WEIGHTS || purpose == DCPK_FOR_EXTRA || purpose == DCPK_FOR_COMMON;

    if (loads == DCPK_LOADS_NOT)
        return is_always;
    return (loads == DCPK_LOADS_WITHOUT_RNG) == (purpose == DCPK_FOR_RNG);
}

const struct dcpk_check_finding *dcpk_verdict_reason(const struct dcpk_verdict *check,
                                                     enum dcpk_loads loads, uint32_t loaders)
{
    const struct dcpk_check_finding *f = check->findings;

    while (f != NULL && ((f->loaders & loaders) == 0 || !is_cause(f->purpose, loads)))
        f = f->next;
    return f;
}

/* "core 0.15, 0.16 (why)", again for each reason. */
static void put_reasons(const struct dcpk_verdict *check, enum dcpk_loads loads, uint32_t loaders,
                        struct dcpk_bytes *text)
{
    const char *before = "";

    while (loaders != 0) {
        const struct dcpk_check_finding *reason = dcpk_verdict_reason(check, loads, loaders);
        uint32_t same = 0;

        for (unsigned r = 0; r < DCPK_N_RELEASES; r++) {
            const uint32_t of =
                loaders & dcpk_loaders_of((enum dcpk_release)r, (enum dcpk_release)r);

            if (of != 0 && dcpk_verdict_reason(check, loads, of) == reason)
                same |= of;
        }
        dcpk_bytes_text(text, before);
        put_releases(check, same, text);
        if (reason != NULL)
            dcpk_bytes_printf(text, " (%s %s)", reason->key, reason->text);
        if (same == 0)
            return;
        loaders &= ~same;
        before = ", ";
    }
}

bool dcpk_verdict_way(const struct dcpk_verdict *check, enum dcpk_loads loads, bool why,
                      struct dcpk_bytes *text)
{
    unsigned n;
    const uint32_t loaders = find_releases(check, loads, &n);

    if (n == 0 || check->unknown != NULL)
        return false;
    if (why && loads != DCPK_LOADS)
        put_reasons(check, loads, loaders, text);
    else
        put_releases(check, loaders, text);
    return true;
}

const char *dcpk_loads_text(enum dcpk_loads loads)
{
    static const char *const texts[] = {
        [DCPK_LOADS] = "",
        [DCPK_LOADS_WITHOUT_RNG] = "--no-load-rng",
        [DCPK_LOADS_WITHOUT_OPTIMIZER] = "--no-load-optim",
        [DCPK_LOADS_WITHOUT_BOTH] = "--no-load-optim --no-load-rng",
        [DCPK_LOADS_NOT] = "not",
    };

    return texts[loads];
}

const char *dcpk_verdict_sentence(const struct dcpk_verdict *check, struct dcpk_error *err)
{
    struct dcpk_bytes text = {0};

    if (check->unknown != NULL)
        return dcpk_arena_printf(check->arena, err, "cannot be said: %s", check->unknown);
    if (!dcpk_verdict_way(check, DCPK_LOADS, false, &text))
        dcpk_bytes_text(&text, "no release without flags");
    for (unsigned way = DCPK_LOADS + 1; way <= DCPK_LOADS_NOT; way++) {
        const size_t before = text.n_bytes;

        dcpk_bytes_text(&text, "; ");
        if (way == DCPK_LOADS_NOT)
            dcpk_bytes_text(&text, "not in ");
        else
            dcpk_bytes_printf(&text, "with %s in ", dcpk_loads_text((enum dcpk_loads)way));
        if (!dcpk_verdict_way(check, (enum dcpk_loads)way, way == DCPK_LOADS_NOT, &text))
            text.n_bytes = before;
    }
    return dcpk_bytes_to_arena(&text, check->arena, err);
}

static void put_verdict_notes(struct dcpk_json_out *j, const char *name,
                              const struct dcpk_note *notes)
{
    dcpk_json_put_key(j, name);
    dcpk_json_begin_array(j);
    for (; notes != NULL; notes = notes->next)
        dcpk_json_put_string(j, notes->text);
    dcpk_json_end_array(j);
}

static void put_outcomes(const struct dcpk_verdict *check, struct dcpk_json_out *j)
{
    static const char *const names[] = {
        [DCPK_LOADS] = "yes",
        [DCPK_LOADS_WITHOUT_RNG] = "no_load_rng",
        [DCPK_LOADS_WITHOUT_OPTIMIZER] = "no_load_optim",
        [DCPK_LOADS_WITHOUT_BOTH] = "no_load_optim_no_load_rng",
        [DCPK_LOADS_NOT] = "no",
    };

    dcpk_json_put_key(j, "loads_in");
    dcpk_json_begin_object(j);
    for (unsigned r = 0; r < DCPK_N_RELEASES; r++) {
        const uint32_t of =
            dcpk_loaders_of((enum dcpk_release)r, (enum dcpk_release)r) & check->variants;

        dcpk_json_add_string(j, dcpk_release_name((enum dcpk_release)r),
                             names[dcpk_verdict_loads(check, of)]);
    }
    dcpk_json_end_object(j);
}

static void put_finding(const struct dcpk_check_finding *f, struct dcpk_json_out *j)
{
    static const char *const lacks_names[] = {
        [DCPK_LACK_MISSING] = "missing", [DCPK_LACK_SHAPE] = "shape", [DCPK_LACK_FAULT] = "fault"};

    dcpk_json_begin_object(j);
    dcpk_json_add_string(j, "key", f->key);
    dcpk_json_add_string(j, "kind", lacks_names[f->lack]);
    dcpk_json_add_string(j, "of", dcpk_purpose_name(f->purpose));
    dcpk_json_add_string(j, "text", f->text);
    dcpk_json_end_object(j);
}

void dcpk_verdict_json(const struct dcpk_verdict *check, uint32_t loaders, struct dcpk_json_out *j)
{
    if (check->arena == NULL) { /* no loader to be asked */
        dcpk_json_put_null(j);
        return;
    }
    dcpk_json_begin_object(j);
    put_verdict_notes(j, "assumed", check->assumed);
    dcpk_json_put_key(j, "lacking");
    dcpk_json_begin_array(j);
    for (const struct dcpk_check_finding *f = check->findings; f != NULL; f = f->next)
        if ((f->loaders & loaders) != 0)
            put_finding(f, j);
    dcpk_json_end_array(j);
    put_outcomes(check, j);
    dcpk_json_put_key(j, "unknown");
    if (check->unknown == NULL)
        dcpk_json_put_null(j);
    else
        dcpk_json_put_string(j, check->unknown);
    put_verdict_notes(j, "warnings", check->warnings);
    dcpk_json_end_object(j);
}
