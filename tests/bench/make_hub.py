# SPDX-License-Identifier: Apache-2.0
"""Writes checkpoints of FSDP2 runs under Hugging Face's names, each rank its own share, all bytes drawn.

torchrun --nproc-per-node N make_hub.py OUT GB     (needs torch; GB: 10^9 bytes of each, bfloat16)
OUT/dense, OUT/dense_dcp: a Llama's configuration and its dcp.save; OUT/experts, OUT/experts_dcp: the same of a Qwen3-MoE whose
experts are stacked; OUT/verl/global_step_1/actor: the Llama by torch.save, as verl's FSDP workers save it;
OUT/adapter: a PEFT adapter of rank 16 of the Llama.
"""
import json, os, sys
import torch, torch.distributed as dist, torch.distributed.checkpoint as dcp
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Shard

HIDDEN, HEADS, GROUPS, HEAD, FFN, VOCAB, EXPERTS, EXPERT_FFN, RANK = 2048, 16, 8, 128, 8192, 32768, 16, 1024, 16
out, wanted = sys.argv[1], float(sys.argv[2]) * 1e9


def attention(at):
    return {at + "q_proj.weight": (HEADS * HEAD, HIDDEN), at + "k_proj.weight": (GROUPS * HEAD, HIDDEN),
            at + "v_proj.weight": (GROUPS * HEAD, HIDDEN), at + "o_proj.weight": (HIDDEN, HEADS * HEAD)}


def dense_layer(at):
    m = at + "mlp."
    return {**attention(at + "self_attn."), m + "gate_proj.weight": (FFN, HIDDEN), m + "up_proj.weight": (FFN, HIDDEN), m + "down_proj.weight": (HIDDEN, FFN)}


def experts_layer(at):
    a, m = at + "self_attn.", at + "mlp."
    return {**attention(a), a + "q_norm.weight": (HEAD,), a + "k_norm.weight": (HEAD,), m + "gate.weight": (EXPERTS, HIDDEN),
            m + "experts.gate_up_proj": (EXPERTS, 2 * EXPERT_FFN, HIDDEN), m + "experts.down_proj": (EXPERTS, HIDDEN, EXPERT_FFN)}


def shapes_of(layer_of):
    """Those of as many layers as `wanted` bytes need, and their number."""
    one = sum(torch.Size(s).numel() for s in layer_of("").values())
    n = max(1, round((wanted / 2 - 2 * VOCAB * HIDDEN) / one))
    shapes = {"model.embed_tokens.weight": (VOCAB, HIDDEN), "model.norm.weight": (HIDDEN,), "lm_head.weight": (VOCAB, HIDDEN)}
    for i in range(n):
        at = f"model.layers.{i}."
        shapes.update({at + "input_layernorm.weight": (HIDDEN,), at + "post_attention_layernorm.weight": (HIDDEN,), **layer_of(at)})
    return shapes, n


def draw(shapes):
    rows = lambda n: [len(c) for c in torch.arange(n).chunk(world)] + [0] * world
    local = lambda s: torch.empty(rows(s[0])[rank], *s[1:], dtype=torch.bfloat16).uniform_(-1, 1)
    return {k: DTensor.from_local(local(s), mesh, [Shard(0)], run_check=False, shape=torch.Size(s),
                                  stride=torch.empty(s, device="meta").stride()) for k, s in shapes.items()}


def configure(folder, n_layers, **more):
    os.makedirs(folder, exist_ok=True)
    config = dict(vocab_size=VOCAB, hidden_size=HIDDEN, num_hidden_layers=n_layers, num_attention_heads=HEADS, num_key_value_heads=GROUPS,
                  head_dim=HEAD, intermediate_size=FFN, max_position_embeddings=4096, rms_norm_eps=1e-6, hidden_act="silu", torch_dtype="bfloat16",
                  rope_theta=1e4, tie_word_embeddings=False, attention_bias=False, **more)
    json.dump(config, open(f"{folder}/config.json", "w"), indent=2)


dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(rank)
mesh = init_device_mesh("cpu", (world,), mesh_dim_names=("fsdp",))
dense, n_dense = shapes_of(dense_layer)
experts, n_experts = shapes_of(experts_layer)
actor = f"{out}/verl/global_step_1/actor"
if rank == 0:
    llama = dict(architectures=["LlamaForCausalLM"], model_type="llama", mlp_bias=False)
    configure(f"{out}/dense", n_dense, **llama)
    configure(f"{actor}/huggingface", n_dense, **llama)
    configure(f"{out}/experts", n_experts, architectures=["Qwen3MoeForCausalLM"], model_type="qwen3_moe", num_experts=EXPERTS, num_experts_per_tok=2,
              moe_intermediate_size=EXPERT_FFN, decoder_sparse_step=1, mlp_only_layers=[], norm_topk_prob=True)
    json.dump({"FSDP_version": 2, "world_size": world}, open(f"{actor}/fsdp_config.json", "w"))
    from safetensors.torch import save_file

    os.makedirs(f"{out}/adapter")
    pairs = {}
    for k, s in dense.items():
        if k.endswith("_proj.weight"):
            name = "base_model.model." + k.removesuffix("weight")
            pairs[name + "lora_A.weight"], pairs[name + "lora_B.weight"] = torch.randn(RANK, s[1]), torch.randn(s[0], RANK)
    save_file(pairs, f"{out}/adapter/adapter_model.safetensors", metadata={"format": "pt"})
    names = sorted({k.split(".")[-2] for k in dense if k.endswith("_proj.weight")})
    json.dump(dict(peft_type="LORA", task_type="CAUSAL_LM", r=RANK, lora_alpha=32, target_modules=names, bias="none"), open(f"{out}/adapter/adapter_config.json", "w"))
dist.barrier()
state = draw(dense)
dcp.save(state, checkpoint_id=f"{out}/dense_dcp")
torch.save(state, f"{actor}/model_world_size_{world}_rank_{rank}.pt")
del state
dcp.save(draw(experts), checkpoint_id=f"{out}/experts_dcp")
dist.destroy_process_group()
