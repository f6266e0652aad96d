/* SPDX-License-Identifier: Apache-2.0 */
/* gpt_priv.h - what the files of the model share. */
#ifndef DCPK_LIB_TRAIN_GPT_PRIV_H
#define DCPK_LIB_TRAIN_GPT_PRIV_H

#include "lib/base/arena.h"
#include "lib/train/gpt.h"

#define DCPK_NO_PARAM SIZE_MAX

/* Sizes as this rank has them. */
struct gpt_sizes {
    int64_t samples, seq; /* of a microbatch */
    int64_t tokens;       /* of a sample, on this rank: n_chunks of `chunk` (token_of_row) */
    int64_t n_chunks;     /* 2 with context parallelism, else 1 */
    int64_t chunk, leaf;
    int64_t rows; /* samples * tokens */
    int64_t hidden, head_dim, groups, per_group, q, kv, vocab;
    int64_t slices, my_slices, first_slice;
};

/* Rows one after the other in a microbatch, whose gradients are added before they become
 * integers. */
struct gpt_leaf {
    int64_t first, n;
};

/* The destination of a layer's tokens: see gpt_moe.c. */
struct gpt_routed {
    float *logits, *probs;           /* [rows, experts], [rows, topk] */
    int32_t *chosen, *token, *place; /* [rows, topk] each */
    void *rows, *fc1, *act;          /* of tokens that chose this rank's experts */
    void *result;                    /* of this rank's tokens: [rows * topk, hidden] */
    int64_t *count;                  /* host: [sources, local experts, leaves] */
    size_t *sent, *received;         /* host: rows to and from each rank of EP */
};

/* Activations of a layer that its backward pass asks for; rows x what the name has. */
struct gpt_kept {
    void *input;
    void *attention_norm; /* the normed input */
    void *q_raw, *k_raw;  /* before q and k norm */
    void *q;              /* rotated */
    void *k, *v;          /* [samples, seq, kv]: of all context-parallel ranks */
    void *attention;      /* memory of the heads */
    void *middle;         /* input + attention */
    void *mlp_norm;
    void *fc1, *act; /* of a dense MLP, or of shared experts */
    struct gpt_routed routed;
};

struct gpt_layer {
    size_t param[DCPK_N_PARAM_KINDS]; /* into the table, or DCPK_NO_PARAM; but those of experts */
    size_t (*experts)[2];             /* fc1 and fc2 of each local expert; NULL: dense */
    int64_t unit;
    int64_t *expert_tokens; /* see dcpk_gpt_expert_tokens; NULL: dense */
};

/* The parts after the layers, kept between a forward pass and the backward pass after it. */
struct gpt_head {
    size_t norm;                         /* the parameter of the last norm */
    void *input, *normed, *logits;       /* logits: [rows, vocab] */
    float *max, *sums, *losses, *factor; /* one a row */
    int32_t *labels;
};

/* Memory that a layer of multi-token prediction keeps in addition to its inner layer
 * (gpt_layer.c). */
struct gpt_mtp {
    void *embedded; /* [rows, hidden] */
    void *joined;   /* [rows, 2 hidden] */
    struct gpt_kept kept;
};

/* A microbatch between its forward and its backward pass. */
struct gpt_pass {
    struct gpt_kept *kept;    /* of each layer */
    int32_t *tokens, *labels; /* host: one a row */
    float *mask;
    float factor;
    struct gpt_pass *ahead; /* the same, one token on, for each layer of multi-token prediction */
};

/* Memory that is used within a layer, and then again. */
struct gpt_scratch {
    float *slices;     /* [slices, rows, widest result of a cut product] */
    void *joined;      /* [rows, q + 2 kv], [rows, 2 ffn] */
    void *wide[2];     /* [rows, q or ffn] */
    void *hidden[2];   /* [rows, hidden] */
    void *keys[2];     /* [rows, kv] keys, then values */
    void *all_keys;    /* [cp, 2, rows, kv] */
    float *key_parts;  /* [cp, leaves of a sample, 2, seq * kv] */
    float *key_sums;   /* [2, seq * kv] */
    float *weight;     /* a leaf's gradient */
    float *row_sums;   /* [slices, rows] */
    void *sent, *back; /* rows of tokens on their way to experts and back */
    void *expert_act;  /* [rows that one expert may get, moe_ffn] */
    float *d_probs, *d_logits;
    int32_t *tokens, *all_chosen;
    /* On the host: choices of all ranks, then token and place of this one's; bytes of messages; a
     * leaf's tokens, sorted and renumbered; losses of rows. */
    int32_t *host_chosen;
    size_t *part_bytes;
    int32_t *host_tokens;
    float *host_rows;
    void *d_joined, *d_ahead[2]; /* [rows, 2 hidden], [rows, hidden]: gpt_layer.c */
};

/* The first loss of a step that no sum takes. */
struct gpt_bad_loss {
    bool is_there;
    int64_t row;
    double value;
};

struct gpt_memory {
    void *at;
    size_t n_bytes;
};

struct dcpk_gpt {
    struct dcpk_gpt_options options;
    const struct dcpk_train_model *model;
    struct dcpk_math *math;
    const struct dcpk_ops *ops;
    enum dcpk_dtype dtype;
    struct dcpk_arena *arena;
    struct gpt_sizes size;
    struct gpt_leaf *leaves;
    int64_t n_leaves;
    struct gpt_layer outer;   /* parameters outside layers */
    struct gpt_layer *layers; /* of the decoder, then of multi-token prediction */
    int64_t n_layers, n_mtp;  /* on this stage */
    bool is_first, is_last;   /* stage */
    struct gpt_head *heads;   /* of the last layer, then of multi-token prediction; NULL: none */
    struct gpt_mtp *mtp;
    float *rope; /* of all rows */
    struct gpt_pass *passes;
    int64_t n_passes;
    struct gpt_kept again; /* --recompute: of the layer that is computed again */
    struct gpt_scratch scratch;
    void *out; /* [rows, hidden]: of the stage's last layer, for the next stage */
    void *d;   /* [rows, hidden]: the gradient on its way through the layers */
    enum dcpk_train_pass pass;
    struct gpt_memory *memory;
    size_t n_memory, memory_capacity;
    struct dcpk_gpt_loss loss;
    struct gpt_bad_loss bad_loss;
};

static inline size_t gpt_bytes(const struct dcpk_gpt *gpt, int64_t n_elems)
{
    return (size_t)n_elems * dcpk_dtype_bytes(gpt->dtype);
}

/* Element n of activations. */
static inline void *gpt_at(const struct dcpk_gpt *gpt, const void *activations, int64_t n)
{
    return (char *)(uintptr_t)activations + gpt_bytes(gpt, n);
}

static inline struct dcpk_group *gpt_group(const struct dcpk_gpt *gpt, enum dcpk_train_group group)
{
    return gpt->options.mesh->group[group];
}

static inline const struct dcpk_train_param *gpt_param(const struct dcpk_gpt *gpt, size_t param)
{
    return &gpt->options.params->list[param];
}

static inline const void *gpt_weight(const struct dcpk_gpt *gpt, size_t param)
{
    struct dcpk_weights *weights = gpt->options.weights;

    return weights->ops->weight(weights, param);
}

/* gpt.c: this rank's rows of a microbatch; counts of a step become 0. */
void dcpk_gpt_take_batch(const struct dcpk_gpt *gpt, const struct dcpk_gpt_batch *batch,
                         struct gpt_pass *pass);
void dcpk_gpt_begin(struct dcpk_gpt *gpt); /* Sets the counts of a step to 0 */

/* gpt_memory.c: sizes, and all memory of the math; released with the account. */
dcpk_status dcpk_gpt_measure(struct dcpk_gpt *gpt, struct dcpk_error *err);
/* Takes the memory that was measured. Errors: DCPK_ENOMEM. */
dcpk_status dcpk_gpt_allocate(struct dcpk_gpt *gpt, struct dcpk_error *err);
void dcpk_gpt_release(struct dcpk_gpt *gpt); /* Frees it; also after a failure */

/*
 * gpt_linear.c. y = x w^T, and gradients. x, y: `rows` rows of what the weight has. A product whose
 * inner axis tensor parallelism cuts is made of slices, in a collective.
 */
void dcpk_gpt_linear(struct dcpk_gpt *gpt, size_t param, int64_t rows, const void *x, void *y);
/* The same of a weight whose inner axis is cut; collective. */
dcpk_status dcpk_gpt_linear_cut(struct dcpk_gpt *gpt, size_t param, const void *x, void *y,
                                struct dcpk_error *err);
/* The gradient of x, from that of y. */
void dcpk_gpt_linear_input(struct dcpk_gpt *gpt, size_t param, int64_t rows, const void *dy,
                           void *dx);
/* The same where the product is cut: of all ranks together; collective. */
dcpk_status dcpk_gpt_linear_input_cut(struct dcpk_gpt *gpt, size_t param, const void *dy, void *dx,
                                      struct dcpk_error *err);
/* Adds one leaf's part of the weight's gradient. */
void dcpk_gpt_linear_leaf(struct dcpk_gpt *gpt, size_t param, struct gpt_leaf leaf, const void *dy,
                          const void *x);
/* Adds the parts of all leaves. */
void dcpk_gpt_linear_weight(struct dcpk_gpt *gpt, size_t param, const void *dy, const void *x);
/* Rows of the microbatch, each of `lanes` rows that are normed (heads). dx may be dy. */
void dcpk_gpt_norm(struct dcpk_gpt *gpt, size_t param, int64_t lanes, const void *x, void *y);
/* dy becomes the gradient of x; adds that of the weight. */
void dcpk_gpt_norm_backward(struct dcpk_gpt *gpt, size_t param, int64_t lanes, const void *x,
                            void *dy);
/* Add my slices in scratch->slices to those of other ranks: `columns` a row. */
dcpk_status dcpk_gpt_add_slices(struct dcpk_gpt *gpt, int64_t columns, enum dcpk_dtype dtype,
                                float *slices, void *out, struct dcpk_error *err);

/* gpt_attention.c: kept->input into kept->middle; d, the gradient of the one into that of the
 * other. */
dcpk_status dcpk_gpt_attention(struct dcpk_gpt *gpt, const struct gpt_layer *layer,
                               struct gpt_kept *kept, struct dcpk_error *err);
/* d: of kept->middle, becomes that of kept->input. Adds gradients of weights. */
dcpk_status dcpk_gpt_attention_backward(struct dcpk_gpt *gpt, const struct gpt_layer *layer,
                                        const struct gpt_kept *kept, void *d,
                                        struct dcpk_error *err);

/* gpt_moe.c: kept->mlp_norm into y; dy into dx. */
dcpk_status dcpk_gpt_moe(struct dcpk_gpt *gpt, const struct gpt_layer *layer, struct gpt_kept *kept,
                         void *y, struct dcpk_error *err);
/* dy: of y; dx: of kept->mlp_norm. Adds gradients of weights. */
dcpk_status dcpk_gpt_moe_backward(struct dcpk_gpt *gpt, const struct gpt_layer *layer,
                                  const struct gpt_kept *kept, const void *dy, void *dx,
                                  struct dcpk_error *err);

/* gpt_head.c: the ends of the model. tokens: host, one a row. */
dcpk_status dcpk_gpt_embed(struct dcpk_gpt *gpt, const int32_t *tokens, void *x,
                           struct dcpk_error *err);
/* dx: of x; adds the gradient of the embedding. */
dcpk_status dcpk_gpt_embed_backward(struct dcpk_gpt *gpt, const int32_t *tokens, const void *dx,
                                    struct dcpk_error *err);
/* head->input into the sum of losses; back into d, by the logits that forward kept. more: what is
 * added to the gradient of head->normed; NULL: nothing. */
dcpk_status dcpk_gpt_head(struct dcpk_gpt *gpt, struct gpt_head *head, const struct gpt_pass *pass,
                          int64_t *sum, struct dcpk_error *err);
/* d: of head->input. Adds gradients of weights. */
dcpk_status dcpk_gpt_head_backward(struct dcpk_gpt *gpt, struct gpt_head *head,
                                   const struct gpt_pass *pass, const void *more, void *d,
                                   struct dcpk_error *err);

/* Fails where a loss of the step was bad: others wait for what a pass sends until the step ends. */
dcpk_status dcpk_gpt_check_losses(const struct dcpk_gpt *gpt, struct dcpk_error *err);

/*
 * gpt_layer.c: one microbatch through the layers of this stage. Other stages' activations come in
 * kept[0].input and leave in gpt->out; gradients come and leave in gpt->d.
 */
dcpk_status dcpk_gpt_forward(struct dcpk_gpt *gpt, struct gpt_pass *pass, struct dcpk_error *err);
/* Adds gradients of weights; after the forward pass of the same microbatch. */
dcpk_status dcpk_gpt_backward(struct dcpk_gpt *gpt, struct gpt_pass *pass, struct dcpk_error *err);

#endif
