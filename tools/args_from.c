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

static dcpk_status value_of(const struct dcpk_json *node, struct dcpk_arena *arena, int depth,
                            const struct dcpk_value **value, struct dcpk_error *err);

static dcpk_status list_of(const struct dcpk_json *node, struct dcpk_arena *arena, int depth,
                           const struct dcpk_value **value, struct dcpk_error *err)
{
    const struct dcpk_value **items;
    size_t n = 0;

    for (const struct dcpk_json *j = dcpk_json_first(node); j != NULL; j = dcpk_json_next(j))
        n++;
    items = dcpk_arena_array(arena, n, sizeof *items, err);
    n = 0;
    for (const struct dcpk_json *j = items == NULL ? NULL : dcpk_json_first(node); j != NULL;
         j = dcpk_json_next(j))
        if (value_of(j, arena, depth + 1, &items[n++], err) != DCPK_OK)
            return err->status;
    *value = items == NULL ? NULL : dcpk_value_seq(arena, DCPK_V_LIST, items, n, err);
    return *value == NULL ? err->status : DCPK_OK;
}

/* "torch.bfloat16", as print-tensor --json shows a dtype; NULL: any other text. */
static const char *dtype_in(const char *text)
{
    const char *name = dcpk_starts_with(text, "torch.") ? text + strlen("torch.") : "";
    const enum dcpk_dtype dtype = dcpk_dtype_from_name(name);

    return dtype == DCPK_DTYPE_NONE ? NULL : dcpk_dtype_name(dtype);
}

static const struct dcpk_value *text_of(const char *text, struct dcpk_arena *arena,
                                        struct dcpk_error *err)
{
    struct dcpk_value *v;

    if (dtype_in(text) == NULL)
        return dcpk_value_str(arena, text, err);
    v = dcpk_arena_alloc(arena, sizeof *v, err);
    if (v == NULL)
        return NULL;
    v->kind = DCPK_V_GLOBAL;
    v->as.global.module = "torch";
    v->as.global.name = dtype_in(text);
    return v;
}

/* *value NULL: an object, which args hold none of that JSON could say. */
static dcpk_status value_of(const struct dcpk_json *node, struct dcpk_arena *arena, int depth,
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
        *value = text_of(dcpk_json_string(node), arena, err);
        break;
    case DCPK_JSON_ARRAY:
        return list_of(node, arena, depth, value, err);
    case DCPK_JSON_OBJECT:
        return DCPK_OK;
    }
    return *value == NULL ? err->status : DCPK_OK;
}

/* The object, or what print-tensor --json prints of args: {"key", "value", "version"}. */
static dcpk_status from_json(const char *text, size_t n_bytes, struct dcpk_args_from *from,
                             struct dcpk_error *err)
{
    struct dcpk_json *doc = NULL;
    const struct dcpk_json *object, *value;
    struct dcpk_value_pair *pairs;
    size_t n = 0;

    if (dcpk_json_parse(text, n_bytes, &doc, err) != DCPK_OK)
        return err->status;
    object = doc;
    value = dcpk_json_member(doc, "value");
    if (value != NULL && dcpk_json_kind(value) == DCPK_JSON_OBJECT)
        object = value;
    if (dcpk_json_kind(object) != DCPK_JSON_OBJECT)
        dcpk_fail(err, DCPK_EUNSUPPORTED, "it is no JSON object of names and values");
    for (const struct dcpk_json *j = dcpk_json_first(object); j != NULL; j = dcpk_json_next(j))
        n++;
    pairs = dcpk_arena_array(from->arena, n, sizeof *pairs, err);
    n = 0;
    for (const struct dcpk_json *j = pairs == NULL ? NULL : dcpk_json_first(object);
         j != NULL && err->status == DCPK_OK; j = dcpk_json_next(j)) {
        if (dcpk_json_key(j) == NULL || dcpk_json_key(j)[0] == '_' ||
            value_of(j, from->arena, 0, &pairs[n].value, err) != DCPK_OK || pairs[n].value == NULL)
            continue;
        pairs[n++].key = dcpk_value_str(from->arena, dcpk_json_key(j), err);
    }
    if (err->status == DCPK_OK && n == 0)
        dcpk_fail(err, DCPK_EUNSUPPORTED, "it names no args");
    if (err->status == DCPK_OK)
        from->args = dcpk_value_namespace(from->arena, pairs, n, err);
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
                         "it is no JSON, and YAML is not read: this "
                         "program was built without libyaml");
    return dcpk_yaml_args_reader(text, n_bytes, from->arena, &from->args, err);
}

/* The configuration that lies beside a checkpoint; *found false: there is none. */
static dcpk_status from_run_config(struct dcpk_checkpoint *ckpt, struct dcpk_args_from *from,
                                   bool *found, struct dcpk_error *err)
{
    enum dcpk_path_kind kind;
    struct dcpk_source *source;
    char *text;
    size_t n;
    dcpk_status st = dcpk_store_look(ckpt->store, RUN_CONFIG, &kind, err);

    *found = st == DCPK_OK && kind == DCPK_PATH_FILE;
    if (!*found)
        return st;
    st = dcpk_store_find(ckpt->store, RUN_CONFIG, &source, err);
    if (st == DCPK_OK)
        st = dcpk_source_slurp(source, MAX_CONFIG_BYTES, &text, &n, err);
    if (st != DCPK_OK)
        return st;
    st = from_text(text, n, from, err);
    dcpk_free(text);
    if (st != DCPK_OK)
        dcpk_context(err, "'" RUN_CONFIG "'");
    return st;
}

static dcpk_status from_checkpoint(const char *path, const struct dcpk_voice *voice,
                                   struct dcpk_args_from *from, struct dcpk_error *err)
{
    struct dcpk_checkpoint *ckpt = NULL;
    struct dcpk_run_state state;
    bool found = false;
    dcpk_status st = dcpk_cli_open(path, NULL, voice, &ckpt, NULL, err);

    if (st != DCPK_OK)
        return st;
    dcpk_run_state_load(ckpt, from->arena, &state);
    if (state.args != NULL)
        from->args = dcpk_value_namespace(from->arena, state.args->as.pairs, state.args->n, err);
    else
        st = from_run_config(ckpt, from, &found, err);
    if (st == DCPK_OK && state.args == NULL && !found)
        st = dcpk_fail(err, DCPK_EUNSUPPORTED,
                       "the checkpoint has no args, and no " RUN_CONFIG " lies beside it");
    dcpk_checkpoint_close(ckpt);
    return st == DCPK_OK ? err->status : st;
}

dcpk_status dcpk_args_from_read(const char *path, const struct dcpk_voice *voice,
                                struct dcpk_args_from *from, struct dcpk_error *err)
{
    struct stat there;
    char *text = NULL;
    size_t n;
    dcpk_status st;

    if (path == NULL)
        return DCPK_OK;
    from->arena = dcpk_arena_new(0, err);
    if (from->arena == NULL)
        return err->status;
    if (stat(path, &there) == 0 && S_ISDIR(there.st_mode)) {
        st = from_checkpoint(path, voice, from, err);
    } else {
        st = dcpk_cli_read_file(path, &text, &n, err);
        if (st == DCPK_OK)
            st = from_text(text, n, from, err);
        dcpk_free(text);
    }
    if (st != DCPK_OK)
        dcpk_context(err, "args from '%s'", path);
    return st;
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
    const struct dcpk_error before = *err;
    struct dcpk_error ignored = DCPK_ERROR_INIT;
    enum dcpk_path_kind kind;

    if (ckpt == NULL || (err->status != DCPK_EFORMAT && err->status != DCPK_EUNSUPPORTED &&
                         err->status != DCPK_EUSAGE))
        return;
    if (dcpk_store_look(ckpt->store, RUN_CONFIG, &kind, &ignored) == DCPK_OK &&
        kind == DCPK_PATH_FILE)
        dcpk_fail(err, before.status,
                  "%s; '" RUN_CONFIG "' of Megatron-Bridge lies beside it: --args-from %s takes "
                  "them from there",
                  before.text, path);
    else
        dcpk_fail(err, before.status,
                  "%s; --args-from takes them from a JSON object, a " RUN_CONFIG
                  " of Megatron-Bridge, or another checkpoint",
                  before.text);
}
