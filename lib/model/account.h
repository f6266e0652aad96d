/* SPDX-License-Identifier: Apache-2.0 */
/* account.h - what becomes of every stored tensor: in the view, left out with a reason, or
 * unknown. */
#ifndef DCPK_LIB_MODEL_ACCOUNT_H
#define DCPK_LIB_MODEL_ACCOUNT_H

#include "lib/model/model.h"

/* Stored tensors that are accounted for. */
struct dcpk_account {
    const struct dcpk_checkpoint *ckpt; /* borrowed */
    bool *tensors;                      /* by index; owned */
};

/* Nothing is accounted for yet. Errors: DCPK_ENOMEM. */
dcpk_status dcpk_account_init(struct dcpk_account *account, const struct dcpk_checkpoint *ckpt,
                              struct dcpk_error *err);
void dcpk_account_release(struct dcpk_account *account); /* a zeroed one is a no-op */
/* The stored tensor of that key, where there is one: of an object there is none. */
void dcpk_account_key(struct dcpk_account *account, const char *key, size_t key_bytes);
/* Accounts for the sources of the pieces: stored tensors, or those that a view is seen through. */
void dcpk_account_pieces(struct dcpk_account *account, const struct dcpk_piece *pieces, size_t n);
/* Accounts for the tensors that the view left out, mapped to something else, or was asked to leave
 * out. */
void dcpk_account_left(struct dcpk_account *account, const struct dcpk_model *model);

/*
 * The view of a checkpoint: to_model, then an account of every stored tensor. Tensors without a
 * rule are in model->unknown; tensors that the user left out are dropped with that reason. flags:
 * enum dcpk_model_flags. model: dcpk_model_free, also after a failure. Errors: DCPK_EUNSUPPORTED
 * for a format without views of a model; those of to_model.
 */
dcpk_status dcpk_model_read(struct dcpk_checkpoint *ckpt, unsigned flags, struct dcpk_model **model,
                            struct dcpk_error *err);

/* DCPK_OK when the view knows every stored tensor; else DCPK_EUNSUPPORTED with how many it does
 * not, the first of them, and what they may be. */
dcpk_status dcpk_model_check_known(const struct dcpk_model *model, struct dcpk_error *err);

/* Stored tensors and objects of a checkpoint, and how many of each are not in the view. */
struct dcpk_left {
    uint64_t n_tensors, n_objects, n_tensors_left, n_objects_left;
};
dcpk_status dcpk_model_count_left(const struct dcpk_model *model, struct dcpk_left *left,
                                  struct dcpk_error *err);

/*
 * Drop from the training state (not args: portable.h) every value, or entry of a dict, that holds a
 * class, function or call which the format of model->ckpt does not know (dcpk_format, is_known),
 * for a pickle of it would run foreign code when it is loaded; an iteration that is not an integer;
 * and of the scheduler what is not a single value under a plain name, the whole where it is not a
 * dict: formats that keep each setting by itself would take it apart. Each is named as dropped.
 * Extra states are looked at when they are taken over (dcpk_output_add_payload). Errors:
 * DCPK_ENOMEM.
 */
dcpk_status dcpk_model_drop_unknown(struct dcpk_model *model, struct dcpk_error *err);

#endif
