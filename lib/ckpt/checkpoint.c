/* SPDX-License-Identifier: Apache-2.0 */
/* checkpoint.c - opening, looking up and checking checkpoints; the tables that formats fill. */
#include "lib/ckpt/checkpoint.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "lib/base/alloc.h"
#include "lib/base/checked.h"
#include "lib/base/option.h"
#include "lib/base/order.h"
#include "lib/ckpt/foreign.h"
#include "lib/ckpt/format.h"
#include "lib/ckpt/run.h"

/*
 * Limits of the bytes that chunks describe: this many are free, and this many for each byte of the
 * files. Chunks that were left out, packed ones, expanded tensors and many names for one item
 * describe more than is stored. Whole moments of a fresh optimizer do; archives have the same limit
 * (formats/archive/FORMAT.md).
 */
#define FREE_CHUNK_BYTES (UINT64_C(1) << 30)
#define MAX_UNPACKED     1000u
#define MAX_FORMAT_NAME  32

/* The tables grow while a format opens; their capacities are private to this file. */
struct tables {
    struct dcpk_checkpoint public; /* first: a dcpk_checkpoint pointer is a pointer to this */
    size_t tensors_capacity;
    size_t objects_capacity;
    size_t files_capacity;
    size_t chunks_capacity; /* of views; the stored ones are allocated by their format */
    size_t runs_capacity;
};

bool dcpk_format_is_called(const struct dcpk_format *format, const char *name)
{
    const size_t n = strlen(name);
    char word[MAX_FORMAT_NAME];

    if (n >= sizeof word)
        return false;
    for (size_t i = 0; i <= n; i++)
        word[i] = name[i] == '-' ? '_' : (char)tolower((unsigned char)name[i]);
    return strcmp(format->name, word) == 0 || dcpk_option_has_word(format->other_names, word, n);
}

/* Sets c->format and c->likely. */
static dcpk_status choose_format(struct dcpk_checkpoint *c,
                                 const struct dcpk_format *const *formats, const char *name,
                                 struct dcpk_error *err)
{
    const struct dcpk_format *likely = NULL, *named = NULL;
    char marks[DCPK_MARKS_BYTES], hint[DCPK_FOREIGN_BYTES];
    int best = 0, named_score = 0;

    for (const struct dcpk_format *const *f = formats; *f != NULL; f++) {
        const bool is_named = name != NULL && dcpk_format_is_called(*f, name);
        int score;

        if ((*f)->container != NULL && !is_named) /* it scores as its container */
            continue;
        if ((*f)->probe(c->store, &score, err) != DCPK_OK)
            return err->status;
        if (is_named) {
            named = *f;
            named_score = score;
        }
        if (score > best) {
            best = score;
            likely = *f;
        }
    }
    if (name != NULL && named == NULL)
        return dcpk_fail_fix(err, DCPK_EUSAGE, DCPK_FIX_LIST_BUILT, "no format is called '%s'",
                             name);
    if (named != NULL && named_score == 0 && likely != NULL)
        return dcpk_fail_fix(err, DCPK_EUNSUPPORTED, DCPK_FIX_DETECT, "its format is %s, not %s",
                             likely->name, name);
    c->likely = likely;
    c->format = named != NULL ? named : likely;
    if (c->format == NULL)
        return dcpk_fail(err, DCPK_EUNSUPPORTED,
                         "not a checkpoint that this program knows: no %s is in the folder%s",
                         dcpk_marks_words(formats, DCPK_MARK_CHECKPOINT, marks),
                         dcpk_foreign_hint(c->store, formats, hint));
    return DCPK_OK;
}

/* A place from the metadata lies inside its file. */
static dcpk_status check_place(const struct dcpk_checkpoint *ckpt, const struct dcpk_place *place,
                               const char *key, struct dcpk_error *err)
{
    uint64_t file_bytes;

    if (place->file >= ckpt->n_files)
        return dcpk_fail(err, DCPK_EFORMAT, "'%s': its item names no file", key);
    file_bytes = dcpk_source_bytes(ckpt->files[place->file]);
    if (place->n_bytes > file_bytes || place->offset_bytes > file_bytes - place->n_bytes)
        return dcpk_fail(err, DCPK_EFORMAT,
                         "'%s': its item at byte %" PRIu64 " of %" PRIu64
                         " bytes passes the end of '%s' (%" PRIu64
                         " bytes; is the file truncated?)",
                         key, place->offset_bytes, place->n_bytes,
                         dcpk_source_name(ckpt->files[place->file]), file_bytes);
    return DCPK_OK;
}

static dcpk_status check_chunk_span(const struct dcpk_checkpoint *ckpt,
                                    const struct dcpk_tensor *tensor,
                                    const struct dcpk_chunk *chunk, struct dcpk_error *err)
{
    struct dcpk_box whole, box;
    char text[256], shape[256];

    dcpk_box_whole(tensor->shape, tensor->rank, &whole);
    dcpk_box_unpack(chunk->span, tensor->rank, &box);
    if (!dcpk_box_contains(&whole, &box))
        return dcpk_fail(err, DCPK_EFORMAT, "'%s': chunk %s lies outside the tensor of shape %s",
                         tensor->key, dcpk_box_format(&box, text, sizeof text),
                         dcpk_shape_format(tensor->shape, tensor->rank, shape, sizeof shape));
    return check_place(ckpt, &chunk->place, tensor->key, err);
}

/* Checks the promises of checkpoint.h after open, for any format. */
static dcpk_status check_tables(const struct dcpk_checkpoint *ckpt, struct dcpk_error *err)
{
    for (size_t t = 0; t < ckpt->n_tensors; t++) {
        const struct dcpk_tensor *tensor = &ckpt->tensors[t];
        int64_t n_elems;

        dcpk_status st = dcpk_shape_count(tensor->shape, tensor->rank, &n_elems, err);

        if (st == DCPK_OK &&
            (uint64_t)n_elems > (uint64_t)INT64_MAX / dcpk_dtype_bytes(tensor->dtype))
            st = dcpk_fail(err, DCPK_ERANGE, "more than 2^63 bytes");
        if (st != DCPK_OK)
            return dcpk_context(err, "tensor '%s'", tensor->key);
        for (size_t i = 0; i < tensor->n_chunks; i++)
            if (check_chunk_span(ckpt, tensor, &ckpt->chunks[tensor->first_chunk + i], err) !=
                DCPK_OK)
                return err->status;
    }
    for (size_t i = 0; i < ckpt->n_objects; i++)
        if (check_place(ckpt, &ckpt->objects[i].place, ckpt->objects[i].key, err) != DCPK_OK)
            return err->status;
    return DCPK_OK;
}

/* Reading all chunks takes no longer than what is stored allows for. After check_opened. */
static dcpk_status check_stored(const struct dcpk_checkpoint *ckpt, struct dcpk_error *err)
{
    uint64_t chunk_bytes = 0, stored_bytes = 0, limit_bytes;
    bool is_counted = true;

    for (size_t i = 0; i < ckpt->n_chunks; i++) {
        const struct dcpk_tensor *tensor = &ckpt->tensors[ckpt->chunks[i].tensor];
        const uint64_t n_bytes =
            dcpk_count_elems(ckpt->chunks[i].span + tensor->rank, tensor->rank) *
            dcpk_dtype_bytes(tensor->dtype);

        is_counted = is_counted && dcpk_add_u64(chunk_bytes, n_bytes, &chunk_bytes);
    }
    for (size_t i = 0; i < ckpt->n_files; i++)
        if (!dcpk_add_u64(stored_bytes, dcpk_source_bytes(ckpt->files[i]), &stored_bytes))
            return DCPK_OK; /* sparse files; nothing counted here is larger */
    if (!dcpk_mul_u64(stored_bytes, MAX_UNPACKED, &limit_bytes) ||
        !dcpk_add_u64(limit_bytes, FREE_CHUNK_BYTES, &limit_bytes))
        return DCPK_OK;
    if (is_counted && chunk_bytes <= limit_bytes)
        return DCPK_OK;
    return dcpk_fail(err, DCPK_ERANGE,
                     "its chunks describe %" PRIu64 " bytes%s, its files hold %" PRIu64
                     "; more than %u times that, and 1 GiB, is not read",
                     chunk_bytes, is_counted ? "" : " and more", stored_bytes, MAX_UNPACKED);
}

/* The names of the keys may be of a scheme on the container. One that was asked for must fit. */
static dcpk_status find_scheme(struct dcpk_checkpoint *c, const struct dcpk_format *const *formats,
                               const char *name, struct dcpk_error *err)
{
    const struct dcpk_format *format = c->format;

    if (format->container != NULL && !format->fits(c))
        return dcpk_fail(err, DCPK_EUNSUPPORTED, "its format is %s, not %s",
                         format->container->name, format->name);
    for (; name == NULL && c->format == format && *formats != NULL; formats++)
        if ((*formats)->container == format && (*formats)->fits(c))
            c->format = *formats;
    return DCPK_OK;
}

/* Choose the format of c->store, let it fill the tables, and check them. */
static dcpk_status read_metadata(struct dcpk_checkpoint *c,
                                 const struct dcpk_format *const *formats, const char *name,
                                 struct dcpk_error *err)
{
    c->arena = dcpk_arena_new();
    if (choose_format(c, formats, name, err))
        return err->status;
    if (dcpk_store_note(c->store) != NULL)
        dcpk_checkpoint_note(c, "%s", dcpk_store_note(c->store));
    c->state = dcpk_alloc(c->format->state_bytes, err);
    if (c->state == NULL || c->format->open(c, err) || check_tables(c, err) ||
        check_stored(c, err) || find_scheme(c, formats, name, err))
        return err->status;
    if (c->format->mapping == NULL && dcpk_foreign_of_keys(c) != NULL)
        dcpk_checkpoint_note(c, "this is %s", dcpk_foreign_of_keys(c));
    return DCPK_OK;
}

dcpk_status dcpk_checkpoint_open(struct dcpk_store *store, const struct dcpk_format *const *formats,
                                 const char *name, struct dcpk_checkpoint **ckpt,
                                 struct dcpk_error *err)
{
    struct tables *tables = dcpk_alloc(sizeof *tables, err);
    struct dcpk_checkpoint *c;

    if (tables == NULL) {
        dcpk_store_close(store);
        return err->status;
    }
    c = &tables->public;
    c->store = store;
    c->iteration = DCPK_ITERATION_UNKNOWN;
    c->generation = "";
    c->notes_end = &c->notes;
    if (read_metadata(c, formats, name, err) != DCPK_OK) {
        dcpk_context(err, "opening '%s'", dcpk_store_path(store));
        dcpk_checkpoint_close(c);
        return err->status;
    }
    *ckpt = c;
    return DCPK_OK;
}

void dcpk_checkpoint_close(struct dcpk_checkpoint *ckpt)
{
    if (ckpt == NULL)
        return;
    if (ckpt->state != NULL && ckpt->format->close != NULL)
        ckpt->format->close(ckpt);
    dcpk_free(ckpt->state);
    dcpk_map_release(&ckpt->tensor_by_key);
    dcpk_map_release(&ckpt->object_by_key);
    dcpk_free(ckpt->tensors);
    dcpk_free(ckpt->chunks);
    dcpk_free(ckpt->runs);
    dcpk_free(ckpt->objects);
    dcpk_free(ckpt->files);
    dcpk_arena_free(ckpt->arena);
    dcpk_checkpoint_close(ckpt->adapter);
    dcpk_store_close(ckpt->store);
    dcpk_free(ckpt);
}

dcpk_status dcpk_checkpoint_load_item(struct dcpk_checkpoint *ckpt,
                                      const struct dcpk_object *object, struct dcpk_arena *arena,
                                      const struct dcpk_value **value, struct dcpk_error *err)
{
    return ckpt->format->reader->load_object(ckpt, object, arena, value, err);
}

dcpk_status dcpk_checkpoint_outline_item(struct dcpk_checkpoint *ckpt,
                                         const struct dcpk_object *object, struct dcpk_arena *arena,
                                         const struct dcpk_value **value, struct dcpk_error *err)
{
    return ckpt->format->reader->outline_object(ckpt, object, arena, value, err);
}

dcpk_status dcpk_checkpoint_load_object(struct dcpk_checkpoint *ckpt,
                                        const struct dcpk_object *object, struct dcpk_arena *arena,
                                        const struct dcpk_value **value, struct dcpk_error *err)
{
    if (dcpk_checkpoint_load_item(ckpt, object, arena, value, err) != DCPK_OK)
        dcpk_context(err, "object '%s'", object->key);
    return err->status;
}

/* Its tensors hold the places of their bytes. */
static dcpk_status outline_object(struct dcpk_checkpoint *ckpt, const struct dcpk_object *object,
                                  struct dcpk_arena *arena, const struct dcpk_value **value,
                                  struct dcpk_error *err)
{
    if (dcpk_checkpoint_outline_item(ckpt, object, arena, value, err) != DCPK_OK)
        dcpk_context(err, "object '%s'", object->key);
    return err->status;
}

bool dcpk_object_is_large(const struct dcpk_object *object)
{
    return object->place.n_bytes > DCPK_MAX_LOADED_BYTES;
}

dcpk_status dcpk_checkpoint_show_object(struct dcpk_checkpoint *ckpt,
                                        const struct dcpk_object *object, struct dcpk_arena *arena,
                                        const struct dcpk_value **value, struct dcpk_error *err)
{
    if (dcpk_object_is_large(object))
        return outline_object(ckpt, object, arena, value, err);
    return dcpk_checkpoint_load_object(ckpt, object, arena, value, err);
}

dcpk_status dcpk_checkpoint_load_common(struct dcpk_checkpoint *ckpt, struct dcpk_arena *arena,
                                        const struct dcpk_value **value, struct dcpk_error *err)
{
    *value = NULL;
    if (ckpt->format->load_common == NULL)
        return DCPK_OK;
    return ckpt->format->load_common(ckpt, arena, value, err);
}

dcpk_status dcpk_checkpoint_leave_out(struct dcpk_checkpoint *ckpt, bool is_object, size_t index,
                                      const char *reason, struct dcpk_error *err)
{
    if (ckpt->left_out == NULL)
        ckpt->left_out = dcpk_arena_array(ckpt->arena, ckpt->n_tensors + ckpt->n_objects,
                                          sizeof *ckpt->left_out, err);
    if (ckpt->left_out == NULL)
        return err->status;
    if (is_object)
        index += ckpt->n_tensors;
    ckpt->left_out[index] = reason;
    return DCPK_OK;
}

const char *dcpk_checkpoint_tensor_left_out(const struct dcpk_checkpoint *ckpt, size_t tensor)
{
    return ckpt->left_out == NULL ? NULL : ckpt->left_out[tensor];
}

const char *dcpk_checkpoint_object_left_out(const struct dcpk_checkpoint *ckpt, size_t object)
{
    return ckpt->left_out == NULL ? NULL : ckpt->left_out[ckpt->n_tensors + object];
}

const struct dcpk_tensor *dcpk_checkpoint_tensor(const struct dcpk_checkpoint *ckpt,
                                                 const char *key)
{
    uint64_t i;

    if (!dcpk_map_get(&ckpt->tensor_by_key, key, strlen(key), &i) ||
        dcpk_checkpoint_tensor_left_out(ckpt, i) != NULL)
        return NULL;
    return &ckpt->tensors[i];
}

const struct dcpk_object *dcpk_checkpoint_object(const struct dcpk_checkpoint *ckpt,
                                                 const char *key)
{
    uint64_t i;

    if (!dcpk_map_get(&ckpt->object_by_key, key, strlen(key), &i) ||
        dcpk_checkpoint_object_left_out(ckpt, i) != NULL)
        return NULL;
    return &ckpt->objects[i];
}

dcpk_status dcpk_checkpoint_check_cover(const struct dcpk_checkpoint *ckpt, struct dcpk_error *err)
{
    const int64_t **spans = NULL;
    size_t n_max = 0;
    dcpk_status st = DCPK_OK;

    for (size_t t = 0; t < ckpt->n_tensors; t++)
        n_max = dcpk_max_size(n_max, ckpt->tensors[t].n_chunks);
    spans = dcpk_alloc_array(n_max, sizeof *spans, err);
    if (spans == NULL)
        return err->status;
    for (size_t t = 0; t < ckpt->n_tensors && st == DCPK_OK; t++) {
        const struct dcpk_tensor *tensor = &ckpt->tensors[t];

        for (size_t i = 0; i < tensor->n_chunks; i++)
            spans[i] = ckpt->chunks[tensor->first_chunk + i].span;
        st = dcpk_cover_check(tensor->shape, tensor->rank, spans, tensor->n_chunks, err);
        if (st != DCPK_OK)
            dcpk_context(err, "the chunks of '%s'", tensor->key);
    }
    dcpk_free(spans);
    return st;
}

#define NOTE_BYTES 1024

static void checkpoint_add_note(struct dcpk_checkpoint *ckpt, const char *text)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_note *note = dcpk_arena_alloc(ckpt->arena, sizeof *note, &err);

    if (note == NULL)
        return;
    note->text = dcpk_arena_strdup(ckpt->arena, text, &err);
    if (note->text == NULL)
        return;
    *ckpt->notes_end = note;
    ckpt->notes_end = &note->next;
}

void dcpk_checkpoint_note(struct dcpk_checkpoint *ckpt, const char *fmt, ...)
{
    char text[NOTE_BYTES];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    checkpoint_add_note(ckpt, text);
}

void dcpk_checkpoint_note_once(struct dcpk_checkpoint *ckpt, const char *fmt, ...)
{
    char text[NOTE_BYTES];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    for (const struct dcpk_note *note = ckpt->notes; note != NULL; note = note->next)
        if (strcmp(note->text, text) == 0)
            return;
    checkpoint_add_note(ckpt, text);
}

dcpk_status dcpk_checkpoint_reserve(struct dcpk_checkpoint *ckpt, size_t n_tensors, size_t n_chunks,
                                    struct dcpk_error *err)
{
    struct tables *tables = (struct tables *)ckpt;

    /* The format made its table of chunks as large as it needed. */
    if (tables->chunks_capacity < ckpt->n_chunks)
        tables->chunks_capacity = ckpt->n_chunks;
    if (dcpk_grow(&ckpt->tensors, &tables->tensors_capacity, n_tensors, sizeof *ckpt->tensors,
                  err) ||
        dcpk_grow(&ckpt->chunks, &tables->chunks_capacity, n_chunks, sizeof *ckpt->chunks, err) ||
        dcpk_grow(&ckpt->runs, &tables->runs_capacity, n_chunks - ckpt->n_chunks,
                  sizeof *ckpt->runs, err))
        return err->status;
    return DCPK_OK;
}

dcpk_status dcpk_checkpoint_add_tensor(struct dcpk_checkpoint *ckpt,
                                       const struct dcpk_tensor *tensor, struct dcpk_error *err)
{
    struct tables *tables = (struct tables *)ckpt;
    bool existed;
    uint64_t other;

    if (ckpt->n_tensors >= UINT32_MAX)
        return dcpk_fail(err, DCPK_ERANGE, "more than %u tensors", UINT32_MAX);
    if (dcpk_grow(&ckpt->tensors, &tables->tensors_capacity, ckpt->n_tensors, sizeof *ckpt->tensors,
                  err) ||
        dcpk_map_put(&ckpt->tensor_by_key, tensor->key, strlen(tensor->key), ckpt->n_tensors,
                     &existed, &other, err))
        return err->status;
    if (existed || dcpk_map_get(&ckpt->object_by_key, tensor->key, strlen(tensor->key), &other))
        return dcpk_fail(err, DCPK_EFORMAT, "the key '%s' occurs twice", tensor->key);
    ckpt->tensors[ckpt->n_tensors++] = *tensor;
    return DCPK_OK;
}

dcpk_status dcpk_checkpoint_add_object(struct dcpk_checkpoint *ckpt,
                                       const struct dcpk_object *object, struct dcpk_error *err)
{
    struct tables *tables = (struct tables *)ckpt;
    bool existed;
    uint64_t other;

    if (dcpk_grow(&ckpt->objects, &tables->objects_capacity, ckpt->n_objects, sizeof *ckpt->objects,
                  err) ||
        dcpk_map_put(&ckpt->object_by_key, object->key, strlen(object->key), ckpt->n_objects,
                     &existed, &other, err))
        return err->status;
    if (existed || dcpk_map_get(&ckpt->tensor_by_key, object->key, strlen(object->key), &other))
        return dcpk_fail(err, DCPK_EFORMAT, "the key '%s' occurs twice", object->key);
    ckpt->objects[ckpt->n_objects++] = *object;
    return DCPK_OK;
}

dcpk_status dcpk_checkpoint_add_file(struct dcpk_checkpoint *ckpt, struct dcpk_source *source,
                                     uint32_t *file, struct dcpk_error *err)
{
    struct tables *tables = (struct tables *)ckpt;

    if (ckpt->n_files >= UINT32_MAX)
        return dcpk_fail(err, DCPK_ERANGE, "more than %u files", UINT32_MAX);
    if (dcpk_grow(&ckpt->files, &tables->files_capacity, ckpt->n_files,
                  sizeof(struct dcpk_source *), err))
        return err->status;
    *file = (uint32_t)ckpt->n_files;
    ckpt->files[ckpt->n_files++] = source;
    return DCPK_OK;
}

bool dcpk_checkpoint_skips_private(struct dcpk_checkpoint *ckpt, const char *name,
                                   const struct dcpk_folder *folder)
{
    if (!dcpk_store_leads_to_private(ckpt->store, name, folder))
        return false;
    dcpk_checkpoint_note_once(ckpt,
                              "'%s' is not copied: it links to a file that fewer users may "
                              "read than the checkpoint",
                              name);
    return true;
}
