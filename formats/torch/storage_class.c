/* SPDX-License-Identifier: Apache-2.0 */
/* storage_class.c - the table of torch's typed storages. */
#include "formats/torch/item_priv.h"

#include <string.h>

/* torch/storage.py@2.11.0 _dtype_to_storage_type_map; its quantised types are not read. */
static const char *const names[DCPK_N_DTYPES] = {
    [DCPK_F64] = "DoubleStorage",
    [DCPK_F32] = "FloatStorage",
    [DCPK_F16] = "HalfStorage",
    [DCPK_BF16] = "BFloat16Storage",
    [DCPK_I64] = "LongStorage",
    [DCPK_I32] = "IntStorage",
    [DCPK_I16] = "ShortStorage",
    [DCPK_I8] = "CharStorage",
    [DCPK_U8] = "ByteStorage",
    [DCPK_BOOL] = "BoolStorage",
    [DCPK_C128] = "ComplexDoubleStorage",
    [DCPK_C64] = "ComplexFloatStorage",
};

const char *dcpk_storage_class_name(enum dcpk_dtype dtype)
{
    return names[dtype];
}

enum dcpk_dtype dcpk_storage_class_dtype(const char *name)
{
    for (int i = 0; i < DCPK_N_DTYPES; i++)
        if (names[i] != NULL && strcmp(names[i], name) == 0)
            return (enum dcpk_dtype)i;
    return DCPK_DTYPE_NONE;
}
