#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""grids.py - where Megatron puts ranks and layers, for tests/property/test_grid_prop.c.

  grids.py >tests/golden/grids.txt     with a Megatron tree in PYTHONPATH; no GPU, no process group

Two kinds of lines:
  grid TP CP EP ETP DP PP ORDER RANK...                    RANK: tp.cp.dp.pp.ep.edp of ranks 0, 1, ..., by RankGenerator
  stages LAYERS PP VPP FIRST LAST CHUNK...                 CHUNK: first.count of chunk 0 of each stage, then of chunk 1, ...
A grid or a pipeline that Megatron refuses has "-" instead. VPP, FIRST and LAST are 0 where they are not given.
"""
import itertools
import random

import torch
from megatron.core.parallel_state import RankGenerator
from megatron.core.transformer.transformer_block import get_num_layers_to_build
from megatron.core.transformer.transformer_config import TransformerConfig
from megatron.core.transformer.transformer_layer import get_transformer_layer_offset

ORDERS = ("tp-cp-ep-dp-pp", "tp-cp-ep-pp-dp")


def coordinates(generator, token):
    """rank -> its index in its group."""
    return {rank: i for group in generator.get_ranks(token) for i, rank in enumerate(group)}


def grid(tp, cp, ep, etp, dp, pp, order):
    """The coordinates of all ranks, as initialize_model_parallel derives them; None: it refuses the sizes."""
    world = tp * cp * dp * pp
    if world % (etp * ep * pp) != 0:
        return None
    edp = world // (etp * ep * pp)
    dense = RankGenerator(tp=tp, ep=1, dp=dp, pp=pp, cp=cp, order=order)
    experts = RankGenerator(tp=etp, ep=ep, dp=edp, pp=pp, cp=1, order=order)
    if not (order.endswith("pp") or pp == 1 or edp == dp) or dense.get_ranks("pp") != experts.get_ranks("pp"):
        return None
    found = [coordinates(dense, token) for token in ("tp", "cp", "dp", "pp")] + [coordinates(experts, token) for token in ("ep", "dp")]
    return [".".join(str(of[rank]) for of in found) for rank in range(world)]


def stages(n_layers, pp, vpp, first, last):
    """first.count of every chunk; None: Megatron refuses the pipeline, or a layer is on no stage."""
    try:
        config = TransformerConfig(
            num_layers=n_layers, hidden_size=64, num_attention_heads=4, pipeline_model_parallel_size=pp, pipeline_dtype=torch.bfloat16,
            virtual_pipeline_model_parallel_size=vpp or None, num_layers_in_first_pipeline_stage=first or None,
            num_layers_in_last_pipeline_stage=last or None)
        chunks = [(get_transformer_layer_offset(config, v if vpp else None, rank), get_num_layers_to_build(config, v if vpp else None, rank))
                  for v in range(vpp or 1) for rank in range(pp)]
    except (AssertionError, ValueError, ZeroDivisionError):
        return None
    if sorted(layer for at, n in chunks for layer in range(at, at + n)) != list(range(n_layers)):
        return None
    return [f"{at}.{n}" for at, n in chunks]


def show(kind, sizes, found):
    print(kind, *sizes, *(found if found is not None else ["-"]))


def main():
    pick = random.Random(25)
    sizes = list(itertools.product((1, 2, 3, 4), (1, 2, 4), (1, 2, 3, 4), (1, 2, 4), (1, 2, 3, 4), (1, 2, 3), ORDERS))
    small = [s for s in sizes if s[0] * s[1] * s[4] * s[5] <= 8]
    large = [s for s in sizes if 8 < s[0] * s[1] * s[4] * s[5] <= 64 and grid(*s) is not None]
    for s in sorted(pick.sample([s for s in small if grid(*s) is not None], 100) + pick.sample(large, 20)):
        show("grid", s, grid(*s))
    for s in sorted(pick.sample([s for s in small if grid(*s) is None], 60)):
        show("grid", s, None)
    for s in itertools.product((4, 6, 12), (2, 3, 4), (0, 2, 3), (0, 1, 2, 3), (0, 2, 3)):
        show("stages", s, stages(*s))


if __name__ == "__main__":
    main()
