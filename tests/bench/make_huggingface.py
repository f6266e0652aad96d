# SPDX-License-Identifier: Apache-2.0
"""Writes a Hugging Face folder of zeros or of noise, as wide and deep as a known model.

python make_huggingface.py OUT [GB]     (needs nothing)
Without GB: DeepSeek-V3's 61 layers, 256 experts and MTP layer, of tiny tensors, all zero, in sparse files. With it: layers of
GPT-OSS in its own sizes with 8 experts, as many as have GB (10^9 bytes; a layer has 0.45), all bytes written.
"""
import json, os, random, struct, sys

out, gb = sys.argv[1], float(sys.argv[2]) if len(sys.argv) > 2 else None
shapes = {}


def deepseek_v3():
    hidden, heads, q_lora, kv_lora, nope, rope, v, dense, expert_ffn, experts, layers, vocab = 32, 2, 8, 8, 4, 4, 4, 16, 8, 256, 61, 128

    def mlp(at, ffn):
        shapes.update({f"{at}gate_proj.weight": (ffn, hidden), f"{at}up_proj.weight": (ffn, hidden), f"{at}down_proj.weight": (hidden, ffn)})

    shapes.update({"model.embed_tokens.weight": (vocab, hidden), "model.norm.weight": (hidden,), "lm_head.weight": (vocab, hidden)})
    for layer in range(layers + 1):
        at = f"model.layers.{layer}."
        a = at + "self_attn."
        shapes.update({at + "input_layernorm.weight": (hidden,), at + "post_attention_layernorm.weight": (hidden,),
                       a + "q_a_proj.weight": (q_lora, hidden), a + "q_a_layernorm.weight": (q_lora,),
                       a + "q_b_proj.weight": (heads * (nope + rope), q_lora), a + "kv_a_proj_with_mqa.weight": (kv_lora + rope, hidden),
                       a + "kv_a_layernorm.weight": (kv_lora,), a + "kv_b_proj.weight": (heads * (nope + v), kv_lora),
                       a + "o_proj.weight": (hidden, heads * v)})
        if layer < 3:
            mlp(at + "mlp.", dense)
            continue
        shapes.update({at + "mlp.gate.weight": (experts, hidden), at + "mlp.gate.e_score_correction_bias": (experts,)})
        mlp(at + "mlp.shared_experts.", expert_ffn)
        for expert in range(experts):
            mlp(f"{at}mlp.experts.{expert}.", expert_ffn)
        if layer == layers:
            shapes.update({at + "embed_tokens.weight": (vocab, hidden), at + "shared_head.head.weight": (vocab, hidden),
                           at + "shared_head.norm.weight": (hidden,), at + "enorm.weight": (hidden,), at + "hnorm.weight": (hidden,),
                           at + "eh_proj.weight": (hidden, 2 * hidden)})
    return dict(
        architectures=["DeepseekV3ForCausalLM"], model_type="deepseek_v3", vocab_size=vocab, hidden_size=hidden,
        num_hidden_layers=layers, num_attention_heads=heads, num_key_value_heads=heads, intermediate_size=dense,
        moe_intermediate_size=expert_ffn, q_lora_rank=q_lora, kv_lora_rank=kv_lora, qk_nope_head_dim=nope, qk_rope_head_dim=rope,
        v_head_dim=v, n_routed_experts=experts, n_shared_experts=1, num_experts_per_tok=8, n_group=8, topk_group=4,
        norm_topk_prob=True, routed_scaling_factor=2.5, first_k_dense_replace=3, moe_layer_freq=1, scoring_func="sigmoid",
        topk_method="noaux_tc", max_position_embeddings=4096, rms_norm_eps=1e-6, initializer_range=0.02, hidden_act="silu",
        attention_bias=False, tie_word_embeddings=False, num_nextn_predict_layers=1, rope_theta=10000, torch_dtype="bfloat16",
        rope_scaling=dict(type="yarn", factor=40, beta_fast=32, beta_slow=1, mscale=1.0, mscale_all_dim=1.0,
                          original_max_position_embeddings=4096))


def gpt_oss():
    hidden, heads, groups, head, ffn, experts, vocab = 2880, 64, 8, 64, 2880, 8, 8192
    layers = max(1, round(gb / 0.45))
    shapes.update({"model.embed_tokens.weight": (vocab, hidden), "model.norm.weight": (hidden,), "lm_head.weight": (vocab, hidden)})
    for layer in range(layers):
        at = f"model.layers.{layer}."
        a, e = at + "self_attn.", at + "mlp.experts."
        shapes.update({at + "input_layernorm.weight": (hidden,), at + "post_attention_layernorm.weight": (hidden,), a + "sinks": (heads,),
                       a + "o_proj.weight": (hidden, heads * head), a + "o_proj.bias": (hidden,),
                       at + "mlp.router.weight": (experts, hidden), at + "mlp.router.bias": (experts,),
                       e + "gate_up_proj": (experts, hidden, 2 * ffn), e + "gate_up_proj_bias": (experts, 2 * ffn),
                       e + "down_proj": (experts, ffn, hidden), e + "down_proj_bias": (experts, hidden)})
        for part, n in ("q", heads), ("k", groups), ("v", groups):
            shapes.update({f"{a}{part}_proj.weight": (n * head, hidden), f"{a}{part}_proj.bias": (n * head,)})
    return dict(
        architectures=["GptOssForCausalLM"], model_type="gpt_oss", vocab_size=vocab, hidden_size=hidden, num_hidden_layers=layers,
        num_attention_heads=heads, num_key_value_heads=groups, head_dim=head, intermediate_size=ffn, num_local_experts=experts,
        num_experts_per_tok=4, attention_bias=True, hidden_act="silu", initializer_range=0.02, max_position_embeddings=131072,
        rms_norm_eps=1e-5, rope_theta=150000, sliding_window=128, swiglu_limit=7.0, tie_word_embeddings=False, torch_dtype="bfloat16",
        layer_types=["full_attention" if layer % 2 else "sliding_attention" for layer in range(layers)],
        rope_scaling=dict(rope_type="yarn", factor=32.0, beta_fast=32.0, beta_slow=1.0, truncate=False,
                          original_max_position_embeddings=4096))


def put_data(f, n_bytes):
    """Zeros that take no room, or noise, the same 64 MiB again and again."""
    if noise is None:
        f.truncate(f.tell() + n_bytes)
        return
    while n_bytes > 0:
        n_bytes -= f.write(noise[:n_bytes])


config = deepseek_v3() if gb is None else gpt_oss()
noise = None if gb is None else memoryview(random.Random(1).randbytes(64 << 20))
os.makedirs(out)
names, weight_map, tensors_a_file = list(shapes), {}, 300
n_files = -(-len(names) // tensors_a_file)
for number in range(n_files):
    file, header, end = f"model-{number + 1:05d}-of-{n_files:05d}.safetensors", {}, 0
    for name in names[number * tensors_a_file:(number + 1) * tensors_a_file]:
        wide = name.endswith("correction_bias")
        n_bytes = 4 if wide else 2
        for size in shapes[name]:
            n_bytes *= size
        header[name] = dict(dtype="F32" if wide else "BF16", shape=shapes[name], data_offsets=[end, end + n_bytes])
        end += n_bytes
        weight_map[name] = file
    text = json.dumps(header).encode()
    with open(os.path.join(out, file), "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        put_data(f, end)
with open(os.path.join(out, "model.safetensors.index.json"), "w", encoding="utf-8") as f:
    json.dump({"metadata": {}, "weight_map": weight_map}, f)
with open(os.path.join(out, "config.json"), "w", encoding="utf-8") as f:
    json.dump(config, f)
print(f"{out}: {len(names)} tensors in {n_files} files")
