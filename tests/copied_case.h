/* SPDX-License-Identifier: Apache-2.0 */
/* copied_case.h - an output that has every tensor of a made-up checkpoint as it is, and its
 * object. */
#ifndef DCPK_TESTS_COPIED_CASE_H
#define DCPK_TESTS_COPIED_CASE_H

#include "lib/plan/plan.h"
#include "lib/tensor/piece.h"
#include "tests/fake_ckpt.h"

static const int64_t copied_shapes[][2] = {
    {10, 100}, {300, 1000}, {1, 7}, {200, 400}, {500, 700}, {30, 40}, {900, 1000}, {100, 300},
};
enum { COPIED_TENSORS = sizeof copied_shapes / sizeof *copied_shapes };

struct copied_case {
    struct fake fake;
    struct dcpk_checkpoint *ckpt;
    struct dcpk_output *out; /* planned */
};

static inline void copied_add(struct copied_case *c, uint32_t t)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_piece *piece = dcpk_arena_array(c->out->arena, 1, sizeof *piece, &err);
    const char **key = dcpk_arena_array(c->out->arena, 1, sizeof *key, &err);
    const struct dcpk_out_tensor tensor = {.keys = key,
                                           .n_keys = 1,
                                           .dtype = DCPK_F32,
                                           .rank = 2,
                                           .shape = copied_shapes[t],
                                           .pieces = piece,
                                           .n_pieces = 1};
    struct dcpk_box box;

    *key = c->fake.keys[t];
    dcpk_box_whole(copied_shapes[t], 2, &box);
    CHECK_OK(dcpk_piece_make(c->out->arena, t, &box, &box, piece, &err), "piece");
    CHECK_OK(dcpk_output_add_tensor(c->out, &tensor, &err), "tensor");
}

/* c: zeroed, and stays where it is; format: whose writer lays the output out. */
static inline void copied_begin(struct copied_case *c, const struct dcpk_format *format)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    uint64_t seed = 3;
    uint32_t payload;

    for (size_t t = 0; t < COPIED_TENSORS; t++)
        fake_add(&c->fake, DCPK_F32, 2, copied_shapes[t], 2, &seed);
    fake_add_object(&c->fake, "object", 5000);
    c->ckpt = fake_open(&c->fake, "source");
    CHECK_OK(dcpk_output_new(c->ckpt, format, &c->out, &err), "output");
    for (uint32_t t = 0; t < COPIED_TENSORS; t++)
        copied_add(c, t);
    CHECK_OK(dcpk_output_add_payload(c->out, NULL, &c->ckpt->objects[0], &payload, &err),
             "payload");
    CHECK_OK(dcpk_plan_build(c->out, &err), "plan");
}

static inline void copied_end(struct copied_case *c)
{
    dcpk_output_free(c->out);
    dcpk_checkpoint_close(c->ckpt);
    fake_release(&c->fake);
}

#endif
