#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""stages.py - which pipelines --target-mesh accepts, against Megatron's own layout code on a CPU.

  stages.py DCPKIT CHECKPOINT     with a Megatron tree in PYTHONPATH; CHECKPOINT: torch_dist, dense

For every pp, vpp, first and last of some: `convert --dry-run` must accept what TransformerConfig and get_num_layers_to_build
accept with every layer on one stage, and nothing else. Exit 1 and a line a difference where not.
"""
import itertools
import json
import subprocess
import sys

from megatron.core.transformer.transformer_block import get_num_layers_to_build
from megatron.core.transformer.transformer_config import TransformerConfig


def megatron_accepts(n_layers, pp, vpp, first, last):
    try:
        config = TransformerConfig(
            num_layers=n_layers, hidden_size=64, num_attention_heads=4, pipeline_model_parallel_size=pp,
            pipeline_dtype=__import__("torch").bfloat16, virtual_pipeline_model_parallel_size=vpp,
            num_layers_in_first_pipeline_stage=first, num_layers_in_last_pipeline_stage=last)
        built = [get_num_layers_to_build(config, chunk, rank) for rank in range(pp) for chunk in range(vpp or 1)]
        return sum(built) == n_layers and min(built) >= 0
    except (AssertionError, ValueError):
        return False


def dcpkit_accepts(dcpkit, folder, sizes):
    mesh = ",".join(f"{name}={size}" for name, size in sizes.items() if size is not None)
    said = subprocess.run([dcpkit, "convert", "--dry-run", "--to", "torch_dist", "--target-mesh", mesh, folder, "/nonexistent/out"],
                          capture_output=True, text=True)
    return "does not divide" not in said.stderr and "leave" not in said.stderr


def main():
    dcpkit, folder = sys.argv[1:]
    n_layers = json.loads(subprocess.run([dcpkit, "inspect", "--json", folder], check=True, capture_output=True).stdout)["model"]["num_layers"]
    n_cases = n_accepted = n_wrong = 0
    for pp, vpp, first, last in itertools.product((2, 3, 4), (None, 2), (None, 1, 2, 3), (None, 1, 2, 3)):
        want = megatron_accepts(n_layers, pp, vpp, first, last)
        got = dcpkit_accepts(dcpkit, folder, {"pp": pp, "vpp": vpp, "first": first, "last": last})
        n_cases += 1
        n_accepted += want
        if want != got:
            n_wrong += 1
            print(f"pp {pp}, vpp {vpp}, first {first}, last {last}: Megatron {want}, dcpkit {got}")
    print(f"{n_cases} pipelines of {n_layers} layers, {n_accepted} accepted, {n_wrong} differ")
    return n_wrong > 0 or n_accepted == 0


if __name__ == "__main__":
    sys.exit(main())
