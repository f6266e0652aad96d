/* SPDX-License-Identifier: Apache-2.0 */
/* bridge_priv.h - YAML as a value. */
#ifndef DCPK_FORMATS_BRIDGE_PRIV_H
#define DCPK_FORMATS_BRIDGE_PRIV_H

#include "lib/ckpt/value.h"

/* One document, of the values that PyYAML's safe loader makes of it; tags are not followed. */
dcpk_status dcpk_bridge_parse(const char *text, size_t n_bytes, struct dcpk_arena *arena,
                              const struct dcpk_value **value, struct dcpk_error *err);

#endif
