/* SPDX-License-Identifier: Apache-2.0 */
/* layout.h - the sizes of a mesh as Megatron's args have them. */
#ifndef DCPK_LIB_CKPT_LAYOUT_H
#define DCPK_LIB_CKPT_LAYOUT_H

#include "lib/ckpt/checkpoint.h"

/* Source: torch_dist.md section 6; megatron/training/arguments.py @core_v0.19.0. */
struct dcpk_layout_size {
    const char *name; /* of the attribute */
    size_t at;        /* of the int64_t in struct dcpk_layout */
};
enum { DCPK_LAYOUT_N_SIZES = 10 };
extern const struct dcpk_layout_size dcpk_layout_sizes[DCPK_LAYOUT_N_SIZES];

/* The sizes in the attributes of args (dcpk_value_attrs; may be NULL); 0: missing, or no size. */
void dcpk_layout_read(const struct dcpk_value *attrs, struct dcpk_layout *layout);
int64_t dcpk_layout_get(const struct dcpk_layout *layout, const struct dcpk_layout_size *size);

#endif
