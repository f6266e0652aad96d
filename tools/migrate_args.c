/* SPDX-License-Identifier: Apache-2.0 */
/* migrate_args.c - args of a checkpoint as the flags that make them. */
#include "tools/migrate_args.h"

#include <string.h>

#include "lib/base/text.h"
#include "lib/knobs/migrate.h"
#include "lib/model/arg_table.h"

/* Args that other ones make, and folders as they were called when the checkpoint was saved. */
#define DERIVED "use_custom_fsdp start_weight_decay end_weight_decay use_dist_ckpt load save"
/* Flags in addition to knobs and to what decides the model. */
#define MORE                                                                                       \
    "data_path train_data_path valid_data_path test_data_path train_samples lr_decay_samples "     \
    "lr_warmup_samples use_tp_pp_dp_mapping"

static bool has_word(const char *words, const char *name)
{
    return dcpk_option_has_word(words, name, strlen(name));
}

struct writing {
    const struct dcpk_value *attrs;
    struct dcpk_arena *arena;
    struct dcpk_bytes *out;
};

static bool is_list(const struct dcpk_value *v)
{
    return v->kind == DCPK_V_LIST || v->kind == DCPK_V_TUPLE;
}

/* Appends a flag with its values. Returns false if no flag has them. */
static bool put_values(const struct writing *w, const char *name, const struct dcpk_value *v,
                       struct dcpk_error *err)
{
    const size_t n_before = w->out->n_bytes;

    dcpk_bytes_text(w->out, "--");
    for (const char *c = name; *c != '\0'; c++)
        dcpk_bytes_u8(w->out, *c == '_' ? '-' : (uint8_t)*c);
    for (size_t i = 0; v->kind != DCPK_V_BOOL && i < (is_list(v) ? v->n : 1); i++) {
        const char *text = dcpk_knob_text(w->arena, is_list(v) ? v->as.items[i] : v, err);

        if (text == NULL) {
            w->out->n_bytes = n_before;
            return false;
        }
        dcpk_bytes_u8(w->out, ' ');
        dcpk_bytes_shell_word(w->out, text, false);
    }
    return true;
}

/* Appends what makes an attribute without a knob, where it is off its default. */
static bool put_other(const struct writing *w, const char *name, const struct dcpk_value *v,
                      struct dcpk_error *err)
{
    static const struct dcpk_value nothing = DCPK_CONST_WHOLE(0);
    const struct dcpk_arg *arg = dcpk_arg_find(name);

    if (arg == NULL)
        return has_word(MORE, name) &&
               (dcpk_value_same(v, &nothing) || put_values(w, name, v, err));
    if (dcpk_arg_is_off(arg, w->attrs) || ((arg->flags & (DCPK_ARG_SHOWN | DCPK_ARG_TRAINS)) != 0 &&
                                           !dcpk_value_same(v, &arg->by_default)))
        return put_values(w, name, v, err);
    return true;
}

/* Appends what makes one attribute. Returns false where nothing does. */
static bool put_attribute(const struct writing *w, const char *name, const struct dcpk_value *v,
                          struct dcpk_error *err)
{
    struct dcpk_knob_walk walk;
    const struct dcpk_option *row = dcpk_knob_find(name, &walk);
    const char *text;

    if (row == NULL)
        return put_other(w, name, v, err);
    if (is_list(v) && row->effect == DCPK_KNOB_NO_EFFECT)
        return put_values(w, name, v, err);
    if (v->kind == DCPK_V_BOOL && dcpk_option_is_named(row, name, strlen(name)) != DCPK_OPTION_SAME)
        v = dcpk_value_bool(!v->as.b); /* "no_x", "disable_x" */
    text = dcpk_knob_text(w->arena, v, err);
    if (text == NULL || text[strcspn(text, " \t\n'\"$;")] != '\0')
        return false;
    dcpk_flag_put(row, text, w->out);
    return true;
}

/* None, an empty list; False where no knob may be on by default. */
static bool is_unset(const char *name, const struct dcpk_value *v)
{
    struct dcpk_knob_walk walk;

    if (v->kind == DCPK_V_BOOL)
        return !v->as.b && dcpk_knob_find(name, &walk) == NULL;
    return dcpk_value_is_none(v) || ((is_list(v) || v->kind == DCPK_V_DICT) && v->n == 0);
}

dcpk_status dcpk_args_to_flags(const struct dcpk_value *attrs, const char *folder,
                               struct dcpk_arena *arena, struct dcpk_bytes *out,
                               struct dcpk_bytes *left, struct dcpk_error *err)
{
    const struct writing w = {attrs, arena, out};

    for (size_t i = 0; err->status == DCPK_OK && i < attrs->n; i++) {
        const char *name = dcpk_value_as_str(attrs->as.pairs[i].key);
        const struct dcpk_value *v = attrs->as.pairs[i].value;
        const size_t n_before = out->n_bytes;

        if (name == NULL || *name == '_' || has_word(DERIVED, name) || is_unset(name, v))
            continue;
        if (!put_attribute(&w, name, v, err))
            dcpk_bytes_put(left, name, strlen(name) + 1);
        if (out->n_bytes > n_before)
            dcpk_bytes_u8(out, '\n');
    }
    dcpk_bytes_text(out, "--load ");
    dcpk_bytes_shell_word(out, folder, false);
    if (!dcpk_value_is_none(dcpk_value_get(attrs, "save"))) {
        dcpk_bytes_text(out, "\n--save ");
        dcpk_bytes_shell_word(out, folder, false);
    }
    dcpk_bytes_u8(out, '\n');
    if (err->status == DCPK_OK && dcpk_bytes_status(left, err) == DCPK_OK)
        (void)dcpk_bytes_status(out, err);
    return err->status;
}
