/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_item.c - any bytes as a torch.save archive: a tensor inside its record, a value, or an
 * error. */
#include <stdlib.h>
#include <string.h>

#include "formats/torch/item.h"
#include "lib/base/checked.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes);

/* Bytes in front of and behind the item, which it must not touch. */
#define MARGIN 64u

/* Byte behind the last element; aborts when it cannot be counted. */
static uint64_t last_end(const struct dcpk_item_tensor *t)
{
    uint64_t end = t->first_bytes + dcpk_dtype_bytes(t->dtype), reach;

    for (int i = 0; i < t->rank; i++)
        if (t->shape[i] == 0)
            return t->first_bytes;
    for (int i = 0; i < t->rank; i++)
        if (!dcpk_mul_u64((uint64_t)t->shape[i] - 1, (uint64_t)t->stride_elems[i], &reach) ||
            !dcpk_mul_u64(reach, dcpk_dtype_bytes(t->dtype), &reach) ||
            !dcpk_add_u64(end, reach, &end))
            abort();
    return end;
}

/* A tensor that was accepted lies inside its record, and the record inside the item. */
static void check_tensor(const struct dcpk_item_tensor *t, uint64_t n_bytes)
{
    const uint64_t record_end = t->record_offset_bytes + t->record_bytes;

    if (dcpk_dtype_bytes(t->dtype) == 0 || t->rank < 0 || t->rank > DCPK_MAX_RANK ||
        t->record_bytes > n_bytes || t->record_offset_bytes < MARGIN ||
        record_end > MARGIN + n_bytes || t->first_bytes < t->record_offset_bytes)
        abort();
    for (int i = 0; i < t->rank; i++)
        if (t->shape[i] < 0 || t->stride_elems[i] < 0)
            abort();
    if (last_end(t) > record_end)
        abort();
}

/* Who expects what is there finds the same. */
static void check_guess(const struct dcpk_item_range *range, const struct dcpk_item_tensor *t)
{
    const struct dcpk_item_form form = {t->dtype, t->rank, t->shape};
    const size_t n = (size_t)t->rank * sizeof *t->shape;
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_item_tensor again;

    if (dcpk_item_read_tensor(range, &form, &again, &err) != DCPK_OK || again.rank != t->rank ||
        again.dtype != t->dtype || again.first_bytes != t->first_bytes ||
        memcmp(again.shape, t->shape, n) != 0 ||
        memcmp(again.stride_elems, t->stride_elems, n) != 0)
        abort();
}

static struct dcpk_source *make_source(struct dcpk_store *store, const uint8_t *data,
                                       size_t n_bytes, struct dcpk_error *err)
{
    struct dcpk_source *source = NULL;
    uint8_t *padded = calloc(1, n_bytes + 2 * MARGIN);

    if (padded == NULL)
        abort();
    for (size_t i = 0; i < n_bytes; i++)
        padded[MARGIN + i] = data[i];
    if (dcpk_store_add_memory(store, "item", padded, n_bytes + 2 * MARGIN, err) != DCPK_OK ||
        dcpk_store_find(store, "item", &source, err) != DCPK_OK)
        abort();
    free(padded);
    return source;
}

/* A record lies inside the item. */
static dcpk_status check_record(void *context, const struct dcpk_record *record,
                                struct dcpk_error *err)
{
    const struct dcpk_item_range *range = context;

    (void)err;
    if (record->offset_bytes < range->offset_bytes || record->n_bytes > range->n_bytes ||
        record->offset_bytes - range->offset_bytes > range->n_bytes - record->n_bytes)
        abort();
    return DCPK_OK;
}

/* The outline of a list, or of what is not a list: tensors in one run lie inside the item. */
static void check_outline(const struct dcpk_item_range *range, const struct dcpk_value *value)
{
    const size_t n = value->kind == DCPK_V_LIST ? value->n : 1;

    for (size_t i = 0; i < n; i++) {
        const struct dcpk_value *v = value->kind == DCPK_V_LIST ? dcpk_value_at(value, i) : value;
        const struct dcpk_value_tensor *t = v->kind == DCPK_V_TENSOR ? v->as.tensor : NULL;

        if (t != NULL && t->is_row_major && t->n_bytes > 0 &&
            (t->data != NULL || t->first_bytes < range->offset_bytes ||
             t->n_bytes > range->n_bytes ||
             t->first_bytes - range->offset_bytes > range->n_bytes - t->n_bytes))
            abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_store *store = NULL;
    struct dcpk_arena *arena = dcpk_arena_new();
    struct dcpk_source *source;
    struct dcpk_item_range range;
    struct dcpk_item_tensor tensor;
    const struct dcpk_value *value;
    struct dcpk_bytes again = {.data = NULL};

    if (arena == NULL || dcpk_store_new_memory("fuzz", &store, &err) != DCPK_OK)
        abort();
    source = make_source(store, data, n_bytes, &err);
    range = (struct dcpk_item_range){source, NULL, MARGIN, n_bytes};
    if (dcpk_item_read_tensor(&range, NULL, &tensor, &err) == DCPK_OK) {
        check_tensor(&tensor, n_bytes);
        check_guess(&range, &tensor);
    }
    if (dcpk_item_read_value(&range, arena, &value, &err) == DCPK_OK)
        dcpk_item_encode(value, "archive", 2, &again, &err); /* what was read can be walked */
    if (dcpk_item_read_outline(&range, arena, &value, &err) == DCPK_OK)
        check_outline(&range, value);
    dcpk_item_each_record(&range, check_record, &range, &err);
    dcpk_bytes_release(&again);
    dcpk_store_close(store);
    dcpk_arena_free(arena);
    return 0;
}
