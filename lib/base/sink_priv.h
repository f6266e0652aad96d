/* SPDX-License-Identifier: Apache-2.0 */
/* sink_priv.h - the descriptors behind output folders and files. */
#ifndef DCPK_LIB_BASE_SINK_PRIV_H
#define DCPK_LIB_BASE_SINK_PRIV_H

#include "lib/base/sink.h"

int dcpk_folder_fd(const struct dcpk_folder *folder); /* of the folder under construction */
int dcpk_sink_fd(const struct dcpk_sink *sink);

#endif
