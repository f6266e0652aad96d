/* SPDX-License-Identifier: Apache-2.0 */
/* bridge.h - the configuration that Megatron-Bridge keeps where Megatron-LM keeps args. */
#ifndef DCPK_FORMATS_BRIDGE_H
#define DCPK_FORMATS_BRIDGE_H

#include "lib/base/setting.h"
#include "lib/ckpt/value.h"

/*
 * Read n bytes of YAML: one document, of the values that PyYAML's safe loader makes of it; tags are
 * not followed. value: in `arena`. Errors: DCPK_EFORMAT with line and column; DCPK_ERANGE for more
 * values than a configuration has, aliases followed.
 */
dcpk_status dcpk_bridge_parse(const char *text, size_t n_bytes, struct dcpk_arena *arena,
                              const struct dcpk_value **value, struct dcpk_error *err);

/*
 * Read n bytes of YAML: run_config.yaml of Megatron-Bridge, whose sections become args by the table
 * of FORMAT.md, or one mapping of args by their own names. args: an argparse.Namespace in `arena`.
 * Errors: DCPK_EFORMAT with line and column; DCPK_ERANGE for more values than a configuration has,
 * aliases followed; DCPK_EUNSUPPORTED for YAML that is neither.
 */
dcpk_status dcpk_bridge_read_args(const char *text, size_t n_bytes, struct dcpk_arena *arena,
                                  const struct dcpk_value **args, struct dcpk_error *err);

/*
 * List the settings of a configuration, YAML or JSON, with their places in the text: the members of
 * its sections, and those outside of sections. Errors: as dcpk_bridge_parse; DCPK_EUNSUPPORTED for
 * what is not a mapping.
 */
dcpk_status dcpk_bridge_settings(const char *text, size_t n_bytes, struct dcpk_settings *list,
                                 struct dcpk_error *err);

#endif
