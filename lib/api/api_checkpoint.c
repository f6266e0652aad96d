/* SPDX-License-Identifier: Apache-2.0 */
/* api_checkpoint.c - an opened checkpoint for programs: what it holds, elements, state as JSON,
 * hashes.
 */
#include <assert.h>

#include "lib/api/api_priv.h"
#include "lib/base/alloc.h"
#include "lib/base/json.h"
#include "lib/ckpt/format.h"
#include "lib/model/named_state.h"

int dcpkit_open(dcpkit *session, const char *path, const char *format, dcpkit_checkpoint **ckpt)
{
    struct dcpk_error *err = api_begin(session);
    dcpkit_checkpoint *made = dcpk_alloc(sizeof *made, err);

    if (made == NULL)
        return (int)err->status;
    session->stage = "unpacking";
    made->session = session;
    if (dcpk_env_open(&session->env, path, format, NULL, &made->ckpt, err)) {
        dcpk_free(made);
        return (int)err->status;
    }
    *ckpt = made;
    return DCPKIT_OK;
}

void dcpkit_close(dcpkit_checkpoint *ckpt)
{
    if (ckpt == NULL)
        return;
    dcpk_exec_free(ckpt->exec);
    dcpk_checkpoint_close(ckpt->ckpt);
    dcpk_free(ckpt);
}

/* The executor of a checkpoint, made when first asked for. NULL: see err. */
static struct dcpk_exec *api_exec(dcpkit_checkpoint *ckpt, struct dcpk_error *err)
{
    if (ckpt->exec == NULL)
        dcpk_exec_new(ckpt->ckpt, &ckpt->session->env, &ckpt->exec, err);
    return ckpt->exec;
}

void dcpkit_summary(const dcpkit_checkpoint *ckpt, struct dcpkit_summary *summary)
{
    const struct dcpk_checkpoint *c = ckpt->ckpt;

    *summary = (struct dcpkit_summary){
        .format = c->format->name,
        .generation = c->generation,
        .n_tensors = c->n_tensors,
        .n_objects = c->n_objects,
        .n_files = c->n_files,
    };
    for (size_t i = 0; i < c->n_tensors; i++)
        summary->tensor_bytes += dcpk_count_elems(c->tensors[i].shape, c->tensors[i].rank) *
                                 dcpk_dtype_bytes(c->tensors[i].dtype);
}

static dcpk_status check_index(const dcpkit_checkpoint *ckpt, size_t index, struct dcpk_error *err)
{
    if (index < ckpt->ckpt->n_tensors)
        return DCPK_OK;
    return dcpk_fail(err, DCPK_EUSAGE, "no tensor has number %zu: there are %zu, from 0 on", index,
                     ckpt->ckpt->n_tensors);
}

int dcpkit_tensor_at(const dcpkit_checkpoint *ckpt, size_t index, struct dcpkit_tensor *tensor)
{
    struct dcpk_error *err = api_begin(ckpt->session);
    const struct dcpk_tensor *t;

    if (check_index(ckpt, index, err))
        return (int)err->status;
    t = &ckpt->ckpt->tensors[index];
    *tensor = (struct dcpkit_tensor){
        .key = t->key,
        .dtype = dcpk_dtype_name(t->dtype),
        .elem_bytes = dcpk_dtype_bytes(t->dtype),
        .rank = t->rank,
        .shape = t->shape,
        .n_chunks = t->n_chunks,
    };
    return DCPKIT_OK;
}

int dcpkit_tensor_find(dcpkit_checkpoint *ckpt, const char *key, size_t *index)
{
    struct dcpk_error *err = api_begin(ckpt->session);
    const struct dcpk_tensor *tensor = dcpk_checkpoint_tensor(ckpt->ckpt, key);

    if (tensor == NULL)
        return (int)dcpk_fail(err, DCPK_EUSAGE, "there is no tensor '%s'", key);
    *index = (size_t)(tensor - ckpt->ckpt->tensors);
    return DCPKIT_OK;
}

int dcpkit_chunk_at(dcpkit_checkpoint *ckpt, size_t tensor, size_t index,
                    struct dcpkit_chunk *chunk)
{
    struct dcpk_error *err = api_begin(ckpt->session);
    const struct dcpk_tensor *t;
    const struct dcpk_chunk *c;

    if (check_index(ckpt, tensor, err))
        return (int)err->status;
    t = &ckpt->ckpt->tensors[tensor];
    if (index >= t->n_chunks)
        return (int)dcpk_fail(err, DCPK_EUSAGE, "'%s' has %zu chunks, no chunk %zu", t->key,
                              t->n_chunks, index);
    c = &ckpt->ckpt->chunks[t->first_chunk + index];
    *chunk = (struct dcpkit_chunk){
        .offset = c->span,
        .extent = c->span + t->rank,
        .file = dcpk_source_name(ckpt->ckpt->files[c->place.file]),
        .first_byte = c->place.offset_bytes,
        .n_bytes = c->place.n_bytes,
    };
    return DCPKIT_OK;
}

/* The box that is asked for; NULL and NULL is all of the tensor. */
static dcpk_status box_take(const struct dcpk_tensor *t, const int64_t *offset,
                            const int64_t *extent, struct dcpk_box *box, struct dcpk_error *err)
{
    dcpk_box_whole(t->shape, t->rank, box);
    if (offset == NULL && extent == NULL)
        return DCPK_OK;
    if (offset == NULL || extent == NULL)
        return dcpk_fail(err, DCPK_EUSAGE, "a box needs an offset and an extent");
    for (int a = 0; a < t->rank; a++) {
        if (offset[a] < 0 || extent[a] < 0 || offset[a] > t->shape[a] - extent[a])
            return dcpk_fail(err, DCPK_EUSAGE,
                             "axis %d of '%s' has %lld elements: %lld from %lld on are not in it",
                             a, t->key, (long long)t->shape[a], (long long)extent[a],
                             (long long)offset[a]);
        box->offset[a] = offset[a];
        box->extent[a] = extent[a];
    }
    return DCPK_OK;
}

static dcpk_status check_room(const struct dcpk_tensor *t, const struct dcpk_box *box,
                              size_t n_bytes, struct dcpk_error *err)
{
    int64_t n_elems;

    if (dcpk_box_count(box, &n_elems, err))
        return err->status;
    if ((uint64_t)n_elems <= n_bytes / dcpk_dtype_bytes(t->dtype))
        return DCPK_OK;
    return dcpk_fail(err, DCPK_EUSAGE, "%lld elements of %zu bytes do not fit %zu bytes",
                     (long long)n_elems, dcpk_dtype_bytes(t->dtype), n_bytes);
}

static dcpk_status read_box(dcpkit_checkpoint *ckpt, size_t tensor, const struct dcpk_box *box,
                            void *out, struct dcpk_error *err)
{
    struct dcpk_arena *arena = dcpk_arena_new();
    struct dcpk_view_reader *reader = NULL;
    struct dcpk_view view;

    if (api_exec(ckpt, err) != NULL &&
        dcpk_view_stored(ckpt->ckpt, (uint32_t)tensor, arena, &view, err) == DCPK_OK &&
        dcpk_view_reader_new(ckpt->exec, &view, &reader, err) == DCPK_OK)
        dcpk_view_reader_read(reader, box, out, err);
    dcpk_view_reader_free(reader);
    dcpk_arena_free(arena);
    return err->status;
}

int dcpkit_read(dcpkit_checkpoint *ckpt, size_t tensor, const int64_t *offset,
                const int64_t *extent, void *out, size_t n_bytes)
{
    struct dcpk_error *err = api_begin(ckpt->session);
    const struct dcpk_tensor *t;
    struct dcpk_box box;

    if (check_index(ckpt, tensor, err))
        return (int)err->status;
    t = &ckpt->ckpt->tensors[tensor];
    if (box_take(t, offset, extent, &box, err) || check_room(t, &box, n_bytes, err))
        return (int)err->status;
    return (int)read_box(ckpt, tensor, &box, out, err);
}

const char *dcpkit_object_key(const dcpkit_checkpoint *ckpt, size_t index)
{
    return index < ckpt->ckpt->n_objects ? ckpt->ckpt->objects[index].key : NULL;
}

/* *value: the object of that key, else the state of that name; NULL: there is none. */
static dcpk_status value_find(struct dcpk_checkpoint *ckpt, const char *name,
                              struct dcpk_arena *arena, const struct dcpk_value **value,
                              struct dcpk_error *err)
{
    const struct dcpk_object *object = dcpk_checkpoint_object(ckpt, name);
    struct dcpk_named_state state = {0};

    *value = NULL;
    if (object != NULL)
        return dcpk_checkpoint_show_object(ckpt, object, arena, value, err);
    if (dcpk_named_state_find(ckpt, name, arena, &state, err))
        return err->status;
    *value = state.value;
    return DCPK_OK;
}

static dcpk_status value_put(const struct dcpk_value *value, char **json, struct dcpk_error *err)
{
    struct dcpk_bytes bytes = {0};
    struct dcpk_json_out j;

    dcpk_json_out_init(&j, &bytes, 0);
    dcpk_value_to_json(value, &j);
    return api_give_text(&bytes, json, err);
}

int dcpkit_json(dcpkit_checkpoint *ckpt, const char *name, char **json)
{
    struct dcpk_error *err = api_begin(ckpt->session);
    struct dcpk_arena *arena = dcpk_arena_new();
    const struct dcpk_value *value;

    if (value_find(ckpt->ckpt, name, arena, &value, err) == DCPK_OK) {
        if (value == NULL)
            dcpk_fail(err, DCPK_EUSAGE, "there is no object or state '%s'", name);
        else
            value_put(value, json, err);
    }
    dcpk_arena_free(arena);
    return (int)err->status;
}

/* Views of n tensors, which the caller frees. */
static dcpk_status views_make(const struct dcpk_checkpoint *ckpt, const size_t *tensors, size_t n,
                              struct dcpk_arena *arena, struct dcpk_view *views,
                              struct dcpk_error *err)
{
    for (size_t i = 0; i < n; i++) {
        const size_t tensor = tensors != NULL ? tensors[i] : i;

        if (dcpk_view_stored(ckpt, (uint32_t)tensor, arena, &views[i], err))
            return err->status;
    }
    return DCPK_OK;
}

int dcpkit_hash(dcpkit_checkpoint *ckpt, const size_t *tensors, size_t n, uint8_t (*hashes)[16])
{
    struct dcpk_error *err = api_begin(ckpt->session);
    struct dcpk_arena *arena;
    struct dcpk_view *views;

    static_assert(sizeof(struct dcpk_hash) == sizeof *hashes, "a hash is its 16 bytes");
    if (tensors == NULL && n != ckpt->ckpt->n_tensors)
        return (int)dcpk_fail(err, DCPK_EUSAGE, "there are %zu tensors, not %zu",
                              ckpt->ckpt->n_tensors, n);
    for (size_t i = 0; i < n && tensors != NULL; i++)
        if (check_index(ckpt, tensors[i], err))
            return (int)err->status;
    ckpt->session->stage = "hashing";
    arena = dcpk_arena_new();
    views = dcpk_alloc_array(n, sizeof *views, err);
    if (views != NULL && api_exec(ckpt, err) != NULL &&
        views_make(ckpt->ckpt, tensors, n, arena, views, err) == DCPK_OK)
        dcpk_exec_hash(ckpt->exec, views, n, (struct dcpk_hash *)hashes, NULL, err);
    dcpk_free(views);
    dcpk_arena_free(arena);
    return (int)err->status;
}
