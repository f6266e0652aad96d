# SPDX-License-Identifier: Apache-2.0
# test_gathered.py - dp_zero_gather_scatter made of dp_reshardable samples, as Megatron gathers, and decoded.
"""Megatron stored one state in both layouts. Its buckets are put together here as its data-parallel rank 0 does it
(MC/optimizer/distrib_optimizer.py get_parameter_state_dp_zero): by core 0.6 with their padding, by 0.7 and later one behind the
other without it. What dcpkit makes of that must be, bit for bit, what Megatron stored in the model's shape."""
import os
import pickle
import re
import shutil
import tempfile
import unittest

import torch
from torch.distributed.checkpoint.filesystem import _StorageInfo
from torch.distributed.checkpoint.metadata import BytesStorageMetadata, MetadataIndex

from dcp_folder import Folder, same_tensor
from tool import dcpkit, dcpkit_fails, iteration, sample

C = "torch_dist_c_"
# The same state in both layouts, and what the args of the run do not tell of its buckets.
PAIRS = [(C + "dp_reshardable_mla_moe", C + "mla_moe", ("--ddp-bucket-size", "1000")),
         (C + "dp_reshardable_mtp", C + "mtp", ()), (C + "dp_reshardable_mamba", C + "mamba", ()),
         (C + "dp_reshardable_moe_ep2pp2vpp2/dp_reshardable", C + "dp_reshardable_moe_ep2pp2vpp2/fully_reshardable", ())]
BUCKET = re.compile(r"(.*dp_group_idx_\d+)\.gbuf_idx_(\d+)\.dtype_(\(.*\))\.bucket_idx_(\d+)\.(param|exp_avg|exp_avg_sq)$")
DTYPES = {"(torch.bfloat16, torch.float32)": (torch.bfloat16, torch.float32)}


def folder_of(name):
    tracker = os.path.join(sample(name), "latest_checkpointed_iteration.txt")
    return iteration(sample(name)) if os.path.exists(tracker) else sample(name)


def collect(source):
    """{group: {buffer: {dtypes: {state: [the buckets' tensors]}}}}, and the keys of the tensors."""
    stored, groups = source.load(), {}
    found = sorted((k for k in stored if BUCKET.match(k)), key=lambda k: int(BUCKET.match(k)[4]))
    for key in found:
        group, buffer, dtypes, _, state = BUCKET.match(key).groups()
        buckets = groups.setdefault(group, {}).setdefault(int(buffer), {}).setdefault(DTYPES[dtypes], {})
        buckets.setdefault(state, []).append(stored[key])
    return groups, found


def coalesced(buffers):
    gathered = {"buckets_coalesced": True}
    for buffer, by_dtype in buffers.items():
        gathered[buffer] = {dtypes: dict({state: torch.cat(buckets) for state, buckets in states.items()},
                                         numel_unpadded=sum(map(len, states["param"])))
                            for dtypes, states in by_dtype.items()}
    return gathered


def with_padding(buffers, padded, unpadded):
    gathered = {"per_bucket_numel": padded, "per_bucket_numel_unpadded": unpadded}
    for buffer, by_dtype in buffers.items():
        gathered[buffer] = {
            dtypes: {state: [torch.cat([t, torch.full((n - len(t),), 7.0)])
                             for t, n in zip(buckets, padded[buffer][dtypes])] for state, buckets in states.items()}
            for dtypes, states in by_dtype.items()}
    return gathered


def gather(name, to, has_padding=False, change=lambda gathered: None):
    """Write the sample as Megatron would with gathered optimizer state."""
    source = Folder(folder_of(name))
    groups, dropped = collect(source)
    shutil.copytree(source.path, to)
    metadata = source.metadata
    for group, buffers in groups.items():
        records = [f"{group}.{record}/shard_0_1" for record in ("per_bucket_numel", "per_bucket_numel_unpadded")]
        if has_padding:
            gathered = with_padding(buffers, *(source.object(record)[0] for record in records))
        else:
            gathered = coalesced(buffers)
        change(gathered)
        key, file = f"{group}.param_state/shard_0_1", group + ".distcp"
        torch.save([gathered], os.path.join(to, file))
        metadata.state_dict_metadata[key] = BytesStorageMetadata()
        metadata.storage_data[MetadataIndex(key)] = _StorageInfo(file, 0, os.path.getsize(os.path.join(to, file)))
        dropped += records
    metadata.state_dict_metadata = {k: v for k, v in metadata.state_dict_metadata.items() if k not in set(dropped)}
    metadata.storage_data = {i: v for i, v in metadata.storage_data.items() if i.fqn not in set(dropped)}
    with open(os.path.join(to, ".metadata"), "wb") as f:
        pickle.dump(metadata, f)


class Gathered(unittest.TestCase):
    def setUp(self):
        self.work = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.work)

    def check(self, name, plain, options, **how):
        source, out = (tempfile.mkdtemp(dir=self.work) + folder for folder in ("/source", "/out"))
        gather(name, source, **how)
        dcpkit("verify", source)
        dcpkit("convert", "--to", "torch_dist", "--target-generation", "C", "--verify", *options, source, out)
        dcpkit("verify", "--against", source, *options, out)
        got = Folder(iteration(out)).load()
        want = Folder(folder_of(plain)).load()
        self.assertLessEqual(want.keys(), got.keys())  # there are other spellings beside these
        for key, tensor in want.items():
            self.assertTrue(same_tensor(got[key], tensor), key)

    def test_coalesced_buckets_are_what_megatron_stored(self):
        for name, plain, options in PAIRS:
            with self.subTest(name):
                self.check(name, plain, options)

    def test_buckets_with_padding_are_too(self):
        for name, plain, _ in PAIRS:
            with self.subTest(name):
                self.check(name, plain, (), has_padding=True)

    def refused(self, change, text, has_padding=False, options=PAIRS[0][2]):
        source = tempfile.mkdtemp(dir=self.work) + "/source"
        gather(PAIRS[0][0], source, has_padding, change)
        code, message = dcpkit_fails("convert", "--to", "fsdp_dtensor", *options, source, self.work + "/out")
        self.assertEqual(code, 3, message)
        self.assertIn(text, message)
        self.assertFalse(os.path.exists(self.work + "/out"))

    def test_a_size_that_args_do_not_tell_is_asked_for(self):
        self.refused(lambda gathered: None, "--ddp-bucket-size", options=())

    def test_what_does_not_fit_is_refused(self):
        def states(gathered):
            return next(iter(gathered[0].values()))

        def wrong(state, make):
            return lambda gathered: states(gathered).update({state: make(states(gathered)[state])})

        self.refused(wrong("numel_unpadded", lambda n: n + 1), "are recorded")
        self.refused(wrong("numel_unpadded", lambda n: 1 << 60), "are recorded")
        self.refused(wrong("numel_unpadded", lambda n: -1), "are recorded")
        self.refused(wrong("exp_avg", lambda t: t[:-1].clone()), "are recorded")
        self.refused(wrong("exp_avg", lambda t: t.double()), "not a float32 tensor in one run")
        self.refused(wrong("exp_avg", lambda t: t.repeat_interleave(2)[::2]), "not a float32 tensor in one run")
        self.refused(wrong("exp_avg", lambda t: t[:1].expand(len(t))), "not a float32 tensor in one run")
        self.refused(wrong("exp_avg", lambda t: t.reshape(1, -1)), "not a float32 tensor in one run")
        self.refused(wrong("exp_avg", lambda t: t[:0].clone()), "not a float32 tensor in one run")
        self.refused(wrong("exp_avg", lambda t: [t]), "not a float32 tensor in one run")
        self.refused(wrong("param", lambda t: t.roll(1)), "where the replayed layout has its master")
        self.refused(lambda gathered: gathered.pop("buckets_coalesced"), "is not known")
        self.refused(lambda gathered: gathered.pop(0), "has a buffer")
        self.refused(lambda gathered: gathered.update({7: gathered.pop(0)}), "numbers of buffers")
        self.refused(lambda gathered: gathered.update({"per_bucket_numel": []}), "are recorded", has_padding=True)
        self.refused(wrong("param", lambda buckets: buckets[:1] * 100), "more bytes than the", has_padding=True)
        self.refused(wrong("param", lambda buckets: buckets[:1] * 100000), "unfold to more than", has_padding=True)

    def test_one_storage_may_hold_all_states(self):
        """A tensor is where its pickle says, in a storage of several too."""
        def share(gathered):
            for buffer in (b for b in gathered if isinstance(b, int)):
                for states in gathered[buffer].values():
                    names = [n for n in states if n != "numel_unpadded"]
                    whole = torch.cat([states[n] for n in names])
                    states.update(zip(names, whole.chunk(len(names))))

        self.check(*PAIRS[0], change=share)


if __name__ == "__main__":
    unittest.main()
