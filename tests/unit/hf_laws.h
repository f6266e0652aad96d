/* SPDX-License-Identifier: Apache-2.0 */
/* hf_laws.h - which element of Hugging Face's tensors stands at each place of Megatron's, family by
 * family. */
/*
 * Written from the classes of transformers (names and shapes), from Megatron's attention, MLP and
 * router (order of rows), and not from the maps: formats/safetensors/MAPS.md, "Tensors". Names of
 * layers lack what stands before them in all layers of a family.
 */
#ifndef DCPK_TESTS_UNIT_HF_LAWS_H
#define DCPK_TESTS_UNIT_HF_LAWS_H

#include <stdint.h>

#include "lib/base/order.h"
#include "lib/tensor/dtype.h"

/* What a family has. */
enum trait {
    LLAMA = 1 << 0,       /* Llama's names at the top */
    UNTIED = 1 << 1,      /* an output layer of its own */
    HEADS = 1 << 2,       /* q_proj, k_proj, v_proj, o_proj */
    HEADS_BIAS = 1 << 3,  /* biases of q, k, v */
    HEADS_NORM = 1 << 4,  /* norms of q and k */
    HEADS_ONE = 1 << 5,   /* qkv_proj */
    MLA = 1 << 6,         /* latents */
    Q_LATENT = 1 << 7,    /* of q too */
    Q_WHOLE = 1 << 8,     /* not of q */
    NORMS = 1 << 9,       /* two in front, which Megatron's linear layers hold */
    NORM_BIAS = 1 << 10,  /* those have biases */
    NORMS_FOUR = 1 << 11, /* two more, behind attention and MLP */
    GATED = 1 << 12,      /* gate_proj, up_proj, down_proj */
    GATED_ONE = 1 << 13,  /* gate_up_proj, down_proj */
    UNGATED = 1 << 14,    /* up_proj, down_proj */
    EXPERTS = 1 << 15,    /* the same, of each expert or of all in one; a router called gate */
    EXPERTS_W = 1 << 16,  /* w1, w3, w2 */
    ROUTED_BIAS = 1 << 17,
    SHARED = 1 << 18,
    SHARED_GATE = 1 << 19, /* a shared expert with a gate */
    OSS = 1 << 20,         /* GPT-OSS */
    GPT2 = 1 << 21,
    MTP = 1 << 22,            /* a layer behind the last */
    ROUTED_BIAS_W = 1 << 24,  /* a bias of the router next to it, with EXPERTS_W */
    HEADS_NORM_ALL = 1 << 23, /* norms of q and k over all heads together */
    DELTA_NET = 1 << 25,      /* gated heads in every second layer, Gated DeltaNet in the others */
    BY_HEAD = Q_WHOLE,        /* with DELTA_NET: its projection is two tensors, by key head */
    IN_FOUR = Q_LATENT,       /* or four */
    STARCODER = Q_WHOLE,      /* with HEADS: c_fc, c_proj, and a bias of every linear layer */
    HYBRID = 1 << 26,         /* a layer is one of four kinds */
    HYBRID_MIXED = 1 << 27,   /* Mamba first, then experts */
    HYBRID_PLAIN = 1 << 28,   /* an MLP first, then attention */
    SPARSE = 1 << 29,         /* MLA with an indexer, and norms of latents of their own */
    FUSED = 1 << 30,          /* MLA whose linear layers hold those norms */
};

/* How Megatron's rows come from those of the parts. */
enum law {
    AS_IS,
    APART,            /* all q, k, v of one part, then z, beta, alpha of one each */
    BEHIND,           /* of the first part, then of the second */
    BY_GROUP,         /* a group's q, its k, its v; of three parts */
    BY_GROUP_OF_ONE,  /* the same, of one part: all q, all k, all v */
    BY_GROUP_GATED,   /* a group's q, their gates, its k, its v; a head's gate is behind its q */
    BY_KEY_HEAD,      /* all q, k, v, z of one part, beta, alpha of the other; there by key head */
    ALTERNATE,        /* the even ones, then the odd ones */
    TURNED,           /* columns are rows */
    TURNED_BY_GROUP,  /* BY_GROUP_OF_ONE of those */
    TURNED_ALTERNATE, /* ALTERNATE of those */
};

enum where { AT_TOP, IN_EACH, IN_DENSE, IN_MOE, AT_MTP, IN_LINEAR, IN_FULL, IN_INDEXED };

enum law_flags {
    LAW_READ = 1,              /* another form that files have: read, not written */
    LAW_COPY = 2,              /* one more name: compared, and written */
    LAW_MEMORY = LAW_READ | 4, /* of the class in memory: written under its names alone */
    LAW_SUM = 8, /* Hugging Face's is one more where norms of both sides are zero-centered */
};

struct tensor_law {
    unsigned traits; /* all of them */
    enum where where;
    const char *mg;
    enum law law;
    const char *hf[4];
    const char *shape[4]; /* of one expert; a letter an axis (case_extent) */
    unsigned flags;
    enum dcpk_dtype dtype; /* whatever is asked for */
};

#define WORDS   "embedding.word_embeddings.weight"
#define INDEXER "self_attention.core_attention.indexer."
#define QKV     "self_attention.linear_qkv."

/* A law of one part; MORE: with what it has beside. */
#define ONE(traits, where, mg, law, hf, shape)                                                     \
    {                                                                                              \
        traits, where, mg, law, {hf}, {shape}, 0, DCPK_DTYPE_NONE                                  \
    }
#define ONE_MORE(traits, where, mg, law, hf, shape, flags, dtype)                                  \
    {                                                                                              \
        traits, where, mg, law, {hf}, {shape}, flags, dtype                                        \
    }

static const struct tensor_law tensor_laws[] = {
    ONE(LLAMA, AT_TOP, WORDS, AS_IS, "model.embed_tokens.weight", "vh"),
    ONE(LLAMA, AT_TOP, "decoder.final_layernorm.weight", AS_IS, "model.norm.weight", "h"),
    ONE(LLAMA | NORM_BIAS, AT_TOP, "decoder.final_layernorm.bias", AS_IS, "model.norm.bias", "h"),
    ONE(UNTIED, AT_TOP, "output_layer.weight", AS_IS, "lm_head.weight", "vh"),
    ONE(NORMS, IN_EACH, QKV "layer_norm_weight", AS_IS, "input_layernorm.weight", "h"),
    ONE(NORMS, IN_DENSE, "mlp.linear_fc1.layer_norm_weight", AS_IS,
        "post_attention_layernorm.weight", "h"),
    ONE(NORMS | NORM_BIAS, IN_EACH, QKV "layer_norm_bias", AS_IS, "input_layernorm.bias", "h"),
    ONE(NORMS | NORM_BIAS, IN_DENSE, "mlp.linear_fc1.layer_norm_bias", AS_IS,
        "post_attention_layernorm.bias", "h"),
    ONE(NORMS, IN_MOE, "pre_mlp_layernorm.weight", AS_IS, "post_attention_layernorm.weight", "h"),
    ONE(NORMS_FOUR, IN_EACH, QKV "layer_norm_weight", AS_IS, "input_layernorm.weight", "h"),
    ONE(NORMS_FOUR, IN_EACH, "self_attention.linear_proj.post_layernorm.weight", AS_IS,
        "post_attention_layernorm.weight", "h"),
    ONE(NORMS_FOUR, IN_EACH, "mlp.linear_fc1.layer_norm_weight", AS_IS,
        "pre_feedforward_layernorm.weight", "h"),
    ONE(NORMS_FOUR, IN_EACH, "mlp.linear_fc2.post_layernorm.weight", AS_IS,
        "post_feedforward_layernorm.weight", "h"),
    ONE(HYBRID, AT_TOP, WORDS, AS_IS, "backbone.embeddings.weight", "vh"),
    ONE(HYBRID, AT_TOP, "decoder.final_norm.weight", AS_IS, "backbone.norm_f.weight", "h"),
    ONE(HYBRID_MIXED, IN_DENSE, "mixer.in_proj.layer_norm_weight", AS_IS, "norm.weight", "h"),
    ONE(HYBRID_MIXED, IN_DENSE, "mixer.in_proj.weight", AS_IS, "mixer.in_proj.weight", "fh"),
    ONE(HYBRID_MIXED, IN_DENSE, "mixer.conv1d_weight", AS_IS, "mixer.conv1d.weight", "fd"),
    ONE(HYBRID_MIXED, IN_DENSE, "mixer.conv1d_bias", AS_IS, "mixer.conv1d.bias", "f"),
    ONE(HYBRID_MIXED, IN_DENSE, "mixer.A_log", AS_IS, "mixer.A_log", "d"),
    ONE(HYBRID_MIXED, IN_DENSE, "mixer.D", AS_IS, "mixer.D", "d"),
    ONE(HYBRID_MIXED, IN_DENSE, "mixer.dt_bias", AS_IS, "mixer.dt_bias", "d"),
    ONE(HYBRID_MIXED, IN_DENSE, "mixer.norm.weight", AS_IS, "mixer.norm.weight", "f"),
    ONE(HYBRID_MIXED, IN_DENSE, "mixer.out_proj.weight", AS_IS, "mixer.out_proj.weight", "hf"),
    ONE(HYBRID_MIXED, IN_MOE, "pre_mlp_layernorm.weight", AS_IS, "norm.weight", "h"),
    ONE(HYBRID_MIXED, IN_MOE, "mlp.router.weight", AS_IS, "mixer.gate.weight", "eh"),
    ONE_MORE(HYBRID_MIXED, IN_MOE, "mlp.router.expert_bias", AS_IS,
             "mixer.gate.e_score_correction_bias", "e", 0, DCPK_F32),
    ONE(HYBRID_MIXED, IN_MOE, "mlp.experts.linear_fc1.weight{e}", AS_IS,
        "mixer.experts.{e}.up_proj.weight", "mh"),
    ONE(HYBRID_MIXED, IN_MOE, "mlp.experts.linear_fc2.weight{e}", AS_IS,
        "mixer.experts.{e}.down_proj.weight", "hm"),
    ONE_MORE(HYBRID_MIXED, IN_MOE, "mlp.experts.linear_fc1.weight{e}", AS_IS,
             "mixer.experts.up_proj", "mh", LAW_MEMORY, 0),
    ONE_MORE(HYBRID_MIXED, IN_MOE, "mlp.experts.linear_fc2.weight{e}", AS_IS,
             "mixer.experts.down_proj", "hm", LAW_MEMORY, 0),
    ONE(HYBRID_MIXED, IN_MOE, "mlp.shared_experts.linear_fc1.weight", AS_IS,
        "mixer.shared_experts.up_proj.weight", "sh"),
    ONE(HYBRID_MIXED, IN_MOE, "mlp.shared_experts.linear_fc2.weight", AS_IS,
        "mixer.shared_experts.down_proj.weight", "hs"),
    ONE(HYBRID_PLAIN, IN_DENSE, "mlp.linear_fc1.layer_norm_weight", AS_IS, "norm.weight", "h"),
    ONE(HYBRID_PLAIN, IN_DENSE, "mlp.linear_fc1.weight", AS_IS, "mixer.up_proj.weight", "fh"),
    ONE(HYBRID_PLAIN, IN_DENSE, "mlp.linear_fc2.weight", AS_IS, "mixer.down_proj.weight", "hf"),
    ONE(HYBRID_PLAIN, IN_MOE, QKV "layer_norm_weight", AS_IS, "norm.weight", "h"),
    {HYBRID_PLAIN,
     IN_MOE,
     QKV "weight",
     BY_GROUP,
     {"mixer.q_proj.weight", "mixer.k_proj.weight", "mixer.v_proj.weight"},
     {"qh", "kh", "kh"},
     0,
     0},
    ONE(HYBRID_PLAIN, IN_MOE, "self_attention.linear_proj.weight", AS_IS, "mixer.o_proj.weight",
        "hq"),
    /* attention */
    {HEADS,
     IN_EACH,
     QKV "weight",
     BY_GROUP,
     {"self_attn.q_proj.weight", "self_attn.k_proj.weight", "self_attn.v_proj.weight"},
     {"qh", "kh", "kh"},
     0,
     0},
    {HEADS | HEADS_BIAS,
     IN_EACH,
     QKV "bias",
     BY_GROUP,
     {"self_attn.q_proj.bias", "self_attn.k_proj.bias", "self_attn.v_proj.bias"},
     {"q", "k", "k"},
     0,
     0},
    ONE(HEADS, IN_EACH, "self_attention.linear_proj.weight", AS_IS, "self_attn.o_proj.weight",
        "hq"),
    ONE(HEADS_NORM, IN_EACH, "self_attention.q_layernorm.weight", AS_IS, "self_attn.q_norm.weight",
        "d"),
    ONE(HEADS_NORM, IN_EACH, "self_attention.k_layernorm.weight", AS_IS, "self_attn.k_norm.weight",
        "d"),
    ONE(HEADS_NORM_ALL, IN_EACH, "self_attention.q_layernorm.weight", AS_IS,
        "self_attn.q_norm.weight", "q"),
    ONE(HEADS_NORM_ALL, IN_EACH, "self_attention.k_layernorm.weight", AS_IS,
        "self_attn.k_norm.weight", "k"),
    ONE_MORE(ROUTED_BIAS_W, IN_MOE, "mlp.router.expert_bias", AS_IS,
             "block_sparse_moe.e_score_correction_bias", "e", 0, DCPK_F32),
    ONE_MORE(ROUTED_BIAS_W, IN_MOE, "mlp.router.expert_bias", AS_IS, "mlp.e_score_correction_bias",
             "e", LAW_MEMORY, DCPK_F32),
    ONE(HEADS_ONE, IN_EACH, QKV "weight", BY_GROUP_OF_ONE, "self_attn.qkv_proj.weight", "ah"),
    ONE(HEADS_ONE, IN_EACH, "self_attention.linear_proj.weight", AS_IS, "self_attn.o_proj.weight",
        "hq"),
    ONE(MLA, IN_EACH, "input_layernorm.weight", AS_IS, "input_layernorm.weight", "h"),
    ONE(MLA, IN_DENSE, "mlp.linear_fc1.layer_norm_weight", AS_IS, "post_attention_layernorm.weight",
        "h"),
    ONE(MLA, IN_MOE, "pre_mlp_layernorm.weight", AS_IS, "post_attention_layernorm.weight", "h"),
    ONE(MLA | Q_WHOLE, IN_EACH, "self_attention.linear_q_proj.weight", AS_IS,
        "self_attn.q_proj.weight", "Lh"),
    ONE(MLA | Q_LATENT, IN_EACH, "self_attention.linear_q_down_proj.weight", AS_IS,
        "self_attn.q_a_proj.weight", "lh"),
    ONE(FUSED | Q_LATENT, IN_EACH, "self_attention.linear_q_up_proj.layer_norm_weight", AS_IS,
        "self_attn.q_a_layernorm.weight", "l"),
    ONE(SPARSE, IN_EACH, "self_attention.q_layernorm.weight", AS_IS,
        "self_attn.q_a_layernorm.weight", "l"),
    ONE(SPARSE, IN_EACH, "self_attention.kv_layernorm.weight", AS_IS,
        "self_attn.kv_a_layernorm.weight", "C"),
    ONE(SPARSE, IN_INDEXED, INDEXER "linear_wq_b.weight", AS_IS, "self_attn.indexer.wq_b.weight",
        "Il"),
    ONE(SPARSE, IN_INDEXED, INDEXER "linear_wk.weight", AS_IS, "self_attn.indexer.wk.weight", "Jh"),
    ONE(SPARSE, IN_INDEXED, INDEXER "k_norm.weight", AS_IS, "self_attn.indexer.k_norm.weight", "J"),
    ONE(SPARSE, IN_INDEXED, INDEXER "k_norm.bias", AS_IS, "self_attn.indexer.k_norm.bias", "J"),
    ONE(SPARSE, IN_INDEXED, INDEXER "linear_weights_proj.weight", AS_IS,
        "self_attn.indexer.weights_proj.weight", "Gh"),
    ONE(MLA | Q_LATENT, IN_EACH, "self_attention.linear_q_up_proj.weight", AS_IS,
        "self_attn.q_b_proj.weight", "Ll"),
    ONE(MLA, IN_EACH, "self_attention.linear_kv_down_proj.weight", AS_IS,
        "self_attn.kv_a_proj_with_mqa.weight", "ch"),
    ONE(FUSED, IN_EACH, "self_attention.linear_kv_up_proj.layer_norm_weight", AS_IS,
        "self_attn.kv_a_layernorm.weight", "C"),
    ONE(MLA, IN_EACH, "self_attention.linear_kv_up_proj.weight", AS_IS,
        "self_attn.kv_b_proj.weight", "KC"),
    ONE(MLA, IN_EACH, "self_attention.linear_proj.weight", AS_IS, "self_attn.o_proj.weight", "hV"),
    /* MLP */
    {GATED,
     IN_DENSE,
     "mlp.linear_fc1.weight",
     BEHIND,
     {"mlp.gate_proj.weight", "mlp.up_proj.weight"},
     {"fh", "fh"},
     0,
     0},
    ONE(GATED, IN_DENSE, "mlp.linear_fc2.weight", AS_IS, "mlp.down_proj.weight", "hf"),
    ONE(GATED_ONE, IN_DENSE, "mlp.linear_fc1.weight", AS_IS, "mlp.gate_up_proj.weight", "Fh"),
    ONE(GATED_ONE, IN_DENSE, "mlp.linear_fc2.weight", AS_IS, "mlp.down_proj.weight", "hf"),
    ONE(UNGATED, IN_DENSE, "mlp.linear_fc1.weight", AS_IS, "mlp.up_proj.weight", "fh"),
    ONE(UNGATED, IN_DENSE, "mlp.linear_fc2.weight", AS_IS, "mlp.down_proj.weight", "hf"),
    ONE(HEADS | STARCODER, IN_EACH, "self_attention.linear_proj.bias", AS_IS,
        "self_attn.o_proj.bias", "h"),
    ONE(HEADS | STARCODER, IN_DENSE, "mlp.linear_fc1.weight", AS_IS, "mlp.c_fc.weight", "fh"),
    ONE(HEADS | STARCODER, IN_DENSE, "mlp.linear_fc1.bias", AS_IS, "mlp.c_fc.bias", "f"),
    ONE(HEADS | STARCODER, IN_DENSE, "mlp.linear_fc2.weight", AS_IS, "mlp.c_proj.weight", "hf"),
    ONE(HEADS | STARCODER, IN_DENSE, "mlp.linear_fc2.bias", AS_IS, "mlp.c_proj.bias", "h"),
    /* experts */
    ONE(EXPERTS, IN_MOE, "mlp.router.weight", AS_IS, "mlp.gate.weight", "eh"),
    {EXPERTS,
     IN_MOE,
     "mlp.experts.linear_fc1.weight{e}",
     BEHIND,
     {"mlp.experts.{e}.gate_proj.weight", "mlp.experts.{e}.up_proj.weight"},
     {"mh", "mh"},
     0,
     0},
    ONE(EXPERTS, IN_MOE, "mlp.experts.linear_fc2.weight{e}", AS_IS,
        "mlp.experts.{e}.down_proj.weight", "hm"),
    ONE_MORE(EXPERTS, IN_MOE, "mlp.experts.linear_fc1.weight{e}", AS_IS, "mlp.experts.gate_up_proj",
             "Mh", LAW_MEMORY, 0),
    ONE_MORE(EXPERTS, IN_MOE, "mlp.experts.linear_fc2.weight{e}", AS_IS, "mlp.experts.down_proj",
             "hm", LAW_MEMORY, 0),
    ONE(EXPERTS_W, IN_MOE, "mlp.router.weight", AS_IS, "block_sparse_moe.gate.weight", "eh"),
    ONE_MORE(EXPERTS_W, IN_MOE, "mlp.router.weight", AS_IS, "mlp.gate.weight", "eh", LAW_MEMORY, 0),
    {EXPERTS_W,
     IN_MOE,
     "mlp.experts.linear_fc1.weight{e}",
     BEHIND,
     {"block_sparse_moe.experts.{e}.w1.weight", "block_sparse_moe.experts.{e}.w3.weight"},
     {"mh", "mh"},
     0,
     0},
    ONE(EXPERTS_W, IN_MOE, "mlp.experts.linear_fc2.weight{e}", AS_IS,
        "block_sparse_moe.experts.{e}.w2.weight", "hm"),
    ONE_MORE(EXPERTS_W, IN_MOE, "mlp.experts.linear_fc1.weight{e}", AS_IS,
             "mlp.experts.gate_up_proj", "Mh", LAW_MEMORY, 0),
    ONE_MORE(EXPERTS_W, IN_MOE, "mlp.experts.linear_fc2.weight{e}", AS_IS, "mlp.experts.down_proj",
             "hm", LAW_MEMORY, 0),
    ONE_MORE(ROUTED_BIAS, IN_MOE, "mlp.router.expert_bias", AS_IS,
             "mlp.gate.e_score_correction_bias", "e", 0, DCPK_F32),
    {SHARED,
     IN_MOE,
     "mlp.shared_experts.linear_fc1.weight",
     BEHIND,
     {"mlp.shared_experts.gate_proj.weight", "mlp.shared_experts.up_proj.weight"},
     {"sh", "sh"},
     0,
     0},
    ONE(SHARED, IN_MOE, "mlp.shared_experts.linear_fc2.weight", AS_IS,
        "mlp.shared_experts.down_proj.weight", "hs"),
    {SHARED_GATE,
     IN_MOE,
     "mlp.shared_experts.linear_fc1.weight",
     BEHIND,
     {"mlp.shared_expert.gate_proj.weight", "mlp.shared_expert.up_proj.weight"},
     {"sh", "sh"},
     0,
     0},
    ONE(SHARED_GATE, IN_MOE, "mlp.shared_experts.linear_fc2.weight", AS_IS,
        "mlp.shared_expert.down_proj.weight", "hs"),
    ONE(SHARED_GATE, IN_MOE, "mlp.shared_experts.gate_weight", AS_IS,
        "mlp.shared_expert_gate.weight", "1h"),
    /* Qwen3-Next */
    ONE(DELTA_NET, IN_DENSE, "mlp.linear_fc1.layer_norm_weight", AS_IS,
        "post_attention_layernorm.weight", "h"),
    ONE(DELTA_NET, IN_MOE, "pre_mlp_layernorm.weight", AS_IS, "post_attention_layernorm.weight",
        "h"),
    ONE(DELTA_NET, IN_FULL, QKV "layer_norm_weight", AS_IS, "input_layernorm.weight", "h"),
    {DELTA_NET,
     IN_FULL,
     QKV "weight",
     BY_GROUP_GATED,
     {"self_attn.q_proj.weight", "self_attn.k_proj.weight", "self_attn.v_proj.weight"},
     {"Qh", "kh", "kh"},
     0,
     0},
    ONE(DELTA_NET, IN_FULL, "self_attention.linear_proj.weight", AS_IS, "self_attn.o_proj.weight",
        "hq"),
    ONE(DELTA_NET, IN_FULL, "self_attention.q_layernorm.weight", AS_IS, "self_attn.q_norm.weight",
        "d"),
    ONE(DELTA_NET, IN_FULL, "self_attention.k_layernorm.weight", AS_IS, "self_attn.k_norm.weight",
        "d"),
    ONE(DELTA_NET, IN_LINEAR, "self_attention.in_proj.layer_norm_weight", AS_IS,
        "input_layernorm.weight", "h"),
    {DELTA_NET | IN_FOUR,
     IN_LINEAR,
     "self_attention.in_proj.weight",
     APART,
     {"linear_attn.in_proj_qkv.weight", "linear_attn.in_proj_z.weight",
      "linear_attn.in_proj_b.weight", "linear_attn.in_proj_a.weight"},
     {"Nh", "qh", "Hh", "Hh"},
     0,
     0},
    {DELTA_NET | BY_HEAD,
     IN_LINEAR,
     "self_attention.in_proj.weight",
     BY_KEY_HEAD,
     {"linear_attn.in_proj_qkvz.weight", "linear_attn.in_proj_ba.weight"},
     {"Zh", "Bh"},
     0,
     0},
    ONE(DELTA_NET, IN_LINEAR, "self_attention.conv1d.weight", AS_IS, "linear_attn.conv1d.weight",
        "Nn"),
    ONE(DELTA_NET, IN_LINEAR, "self_attention.A_log", AS_IS, "linear_attn.A_log", "H"),
    ONE(DELTA_NET, IN_LINEAR, "self_attention.dt_bias", AS_IS, "linear_attn.dt_bias", "H"),
    ONE_MORE(DELTA_NET, IN_LINEAR, "self_attention.out_norm.weight", AS_IS,
             "linear_attn.norm.weight", "d", LAW_SUM, 0),
    ONE(DELTA_NET, IN_LINEAR, "self_attention.out_proj.weight", AS_IS,
        "linear_attn.out_proj.weight", "hq"),
    /* GPT-OSS */
    ONE(OSS, IN_EACH, "self_attention.linear_proj.bias", AS_IS, "self_attn.o_proj.bias", "h"),
    ONE(OSS, IN_EACH, "self_attention.core_attention.softmax_offset", AS_IS, "self_attn.sinks",
        "H"),
    ONE(OSS, IN_MOE, "mlp.router.weight", AS_IS, "mlp.router.weight", "eh"),
    ONE(OSS, IN_MOE, "mlp.router.bias", AS_IS, "mlp.router.bias", "e"),
    ONE(OSS, IN_MOE, "mlp.experts.linear_fc1.weight{e}", TURNED_ALTERNATE,
        "mlp.experts.gate_up_proj", "hM"),
    ONE(OSS, IN_MOE, "mlp.experts.linear_fc1.bias{e}", ALTERNATE, "mlp.experts.gate_up_proj_bias",
        "M"),
    ONE(OSS, IN_MOE, "mlp.experts.linear_fc2.weight{e}", TURNED, "mlp.experts.down_proj", "mh"),
    ONE(OSS, IN_MOE, "mlp.experts.linear_fc2.bias{e}", AS_IS, "mlp.experts.down_proj_bias", "h"),
    ONE_MORE(OSS, IN_MOE, "mlp.experts.linear_fc1.weight{e}", ALTERNATE,
             "mlp.experts.gate_up_proj_blocks", "Mh", LAW_READ, 0),
    ONE_MORE(OSS, IN_MOE, "mlp.experts.linear_fc2.weight{e}", AS_IS, "mlp.experts.down_proj_blocks",
             "hm", LAW_READ, 0),
    /* GPT-2 */
    ONE(GPT2, AT_TOP, WORDS, AS_IS, "transformer.wte.weight", "vh"),
    ONE(GPT2, AT_TOP, "embedding.position_embeddings.weight", AS_IS, "transformer.wpe.weight",
        "ph"),
    ONE(GPT2, AT_TOP, "decoder.final_layernorm.weight", AS_IS, "transformer.ln_f.weight", "h"),
    ONE(GPT2, AT_TOP, "decoder.final_layernorm.bias", AS_IS, "transformer.ln_f.bias", "h"),
    ONE(GPT2, IN_EACH, QKV "layer_norm_weight", AS_IS, "ln_1.weight", "h"),
    ONE(GPT2, IN_EACH, QKV "layer_norm_bias", AS_IS, "ln_1.bias", "h"),
    ONE(GPT2, IN_EACH, "mlp.linear_fc1.layer_norm_weight", AS_IS, "ln_2.weight", "h"),
    ONE(GPT2, IN_EACH, "mlp.linear_fc1.layer_norm_bias", AS_IS, "ln_2.bias", "h"),
    ONE(GPT2, IN_EACH, QKV "weight", TURNED_BY_GROUP, "attn.c_attn.weight", "ha"),
    ONE(GPT2, IN_EACH, QKV "bias", BY_GROUP_OF_ONE, "attn.c_attn.bias", "a"),
    ONE(GPT2, IN_EACH, "self_attention.linear_proj.weight", TURNED, "attn.c_proj.weight", "qh"),
    ONE(GPT2, IN_EACH, "self_attention.linear_proj.bias", AS_IS, "attn.c_proj.bias", "h"),
    ONE(GPT2, IN_EACH, "mlp.linear_fc1.weight", TURNED, "mlp.c_fc.weight", "hf"),
    ONE(GPT2, IN_EACH, "mlp.linear_fc1.bias", AS_IS, "mlp.c_fc.bias", "f"),
    ONE(GPT2, IN_EACH, "mlp.linear_fc2.weight", TURNED, "mlp.c_proj.weight", "fh"),
    ONE(GPT2, IN_EACH, "mlp.linear_fc2.bias", AS_IS, "mlp.c_proj.bias", "h"),
    /* the layer behind the last; its block is one with experts */
    ONE(MTP, AT_MTP, "enorm.weight", AS_IS, "enorm.weight", "h"),
    ONE(MTP, AT_MTP, "hnorm.weight", AS_IS, "hnorm.weight", "h"),
    ONE(MTP, AT_MTP, "eh_proj.weight", AS_IS, "eh_proj.weight", "hw"),
    ONE(MTP, AT_MTP, "final_layernorm.weight", AS_IS, "shared_head.norm.weight", "h"),
    ONE_MORE(MTP, AT_MTP, WORDS, AS_IS, "embed_tokens.weight", "vh", LAW_COPY, 0),
    ONE_MORE(MTP, AT_MTP, "output_layer.weight", AS_IS, "shared_head.head.weight", "vh", LAW_COPY,
             0),
};

#endif
