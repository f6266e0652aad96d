/* SPDX-License-Identifier: Apache-2.0 */
/* args_from.c - args from JSON, from Megatron-Bridge's YAML, or from another checkpoint. */
#include "tools/args_from.h"

#include <string.h>
#include <sys/stat.h>

#include "formats/formats.h"
#include "lib/base/alloc.h"
#include "lib/base/path.h"
#include "lib/base/text.h"
#include "lib/model/run_state.h"

#define MAX_CONFIG_BYTES (UINT64_C(4) << 20)
#define RUN_CONFIG       "run_config.yaml"
#define MAX_DEPTH        8

static dcpk_status json_value(const struct dcpk_json *node, struct dcpk_arena *arena, int depth,
                              const struct dcpk_value **value, struct dcpk_error *err);

static dcpk_status json_list(const struct dcpk_json *node, struct dcpk_arena *arena, int depth,
                             const struct dcpk_value **value, struct dcpk_error *err)
{
    const struct dcpk_value **items;
    size_t n = 0;

    for (const struct dcpk_json *j = dcpk_json_first(node); j != NULL; j = dcpk_json_next(j))
        n++;
    items = dcpk_arena_array(arena, n, sizeof *items, err);
    if (items == NULL)
        return err->status;
    n = 0;
    for (const struct dcpk_json *j = dcpk_json_first(node); j != NULL; j = dcpk_json_next(j))
        if (json_value(j, arena, depth + 1, &items[n++], err) != DCPK_OK)
            return err->status;
    *value = dcpk_value_seq(arena, DCPK_V_LIST, items, n, err);
    return err->status;
}

/* "torch.bfloat16", as print-tensor --json shows a dtype; NULL: any other text. */
static const char *dtype_named(const char *text)
{
    enum dcpk_dtype dtype;

    if (!dcpk_starts_with(text, "torch."))
        return NULL;
    dtype = dcpk_dtype_from_name(text + strlen("torch."));
    return dtype == DCPK_DTYPE_NONE ? NULL : dcpk_dtype_name(dtype);
}

static const struct dcpk_value *json_text(const char *text, struct dcpk_arena *arena,
                                          struct dcpk_error *err)
{
    struct dcpk_value *v;

    if (dtype_named(text) == NULL)
        return dcpk_value_str(arena, text, err);
    v = dcpk_arena_alloc(arena, sizeof *v, err);
    if (v == NULL)
        return NULL;
    v->kind = DCPK_V_GLOBAL;
    v->as.global.module = "torch";
    v->as.global.name = dtype_named(text);
    return v;
}

/* *value NULL: an object. Args hold none that JSON could express. */
static dcpk_status json_value(const struct dcpk_json *node, struct dcpk_arena *arena, int depth,
                              const struct dcpk_value **value, struct dcpk_error *err)
{
    int64_t i;
    double f;
    bool b;

    *value = NULL;
    if (depth > MAX_DEPTH)
        return dcpk_fail(err, DCPK_EUNSUPPORTED, "lists nested deeper than %d", MAX_DEPTH);
    switch (dcpk_json_kind(node)) {
    case DCPK_JSON_NULL:
        *value = dcpk_value_none();
        break;
    case DCPK_JSON_BOOL:
        *value = dcpk_value_bool(dcpk_json_bool(node, &b) && b);
        break;
    case DCPK_JSON_NUMBER:
        if (dcpk_json_int(node, &i))
            *value = dcpk_value_int(arena, i, err);
        else if (dcpk_json_double(node, &f))
            *value = dcpk_value_float(arena, f, err);
        break;
    case DCPK_JSON_STRING:
        *value = json_text(dcpk_json_string(node), arena, err);
        break;
    case DCPK_JSON_ARRAY:
        return json_list(node, arena, depth, value, err);
    case DCPK_JSON_OBJECT:
        return DCPK_OK;
    }
    return err->status;
}

/* Appends the members of an object that can be args. */
static dcpk_status put_members(const struct dcpk_json *object, struct dcpk_args_from *from,
                               struct dcpk_error *err)
{
    struct dcpk_value_pair *pairs;
    size_t n = 0;

    for (const struct dcpk_json *j = dcpk_json_first(object); j != NULL; j = dcpk_json_next(j))
        n++;
    pairs = dcpk_arena_array(from->arena, n, sizeof *pairs, err);
    if (pairs == NULL)
        return err->status;
    n = 0;
    for (const struct dcpk_json *j = dcpk_json_first(object); j != NULL; j = dcpk_json_next(j)) {
        const char *key = dcpk_json_key(j);

        if (key == NULL || key[0] == '_')
            continue;
        if (json_value(j, from->arena, 0, &pairs[n].value, err) != DCPK_OK)
            return err->status;
        if (pairs[n].value == NULL)
            continue;
        pairs[n].key = dcpk_value_str(from->arena, key, err);
        if (pairs[n++].key == NULL)
            return err->status;
    }
    if (n == 0)
        return dcpk_fail(err, DCPK_EUNSUPPORTED, "it names no args");
    from->args = dcpk_value_namespace(from->arena, pairs, n, err);
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

static dcpk_status from_text(const char *text, size_t n_bytes, struct dcpk_args_from *from,
                             struct dcpk_error *err)
{
    if (text[strspn(text, " \t\r\n")] == '{')
        return from_json(text, n_bytes, from, err);
    if (n_bytes > MAX_CONFIG_BYTES)
        return dcpk_fail(err, DCPK_ERANGE, "it has %zu bytes, more than a configuration", n_bytes);
    if (dcpk_yaml_args_reader == NULL)
        return dcpk_fail(err, DCPK_EUNSUPPORTED,
                         "it is not JSON, and YAML is not read: this program was built without "
                         "libyaml");
    return dcpk_yaml_args_reader(text, n_bytes, from->arena, &from->args, err);
}

/* The configuration that lies beside a checkpoint. from->args stays NULL: there is none. */
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

static dcpk_status from_checkpoint(const char *path, const struct dcpk_voice *voice,
                                   struct dcpk_args_from *from, struct dcpk_error *err)
{
    struct dcpk_checkpoint *ckpt = NULL;
    struct dcpk_run_state state;

    if (dcpk_cli_open(path, NULL, voice, &ckpt, NULL, err) != DCPK_OK)
        return err->status;
    dcpk_run_state_load(ckpt, from->arena, &state);
    if (state.args != NULL)
        from->args = dcpk_value_namespace(from->arena, state.args->as.pairs, state.args->n, err);
    else if (from_run_config(ckpt, from, err) == DCPK_OK && from->args == NULL)
        dcpk_fail(err, DCPK_EUNSUPPORTED,
                  "the checkpoint has no args, and no " RUN_CONFIG " lies beside it");
    dcpk_checkpoint_close(ckpt);
    return err->status;
}

static dcpk_status from_file(const char *path, struct dcpk_args_from *from, struct dcpk_error *err)
{
    char *text = NULL;
    size_t n;

    if (dcpk_cli_read_file(path, &text, &n, err) == DCPK_OK)
        (void)from_text(text, n, from, err);
    dcpk_free(text);
    return err->status;
}

dcpk_status dcpk_args_from_read(const char *path, const struct dcpk_voice *voice,
                                struct dcpk_args_from *from, struct dcpk_error *err)
{
    struct stat there;

    if (path == NULL)
        return DCPK_OK;
    from->arena = dcpk_arena_new(0, err);
    if (from->arena == NULL)
        return err->status;
    if (stat(path, &there) == 0 && S_ISDIR(there.st_mode))
        (void)from_checkpoint(path, voice, from, err);
    else
        (void)from_file(path, from, err);
    if (err->status != DCPK_OK)
        dcpk_context(err, "args from '%s'", path);
    return err->status;
}

void dcpk_args_from_release(struct dcpk_args_from *from)
{
    dcpk_arena_free(from->arena);
    from->arena = NULL;
}

bool dcpk_lacks_args(struct dcpk_checkpoint *ckpt)
{
    struct dcpk_error ignored = DCPK_ERROR_INIT;
    struct dcpk_arena *arena = dcpk_arena_new(0, &ignored);
    struct dcpk_run_state state = {0};

    if (arena != NULL)
        dcpk_run_state_load(ckpt, arena, &state);
    dcpk_arena_free(arena);
    return state.args == NULL;
}

void dcpk_args_from_hint(const char *path, struct dcpk_checkpoint *ckpt, struct dcpk_error *err)
{
    struct dcpk_error ignored = DCPK_ERROR_INIT;
    enum dcpk_path_kind kind;

    if (ckpt == NULL || (err->status != DCPK_EFORMAT && err->status != DCPK_EUNSUPPORTED &&
                         err->status != DCPK_EUSAGE))
        return;
    if (dcpk_store_look(ckpt->store, RUN_CONFIG, &kind, &ignored) == DCPK_OK &&
        kind == DCPK_PATH_FILE)
        dcpk_append(err,
                    "; '" RUN_CONFIG "' of Megatron-Bridge lies beside it: --args-from %s takes "
                    "them from there",
                    path);
    else
        dcpk_append(err, "; --args-from takes them from a JSON object, a " RUN_CONFIG
                         " of Megatron-Bridge, or another checkpoint");
}
