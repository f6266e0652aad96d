/* SPDX-License-Identifier: Apache-2.0 */
/* serving_names.h - what vLLM and SGLang call the tensors of Hugging Face's files, and how they cut
 * them. */
/*
 *   q_proj, k_proj, v_proj    qkv_proj: the rank's query heads, key heads, value heads
 *   gate_proj, up_proj        gate_up_proj: the rank's gate rows, up rows
 *   experts.{e}.gate_proj     experts.w13_weight: [experts, gate and up rows, hidden]
 *   experts.{e}.down_proj     experts.w2_weight: [experts, hidden, columns]
 *   experts.gate_up_proj      the same of GPT-OSS, whose gate and up rows take turns
 *   embed_tokens, lm_head     rows of tokens, padded to 64 and then cut
 *
 * Both have layers for multi-token prediction in a model of their own, the draft. Its names begin
 * with "draft." here.
 */
#ifndef DCPK_LIB_JOB_SERVING_NAMES_H
#define DCPK_LIB_JOB_SERVING_NAMES_H

#include <stdint.h>

#include "lib/base/arena.h"

/* A program; bits. */
enum dcpk_server { DCPK_SERVER_VLLM = 1, DCPK_SERVER_SGLANG = 2 };

/* How tensor parallelism cuts a tensor, or a part of its rows. */
enum dcpk_cut_kind {
    DCPK_CUT_NONE,
    DCPK_CUT_ROWS,
    DCPK_CUT_KV,      /* rows of key or value heads, which may be fewer than ranks */
    DCPK_CUT_COLUMNS, /* of a matrix; its bias stays whole */
    DCPK_CUT_VOCAB,
    /* Rows of several parts one after the other, each cut by itself: q, k and v; gate and up; of a
     * convolution before linear attention q, k and v. */
    DCPK_CUT_QKV,
    DCPK_CUT_HALVES,
    DCPK_CUT_LINEAR,
    /* Experts in one tensor: axis 1, axis 2, or none: the first rank has it, the others have
     * zeros, as their results are added. */
    DCPK_CUT_STACKED_ROWS,
    DCPK_CUT_STACKED_COLUMNS,
    DCPK_CUT_STACKED_FIRST,
};

/* A server's model. */
struct dcpk_served_model {
    enum dcpk_server server;
    const char *family; /* of Hugging Face's names */
    int64_t n_layers;   /* of the decoder; those after it are for multi-token prediction */
};

/* The place of a tensor of Hugging Face's files. */
struct dcpk_served {
    const char *name;  /* of the tensor that it is a part of; NULL: the server has none */
    const char *alone; /* the tensor's where the other parts are not there; without the draft's */
    int64_t expert;    /* -1: none */
    int number, n_parts;
    enum dcpk_cut_kind cut;
    const char *order; /* "021": the axes of the files' tensor in the server's; NULL: as they are */
};

/* Find it by its name there. Texts are in the arena, or literals. Errors: DCPK_EUNSUPPORTED for a
 * second layer of multi-token prediction in SGLang; DCPK_ENOMEM. */
dcpk_status dcpk_served_find(const struct dcpk_served_model *model, const char *name,
                             struct dcpk_arena *arena, struct dcpk_served *served,
                             struct dcpk_error *err);

#endif
