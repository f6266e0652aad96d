# SPDX-License-Identifier: Apache-2.0
"""megatron_parses.py - Megatron's parser and validate_args take the command lines that `dcpkit migrate` writes.

    MEGATRON_TREES=... megatron_parses.py DCPKIT SAMPLES TREE

From the args of a checkpoint, to Megatron-FSDP and, from there, to three dimensions again: in the release that wrote it (core 0.16.1,
0.19.0) args as parsed equal the checkpoint's, except those that the migration changed. The example of DeepSeek-V3's shape at its full size, 1024 ranks. Prints a line for each.
"""
import json
import os
import shlex
import subprocess
import sys
import tempfile
import types

import torch

import megatron_cpu

DCPKIT, SAMPLES, TREE = sys.argv[1:4]
# A checkpoint of that release or an earlier one, and its mesh.
WROTE = TREE in ("core_v0.16.1", "core_v0.19.0")  # that very release: every arg is compared
SAMPLE, MESH = ("v016_moe_ep2pp2", "ep=2,pp=2,dp=2") if megatron_cpu.release_of(TREE) < (0, 19) else ("torch_dist_c_dense_tp2pp2", "tp=2,pp=2,dp=1")
EXAMPLE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../tools/deepseek_v3.sh")
# Derived from the mesh or the run, or folders; `disable_msc_deprecated` follows a flag that is always given.
MOVES = {"pipeline_model_parallel_size", "transformer_pipeline_model_parallel_size", "data_parallel_size", "use_megatron_fsdp", "use_custom_fsdp",
         "ckpt_format", "load", "save", "use_distributed_optimizer", "gradient_accumulation_fusion", "data_parallel_sharding_strategy",
         "padded_vocab_size", "consumed_train_samples", "disable_msc_deprecated", "expert_tensor_parallel_size", "rank", "local_rank"}


def dcpkit(*words):
    return subprocess.check_output([DCPKIT, *words], stderr=subprocess.DEVNULL, text=True)


def parse(flags, world, connections):
    """Args as Megatron has them when it starts to train."""
    from megatron.training import arguments

    os.environ.update(RANK="0", WORLD_SIZE=str(world), LOCAL_RANK="0", CUDA_DEVICE_MAX_CONNECTIONS=connections)
    sys.argv = ["pretrain_gpt.py", *flags]
    args, stdout, sys.stdout = arguments.parse_args(), sys.stdout, open(os.devnull, "w", encoding="utf-8")
    args = arguments.validate_args(args, {"tokenizer_type": "NullTokenizer"}) or args
    sys.stdout = stdout
    return vars(args)


def check(label, args, saved, **wanted):
    wrong = [f"{name}: {args[name]}, wanted {value}" for name, value in wanted.items() if args[name] != value]
    wrong += [f"{name}: {args[name]}, was {value}" for name, value in saved.items()
              if name not in MOVES and name not in wanted and name in args and not isinstance(value, dict) and args[name] != value and str(args[name]) != value]
    print(f"{TREE}\t{label}\t{'; '.join(wrong) or 'ok'}")
    return not wrong


def main():
    megatron_cpu.start(TREE)
    torch.cuda.is_available = lambda: True
    torch.cuda.device_count = lambda: 8
    torch.cuda.get_device_properties = lambda *a: types.SimpleNamespace(major=9, minor=0, name="CPU", total_memory=1 << 30)
    torch.cuda.get_device_capability = lambda *a: (9, 0)
    fsdp = {"use_megatron_fsdp": True, "ckpt_format": "fsdp_dtensor", "data_parallel_sharding_strategy": "optim_grads_params",
            "use_distributed_optimizer": True, "gradient_accumulation_fusion": False, "pipeline_model_parallel_size": 1}
    source = os.path.join(SAMPLES, SAMPLE)
    saved = json.loads(dcpkit("print-tensor", "--json", source, "args"))["value"] if WROTE else {}
    with tempfile.TemporaryDirectory() as folder:
        there, back, example = (os.path.join(folder, name) for name in ("there", "back", "example"))
        dcpkit("migrate", "--out", there, source)
        dcpkit("migrate", "--to", "ddp", "--mesh", MESH, "--out", back, there)
        dcpkit("migrate", "--mesh", "ep=64,dp=1024", "--out", example, EXAMPLE)
        command = subprocess.check_output(["bash", example], env={**os.environ, "LAUNCH": "echo"}, text=True)
        flags = [shlex.split(open(path, encoding="utf-8").read()) for path in (there, back)]
    done = [check(f"{SAMPLE} to Megatron-FSDP", parse(flags[0], 4, "8"), saved, load=source + "-fsdp_dtensor", **fsdp),
            check("and back", parse(flags[1], 4, "1"), saved, use_megatron_fsdp=False, ckpt_format="torch_dist", pipeline_model_parallel_size=2),
            check("DeepSeek-V3's shape", parse(command.split()[1:], 1024, "8"), {}, num_layers=61, num_experts=256, kv_lora_rank=512,
                  data_parallel_size=1024, expert_model_parallel_size=64, **fsdp)]
    return 0 if all(done) else 1


if __name__ == "__main__":
    sys.exit(main())
