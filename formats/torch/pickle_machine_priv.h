/* SPDX-License-Identifier: Apache-2.0 */
/* pickle_machine_priv.h - the pickle machine, between its opcodes (pickle_op.c) and its passes
 * (pickle_read.c). */
#ifndef DCPK_FORMATS_TORCH_PICKLE_MACHINE_PRIV_H
#define DCPK_FORMATS_TORCH_PICKLE_MACHINE_PRIV_H

#include "formats/torch/pickle_priv.h"

#define DCPK_PICKLE_STEP_BYTES                                                                     \
    1024 /* in sight before each opcode: more than one without a length takes */

/* Source: CPython 3.11 Lib/pickletools.py, and Lib/pickle.py class _Unpickler for what each opcode
 * does. */
struct dcpk_pickle_machine {
    struct dcpk_builder build;
    struct dcpk_pickle_input in;
    const struct dcpk_pickle_options *options;
    struct dcpk_value **stack;
    size_t n_stack, stack_capacity;
    size_t *marks; /* heights of the stack; nothing may be popped from below the last */
    size_t n_marks, mark_capacity;
    struct dcpk_memo memo;
};

/* Execute the opcode; its argument follows at the cursor. */
dcpk_status dcpk_pickle_step(struct dcpk_pickle_machine *m, uint8_t opcode, struct dcpk_error *err);
/* Pass over its argument only, and note a memo number that it asks for. */
dcpk_status dcpk_pickle_skip(struct dcpk_pickle_machine *m, uint8_t opcode, struct dcpk_error *err);
/* The same for all opcodes from here on that lie in sight with a number after them or nothing:
 * most of a pickle, in a loop that does no more. */
dcpk_status dcpk_pickle_skip_plain(struct dcpk_pickle_machine *m, struct dcpk_error *err);

#endif
