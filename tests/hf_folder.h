/* SPDX-License-Identifier: Apache-2.0 */
/* hf_folder.h - a folder of Hugging Face's in memory, of a config.json and a list of tensors. */
/*
 * A line "<name> <dtype> <size>,<size>,..." for each tensor, dtypes as safetensors spells them, and
 * perhaps a space and what is in it: a number, which is that of each byte, or a number and "+":
 * element k of F32, or byte k, is that number + k % 64. Without it all are 0.
 */
#ifndef DCPK_TESTS_HF_FOLDER_H
#define DCPK_TESTS_HF_FOLDER_H

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "formats/formats.h"
#include "lib/base/bytes.h"
#include "lib/ckpt/format.h"

#define HF_FOLDER_BYTES ((uint64_t)1 << 20) /* of tensors, at most */

/* The bytes of a tensor of that dtype and those sizes; HF_FOLDER_BYTES + 1: none are. */
static inline uint64_t hf_folder_bytes(const char *dtype, const char *sizes)
{
    uint64_t n = 4;
    char *end;

    if (strchr(dtype, '8') != NULL || strcmp(dtype, "BOOL") == 0)
        n = 1;
    if (strstr(dtype, "16") != NULL)
        n = 2;
    for (; *sizes != '\0'; sizes = *end == ',' ? end + 1 : end) {
        const unsigned long long size = strtoull(sizes, &end, 10);

        if (end == sizes || size > HF_FOLDER_BYTES || n * size > HF_FOLDER_BYTES)
            return HF_FOLDER_BYTES + 1;
        n *= size;
    }
    return n;
}

static inline void hf_folder_fill(const char *dtype, const char *text, uint8_t *at, size_t n)
{
    char *end;
    const long first = strtol(text, &end, 10);

    if (*end != '+')
        memset(at, (int)first, n);
    for (size_t k = 0; *end == '+' && k < n; k++) {
        const float value = (float)(first + (long)(k / 4 % 64));

        if (strcmp(dtype, "F32") != 0)
            at[k] = (uint8_t)(first + (long)(k % 64));
        else if (k % 4 == 0)
            memcpy(at + k, &value, sizeof value);
    }
}

/* Add one line, which is changed, to header and data. Returns false where it is none. */
static inline bool hf_folder_add(char *line, struct dcpk_bytes *header, struct dcpk_bytes *data)
{
    const char *name = strsep(&line, " "), *dtype = strsep(&line, " "), *sizes = strsep(&line, " ");
    const size_t first = data->n_bytes;
    uint64_t n;

    if (sizes == NULL || *name == '\0' || strpbrk(name, "\"\\") != NULL ||
        strspn(dtype, "ABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789") != strlen(dtype) ||
        strspn(sizes, "0123456789,") != strlen(sizes))
        return false;
    n = hf_folder_bytes(dtype, sizes);
    if (n > HF_FOLDER_BYTES - first)
        return false;
    dcpk_bytes_printf(
        header, "%s\"%s\": {\"dtype\": \"%s\", \"shape\": [%s], \"data_offsets\": [%zu, %zu]}",
        first == 0 && header->n_bytes == 0 ? "{" : ", ", name, dtype, sizes, first,
        first + (size_t)n);
    dcpk_bytes_zeros(data, (size_t)n);
    if (line != NULL)
        hf_folder_fill(dtype, line, data->data + first, (size_t)n);
    return true;
}

/* The file of these tensors, appended to `file`; false where a line is none. */
static inline bool hf_folder_file(const char *lines, struct dcpk_bytes *file)
{
    struct dcpk_bytes header = {0}, data = {0};
    char *copy = strdup(lines), *rest = copy, *line;
    bool is_good = copy != NULL;

    while (is_good && (line = strsep(&rest, "\n")) != NULL)
        is_good = *line == '\0' || hf_folder_add(line, &header, &data);
    dcpk_bytes_text(&header, header.n_bytes == 0 ? "{}" : "}");
    if (is_good) {
        dcpk_bytes_u64(file, header.n_bytes);
        dcpk_bytes_put(file, header.data, header.n_bytes);
        dcpk_bytes_put(file, data.data, data.n_bytes);
    }
    dcpk_bytes_release(&header);
    dcpk_bytes_release(&data);
    free(copy);
    return is_good;
}

/* Open the folder; config and file are borrowed until it is closed. NULL and err: it is none. */
static inline struct dcpk_checkpoint *
hf_folder_open(const char *config, const struct dcpk_bytes *file, struct dcpk_error *err)
{
    struct dcpk_checkpoint *ckpt = NULL;
    struct dcpk_store *store = NULL;

    if (dcpk_store_new_memory("folder", &store, err) ||
        dcpk_store_add_borrowed(store, "config.json", config, strlen(config), err) ||
        dcpk_store_add_borrowed(store, "model.safetensors", file->data, file->n_bytes, err)) {
        dcpk_store_close(store);
        return NULL;
    }
    (void)dcpk_checkpoint_open(store, dcpk_formats, "safetensors", &ckpt, err);
    return ckpt;
}

#endif
