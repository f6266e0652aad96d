/* SPDX-License-Identifier: Apache-2.0 */
/* args_from.c - args from JSON, from Megatron-Bridge's YAML, or from another checkpoint. */
#include "tools/args_from.h"

#include <string.h>
#include <sys/stat.h>

#include "formats/formats.h"
#include "lib/base/alloc.h"
#include "lib/base/json.h"
#include "lib/base/path.h"
#include "lib/knobs/migrate.h"
#include "lib/model/arg_table.h"
#include "lib/model/named_state.h"
#include "tools/run_args.h"

#define MAX_CONFIG_BYTES (UINT64_C(4) << 20)
#define RUN_CONFIG       "run_config.yaml"

/* The members of an object that can be args: no objects, no private names. */
static dcpk_status put_members(const struct dcpk_json *object, struct dcpk_args_from *from,
                               struct dcpk_error *err)
{
    const struct dcpk_value *all = dcpk_value_from_json(from->arena, object, err);
    struct dcpk_dict made = {.arena = from->arena, .err = err};

    if (all == NULL)
        return err->status;
    for (size_t i = 0; i < all->n; i++) {
        const char *field = dcpk_value_as_str(all->as.pairs[i].key), *name;

        if (field[0] == '_' || all->as.pairs[i].value->kind == DCPK_V_DICT)
            continue;
        if (dcpk_arg_of_field(all, field, &name, err) != DCPK_OK)
            return err->status;
        if (name != NULL)
            dcpk_dict_put(&made, name, all->as.pairs[i].value);
    }
    if (err->status != DCPK_OK)
        return err->status;
    if (made.n == 0)
        return dcpk_fail(err, DCPK_EUNSUPPORTED, "it names no args");
    from->args = dcpk_value_namespace(from->arena, made.pairs, made.n, err);
    return err->status;
}

/* The object, or what print-tensor --json prints of args: {"key", "value", "version"}. */
static dcpk_status from_json(const char *text, size_t n_bytes, struct dcpk_args_from *from,
                             struct dcpk_error *err)
{
    const struct dcpk_json *object, *value;
    struct dcpk_json *doc = NULL;

    if (dcpk_json_parse(text, n_bytes, &doc, err) != DCPK_OK)
        return err->status;
    object = doc;
    value = dcpk_json_member(doc, "value");
    if (value != NULL && dcpk_json_kind(value) == DCPK_JSON_OBJECT)
        object = value;
    if (dcpk_json_kind(object) == DCPK_JSON_OBJECT)
        (void)put_members(object, from, err);
    else
        dcpk_fail(err, DCPK_EUNSUPPORTED, "it is not a JSON object of names and values");
    dcpk_json_free(doc);
    return err->status;
}

/* Reads YAML with `reader` (NULL: this build has none). */
static dcpk_status from_yaml(dcpk_read_value *reader, const char *text, size_t n_bytes,
                             struct dcpk_args_from *from, struct dcpk_error *err)
{
    if (reader == NULL)
        return dcpk_fail(err, DCPK_EUNSUPPORTED,
                         "it is not JSON, and YAML is not read: this program was built without "
                         "libyaml");
    return reader(text, n_bytes, from->arena, &from->args, err);
}

static bool is_json(const char *text)
{
    return text[strspn(text, " \t\r\n")] == '{';
}

static dcpk_status from_text(const char *text, size_t n_bytes, struct dcpk_args_from *from,
                             struct dcpk_error *err)
{
    if (is_json(text))
        return from_json(text, n_bytes, from, err);
    return from_yaml(dcpk_yaml_args_reader, text, n_bytes, from, err);
}

/* The configuration that is next to a checkpoint. from->args stays NULL: there is none. */
static dcpk_status from_run_config(struct dcpk_checkpoint *ckpt, struct dcpk_args_from *from,
                                   struct dcpk_error *err)
{
    enum dcpk_path_kind kind;
    struct dcpk_source *source;
    char *text;
    size_t n;

    if (dcpk_store_look(ckpt->store, RUN_CONFIG, &kind, err) != DCPK_OK || kind != DCPK_PATH_FILE)
        return err->status;
    if (dcpk_store_find(ckpt->store, RUN_CONFIG, &source, err) ||
        dcpk_source_slurp(source, MAX_CONFIG_BYTES, &text, &n, err))
        return err->status;
    if (from_text(text, n, from, err) != DCPK_OK)
        dcpk_context(err, "'" RUN_CONFIG "'");
    dcpk_free(text);
    return err->status;
}

static dcpk_status from_checkpoint(const char *path, const struct dcpk_verbosity *verbosity,
                                   struct dcpk_args_from *from, struct dcpk_error *err)
{
    struct dcpk_checkpoint *ckpt = NULL;
    struct dcpk_run_state state;

    if (dcpk_cli_open(path, NULL, verbosity, &ckpt, NULL, err) != DCPK_OK)
        return err->status;
    dcpk_run_state_load(ckpt, from->arena, &state);
    if (state.args != NULL)
        from->args = dcpk_value_namespace(from->arena, state.args->as.pairs, state.args->n, err);
    else if (from_run_config(ckpt, from, err) == DCPK_OK && from->args == NULL)
        dcpk_fail(err, DCPK_EUNSUPPORTED,
                  "the checkpoint has no args, and no " RUN_CONFIG
                  " is next to it; 'dcpkit convert --to torch_dist' writes one that has them, from "
                  "config.json or from what --args-from names");
    dcpk_checkpoint_close(ckpt);
    return err->status;
}

static dcpk_status from_file(const char *path, struct dcpk_args_from *from, struct dcpk_error *err)
{
    char *text = NULL;
    size_t n;

    if (dcpk_cli_read_file(path, MAX_CONFIG_BYTES, &text, &n, err) == DCPK_OK)
        (void)from_text(text, n, from, err);
    dcpk_free(text);
    return err->status;
}

dcpk_status dcpk_args_from_read(const char *path, const struct dcpk_verbosity *verbosity,
                                struct dcpk_args_from *from, struct dcpk_error *err)
{
    struct stat there;

    if (path == NULL)
        return DCPK_OK;
    from->arena = dcpk_arena_new();
    if (stat(path, &there) == 0 && S_ISDIR(there.st_mode))
        (void)from_checkpoint(path, verbosity, from, err);
    else
        (void)from_file(path, from, err);
    if (err->status != DCPK_OK)
        dcpk_context(err, "args from '%s'", path);
    return err->status;
}

dcpk_status dcpk_args_from_checkpoint(const char *path, const struct dcpk_verbosity *verbosity,
                                      struct dcpk_args_from *from, struct dcpk_error *err)
{
    from->arena = dcpk_arena_new();
    if (from_checkpoint(path, verbosity, from, err) != DCPK_OK)
        dcpk_context(err, "args of '%s'", path);
    return err->status;
}

static dcpk_status config_from_json(const char *text, size_t n_bytes, struct dcpk_args_from *from,
                                    struct dcpk_error *err)
{
    struct dcpk_json *doc = NULL;

    if (dcpk_json_parse(text, n_bytes, &doc, err) == DCPK_OK)
        from->args = dcpk_value_from_json(from->arena, doc, err);
    dcpk_json_free(doc);
    return err->status;
}

dcpk_status dcpk_config_parse(const char *text, size_t n_bytes, struct dcpk_args_from *from,
                              struct dcpk_error *err)
{
    if (is_json(text))
        return config_from_json(text, n_bytes, from, err);
    return from_yaml(dcpk_yaml_reader, text, n_bytes, from, err);
}

dcpk_status dcpk_config_read(const char *path, struct dcpk_args_from *from, struct dcpk_error *err)
{
    char *text = NULL;
    size_t n;

    from->arena = dcpk_arena_new();
    if (dcpk_cli_read_file(path, MAX_CONFIG_BYTES, &text, &n, err) == DCPK_OK)
        (void)dcpk_config_parse(text, n, from, err);
    dcpk_free(text);
    if (err->status != DCPK_OK)
        dcpk_context(err, "configuration '%s'", path);
    return err->status;
}

void dcpk_args_from_release(struct dcpk_args_from *from)
{
    dcpk_arena_free(from->arena);
    from->arena = NULL;
}

bool dcpk_lacks_args(struct dcpk_checkpoint *ckpt)
{
    struct dcpk_arena *arena = dcpk_arena_new();
    struct dcpk_run_state state = {0};

    dcpk_run_state_load(ckpt, arena, &state);
    dcpk_arena_free(arena);
    return state.args == NULL;
}

/* ---- args as flags ---- */

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

/* Appends a flag with its values. Returns false if no flag has them. */
static bool put_values(const struct writing *w, const char *name, const struct dcpk_value *v,
                       struct dcpk_error *err)
{
    const size_t n_before = w->out->n_bytes;

    dcpk_bytes_text(w->out, "--");
    for (const char *c = name; *c != '\0'; c++)
        dcpk_bytes_u8(w->out, *c == '_' ? '-' : (uint8_t)*c);
    for (size_t i = 0; v->kind != DCPK_V_BOOL && i < (dcpk_value_is_list(v) ? v->n : 1); i++) {
        const char *text =
            dcpk_knob_text(w->arena, dcpk_value_is_list(v) ? v->as.items[i] : v, err);

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
    if (dcpk_value_is_list(v) && row->effect == DCPK_KNOB_NO_EFFECT)
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
    return dcpk_value_is_none(v) ||
           ((dcpk_value_is_list(v) || v->kind == DCPK_V_DICT) && v->n == 0);
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
