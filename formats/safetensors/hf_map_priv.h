/* SPDX-License-Identifier: Apache-2.0 */
/* hf_map_priv.h - what the readers of a map's parts share. */
#ifndef DCPK_FORMATS_SAFETENSORS_HF_MAP_PRIV_H
#define DCPK_FORMATS_SAFETENSORS_HF_MAP_PRIV_H

#include "formats/safetensors/hf_map.h"

/* A map that is built in: the bytes of its file. Generated from maps/ by CMake. */
struct dcpk_hf_built_in {
    const char *file, *text;
    size_t n_bytes;
};
extern const struct dcpk_hf_built_in dcpk_hf_built_in[];
extern const size_t dcpk_hf_n_built_in;

/* A text in `arena`; DCPK_EFORMAT where the node is not text, or empty. what: for messages. */
dcpk_status dcpk_hf_read_text(struct dcpk_arena *arena, const struct dcpk_json *node,
                              const char *what, const char **text, struct dcpk_error *err);
/* The members of an object are all of `known` (NULL-terminated). */
dcpk_status dcpk_hf_check_keys(const struct dcpk_json *object, const char *const *known,
                               struct dcpk_error *err);
/* The number of children of an array or object. */
size_t dcpk_hf_count(const struct dcpk_json *node);

/* --- hf_map_config.c --- */

/* "config", "args", "set", "hf" and "rope" of a map's file. */
dcpk_status dcpk_hf_map_read_config(const struct dcpk_json *doc, struct dcpk_arena *arena,
                                    struct dcpk_hf_map *map, struct dcpk_error *err);

#endif
