/* SPDX-License-Identifier: Apache-2.0 */
/* portable.h - args and other values as any Megatron can read them. */
#ifndef DCPK_LIB_MODEL_PORTABLE_H
#define DCPK_LIB_MODEL_PORTABLE_H

#include "lib/ckpt/output.h"

/*
 * `args` (an argparse.Namespace) less every attribute that is not made of primitives, containers,
 * Namespace and torch dtypes: an older Megatron could not import its class.
 * Each one left out is a DROPPED event of `out`. set: attributes to have in any case, with these
 * values. Sizes of the source's mesh that out->target does not
 * settle stay, and are named in a NOTE event. *portable: in out->arena. Errors: DCPK_EFORMAT when
 * `args` is NULL or has no attributes.
 */
dcpk_status dcpk_args_portable(struct dcpk_output *out, const struct dcpk_value *args,
                               const struct dcpk_dict *set, const struct dcpk_value **portable,
                               struct dcpk_error *err);

/*
 * True if `v` is made of primitives, containers, Namespace, torch dtypes and tensors alone. False
 * for a value whose nodes are shared so often that a walk would not end.
 */
bool dcpk_value_is_portable(const struct dcpk_value *v);

#endif
