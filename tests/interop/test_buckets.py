# SPDX-License-Identifier: Apache-2.0
# test_buckets.py - dp_reshardable optimizer state against a decoder that looks for weights in the buckets.
"""dcpkit replays the order in which Megatron registers parameters. Here nothing is known of that order: a weight's local block
is looked for where a chunk begins and its fp32 values round to the stored bf16 ones (Megatron's own invariant)."""
import re
import shutil
import tempfile
import unittest

import torch

from dcp_folder import Folder
from tool import dcpkit, dcpkit_fails, iteration, sample

SOURCE = "torch_dist_c_dp_reshardable_tp2dp2"
COLUMN = re.compile(r"(word_embeddings|output_layer|linear_qkv|linear_fc1)\.weight$")
ROW = re.compile(r"(linear_proj|linear_fc2)\.weight$")
ROLES = {"param": "model.module.{}", "exp_avg": "optimizer.state.module.module.module.{}.exp_avg",
         "exp_avg_sq": "optimizer.state.module.module.module.{}.exp_avg_sq"}


def local_block(name, tensor, rank, n_ranks):
    """What a tensor-parallel rank holds of a parameter: of a gated fc1 its gate rows, then its up rows."""
    if name.endswith("linear_fc1.weight"):
        gate, up = tensor.chunk(2)
        return torch.cat([gate.chunk(n_ranks)[rank], up.chunk(n_ranks)[rank]])
    if COLUMN.search(name):
        return tensor.chunk(n_ranks)[rank]
    return tensor.chunk(n_ranks, 1)[rank] if ROW.search(name) else tensor


def unstacked(tensors):
    for key, tensor in tensors.items():
        if key.startswith("decoder.layers."):
            for layer, part in enumerate(tensor):
                yield key.replace(".layers.", f".layers.{layer}."), part
        else:
            yield key, tensor


def converted(got, pattern, name):
    """A parameter's tensor of the output, the halves of a gated one put together again."""
    key = pattern.format(name)
    if not name.endswith("linear_fc1.weight"):
        return got[key]
    return torch.cat([got[pattern.format(name + half)] for half in ("_w", "_v")])


class Buckets(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.work = tempfile.mkdtemp()
        cls.addClassCleanup(shutil.rmtree, cls.work)
        dcpkit("convert", "--to", "fsdp_dtensor", sample(SOURCE), cls.work + "/out")
        cls.source = Folder(iteration(sample(SOURCE)))
        cls.got = Folder(iteration(cls.work + "/out")).load()
        cls.args = cls.source.common()["args"]

    def test_states_lie_where_the_weights_are(self):
        stored = self.source.load()
        weights = dict(unstacked({k: v for k, v in stored.items() if not k.startswith("optimizer.")}))
        n_found = 0
        for rank in range(self.args.tensor_model_parallel_size):
            head = (f"optimizer.distributed.dp_group_idx_{rank}.gbuf_idx_0.dtype_(torch.bfloat16, torch.float32)"
                    ".bucket_idx_0.")
            bucket = stored[head + "param"]
            starts = {c.offsets[0] for c in self.source.tensors[head + "param"].chunks}
            taken = {}
            # The largest first: what they take cannot be taken for a norm.
            for name, weight in sorted(weights.items(), key=lambda item: -item[1].numel()):
                block = local_block(name, weight, rank, self.args.tensor_model_parallel_size).reshape(-1)
                n = block.numel()
                places = [s for s in starts if s % 64 == 0 and s + n <= bucket.numel() and
                          torch.equal(bucket[s:s + n].bfloat16(), block)]
                self.assertTrue(places, f"{name} of rank {rank} is nowhere in the bucket")
                match = []
                for place in places:
                    same = []
                    for role, pattern in ROLES.items():
                        whole = converted(self.got, pattern, name)
                        ours = local_block(name, whole, rank, self.args.tensor_model_parallel_size).reshape(-1)
                        self.assertEqual(ours.dtype, torch.float32)
                        same.append(torch.equal(ours, stored[head + role][place:place + n]))
                    match += [place] if all(same) else []
                self.assertEqual(len(match), 1, f"{name} of rank {rank}: content fits at {places}, ours at {match}")
                taken[match[0]] = taken.get(match[0], 0) + 1
                n_found += len(places) == 1
            self.assertEqual(set(taken.values()), {1}, "a place is taken twice")
        self.assertGreater(n_found, len(weights), "most places are unique by content")

    def test_param_groups(self):
        folder = Folder(iteration(self.work + "/out"))
        groups = self.source.object("optimizer.distributed.dp_group_idx_0.optimizer/shard_0_1")[0]["param_groups"]
        for name, wd_mult in (("output_layer.weight", 1.0), ("decoder.final_layernorm.weight", 0.0)):
            want = next(g for g in groups if g["wd_mult"] == wd_mult)
            for field in ("lr", "betas", "eps", "weight_decay", "wd_mult", "step"):
                have = folder.object(f"optimizer.param_to_group_meta.module.module.module.{name}.{field}", stubs=False)
                self.assertEqual(have, want[field], f"{name}.{field}")

    def test_a_changed_weight_is_refused(self):
        """One bit of one master: the proof before writing names the parameter."""
        shutil.copytree(sample(SOURCE), self.work + "/changed", symlinks=False)
        folder = Folder(iteration(self.work + "/changed"))
        key = next(k for k in folder.tensors if k.endswith(".param"))
        chunk = max(folder.tensors[key].chunks, key=lambda c: c.sizes[0])
        file, offset, length = folder.places[key][tuple(chunk.offsets)]
        path = f"{folder.path}/{file}"
        with open(path, "rb") as f:
            data = bytearray(f.read())
        item = bytes(data[offset:offset + length])
        values = folder.load([key])[key][chunk.offsets[0]:chunk.offsets[0] + chunk.sizes[0]].numpy().tobytes()
        at = offset + item.index(values)
        data[at + 3] ^= 0x40  # the exponent of the chunk's first element
        with open(path, "wb") as f:
            f.write(data)
        status, said = dcpkit_fails("convert", "--to", "fsdp_dtensor", self.work + "/changed", self.work + "/no")
        self.assertEqual(status, 3)
        self.assertRegex(said, r"not its rounded master: 'output_layer\.weight'\[0, 0\] is .*1 of 27 parameters differ")


if __name__ == "__main__":
    unittest.main()
