/* SPDX-License-Identifier: Apache-2.0 */
/* knob_help.h - a knob explained: its names, what it takes, the rules that name it, its source. */
#ifndef DCPK_LIB_TRAIN_KNOB_HELP_H
#define DCPK_LIB_TRAIN_KNOB_HELP_H

#include "lib/report/doc.h"

/* The knob of a name in any spelling (dcpk_knob_find), with every rule whose sentence names it.
 * Errors: DCPK_EUSAGE for a name that no knob has; of the document. */
dcpk_status dcpk_knob_explain(const char *name, struct dcpk_doc *doc, struct dcpk_error *err);

/* All knobs, a line each, by the parts of a run. */
dcpk_status dcpk_knob_list(struct dcpk_doc *doc, struct dcpk_error *err);

#endif
