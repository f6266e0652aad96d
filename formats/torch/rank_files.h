/* SPDX-License-Identifier: Apache-2.0 */
/* rank_files.h - a checkpoint of one torch.save file for each rank: the pieces of tensors in them.
 */
#ifndef DCPK_FORMATS_TORCH_RANK_FILES_H
#define DCPK_FORMATS_TORCH_RANK_FILES_H

#include "lib/base/map.h"
#include "lib/ckpt/format.h"
#include "lib/ckpt/unknown.h"

/* The tables of an opened checkpoint, in its state. Zeroed: empty. */
struct dcpk_rank_files {
    size_t chunks_capacity;
    struct dcpk_rank_copy *copies; /* elements that a chunk holds already; owned */
    size_t n_copies, copies_capacity;
};
void dcpk_rank_files_release(struct dcpk_rank_files *files);

/* While the files are opened. Zeroed except for the first three. */
struct dcpk_rank_reading {
    struct dcpk_checkpoint *ckpt;
    struct dcpk_rank_files *files;
    struct dcpk_arena *arena; /* of keys of the maps; borrowed */
    struct dcpk_map boxes;    /* of all chunks, by tensor and span -> its number */
    struct dcpk_map records;  /* the first chunk in each record of the file at hand, by place */
    uint32_t number;          /* of that file in the checkpoint */
    const char *folder;       /* in its archive (dcpk_item_read_known), as long as what it holds */
    struct dcpk_map files_by_source; /* by the source's address -> that number */
};
void dcpk_rank_reading_release(struct dcpk_rank_reading *r);

/*
 * Reads a file's outline into `arena`, also once more; it is then the file at hand. Errors: those
 * of dcpk_item_read_known, with the file's name.
 */
dcpk_status dcpk_rank_reading_open(struct dcpk_rank_reading *r, struct dcpk_source *source,
                                   dcpk_is_known *is_known, struct dcpk_arena *arena,
                                   const struct dcpk_value **value, struct dcpk_error *err);

/* The pairs of a state dict: a dict, or an OrderedDict with attributes. Errors: DCPK_EFORMAT for
 * what is none, or has a key that is not a name. */
dcpk_status dcpk_rank_state_dict(const struct dcpk_value *value,
                                 const struct dcpk_value_pair **pairs, size_t *n,
                                 struct dcpk_error *err);

/* A box whose elements lie in the file at hand, in row-major order. */
struct dcpk_rank_piece {
    uint32_t tensor; /* of the checkpoint */
    struct dcpk_box box;
    const struct dcpk_value_tensor *local; /* of which they are a part */
    uint64_t first_bytes, n_bytes;         /* in the file; none: nothing is added */
    bool is_whole;                         /* each file has all of it, and no mesh shows that */
};
/* Adds a chunk, or where another file has that box a copy of one. */
dcpk_status dcpk_rank_reading_add(struct dcpk_rank_reading *r, const struct dcpk_rank_piece *piece,
                                  struct dcpk_error *err);

/* The tables at a moment of the reading. */
struct dcpk_rank_moment {
    size_t n_tensors, n_chunks, n_objects, n_copies;
};
struct dcpk_rank_moment dcpk_rank_reading_moment(const struct dcpk_rank_reading *r);
/*
 * After an optimizer whose content `err` refuses: back to the moment before it, with a note, and
 * the error's text in *fault. Errors: any other that `err` has; DCPK_ENOMEM.
 */
dcpk_status dcpk_rank_reading_leave_optimizer(struct dcpk_rank_reading *r,
                                              const struct dcpk_rank_moment *moment,
                                              const char **fault, struct dcpk_error *err);

/* Orders the chunks by their tensors, in each by files: the last step. */
dcpk_status dcpk_rank_reading_order(struct dcpk_rank_reading *r, struct dcpk_error *err);

/* ---- the opened checkpoint ---- */

/* The locate hook (lib/ckpt/format.h). */
dcpk_status dcpk_rank_files_locate(struct dcpk_checkpoint *ckpt, const struct dcpk_chunk *chunk,
                                   const struct dcpk_reader *reader, struct dcpk_extent *where,
                                   struct dcpk_error *err);
/* A tensor with one chunk, such as a step, as a value. Errors: DCPK_ERANGE for a large one. */
dcpk_status dcpk_rank_files_load(struct dcpk_checkpoint *ckpt, const struct dcpk_tensor *tensor,
                                 const struct dcpk_place *place, struct dcpk_arena *arena,
                                 const struct dcpk_value **value, struct dcpk_error *err);
/* The check_copies hook's work (lib/ckpt/format.h), for all copies or those of whole tensors. */
dcpk_status dcpk_rank_files_compare(struct dcpk_checkpoint *ckpt,
                                    const struct dcpk_rank_files *files, bool whole_ones_alone,
                                    struct dcpk_error *err);

#endif
