/* SPDX-License-Identifier: Apache-2.0 */
/* item_value.c - torch.save archives as values: everything in memory, every CRC checked, tensors
 * with their bytes; or in outline, tensors left where they are. */
#include "formats/torch/item_priv.h"

#include <inttypes.h>
#include <string.h>

#include "formats/torch/pickle.h"
#include "lib/base/alloc.h"
#include "lib/base/checked.h"
#include "lib/base/digest.h"

#define MAX_VALUE_MEMBERS 65536u
#define MAX_OUTLINE_BYTES ((uint64_t)64 << 20) /* of the pickle alone */
#define UNSEEN_BYTES      ((uint64_t)4 << 20)  /* read at once, whatever it is */
/* Strides of 0 make a tensor larger than its item; past this factor it is hostile. */
#define MAX_EXPANSION 64u

/* Tensors inside a value being made of an archive: in memory, else an outline is made. */
struct filling {
    struct dcpk_zip *zip;
    struct dcpk_arena *arena;
    uint64_t budget_bytes;   /* for tensor bytes in memory */
    dcpk_is_known *is_known; /* NULL: any class or function may be named */
};

/* Copy elements into row-major order: an odometer over all axes but the last. */
static void gather(const struct dcpk_rebuilt *r, const uint8_t *storage, uint8_t *out)
{
    const size_t elem = dcpk_dtype_bytes(r->dtype);
    const int last = r->rank - 1;
    const int64_t n_last = last < 0 ? 1 : r->shape[last],
                  step = last < 0 ? 0 : r->stride_elems[last];
    int64_t index[DCPK_MAX_RANK] = {0};
    int64_t at = r->offset_elems;
    int axis;

    do {
        for (int64_t i = 0; i < n_last; i++, out += elem)
            memcpy(out, storage + (size_t)(at + i * step) * elem, elem);
        for (axis = last - 1; axis >= 0; axis--) {
            at += r->stride_elems[axis];
            if (++index[axis] < r->shape[axis])
                break;
            at -= r->stride_elems[axis] * r->shape[axis];
            index[axis] = 0;
        }
    } while (axis >= 0);
}

/* Copy the bytes of a tensor of n_elems out of the archive in memory. */
static dcpk_status copy_elements(struct filling *f, const struct dcpk_rebuilt *r, int64_t n_elems,
                                 const struct dcpk_zip_member *member, struct dcpk_value_tensor *t,
                                 struct dcpk_error *err)
{
    const size_t elem = dcpk_dtype_bytes(r->dtype);
    uint8_t *bytes;

    if ((uint64_t)n_elems > f->budget_bytes / elem)
        return dcpk_fail(err, DCPK_ERANGE,
                         "tensors with more than %u times the bytes of their item", MAX_EXPANSION);
    f->budget_bytes -= (uint64_t)n_elems * elem;
    bytes = dcpk_arena_alloc(f->arena, (size_t)n_elems * elem, err);
    if (bytes == NULL)
        return err->status;
    if (n_elems > 0) /* the CRC of its storage was checked with all others */
        gather(r, f->zip->whole + member->data_offset_bytes, bytes);
    t->data = bytes;
    return DCPK_OK;
}

/* Record where the elements lie. They are inside their record, and that inside the file. */
static void point_at_elements(const struct filling *f, const struct dcpk_rebuilt *r,
                              const struct dcpk_zip_member *member, struct dcpk_value_tensor *t)
{
    t->first_bytes = f->zip->base_bytes + member->data_offset_bytes +
                     (uint64_t)r->offset_elems * dcpk_dtype_bytes(r->dtype);
    t->is_row_major = dcpk_strides_are_row_major(r->shape, r->stride_elems, r->rank);
    t->record_offset_bytes = f->zip->base_bytes + member->data_offset_bytes;
    t->record_bytes = member->n_bytes;
    t->record_crc32 = member->crc32;
}

/* Make the tensor that `r` describes. */
static dcpk_status fill_tensor(struct filling *f, const struct dcpk_rebuilt *r,
                               struct dcpk_value_tensor **out, struct dcpk_error *err)
{
    const struct dcpk_zip_member *member;
    struct dcpk_value_tensor *t;
    int64_t n_elems, *shape;
    uint64_t n_bytes;

    if (dcpk_rebuilt_find_storage(f->zip, r, &member, err) ||
        dcpk_shape_count(r->shape, r->rank, &n_elems, err))
        return err->status;
    if (!dcpk_mul_u64((uint64_t)n_elems, dcpk_dtype_bytes(r->dtype), &n_bytes))
        return dcpk_fail(err, DCPK_ERANGE, "a tensor of %" PRId64 " elements", n_elems);
    t = dcpk_arena_alloc(f->arena, sizeof *t, err);
    shape = dcpk_arena_copy(f->arena, r->shape, (size_t)r->rank, sizeof *shape, err);
    if (t == NULL || shape == NULL)
        return err->status;
    *t = (struct dcpk_value_tensor){
        .dtype = r->dtype, .rank = r->rank, .shape = shape, .n_bytes = n_bytes};
    if (f->zip->whole == NULL)
        point_at_elements(f, r, member, t);
    else if (copy_elements(f, r, n_elems, member, t, err))
        return err->status;
    *out = t;
    return DCPK_OK;
}

/* Nodes still to be looked at, and those that were: nodes may be shared. */
struct walk {
    struct dcpk_arena *arena; /* of `seen` keys */
    dcpk_is_known *is_known;
    const struct dcpk_value **stack;
    size_t n, capacity;
    struct dcpk_map seen;
};

/* Errors: DCPK_EUNSUPPORTED where the file may not name it. */
static dcpk_status check_known(const struct walk *w, const char *module, const char *name,
                               struct dcpk_error *err)
{
    if (w->is_known == NULL || w->is_known(module, name))
        return DCPK_OK;
    return dcpk_fail(err, DCPK_EUNSUPPORTED,
                     "it holds '%.200s.%.200s', a class that is not read here", module, name);
}

static dcpk_status push_value(struct walk *w, const struct dcpk_value *v, struct dcpk_error *err)
{
    if (v != NULL && v->kind == DCPK_V_GLOBAL)
        return check_known(w, v->as.global.module, v->as.global.name, err);
    if (v == NULL || v->kind < DCPK_V_TUPLE)
        return DCPK_OK;
    if (dcpk_grow(&w->stack, &w->capacity, w->n, sizeof *w->stack, err))
        return err->status;
    w->stack[w->n++] = v;
    return DCPK_OK;
}

static dcpk_status push_pairs(struct walk *w, const struct dcpk_value_pair *pairs, size_t n,
                              struct dcpk_error *err)
{
    for (size_t i = 0; i < n; i++) {
        if (push_value(w, pairs[i].key, err) || push_value(w, pairs[i].value, err))
            return err->status;
    }
    return DCPK_OK;
}

static dcpk_status push_items(struct walk *w, const struct dcpk_value *const *items, size_t n,
                              struct dcpk_error *err)
{
    for (size_t i = 0; i < n; i++)
        if (push_value(w, items[i], err))
            return err->status;
    return DCPK_OK;
}

static dcpk_status push_children(struct walk *w, const struct dcpk_value *v, struct dcpk_error *err)
{
    const struct dcpk_value_object *object;

    if (v->kind == DCPK_V_TUPLE || v->kind == DCPK_V_LIST || v->kind == DCPK_V_SET)
        return push_items(w, v->as.items, v->n, err);
    if (v->kind == DCPK_V_DICT)
        return push_pairs(w, v->as.pairs, v->n, err);
    if (v->kind != DCPK_V_OBJECT)
        return DCPK_OK;
    object = v->as.object;
    if (check_known(w, object->module, object->name, err) || push_value(w, object->args, err) ||
        push_value(w, object->state, err) || push_items(w, object->items, object->n_items, err))
        return err->status;
    return push_pairs(w, object->pairs, object->n_pairs, err);
}

/* Marks v as seen; *was_seen: it was before. */
static dcpk_status mark_seen(struct walk *w, const struct dcpk_value *v, bool *was_seen,
                             struct dcpk_error *err)
{
    const struct dcpk_value **key = dcpk_arena_alloc(w->arena, sizeof *key, err);
    uint64_t unused;

    if (key == NULL)
        return err->status;
    *key = v;
    return dcpk_map_put(&w->seen, (const char *)key, sizeof *key, 0, was_seen, &unused, err);
}

/* Look at one node: a tensor is filled in in its place, others give their children to the walk. */
static dcpk_status walk_visit(struct walk *w, struct filling *f, const struct dcpk_value *v,
                              struct dcpk_error *err)
{
    struct dcpk_value_tensor *tensor = NULL;
    struct dcpk_value *node;
    struct dcpk_rebuilt r;
    bool was_seen, is_tensor;

    if (mark_seen(w, v, &was_seen, err))
        return err->status;
    if (was_seen)
        return DCPK_OK;
    if (dcpk_rebuilt_read(v, &is_tensor, &r, err))
        return err->status;
    if (!is_tensor) {
        if (v->kind == DCPK_V_OBJECT && v->as.object->name == dcpk_storage_mark)
            return dcpk_fail(
                err, DCPK_EUNSUPPORTED,
                "a storage that does not belong to a dense tensor (sparse, quantised or a "
                "subclass)");
        return push_children(w, v, err);
    }
    if (fill_tensor(f, &r, &tensor, err))
        return err->status;
    /* The pickle reader made this node in our arena for this call; no other pointer to it exists
     * yet. */
    node = (struct dcpk_value *)(uintptr_t)v;
    node->kind = DCPK_V_TENSOR;
    node->n = 0;
    node->as.tensor = tensor;
    return DCPK_OK;
}

/* Turn every rebuilt tensor under root into a DCPK_V_TENSOR. */
static dcpk_status fill_tensors(struct filling *f, const struct dcpk_value *root,
                                struct dcpk_error *err)
{
    struct walk w = {.arena = dcpk_arena_new(), .is_known = f->is_known};

    (void)push_value(&w, root, err);
    while (w.n > 0 && err->status == DCPK_OK)
        (void)walk_visit(&w, f, w.stack[--w.n], err);
    dcpk_map_release(&w.seen);
    dcpk_free(w.stack);
    dcpk_arena_free(w.arena);
    return err->status;
}

static dcpk_status check_crcs(struct dcpk_zip *zip, struct dcpk_error *err)
{
    const uint8_t *unused;

    for (size_t i = 0; i < zip->n_members; i++)
        if (dcpk_zip_borrow(zip, &zip->members[i], zip->n_bytes, &unused, err))
            return err->status;
    return DCPK_OK;
}

/* The value of an open archive whose data.pkl has at most limit_bytes. */
static dcpk_status build_value(struct filling *f, uint64_t limit_bytes,
                               const struct dcpk_value **value, struct dcpk_error *err)
{
    const struct dcpk_value *v;
    size_t n_storages;

    if (dcpk_item_read_pickle(f->zip, limit_bytes, f->arena, &v, &n_storages, err) ||
        ((n_storages > 0 || f->is_known != NULL) && fill_tensors(f, v, err)))
        return err->status;
    if (n_storages > 0 && dcpk_value_unfolded(v) > dcpk_unfold_limit(f->zip->n_bytes))
        return dcpk_fail(
            err, DCPK_ERANGE,
            "its tensors are shared so often that they unfold to more than %d times its "
            "bytes",
            DCPK_UNFOLD_A_BYTE * 8);
    *value = v;
    return DCPK_OK;
}

/* The value of an archive in memory. */
static dcpk_status read_whole(const uint8_t *data, size_t n_bytes, uint64_t base_bytes,
                              struct dcpk_arena *arena, const struct dcpk_value **value,
                              struct dcpk_error *err)
{
    struct dcpk_zip zip;
    struct filling f = {
        .zip = &zip, .arena = arena, .budget_bytes = MAX_EXPANSION * (uint64_t)n_bytes};

    if (dcpk_zip_open_memory(&zip, data, n_bytes, base_bytes, MAX_VALUE_MEMBERS, err) == DCPK_OK &&
        check_crcs(&zip, err) == DCPK_OK)
        (void)build_value(&f, n_bytes, value, err);
    dcpk_zip_release(&zip);
    return err->status;
}

static void add_range_context(const struct dcpk_item_range *range, struct dcpk_error *err)
{
    dcpk_context(err, "item at byte %" PRIu64 " of '%s'", range->offset_bytes,
                 dcpk_source_name(range->source));
}

/* A large item is an archive by its ends before it gets memory: there may be nothing but a hole. */
static dcpk_status look_first(const struct dcpk_item_range *range, struct dcpk_error *err)
{
    struct dcpk_zip zip;

    if (range->n_bytes <= UNSEEN_BYTES)
        return DCPK_OK;
    (void)dcpk_zip_open(&zip, range, MAX_VALUE_MEMBERS, err);
    dcpk_zip_release(&zip);
    return err->status;
}

/* Checks that the bytes are there, few enough to be loaded, and an archive at first sight. */
static dcpk_status item_check_range(const struct dcpk_item_range *range, struct dcpk_error *err)
{
    const uint64_t file_bytes = dcpk_source_bytes(range->source), n_bytes = range->n_bytes;
    const uint64_t limit_bytes = dcpk_source_value_limit(range->source, DCPK_MAX_LOADED_BYTES);

    if (n_bytes > file_bytes || range->offset_bytes > file_bytes - n_bytes)
        return dcpk_fail(err, DCPK_EFORMAT,
                         "%" PRIu64 " bytes pass the end of the file (%" PRIu64 ")", n_bytes,
                         file_bytes);
    if (n_bytes > limit_bytes)
        return dcpk_fail(err, DCPK_ERANGE, "%" PRIu64 " bytes; the limit is %" PRIu64, n_bytes,
                         limit_bytes);
    return look_first(range, err);
}

static dcpk_status load_value(const struct dcpk_item_range *range, struct dcpk_arena *arena,
                              const struct dcpk_value **value, struct dcpk_error *err)
{
    const size_t n_bytes = (size_t)range->n_bytes;
    uint8_t *data = dcpk_alloc(n_bytes, err);

    if (data == NULL)
        return err->status;
    if (dcpk_source_read(range->source, range->offset_bytes, data, n_bytes, err) == DCPK_OK)
        (void)read_whole(data, n_bytes, range->offset_bytes, arena, value, err);
    dcpk_free(data);
    return err->status;
}

dcpk_status dcpk_item_read_value(const struct dcpk_item_range *range, struct dcpk_arena *arena,
                                 const struct dcpk_value **value, struct dcpk_error *err)
{
    if (item_check_range(range, err) || load_value(range, arena, value, err)) {
        add_range_context(range, err);
        return err->status;
    }
    return DCPK_OK;
}

static dcpk_status read_dict(struct dcpk_store *store, const char *name, struct dcpk_arena *arena,
                             const struct dcpk_value **value, struct dcpk_error *err)
{
    struct dcpk_item_range range;
    struct dcpk_source *source;

    if (dcpk_store_find(store, name, &source, err))
        return err->status;
    range = dcpk_item_whole(source);
    if (dcpk_item_read_value(&range, arena, value, err))
        return err->status;
    if ((*value)->kind != DCPK_V_DICT)
        return dcpk_fail(err, DCPK_EFORMAT, "the common state is not a dict");
    return DCPK_OK;
}

dcpk_status dcpk_item_read_common(struct dcpk_store *store, const char *name,
                                  struct dcpk_arena *arena, const struct dcpk_value **value,
                                  struct dcpk_error *err)
{
    const struct dcpk_value *v = NULL;
    enum dcpk_path_kind kind;

    if (dcpk_store_look(store, name, &kind, err) ||
        (kind != DCPK_PATH_NOTHING && read_dict(store, name, arena, &v, err)))
        return dcpk_context(err, "reading '%s'", name);
    *value = v;
    return DCPK_OK;
}

dcpk_status dcpk_item_read_outline(const struct dcpk_item_range *range, struct dcpk_arena *arena,
                                   const struct dcpk_value **value, struct dcpk_error *err)
{
    return dcpk_item_read_known(range, NULL, arena, value, NULL, err);
}

dcpk_status dcpk_item_read_known(const struct dcpk_item_range *range, dcpk_is_known *is_known,
                                 struct dcpk_arena *arena, const struct dcpk_value **value,
                                 const char **folder, struct dcpk_error *err)
{
    struct dcpk_zip zip;
    struct filling f = {.zip = &zip, .arena = arena, .is_known = is_known};
    const uint64_t limit_bytes = dcpk_source_value_limit(range->source, MAX_OUTLINE_BYTES);

    if (dcpk_zip_open(&zip, range, MAX_VALUE_MEMBERS, err) == DCPK_OK &&
        build_value(&f, limit_bytes, value, err) == DCPK_OK && folder != NULL)
        *folder = dcpk_arena_strndup(arena, zip.folder, zip.folder_bytes, err);
    dcpk_zip_release(&zip);
    if (err->status != DCPK_OK)
        add_range_context(range, err);
    return err->status;
}

/* Loads one tensor of an outline. *left_bytes: of records that may still be read. */
static dcpk_status load_outlined(struct dcpk_source *source, struct dcpk_arena *arena,
                                 const struct dcpk_value_tensor *tensor, uint64_t *left_bytes,
                                 struct dcpk_error *err)
{
    /* The reader made it in our arena. */
    struct dcpk_value_tensor *filled = (struct dcpk_value_tensor *)(uintptr_t)tensor;
    uint8_t *record;

    if (tensor->data != NULL)
        return DCPK_OK;
    if (tensor->record_bytes > *left_bytes)
        return dcpk_fail(err, DCPK_ERANGE, "tensors of more than %" PRIu64 " bytes in a value",
                         MAX_OUTLINE_BYTES);
    if (!tensor->is_row_major)
        return dcpk_fail(err, DCPK_EUNSUPPORTED,
                         "a tensor in a value with elements that are not in row-major order");
    *left_bytes -= tensor->record_bytes;
    record = dcpk_arena_alloc(arena, (size_t)tensor->record_bytes, err);
    if (record == NULL || dcpk_source_read(source, tensor->record_offset_bytes, record,
                                           (size_t)tensor->record_bytes, err))
        return err->status;
    if (dcpk_crc32(0, record, (size_t)tensor->record_bytes) != tensor->record_crc32)
        return dcpk_fail(err, DCPK_EFORMAT, "the checksum at byte %" PRIu64 " does not match",
                         tensor->record_offset_bytes);
    filled->data = record + (tensor->first_bytes - tensor->record_offset_bytes);
    return DCPK_OK;
}

dcpk_status dcpk_item_fill_outline(struct dcpk_source *source, struct dcpk_arena *arena,
                                   const struct dcpk_value *value, struct dcpk_error *err)
{
    struct walk w = {.arena = dcpk_arena_new()};
    uint64_t left_bytes = dcpk_source_value_limit(source, MAX_OUTLINE_BYTES);
    bool was_seen;

    (void)push_value(&w, value, err);
    while (w.n > 0 && err->status == DCPK_OK) {
        const struct dcpk_value *v = w.stack[--w.n];

        if (mark_seen(&w, v, &was_seen, err) || was_seen)
            continue;
        if (v->kind == DCPK_V_TENSOR)
            (void)load_outlined(source, arena, v->as.tensor, &left_bytes, err);
        else
            (void)push_children(&w, v, err);
    }
    dcpk_map_release(&w.seen);
    dcpk_free(w.stack);
    dcpk_arena_free(w.arena);
    return err->status;
}

dcpk_status dcpk_item_find_fault(struct dcpk_source *source, struct dcpk_arena *arena,
                                 const char **fault, struct dcpk_error *err)
{
    const struct dcpk_item_range range = dcpk_item_whole(source);
    const struct dcpk_value *value = NULL;
    const char *module, *name;
    bool found = false;

    *fault = NULL;
    if (dcpk_item_read_outline(&range, arena, &value, err) ||
        dcpk_value_find_unknown(value, dcpk_pickle_is_known, &found, &module, &name, err)) {
        if (!dcpk_status_is_content(err->status))
            return err->status;
        *fault = dcpk_arena_strdup(arena, err->text, err);
    } else if (found) {
        *fault = dcpk_arena_printf(arena, err,
                                   "holds '%s.%s', which Python would import or call on loading",
                                   module, name);
    } else {
        return DCPK_OK;
    }
    if (*fault == NULL)
        return err->status;
    dcpk_error_clear(err);
    return DCPK_OK;
}

dcpk_status dcpk_item_each_record(const struct dcpk_item_range *range, dcpk_take_record *take,
                                  void *context, struct dcpk_error *err)
{
    struct dcpk_zip zip;

    (void)dcpk_zip_open(&zip, range, MAX_VALUE_MEMBERS, err);
    for (size_t i = 0; err->status == DCPK_OK && i < zip.n_members; i++) {
        const struct dcpk_zip_member *member = &zip.members[i];
        const struct dcpk_record record = {range->offset_bytes + member->data_offset_bytes,
                                           member->n_bytes, member->crc32};

        (void)take(context, &record, err);
    }
    dcpk_zip_release(&zip);
    if (err->status != DCPK_OK)
        add_range_context(range, err);
    return err->status;
}
