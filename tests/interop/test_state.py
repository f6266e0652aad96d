# SPDX-License-Identifier: Apache-2.0
# test_state.py - what the common state may hold beside what every run has, and optimizers that are not distributed.
import json
import os
import shutil
import signal
import subprocess
import tempfile
import unittest

import torch
import torch.distributed.checkpoint as dcp

from dcp_folder import Folder
from make_source import ADAMW, DENSE, FUSED, make_source
from tool import DCPKIT, dcpkit, dcpkit_fails, iteration, sample

SCALER = {"scale": torch.tensor([4096.0]), "growth_tracker": 3, "hysteresis_tracker": 2}


class State(unittest.TestCase):
    def setUp(self):
        self.work = tempfile.mkdtemp(prefix="dcpkit-state-")
        self.addCleanup(shutil.rmtree, self.work)

    def source(self, edit, **options):
        """A run whose common state `edit` has changed."""
        run = os.path.join(self.work, "in")
        make_source(run, DENSE, **{"fields": FUSED, **options})
        path = os.path.join(run, "iter_0000007", "common.pt")
        common = torch.load(path, weights_only=False)
        edit(common)
        torch.save(common, path)
        return run

    def convert(self, run, form, *options):
        """Converted, with proof; (its folder, the keys that the report calls dropped)."""
        out = tempfile.mkdtemp(prefix=form, dir=self.work)
        report = out + ".json"
        dcpkit("convert", "--force", "--verify", "--to", form, "--report", report, *options, run, out)
        with open(report, encoding="utf-8") as f:
            dropped = json.load(f)["dropped"]
        return os.path.join(out, "iter_0000007"), {entry["key"] for entry in dropped}

    @staticmethod
    def with_entries(common):
        common["optimizer"].update(grad_scaler=SCALER, unheard_of=1)
        common.update(my_entry={"list": [1, 2.5, "x"], "tensor": torch.arange(3)}, my_class=signal.SIGTERM)

    def test_entries_are_carried_or_named(self):
        run = self.source(self.with_entries)
        for form, *options in (("torch_dist", "--target-generation", "B"), ("torch_dist", "--target-generation", "C"),
                               ("zarr",)):
            folder, dropped = self.convert(run, form, *options)
            path = os.path.join(folder, "common.pt")
            common = torch.load(path, weights_only=False) if os.path.exists(path) else Folder(folder).common()
            with self.subTest(form=form, options=options):
                scaler = common["optimizer"]["grad_scaler"]
                self.assertEqual({**scaler, "scale": scaler["scale"].tolist()}, {**SCALER, "scale": [4096.0]})
                self.assertEqual(common["my_entry"]["list"], [1, 2.5, "x"])
                self.assertEqual(common["my_entry"]["tensor"].tolist(), [0, 1, 2])
                self.assertNotIn("my_class", common)
                self.assertIn("my_class", dropped)
                self.assertIn("optimizer.unheard_of", dropped)
            self.assertIn("equal", dcpkit("compare-two-checkpoint", run, folder))

    def test_entries_that_fsdp_has_no_place_for(self):
        _, dropped = self.convert(self.source(self.with_entries), "fsdp_dtensor")
        for key in ("optimizer.grad_scaler", "optimizer.unheard_of", "my_entry", "my_class"):
            self.assertIn(key, dropped)

    def test_scaler_that_differs(self):
        run = self.source(self.with_entries)
        other = self.convert(run, "torch_dist", "--target-generation", "C")[0]
        path = os.path.join(run, "iter_0000007", "common.pt")
        common = torch.load(path, weights_only=False)
        common["optimizer"]["grad_scaler"]["scale"] *= 2
        torch.save(common, path)
        for command in ("compare-two-checkpoint", "verify --against"):
            done = subprocess.run([DCPKIT, *command.split(), run, other], capture_output=True, text=True, check=False)
            self.assertEqual(done.returncode, 1, command)
            self.assertIn("optimizer.grad_scaler", done.stdout)

    @staticmethod
    def undistributed(common):
        """As torch's AdamW in core 0.19's Float16OptimizerWithFloat16Params keeps it."""
        common["args"].use_distributed_optimizer = False
        del common["content_metadata"]["distrib_optim_sharding_type"]
        del common["optimizer"]["param_state_sharding_type"]
        for group in common["optimizer"]["optimizer"]["param_groups"]:
            del group["step"]
        common["optimizer"]["optimizer"]["state"] = {"common_step": torch.tensor(7.0)}

    def test_undistributed_optimizer(self):
        run = self.source(self.undistributed, master="fp32_param", fields=ADAMW)
        folder, _ = self.convert(run, "torch_dist", "--target-generation", "C")
        out, source = Folder(folder), Folder(os.path.join(run, "iter_0000007"))
        optimizer = out.common()["optimizer"]["optimizer"]
        self.assertEqual(optimizer["state"], {"common_step": 7.0})
        for group in optimizer["param_groups"]:
            self.assertIn(type(group["step"]), (int, float))
            self.assertEqual(group["step"], 7)
        masters = [k for k in source.tensors if k.startswith("optimizer.state.fp32_param.")]
        self.assertTrue(masters)
        ours, theirs = out.load(), source.load()
        for key in masters:
            for name in (key, key.replace("fp32_param", "param", 1)):
                self.assertTrue(torch.equal(ours[name], theirs[key]), name)
        fsdp, _ = self.convert(folder, "fsdp_dtensor")
        back, _ = self.convert(fsdp, "torch_dist")
        self.assertIn(masters[0], Folder(back).tensors)

    def test_common_step_that_is_no_number(self):
        def edit(common):
            self.undistributed(common)
            common["optimizer"]["optimizer"]["state"]["common_step"] = torch.arange(2.0)

        run = self.source(edit, master="fp32_param", fields=ADAMW)
        status, said = dcpkit_fails("convert", "--to", "fsdp_dtensor", run, os.path.join(self.work, "out"))
        self.assertEqual(status, 3)
        self.assertIn("common_step is a tensor, but no single float32", said)

    def test_undistributed_fused_optimizer(self):
        """Transformer Engine's Adam: the step is in the groups and nowhere else."""
        def edit(common):
            common["args"].use_distributed_optimizer = False
            common["optimizer"]["optimizer"]["state"] = {}

        folder, _ = self.convert(self.source(edit, master="fp32_param"), "torch_dist", "--target-generation", "C")
        optimizer = Folder(folder).common()["optimizer"]["optimizer"]
        self.assertEqual(optimizer["state"], {})
        self.assertEqual([g["step"] for g in optimizer["param_groups"]], [7, 7])

    def test_undistributed_fp32(self):
        def edit(common):
            self.undistributed(common)
            common["args"].bf16, common["args"].params_dtype = False, torch.float32
            common["optimizer"] = common["optimizer"]["optimizer"]

        folder, _ = self.convert(self.source(edit, master="fp32_param", fields=ADAMW), "torch_dist",
                                 "--target-generation", "C")
        optimizer = Folder(folder).common()["optimizer"]
        self.assertEqual(optimizer["state"], {"common_step": 7.0})
        self.assertEqual([g["wd_mult"] for g in optimizer["param_groups"]], [1.0, 0.0])

    def test_masters_alone(self):
        """Megatron-FSDP without an optimizer: what it has of weights are masters, and they are rounded."""
        run = self.source(lambda common: None)
        fsdp, _ = self.convert(run, "fsdp_dtensor", "--weights-only")
        folder, _ = self.convert(fsdp, "torch_dist")
        self.assertIn("verdict     ok", dcpkit("verify", "--against", fsdp, folder))
        self.assertIn("verdict     equal", dcpkit("compare-two-checkpoint", "--cast", fsdp, folder))

    def test_steps_of_parameters_and_of_groups(self):
        """Transformer Engine keeps the step in the groups alone, torch's AdamW with each parameter too."""
        fsdp, _ = self.convert(self.source(lambda common: None), "fsdp_dtensor")
        bare = os.path.join(self.work, "bare")
        dcpkit("modify-state-dict", "--op", r"remove ^optimizer\.state\..*\.step$", fsdp, bare)
        self.assertIn("verdict     equal", dcpkit("compare-two-checkpoint", fsdp, bare))

    def test_objects_that_fsdp_does_not_know(self):
        fsdp, _ = self.convert(self.source(lambda common: None), "fsdp_dtensor")
        odd = os.path.join(self.work, "odd")
        dcpkit("modify-state-dict", "--op", "rename ^num_floating_point_operations_so_far$ my_entry", fsdp, odd)
        for form in ("torch_dist", "zarr"):
            self.assertIn("my_entry", self.convert(odd, form)[1])

    def test_decoupled_lr(self):
        """The word embedding and the output layer have groups of their own: flagged (core 0.15), by max_lr (later)."""
        def edit(flag):
            def add(common):
                common["args"].decoupled_lr = 0.5
                groups = common["optimizer"]["optimizer"]["param_groups"]
                groups.insert(1, {**groups[0], "max_lr": 0.5, "is_decoupled_lr": flag})

            return add

        for flag in (True, False):
            with self.subTest(flag=flag):
                shutil.rmtree(os.path.join(self.work, "in"), ignore_errors=True)
                fsdp, _ = self.convert(self.source(edit(flag)), "fsdp_dtensor")
                out = Folder(fsdp)
                suffix, found = ".max_lr", {}
                for key in out.objects:
                    if key.startswith("optimizer.param_to_group_meta.") and key.endswith(suffix):
                        found[key.split("module.")[-1].removesuffix(suffix)] = out.object(key)
                far = {name for name, lr in found.items() if lr == 0.5}
                self.assertEqual(far, {"embedding.word_embeddings.weight", "output_layer.weight"})
                self.assertGreater(len(found), 10)

    def test_optimizers_of_two_kinds(self):
        """Muon for matrices, Adam for the rest: which group is whose is not guessed."""
        def edit(common):
            groups = common["optimizer"]["optimizer"]["param_groups"]
            groups.insert(0, {**groups[0], "optimizer": "muon"})

        run = self.source(edit)
        status, said = dcpkit_fails("convert", "--to", "fsdp_dtensor", run, os.path.join(self.work, "out"))
        self.assertEqual(status, 3)
        self.assertIn("(give --param-to-param-group-map-json; --weights-only leaves the optimizer state out)", said)
        self.convert(run, "fsdp_dtensor", "--weights-only")

    def test_shared_embedding_in_a_bucket_of_its_own(self):
        """Core 0.15 to 0.19 may save its master from a wrong place: the weight tells."""
        def tie(common):
            common["args"].untie_embeddings_and_output_weights = False
            common["args"].pipeline_model_parallel_size = 2

        run = self.source(tie)
        wrong = os.path.join(self.work, "wrong")
        dcpkit("modify-state-dict", "--op", r"rename ^optimizer\.state\.param\.embedding.*$ x",
               "--op", r"rename ^optimizer\.state\.exp_avg\.embedding.*$ optimizer.state.param.embedding.word_embeddings.weight",
               "--op", r"rename ^x$ optimizer.state.exp_avg.embedding.word_embeddings.weight", run, wrong)
        self.convert(run, "fsdp_dtensor")
        status, said = dcpkit_fails("convert", "--to", "fsdp_dtensor", wrong, os.path.join(self.work, "no"))
        self.assertEqual(status, 3)
        self.assertRegex(said, r"a weight is not its rounded master: 'embedding\.word_embeddings\.weight'")
        self.convert(wrong, "fsdp_dtensor", "--trust", "weights")

    def low_precision_run(self, source, tensors, order):
        """The sample as a run in bfloat16 saves it (core 0.19.0): torch's state dict one dict deeper, masters by group and place."""
        def renamed(key):
            return "optimizer." + key if key.startswith("optimizer.") else key

        state = {renamed(key): source.object(key) for key in source.objects}
        state["args"].bf16, state["args"].params_dtype = True, torch.bfloat16
        state.update((renamed(key), value.bfloat16() if key.startswith("model.") else value) for key, value in tensors.items())
        numbers = {0: 0, 1: 0}
        for key in order:
            group = int(tensors[key].dim() <= 1)
            state[f"optimizer.fp32_from_fp16_params.{group}.{numbers[group]}"] = tensors[key]
            numbers[group] += 1
        run = os.path.join(self.work, "bf16")
        dcp.save(state, storage_writer=dcp.FileSystemWriter(os.path.join(run, "iter_0000004")), no_dist=True)
        with open(os.path.join(run, "latest_checkpointed_iteration.txt"), "w", encoding="ascii") as f:
            f.write("4")
        return run

    def test_torch_dcp_of_a_run_in_16_bits(self):
        """Numbers of parameters follow the order of the modules, which is that of the keys: matrices, then vectors."""
        source = Folder(iteration(sample("torch_dcp_tied")))
        tensors = source.load()
        weights = [key for key in source.metadata.state_dict_metadata if key.startswith("model.") and key in tensors]
        order = sorted(weights, key=lambda key: tensors[key].dim() <= 1)
        run = self.low_precision_run(source, tensors, order)
        self.assertRegex(dcpkit("inspect", run), r"format +torch_dcp\n")
        out = os.path.join(self.work, "out")
        dcpkit("convert", "--verify", "--to", "fsdp_dtensor", run, out)
        found = Folder(iteration(out)).load()

        def stored(prefix, name, end=""):
            if prefix + name + end in found:
                return found[prefix + name + end]
            return torch.cat([found[f"{prefix}{name}{half}{end}"] for half in ("_w", "_v")])

        for number, key in enumerate(order):
            name = key.removeprefix("model.")
            with self.subTest(name):
                self.assertTrue(torch.equal(stored("model.module.", name), tensors[key]))
                for moment in ("exp_avg", "exp_avg_sq"):
                    kept = stored("optimizer.state.module.module.module.", name, "." + moment)
                    self.assertTrue(torch.equal(kept, tensors[f"optimizer.state.{number}.{moment}"]))
        dcpkit("convert", "--verify", "--weights-only", "--to", "torch_dist", run, os.path.join(self.work, "weights"))


if __name__ == "__main__":
    unittest.main()
