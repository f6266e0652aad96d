/* SPDX-License-Identifier: Apache-2.0 */
/* storage_class_priv.h - which class torch pickles a tensor's storage as. */
#ifndef DCPK_FORMATS_TORCH_STORAGE_CLASS_PRIV_H
#define DCPK_FORMATS_TORCH_STORAGE_CLASS_PRIV_H

#include "lib/tensor/dtype.h"

/* Name in module `torch` for dtypes saved by _rebuild_tensor_v2; NULL: _rebuild_tensor_v3,
 * torch.storage UntypedStorage. */
const char *dcpk_storage_class_name(enum dcpk_dtype dtype);
/* The dtype of a storage class of module `torch`, or DCPK_DTYPE_NONE. */
enum dcpk_dtype dcpk_storage_class_dtype(const char *name);

#endif
