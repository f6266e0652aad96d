/* SPDX-License-Identifier: Apache-2.0 */
/* settings_compare.c - pairs the settings of two runs by the names of their knobs, with defaults
 * where one of them has none. */
#include "lib/job/settings_compare.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/map.h"
#include "lib/base/order.h"
#include "lib/base/text.h"
#include "lib/knobs/knobs.h"
#include "lib/knobs/migrate.h"
#include "lib/model/arg_table.h"

#define MAX_PAIRS 20000
/* Settings of Megatron-FSDP in addition to its knobs and to names with "fsdp". */
#define OF_FSDP                                                                                    \
    "ckpt_format num_distributed_optimizer_instances outer_dp_sharding_strategy "                  \
    "use_tp_pp_dp_mapping CUDA_DEVICE_MAX_CONNECTIONS"
/* Args that record how far a run was and which process saved, and one that follows from another. */
#define OF_PROGRESS                                                                                \
    "iteration curr_iteration consumed_train_samples consumed_valid_samples "                      \
    "skipped_train_samples rank local_rank timestamp use_dist_ckpt"

struct pair {
    struct dcpk_named_pair named; /* name: "args.lr" */
    const char *name;             /* without "args." and a section */
    size_t number;                /* of Megatron-FSDP's knobs; SIZE_MAX: of no other */
    bool is_of_fsdp;
    const struct dcpk_value *by_default; /* NULL: not known */
};

struct pairing {
    struct dcpk_arena *arena;
    enum dcpk_settings_form form[2];
    bool has_sections; /* both do: they are part of the names */
    struct dcpk_map by_name;
    struct pair *pairs;
    size_t n;
};

/* ---- values ---- */

/* The number that a text is. NULL: it is none, or err. */
static const struct dcpk_value *value_of_number(struct dcpk_arena *arena, const char *text,
                                                struct dcpk_error *err)
{
    char *end;
    double number;
    long long whole;

    if (text[strspn(text, "+-.0123456789eE")] != '\0')
        return NULL;
    errno = 0;
    whole = strtoll(text, &end, 10);
    if (end != text && *end == '\0' && errno == 0)
        return dcpk_value_int(arena, whole, err);
    number = strtod(text, &end);
    if (end == text || *end != '\0' || !isfinite(number))
        return NULL;
    return dcpk_value_float(arena, number, err);
}

/* The value that a text of a knob means. row: NULL: no knob has the name. */
static const struct dcpk_value *value_of_text(const struct pairing *p,
                                              const struct dcpk_option *row, const char *text,
                                              struct dcpk_error *err)
{
    const bool is_number =
        row != NULL && (row->kind == DCPK_OPTION_LENGTH || row->kind == DCPK_OPTION_NUMBER);
    const struct dcpk_value *number = NULL;

    if (strcmp(text, "true") == 0 || strcmp(text, "True") == 0)
        return dcpk_value_bool(true);
    if (strcmp(text, "false") == 0 || strcmp(text, "False") == 0)
        return dcpk_value_bool(false);
    if (strcmp(text, "None") == 0 || strcmp(text, "null") == 0)
        return dcpk_value_none();
    if (is_number || p->form[0] != p->form[1])
        number = value_of_number(p->arena, text, err);
    if (number != NULL || err->status != DCPK_OK)
        return number;
    return dcpk_value_str(p->arena, text, err);
}

/* The values of a list as the words of a flag. NULL: no flag has them, or err. */
static const char *words_of(struct dcpk_arena *arena, const struct dcpk_value *list,
                            struct dcpk_error *err)
{
    struct dcpk_bytes words = {0};
    const char *word = "";

    for (size_t i = 0; word != NULL && i < list->n; i++) {
        word = NULL;
        if (list->as.items[i]->kind != DCPK_V_LIST && list->as.items[i]->kind != DCPK_V_DICT)
            word = dcpk_knob_text(arena, list->as.items[i], err);
        dcpk_bytes_printf(&words, "%s%s", dcpk_joint(i > 0, " "), dcpk_text_or(word, ""));
    }
    if (word != NULL && list->n > 0)
        return dcpk_bytes_to_arena(&words, arena, err);
    dcpk_bytes_release(&words);
    return NULL;
}

/* A value as flags could give it; others stay. */
static const struct dcpk_value *value_plain(const struct pairing *p, const struct dcpk_option *row,
                                            const struct dcpk_value *v, struct dcpk_error *err)
{
    const bool is_list = dcpk_value_is_list(v) && p->form[0] != p->form[1];
    const char *text = dcpk_value_as_str(v);

    if (is_list && (row == NULL || row->effect == DCPK_KNOB_NO_EFFECT))
        text = words_of(p->arena, v, err);
    else if (is_list || v->kind == DCPK_V_GLOBAL || v->kind == DCPK_V_DICT) /* a dtype */
        text = dcpk_knob_text(p->arena, v, err);
    if (err->status != DCPK_OK || text == NULL)
        return v;
    return value_of_text(p, row, text, err);
}

static const struct dcpk_value *default_of(const struct pairing *p, const struct dcpk_option *row,
                                           const char *name, struct dcpk_error *err)
{
    const struct dcpk_arg *arg = dcpk_arg_find(name);
    const char *text = NULL;

    if (arg != NULL && !dcpk_value_is_none(&arg->by_default))
        return &arg->by_default;
    if (row != NULL)
        text = dcpk_flag_default(row);
    if (text == NULL)
        return NULL;
    return value_of_text(p, row, text, err);
}

/* ---- pairs ---- */

/* The pair of a name; made where there is none. NULL: err. */
static struct pair *pair_of(struct pairing *p, const char *name, struct dcpk_error *err)
{
    uint64_t found = p->n;
    bool existed;

    if (dcpk_map_put(&p->by_name, name, strlen(name), p->n, &existed, &found, err) != DCPK_OK)
        return NULL;
    if (!existed)
        p->pairs[p->n++].named.name = name;
    return &p->pairs[found];
}

/* Finds the other side's setting of the same name; by section and name if both sides have sections,
 * or if another section of this side gave that name another value. */
static struct pair *pair_choose(struct pairing *p, int s, const char *section, const char *name,
                                const struct dcpk_value *v, struct dcpk_error *err)
{
    const char *plain = dcpk_arena_printf(p->arena, err, "args.%s", name), *full;
    struct pair *pair = NULL;

    if (plain == NULL)
        return NULL;
    if (section == NULL || !p->has_sections)
        pair = pair_of(p, plain, err);
    if (section == NULL || err->status != DCPK_OK ||
        (pair != NULL && (pair->named.of[s] == NULL || dcpk_value_same(pair->named.of[s], v))))
        return pair;
    full = dcpk_arena_printf(p->arena, err, "args.%s.%s", section, name);
    if (full == NULL)
        return NULL;
    return pair_of(p, full, err);
}

static dcpk_status pairing_take(struct pairing *p, int s, const char *section, const char *name,
                                const struct dcpk_value *v, struct dcpk_error *err)
{
    const char *full = name, *bare = name;
    struct dcpk_knob_walk walk;
    const struct dcpk_option *row;
    struct pair *pair;
    bool truth, is_switch;

    if (section != NULL)
        full = dcpk_arena_printf(p->arena, err, "%s.%s", section, name);
    if (full == NULL)
        return err->status;
    row = dcpk_knob_find(full, &walk);
    v = value_plain(p, row, v, err);
    if (section == NULL && strchr(name, '.') != NULL) /* "ddp.bucket_size", outside sections */
        bare = strchr(name, '.') + 1;
    if (row != NULL && dcpk_value_as_bool(v, &truth) &&
        dcpk_option_is_named(row, bare, strlen(bare)) != DCPK_OPTION_SAME)
        v = dcpk_value_bool(!truth); /* "no_x", "disable_x" */
    if (row != NULL)
        name = dcpk_arena_strdup(p->arena, row->name, err);
    if (err->status != DCPK_OK)
        return err->status;
    is_switch = row != NULL && strcmp(row->name, "use_megatron_fsdp") == 0 && full != bare;
    if (is_switch) /* the switch of either section is that of the run, and the flag */
        section = NULL;
    pair = pair_choose(p, s, section, name, v, err);
    if (pair == NULL)
        return err->status;
    if (!is_switch || !dcpk_value_as_bool(pair->named.of[s], &truth) || !truth)
        pair->named.of[s] = v;
    pair->name = name;
    pair->number = row != NULL && dcpk_knob_is_of_fsdp(&walk) ? walk.number : SIZE_MAX;
    pair->is_of_fsdp = pair->number != SIZE_MAX || strstr(name, "fsdp") != NULL ||
                       dcpk_option_has_word(OF_FSDP, name, strlen(name));
    pair->by_default = default_of(p, row, name, err);
    return err->status;
}

static bool is_members(const struct dcpk_run_settings *side, const struct dcpk_value *v)
{
    return side->form == DCPK_FORM_CONFIG && v->kind == DCPK_V_DICT;
}

static dcpk_status pairing_take_dict(struct pairing *p, int s, const char *section,
                                     const struct dcpk_run_settings *side, struct dcpk_error *err)
{
    for (size_t i = 0; i < side->all->n; i++) {
        const char *name = dcpk_value_as_str(side->all->as.pairs[i].key);
        const struct dcpk_run_settings members = {side->form, side->all->as.pairs[i].value};

        if (name == NULL)
            continue;
        if (section == NULL && is_members(side, members.all)) {
            if (pairing_take_dict(p, s, name, &members, err) != DCPK_OK)
                return err->status;
        } else if (pairing_take(p, s, section, name, members.all, err) != DCPK_OK) {
            return err->status;
        }
    }
    return DCPK_OK;
}

/* Values of a side, at least; has_sections: it has some. */
static size_t count_values(const struct dcpk_run_settings *side, bool *has_sections)
{
    size_t n = side->all->n;

    *has_sections = false;
    for (size_t i = 0; i < side->all->n; i++)
        if (is_members(side, side->all->as.pairs[i].value)) {
            n += side->all->as.pairs[i].value->n;
            *has_sections = true;
        }
    return n;
}

static dcpk_status pairing_make(struct pairing *p, const struct dcpk_run_settings side[2],
                                struct dcpk_error *err)
{
    bool has_sections[2];
    size_t n = 0;

    for (int s = 0; s < 2; s++) {
        p->form[s] = side[s].form;
        n += count_values(&side[s], &has_sections[s]);
    }
    p->has_sections = has_sections[0] && has_sections[1];
    if (n > MAX_PAIRS)
        return dcpk_fail(err, DCPK_ERANGE, "they have %zu settings, more than %d", n, MAX_PAIRS);
    p->arena = dcpk_arena_new();
    p->pairs = dcpk_arena_array(p->arena, n + 1, sizeof *p->pairs, err);
    if (p->pairs == NULL || pairing_take_dict(p, 0, NULL, &side[0], err) != DCPK_OK)
        return err->status;
    return pairing_take_dict(p, 1, NULL, &side[1], err);
}

/* ---- differences that count ---- */

/* True if side s, which alone has the setting, lists everything that its program knows. */
static bool is_of_listing(const struct pairing *p, const struct pair *pair, int s)
{
    if (p->form[0] == p->form[1])
        return p->form[s] == DCPK_FORM_CHECKPOINT && !pair->is_of_fsdp;
    return p->form[s] != DCPK_FORM_FLAGS ||
           dcpk_option_has_word(DCPK_LAUNCHER_FLAGS, pair->name, strlen(pair->name));
}

/* Decides on a pair: a side without the setting, or with None, has the default. */
static void pair_weigh(const struct pairing *p, struct pair *pair)
{
    const struct dcpk_value **of = pair->named.of, *meant[2];

    pair->named.is_tolerated = dcpk_option_has_word(OF_PROGRESS, pair->name, strlen(pair->name));
    for (int s = 0; s < 2; s++) {
        meant[s] = of[s];
        if (dcpk_value_is_none(of[s]))
            meant[s] = pair->by_default;
    }
    pair->named.is_equal = dcpk_value_same(meant[0], meant[1]);
    for (int s = 0; s < 2; s++)
        if (of[s] == NULL && pair->named.is_equal)
            of[s] = of[!s]; /* it counts as compared */
        else if (of[s] == NULL && pair->by_default == NULL && is_of_listing(p, pair, !s))
            pair->named.is_tolerated = true;
}

/* Megatron-FSDP's before the others, in the order of the knobs. */
static int order_pairs(const void *a, const void *b)
{
    const struct pair *u = a, *v = b;

    const int order = 2 * DCPK_ORDER_BY(v, u, is_of_fsdp) + DCPK_ORDER_BY(u, v, number);

    return order != 0 ? order : strcmp(u->named.name, v->named.name);
}

dcpk_status dcpk_compare_settings(const struct dcpk_run_settings side[2],
                                  const struct dcpk_compare_options *options,
                                  struct dcpk_compare_report *report, struct dcpk_error *err)
{
    struct pairing p = {.n = 0};
    struct dcpk_named_pair *named = NULL;

    if (pairing_make(&p, side, err) == DCPK_OK)
        named = dcpk_arena_array(p.arena, p.n + 1, sizeof *named, err);
    if (named != NULL) {
        qsort(p.pairs, p.n, sizeof *p.pairs, order_pairs);
        for (size_t i = 0; i < p.n; i++) {
            pair_weigh(&p, &p.pairs[i]);
            named[i] = p.pairs[i].named;
        }
        (void)dcpk_compare_named(named, p.n, options, report, err);
    }
    dcpk_map_release(&p.by_name);
    dcpk_arena_free(p.arena);
    return err->status;
}

/* ---- flags ---- */

dcpk_status dcpk_flags_to_dict(const struct dcpk_settings *list, const struct dcpk_value **all,
                               struct dcpk_error *err)
{
    struct dcpk_dict made = {.arena = list->arena, .err = err};

    for (size_t i = 0; i < list->n; i++) {
        const struct dcpk_setting *s = &list->all[i];
        const bool is_alone =
            s->texts == NULL || dcpk_option_has_word(DCPK_LAUNCHER_FLAGS, s->name, strlen(s->name));

        dcpk_dict_put(&made, s->name,
                      dcpk_value_str(list->arena, is_alone ? s->text : s->texts, err));
    }
    *all = dcpk_dict_end(&made);
    return err->status;
}
