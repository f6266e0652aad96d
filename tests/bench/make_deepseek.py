# SPDX-License-Identifier: Apache-2.0
"""Writes a torch_dist checkpoint of DeepSeek-V3 with its optimizer, 9.4 TB, as core 0.16 would on 8192 ranks: metadata and objects
through torch's own classes, tensors as holes of sparse files.

python make_deepseek.py LIKE SMALL OUT [TP PP EP ETP]     (needs torch, and Megatron-LM where its classes are in LIKE)
LIKE: an iteration's folder of v016_moe_ep2pp2, whose optimizer, scheduler and objects it takes; SMALL: one of DeepSeek-V3 with
small sizes (`dcpkit convert --to torch_dist --no-mtp` of what make_huggingface.py writes), whose args it takes.
Default: TP8 PP16 EP64 ETP8.
"""
import io, os, pickle, shutil, sys
import torch
from torch.distributed.checkpoint.filesystem import _StorageInfo
from torch.distributed.checkpoint.metadata import (
    BytesStorageMetadata, ChunkStorageMetadata, Metadata, MetadataIndex, StorageMeta, TensorProperties, TensorStorageMetadata)

HIDDEN, HEADS, Q_LORA, KV_LORA, NOPE, ROPE, V, DENSE, FFN, EXPERTS, LAYERS, VOCAB = 7168, 128, 1536, 512, 128, 64, 128, 18432, 2048, 256, 61, 129280
like, small, out = sys.argv[1:4]
tp, pp, ep, etp = map(int, sys.argv[4:8] or (8, 16, 64, 8))
ranks_a_stage = ep * etp
FRAME = 1536  # bytes of an item of torch.save around its data, about
files = [f"__{rank}_0.distcp" for rank in range(pp * ranks_a_stage)]
ends = dict.fromkeys(files, 0)
entries, places, turn, modules = {}, {}, [0] * pp, []


def put(index, stage, n_bytes):
    """Its place: files of the stage's ranks by turns, as a save in parallel deals items out."""
    file = files[stage * ranks_a_stage + turn[stage] % ranks_a_stage]
    turn[stage] += 1
    places[index] = _StorageInfo(file, ends[file], n_bytes)
    ends[file] += n_bytes
    return places[index]


def cuts(shape, axis, parts):
    """Boxes of a tensor cut along an axis."""
    if axis is None or parts == 1:
        return [((0,) * len(shape), shape)]
    step = shape[axis] // parts
    return [(tuple(step * i if a == axis else 0 for a in range(len(shape))),
             tuple(step if a == axis else n for a, n in enumerate(shape))) for i in range(parts)]


def put_tensor(key, shape, stage, boxes, dtype):
    chunks = [ChunkStorageMetadata(torch.Size(o), torch.Size(e)) for o, e in boxes]
    entries[key] = TensorStorageMetadata(TensorProperties(dtype), torch.Size(shape), chunks)
    for i, chunk in enumerate(chunks):
        put(MetadataIndex(key, chunk.offsets, i), stage, chunk.sizes.numel() * dtype.itemsize + FRAME)


def param(key, shape, stage, boxes):
    put_tensor(key, shape, stage, boxes, torch.bfloat16)
    for state in "param", "exp_avg", "exp_avg_sq":
        put_tensor(f"optimizer.state.{state}.{key}", shape, stage, boxes, torch.float32)


def dense(key, shape, stage, axis=None, parts=tp):
    param(key, shape, stage, cuts(shape, axis, parts))
    module, _, name = key.rpartition(".")
    if name == "weight" and any(word in module for word in (".linear_", "layernorm", "output_layer")):
        modules.append((module, stage, 1))


def layer(at, number, stage):
    a = at + "self_attention."
    dense(at + "input_layernorm.weight", (HIDDEN,), stage)
    dense(a + "linear_q_down_proj.weight", (Q_LORA, HIDDEN), stage)
    dense(a + "linear_q_up_proj.layer_norm_weight", (Q_LORA,), stage)
    dense(a + "linear_q_up_proj.weight", (HEADS * (NOPE + ROPE), Q_LORA), stage, 0)
    dense(a + "linear_kv_down_proj.weight", (KV_LORA + ROPE, HIDDEN), stage)
    dense(a + "linear_kv_up_proj.layer_norm_weight", (KV_LORA,), stage)
    dense(a + "linear_kv_up_proj.weight", (HEADS * (NOPE + V), KV_LORA), stage, 0)
    dense(a + "linear_proj.weight", (HIDDEN, HEADS * V), stage, 1)
    if number < 3:
        dense(at + "mlp.linear_fc1.layer_norm_weight", (HIDDEN,), stage)
        dense(at + "mlp.linear_fc1.weight", (2 * DENSE, HIDDEN), stage, 0, 2 * tp)
        dense(at + "mlp.linear_fc2.weight", (HIDDEN, DENSE), stage, 1)
        return
    dense(at + "pre_mlp_layernorm.weight", (HIDDEN,), stage)
    dense(at + "mlp.router.weight", (EXPERTS, HIDDEN), stage)
    put_tensor(at + "mlp.router.expert_bias", (EXPERTS,), stage, cuts((EXPERTS,), None, 1), torch.float32)
    dense(at + "mlp.shared_experts.linear_fc1.weight", (2 * FFN, HIDDEN), stage, 0, 2 * tp)
    dense(at + "mlp.shared_experts.linear_fc2.weight", (HIDDEN, FFN), stage, 1)
    for name, shape, axis, parts in ("linear_fc1", (2 * FFN, HIDDEN), 0, 2 * etp), ("linear_fc2", (HIDDEN, FFN), 1, etp):
        boxes = [((e, *o), (1, *n)) for e in range(EXPERTS) for o, n in cuts(shape, axis, parts)]
        param(f"{at}mlp.experts.experts.{name}.weight", (EXPERTS, *shape), stage, boxes)
        modules.append((f"{at}mlp.experts.experts.{name}", stage, EXPERTS))


dense("embedding.word_embeddings.weight", (VOCAB, HIDDEN), 0, 0)
for number in range(LAYERS):
    layer(f"decoder.layers.{number}.", number, number * pp // LAYERS)
dense("decoder.final_layernorm.weight", (HIDDEN,), pp - 1)
dense("output_layer.weight", (VOCAB, HIDDEN), pp - 1, 0)

common = torch.load(f"{like}/common.pt", weights_only=False)
args = vars(common["args"])
args.update(vars(torch.load(f"{small}/common.pt", weights_only=False)["args"]))
args.update(
    hidden_size=HIDDEN, ffn_hidden_size=DENSE, num_attention_heads=HEADS, num_query_groups=HEADS, kv_channels=V, q_lora_rank=Q_LORA,
    kv_lora_rank=KV_LORA, qk_head_dim=NOPE, qk_pos_emb_head_dim=ROPE, v_head_dim=V, moe_ffn_hidden_size=FFN,
    moe_shared_expert_intermediate_size=FFN, padded_vocab_size=VOCAB, vocab_size=VOCAB, tensor_model_parallel_size=tp,
    pipeline_model_parallel_size=pp, expert_model_parallel_size=ep, expert_tensor_parallel_size=etp,
    transformer_impl="transformer_engine", data_parallel_size=ranks_a_stage // tp, world_size=len(files), use_distributed_optimizer=True, iteration=4)
os.makedirs(out)
torch.save(common, f"{out}/common.pt")
shutil.copy(f"{like}/metadata.json", out)
saved = io.BytesIO()
torch.save(io.BytesIO(), saved)  # the extra state of a module without any
with open(f"{like}/.metadata", "rb") as f:
    index, rng = next((i, p) for i, p in pickle.load(f).storage_data.items() if i.fqn.startswith("rng_state/"))
with open(f"{like}/{rng.relative_path}", "rb") as f:
    f.seek(rng.offset)
    rng_state = f.read(rng.length)
objects = {f"{module}._extra_state/shard_{i}_{n}": (stage, saved.getvalue()) for module, stage, n in modules for i in range(n)}
dp = ranks_a_stage // tp
objects.update({f"rng_state/shard_{p}.{t}.{d}_{pp}.{tp}.{dp}": (p, rng_state) for p in range(pp) for t in range(tp) for d in range(dp)})
contents = {name: [] for name in files}
for key, (stage, content) in objects.items():
    entries[key] = BytesStorageMetadata()
    place = put(MetadataIndex(key), stage, len(content))
    contents[place.relative_path].append((place.offset, content))
with open(f"{out}/.metadata", "wb") as f:
    pickle.dump(Metadata(entries, None, places, StorageMeta(checkpoint_id=out)), f)
for name in files:
    with open(f"{out}/{name}", "wb") as f:
        f.truncate(ends[name])
        for at, content in contents[name]:
            f.seek(at)
            f.write(content)
print(f"{out}: {len(entries) - len(objects)} tensors in {len(places) - len(objects)} chunks, {len(objects)} objects, "
      f"{sum(ends.values()) / 1e12:.2f} TB in {len(files)} files")
