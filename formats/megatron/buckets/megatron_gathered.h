/* SPDX-License-Identifier: Apache-2.0 */
/* megatron_gathered.h - buckets inside objects. */
#ifndef DCPK_FORMATS_MEGATRON_BUCKETS_MEGATRON_GATHERED_H
#define DCPK_FORMATS_MEGATRON_BUCKETS_MEGATRON_GATHERED_H

#include "formats/megatron/buckets/megatron_bucket_list.h"

/*
 * The buckets of dp_zero_gather_scatter (formats/torch_dist/FORMAT.md 5.5), one object a group of
 * ranks; their states become tensors inside it (dcpk_checkpoint_add_inner). list->n 0 when there
 * are none.
 */
dcpk_status dcpk_gathered_list_read(struct dcpk_checkpoint *ckpt, struct dcpk_bucket_list *list,
                                    struct dcpk_error *err);

#endif
