/* SPDX-License-Identifier: Apache-2.0 */
/* write_items.c - write a tensor item of every dtype and of several shapes, for torch to read. */
/*
 * write_items FOLDER makes FOLDER/<dtype>.<n>x<n>...pt, "scalar" for rank 0. Byte i of the data is
 * (37 i + 11) mod 256, of a bool (i mod 3 == 0), so that check_items.py knows what must be in it.
 */
#include <inttypes.h>
#include <stdio.h>

#include "formats/torch/item.h"
#include "kernels/kernels.h"
#include "lib/base/alloc.h"
#include "lib/base/digest.h"
#include "lib/io/sink.h"

static const struct {
    const char *name;
    int rank;
    int64_t size[3];
} shapes[] = {
    {"scalar", 0, {0}}, {"1", 1, {1}},      {"0", 1, {0}},
    {"3x0", 2, {3, 0}}, {"5x7", 2, {5, 7}}, {"2x3x300", 3, {2, 3, 300}},
};

static void fill(enum dcpk_dtype dtype, uint8_t *data, uint64_t n_bytes)
{
    for (uint64_t i = 0; i < n_bytes; i++)
        data[i] = dtype == DCPK_BOOL ? i % 3 == 0 : (uint8_t)(37 * i + 11);
}

/* One complete item, in memory that the caller frees. */
static dcpk_status make_item(enum dcpk_dtype dtype, const int64_t *size, int rank, uint8_t **item,
                             size_t *n_bytes, struct dcpk_error *err)
{
    const struct dcpk_item_form form = {dtype, rank, size};
    struct dcpk_item_sizes sizes;
    uint8_t *all, *data;
    dcpk_status st = dcpk_item_measure(&form, &sizes, err);

    if (st != DCPK_OK)
        return st;
    *n_bytes = sizes.lead_bytes + (size_t)sizes.data_bytes + sizes.tail_bytes;
    all = dcpk_alloc(*n_bytes, err);
    if (all == NULL)
        return err->status;
    data = all + sizes.lead_bytes;
    fill(dtype, data, sizes.data_bytes);
    st = dcpk_item_frame(&form, dcpk_crc32(0, data, (size_t)sizes.data_bytes), all,
                         data + sizes.data_bytes, err);
    if (st != DCPK_OK)
        dcpk_free(all);
    else
        *item = all;
    return st;
}

static dcpk_status write_item(struct dcpk_folder *folder, enum dcpk_dtype dtype, size_t shape,
                              struct dcpk_error *err)
{
    uint8_t *item = NULL;
    size_t n_bytes = 0;
    char name[80];
    dcpk_status st = make_item(dtype, shapes[shape].size, shapes[shape].rank, &item, &n_bytes, err);

    if (st != DCPK_OK) {
        dcpk_context(err, "making %s of shape %s", dcpk_dtype_name(dtype), shapes[shape].name);
        return st;
    }
    snprintf(name, sizeof name, "%s.%s.pt", dcpk_dtype_name(dtype), shapes[shape].name);
    st = dcpk_folder_put(folder, name, item, n_bytes, err);
    dcpk_free(item);
    return st;
}

int main(int argc, char **argv)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_folder *folder = NULL;
    dcpk_status st;

    if (argc != 2) {
        fprintf(stderr, "usage: write_items FOLDER\n");
        return 2;
    }
    st = dcpk_folder_begin(argv[1], 0, &folder, &err);
    for (int d = DCPK_DTYPE_NONE + 1; st == DCPK_OK && d < DCPK_N_DTYPES; d++)
        for (size_t s = 0; st == DCPK_OK && s < sizeof shapes / sizeof *shapes; s++)
            st = write_item(folder, (enum dcpk_dtype)d, s, &err);
    if (st == DCPK_OK)
        st = dcpk_folder_publish(folder, &err);
    if (st != DCPK_OK) {
        dcpk_folder_abandon(folder);
        fprintf(stderr, "write_items: %s\n", err.text);
    }
    return st == DCPK_OK ? 0 : 1;
}
