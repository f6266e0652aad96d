/* SPDX-License-Identifier: Apache-2.0 */
/* output.c - the tables of a checkpoint to be written. */
#include "lib/ckpt/output.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <xxhash.h>

#include "lib/base/alloc.h"
#include "lib/base/text.h"
#include "lib/ckpt/format.h"
#include "lib/ckpt/unknown.h"

dcpk_status dcpk_output_new(struct dcpk_checkpoint *source, const struct dcpk_format *format,
                            struct dcpk_output **out, struct dcpk_error *err)
{
    struct dcpk_output *o = dcpk_alloc(sizeof *o, err);

    if (o == NULL)
        return err->status;
    o->source = source;
    o->format = format;
    o->pickle_protocol = 2;
    o->events_end = &o->events;
    o->arena = dcpk_arena_new();
    o->taken.arena = o->arena;
    *out = o;
    return DCPK_OK;
}

void dcpk_output_free(struct dcpk_output *out)
{
    if (out == NULL)
        return;
    dcpk_by_place_release(&out->taken);
    dcpk_free(out->tensors);
    dcpk_free(out->payloads);
    dcpk_free(out->objects);
    dcpk_free(out->chunks);
    dcpk_free(out->files);
    dcpk_free(out->kept);
    dcpk_free(out->small_files);
    dcpk_arena_free(out->arena);
    dcpk_free(out);
}

const int64_t *dcpk_out_chunk_span(const struct dcpk_output *out,
                                   const struct dcpk_out_chunk *chunk, int *rank,
                                   int64_t room[2 * DCPK_MAX_RANK])
{
    const struct dcpk_out_tensor *tensor = &out->tensors[chunk->tensor];
    const int n = tensor->rank;
    int axis = 0;

    *rank = n;
    if (tensor->written_shape == NULL)
        return chunk->span;
    *rank = tensor->written_rank;
    while (axis < n - 2 && tensor->shape[axis] == tensor->written_shape[axis])
        axis++;
    assert(chunk->span[n + axis + 1] == tensor->shape[axis + 1]);
    for (int a = 0; a < n - 1; a++) {
        room[a] = chunk->span[a + (a > axis)];
        room[n - 1 + a] = chunk->span[n + a + (a > axis)];
    }
    room[axis] *= tensor->shape[axis + 1];
    room[n - 1 + axis] *= tensor->shape[axis + 1];
    return room;
}

dcpk_status dcpk_output_add_tensor(struct dcpk_output *out, const struct dcpk_out_tensor *tensor,
                                   struct dcpk_error *err)
{
    if (dcpk_grow(&out->tensors, &out->tensors_capacity, out->n_tensors, sizeof *out->tensors,
                  err) != DCPK_OK)
        return err->status;
    out->tensors[out->n_tensors++] = *tensor;
    return DCPK_OK;
}

/* Nothing is written that Python would import or call on loading, except what the format knows. */
static dcpk_status check_payload(struct dcpk_output *out, const struct dcpk_value *value,
                                 const struct dcpk_object *source, struct dcpk_error *err)
{
    struct dcpk_arena *arena = NULL;
    const char *module, *name;
    bool found = false;
    dcpk_status st = DCPK_OK;

    if (out->format->is_known == NULL) /* writes no pickles */
        return DCPK_OK;
    if (source != NULL) {
        arena = dcpk_arena_new();
        st = dcpk_checkpoint_outline_item(out->source, source, arena, &value, err);
    }
    if (st == DCPK_OK)
        st = dcpk_value_find_unknown(value, out->format->is_known, &found, &module, &name, err);
    if (st == DCPK_OK && found)
        st = dcpk_fail(err, DCPK_EUNSUPPORTED,
                       "%s holds '%s.%s', which Python would import or call on loading",
                       source == NULL ? "a value to be written" : "it", module, name);
    dcpk_arena_free(arena);
    return st;
}

static dcpk_status add_payload(struct dcpk_output *out, const struct dcpk_value *value,
                               const struct dcpk_object *source, uint32_t *payload,
                               struct dcpk_error *err)
{
    dcpk_status st = dcpk_grow(&out->payloads, &out->payloads_capacity, out->n_payloads,
                               sizeof *out->payloads, err);

    if (st != DCPK_OK)
        return st;
    out->payloads[out->n_payloads] = (struct dcpk_out_payload){.value = value, .source = source};
    *payload = (uint32_t)out->n_payloads++;
    return DCPK_OK;
}

/* Records what became of the item at `place`. err may hold why it was refused and keeps it. */
static dcpk_status note_taken(struct dcpk_output *out, const struct dcpk_place *place,
                              uint64_t taken, struct dcpk_error *err)
{
    struct dcpk_error own = DCPK_ERROR_INIT;

    if (dcpk_by_place_put(&out->taken, place, NULL, taken, &own) != DCPK_OK)
        *err = own;
    return err->status;
}

dcpk_status dcpk_output_add_payload(struct dcpk_output *out, const struct dcpk_value *value,
                                    const struct dcpk_object *source, uint32_t *payload,
                                    struct dcpk_error *err)
{
    const struct dcpk_place *place = NULL;
    uint64_t taken = DCPK_NOT_TAKEN;

    if (source != NULL)
        place = &source->place;
    if (place != NULL && dcpk_by_place_get(&out->taken, place, NULL, &taken)) {
        if (taken == DCPK_NOT_TAKEN)
            return dcpk_fail(err, DCPK_EUNSUPPORTED, "its item was refused under another key");
        *payload = (uint32_t)taken;
        return DCPK_OK;
    }
    if (check_payload(out, value, source, err) == DCPK_OK &&
        add_payload(out, value, source, payload, err) == DCPK_OK)
        taken = *payload;
    if (place != NULL && (err->status == DCPK_OK || dcpk_status_is_content(err->status)))
        return note_taken(out, place, taken, err);
    return err->status;
}

dcpk_status dcpk_output_copy_payload(struct dcpk_output *out, uint32_t payload, uint32_t *copy,
                                     struct dcpk_error *err)
{
    return add_payload(out, out->payloads[payload].value, out->payloads[payload].source, copy, err);
}

dcpk_status dcpk_output_keep_payload(struct dcpk_output *out, const struct dcpk_object *source,
                                     uint32_t *payload, struct dcpk_error *err)
{
    return add_payload(out, NULL, source, payload, err);
}

dcpk_status dcpk_output_add_object(struct dcpk_output *out, const char *key, uint32_t payload,
                                   struct dcpk_error *err)
{
    return dcpk_output_add_field(out, key, NULL, payload, err);
}

dcpk_status dcpk_output_add_field(struct dcpk_output *out, const char *key, const char *field,
                                  uint32_t payload, struct dcpk_error *err)
{
    if (dcpk_grow(&out->objects, &out->objects_capacity, out->n_objects, sizeof *out->objects,
                  err) != DCPK_OK)
        return err->status;
    out->objects[out->n_objects++] =
        (struct dcpk_out_object){.key = key, .field = field, .payload = payload};
    return DCPK_OK;
}

void dcpk_out_object_name(const struct dcpk_out_object *object, struct dcpk_bytes *name)
{
    dcpk_bytes_text(name, object->key);
    if (object->field == NULL)
        return;
    dcpk_bytes_u8(name, '.');
    dcpk_bytes_text(name, object->field);
}

const char *dcpk_output_payload_name(const struct dcpk_output *out, uint32_t payload)
{
    struct dcpk_error ignored = DCPK_ERROR_INIT;
    struct dcpk_bytes name = {0};
    const char *copy = NULL;
    size_t i = 0;

    while (i < out->n_objects && out->objects[i].payload != payload)
        i++;
    if (i < out->n_objects) {
        dcpk_out_object_name(&out->objects[i], &name);
        copy = dcpk_bytes_to_arena(&name, out->arena, &ignored);
    }
    return dcpk_text_or(copy, "(an object without a name)");
}

dcpk_status dcpk_output_keep(struct dcpk_output *out, const char *name, struct dcpk_source *source,
                             struct dcpk_error *err)
{
    if (dcpk_grow(&out->kept, &out->kept_capacity, out->n_kept, sizeof *out->kept, err) != DCPK_OK)
        return err->status;
    out->kept[out->n_kept++] = (struct dcpk_kept_file){.name = name, .source = source};
    return DCPK_OK;
}

dcpk_status dcpk_output_put_small_file(struct dcpk_output *out, const char *name, const void *data,
                                       size_t n_bytes, struct dcpk_error *err)
{
    const void *copy = dcpk_arena_copy(out->arena, data, n_bytes, 1, err);

    if (copy == NULL || dcpk_grow(&out->small_files, &out->small_files_capacity, out->n_small_files,
                                  sizeof *out->small_files, err))
        return err->status;
    out->small_files[out->n_small_files++] = (struct dcpk_small_file){name, copy, n_bytes};
    return DCPK_OK;
}

bool dcpk_output_has_small_file(const struct dcpk_output *out, const char *name)
{
    for (size_t i = 0; i < out->n_small_files; i++)
        if (strcmp(out->small_files[i].name, name) == 0)
            return true;
    return false;
}

void dcpk_output_event(struct dcpk_output *out, enum dcpk_event_kind kind, const char *key,
                       const char *fmt, ...)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_out_event *event = dcpk_arena_alloc(out->arena, sizeof *event, &err);
    char text[1024];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    if (event == NULL)
        return;
    event->kind = kind;
    event->key = dcpk_arena_strdup(out->arena, key, &err);
    event->text = dcpk_arena_strdup(out->arena, text, &err);
    if (event->key == NULL || event->text == NULL)
        return;
    *out->events_end = event;
    out->events_end = &event->next;
}

/* One link of a chain of hashes. */
static uint64_t hash_mix(uint64_t hash, const void *data, size_t n_bytes)
{
    return XXH3_64bits_withSeed(data, n_bytes, hash);
}

/*
 * A number that identifies input and options (ids in the output are made from it): of what will be
 * written. Nothing in it depends on paths, time, threads or memory.
 */
uint64_t dcpk_output_identity(const struct dcpk_output *out)
{
    uint64_t hash = 0;

    for (size_t i = 0; i < out->n_tensors; i++) {
        const struct dcpk_out_tensor *t = &out->tensors[i];

        hash = hash_mix(hash, t->keys[0], strlen(t->keys[0]) + 1);
        hash = hash_mix(hash, &t->dtype, sizeof t->dtype);
        hash = hash_mix(hash, t->shape, (size_t)t->rank * sizeof *t->shape);
    }
    for (size_t i = 0; i < out->n_objects; i++) {
        const struct dcpk_out_object *object = &out->objects[i];

        hash = hash_mix(hash, object->key, strlen(object->key) + 1);
        if (object->field != NULL)
            hash = hash_mix(hash, object->field, strlen(object->field) + 1);
    }
    if (out->target.mesh.tp > 0) {
        /* The sizes: their order in the struct is part of the number. */
        hash = hash_mix(hash, &out->target.mesh, offsetof(struct dcpk_grid, instances));
        hash = hash_mix(hash, &out->target.bucket_elems, sizeof out->target.bucket_elems);
    }
    if (out->target.family.fp8.variant != DCPK_FP8_NONE) {
        hash =
            hash_mix(hash, &out->target.family.fp8.variant, sizeof out->target.family.fp8.variant);
        hash = hash_mix(hash, &out->target.family.fp8.is_ue8m0,
                        sizeof out->target.family.fp8.is_ue8m0);
    }
    for (size_t i = 0; i < out->source->n_files; i++) {
        const uint64_t n_bytes = dcpk_source_bytes(out->source->files[i]);

        hash = hash_mix(hash, &n_bytes, sizeof n_bytes);
    }
    return hash;
}

size_t dcpk_output_count_keys(const struct dcpk_output *out)
{
    size_t n = out->n_objects;

    for (size_t i = 0; i < out->n_tensors; i++)
        n += out->tensors[i].n_keys;
    return n;
}
