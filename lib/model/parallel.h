/* SPDX-License-Identifier: Apache-2.0 */
/* parallel.h - how Megatron lays a model's parameters out over ranks: tensor-parallel axis, order
 * of registration, FSDP unit. */
#ifndef DCPK_LIB_MODEL_PARALLEL_H
#define DCPK_LIB_MODEL_PARALLEL_H

#include "lib/model/names.h"

/*
 * Set tp_axis, expert, unit and place of every parameter; the names are canonical. Under
 * DCPK_IMPL_ANY the modules are those that args.transformer_impl names, Transformer Engine's
 * without it. Errors: DCPK_ENOMEM.
 */
dcpk_status dcpk_rules_parallel(struct dcpk_model *model, enum dcpk_impl impl,
                                struct dcpk_error *err);

#endif
