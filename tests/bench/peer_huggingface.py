# SPDX-License-Identifier: Apache-2.0
"""torch_dist to a Hugging Face folder in Python, as one writes it by hand: torch's DCP load of the weights, splits, a save.

python peer_huggingface.py (safetensors | save_pretrained) ITERATION CONFIG_FOLDER OUT     (needs torch, transformers)
A dense Llama whose layers are stacked. CONFIG_FOLDER: its config.json. Run with tests/interop on PYTHONPATH.
"""
import os, sys
import torch
from dcp_folder import Folder

how, source, config_folder, out = sys.argv[1:]
os.environ["HF_HUB_OFFLINE"] = "1"
from transformers import AutoConfig  # noqa: E402

config = AutoConfig.from_pretrained(config_folder)
groups, head = config.num_key_value_heads, config.head_dim
keys = {"qkv_norm": "self_attention.linear_qkv.layer_norm_weight", "qkv": "self_attention.linear_qkv.weight",
        "o": "self_attention.linear_proj.weight", "fc1_norm": "mlp.linear_fc1.layer_norm_weight",
        "fc1": "mlp.linear_fc1.weight", "fc2": "mlp.linear_fc2.weight"}
whole = {"model.embed_tokens.weight": "embedding.word_embeddings.weight", "lm_head.weight": "output_layer.weight",
         "model.norm.weight": "decoder.final_layernorm.weight"}
stored = Folder(source).load([*whole.values(), *(f"decoder.layers.{k}" for k in keys.values())])
made = {name: stored[key] for name, key in whole.items()}
for name in ("model.embed_tokens.weight", "lm_head.weight"):
    made[name] = made[name][: config.vocab_size].contiguous()
for layer in range(config.num_hidden_layers):
    mine, at = {k: stored[f"decoder.layers.{v}"][layer] for k, v in keys.items()}, f"model.layers.{layer}."
    qkv = mine["qkv"].reshape(groups, -1, head, config.hidden_size)
    n_q = qkv.shape[1] - 2
    for part, rows in (("q", qkv[:, :n_q]), ("k", qkv[:, n_q]), ("v", qkv[:, n_q + 1])):
        made[f"{at}self_attn.{part}_proj.weight"] = rows.reshape(-1, config.hidden_size).contiguous()
    gate, up = mine["fc1"].chunk(2)
    made.update({at + "self_attn.o_proj.weight": mine["o"].contiguous(), at + "input_layernorm.weight": mine["qkv_norm"].contiguous(),
                 at + "mlp.gate_proj.weight": gate.contiguous(), at + "mlp.up_proj.weight": up.contiguous(),
                 at + "mlp.down_proj.weight": mine["fc2"].contiguous(),
                 at + "post_attention_layernorm.weight": mine["fc1_norm"].contiguous()})
os.makedirs(out)
if how == "safetensors":
    from safetensors.torch import save_file
    save_file(made, os.path.join(out, "model.safetensors"), metadata={"format": "pt"})
    config.save_pretrained(out)
else:
    from transformers import AutoModelForCausalLM
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    model.load_state_dict(made, strict=True, assign=True)
    model.save_pretrained(out)
