/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_safetensors.c - any bytes as a safetensors file: tensors that fill its data, or an error. */
#include <stdlib.h>
#include <string.h>

#include "formats/safetensors/safetensors_header.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes);

__extension__ typedef __int128 wide; /* holds the product of a shape that was taken */

/* Each tensor begins where the one before it ends, and has the bytes of its shape. */
static void check_entries(const struct dcpk_safetensors_header *header, uint64_t data_bytes)
{
    uint64_t at = 0;

    for (size_t i = 0; i < header->n_entries; i++) {
        const struct dcpk_safetensors_entry *entry = &header->entries[i];
        wide n = (wide)dcpk_dtype_bytes(entry->dtype);

        for (int a = 0; a < entry->rank; a++)
            if (entry->shape[a] == 0)
                n = 0;
        for (int a = 0; a < entry->rank; a++)
            n *= entry->shape[a];
        if (entry->first_bytes != at || n != (wide)(entry->end_bytes - entry->first_bytes))
            abort();
        at = entry->end_bytes;
    }
    if (at != data_bytes)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_safetensors_header header;
    struct dcpk_arena *arena;
    uint64_t n_header;

    if (n_bytes < DCPK_SAFETENSORS_LENGTH_BYTES)
        return 0;
    memcpy(&n_header, data, sizeof n_header);
    data += sizeof n_header;
    n_bytes -= sizeof n_header;
    if (n_header > n_bytes)
        n_header = n_bytes;
    arena = dcpk_arena_new();
    if (arena == NULL)
        abort();
    if (dcpk_safetensors_parse((const char *)data, n_header, n_bytes - n_header, arena, &header,
                               &err) == DCPK_OK)
        check_entries(&header, n_bytes - n_header);
    else if (err.status == DCPK_OK || err.text[0] == '\0')
        abort();
    dcpk_arena_free(arena);
    return 0;
}
