/* SPDX-License-Identifier: Apache-2.0 */
/* args_from.c - args from JSON, from Megatron-Bridge's YAML, or from another checkpoint. */
#include "tools/args_from.h"
#include "lib/base/json.h"
#include "tools/run_args.h"

#include <string.h>
#include <sys/stat.h>

#include "formats/formats.h"
#include "lib/base/alloc.h"
#include "lib/base/path.h"
#include "lib/model/arg_table.h"
#include "lib/model/named_state.h"

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

/* The configuration that lies next to a checkpoint. from->args stays NULL: there is none. */
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
