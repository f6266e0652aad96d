/* SPDX-License-Identifier: Apache-2.0 */
/* bridge_priv.h - libyaml's document, which the readers of this folder share. */
#ifndef DCPK_FORMATS_BRIDGE_BRIDGE_PRIV_H
#define DCPK_FORMATS_BRIDGE_BRIDGE_PRIV_H

#include <yaml.h>

#include "formats/bridge/bridge.h"

/* Load the first document within the limits of dcpk_bridge_parse; the caller deletes it. Errors: as
 * there. */
dcpk_status dcpk_bridge_load(const char *text, size_t n_bytes, yaml_document_t *document,
                             struct dcpk_error *err);

#endif
