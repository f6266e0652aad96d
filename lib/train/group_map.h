/* SPDX-License-Identifier: Apache-2.0 */
/* group_map.h - which parameter is in which parameter group, as Megatron dumps it. */
/*
 *   "module.module.decoder.layers.0.mlp.linear_fc1.weight"   0    weights, which decay
 *   "module.module.decoder.final_layernorm.weight"           1    one-dimensional ones
 *   "module.module...mlp.experts.linear_fc1.weight0"         2    experts', with expert parallelism
 */
#ifndef DCPK_LIB_TRAIN_GROUP_MAP_H
#define DCPK_LIB_TRAIN_GROUP_MAP_H

#include "lib/train/save.h"

/*
 * Collective. Write the folder config->files.map_folder, a plain DCP whose keys are the live names
 * of all parameters of the model behind the run's wrappers ("module.module.", of fp32 "module."),
 * each the number of its group; a folder that is there is replaced. `print-torch-dcp-in-json` makes
 * of it the map that converters take. Source: get_megatron_optimizer in
 * megatron/core/optimizer/__init__.py @core_v0.19.0. Errors: DCPK_EUNSUPPORTED where plain DCP is
 * not built in; those of writing. All ranks return the same status.
 */
dcpk_status dcpk_train_dump_groups(const struct dcpk_saved_run *run, struct dcpk_error *err);

#endif
