# SPDX-License-Identifier: Apache-2.0
# test_variants.py - models and optimizers that no sample has: the same checks on folders that torch wrote.
import os

from make_source import ADAMW, BIASED, BUFFERS, DENSE, FUSED, MOE, UNGATED, make_source
from test_default import Converted

VARIANTS = {
    "dense_fused_adam": {"layer": DENSE, "fields": FUSED},
    "dense_per_layer": {"layer": DENSE, "fields": ADAMW, "stacked": False},
    "dense_fp32_param": {"layer": DENSE, "fields": ADAMW, "master": "fp32_param"},
    "biases_qk_norm": {"layer": BIASED, "fields": FUSED},
    "not_gated": {"layer": UNGATED, "fields": ADAMW, "swiglu": False},
    "moe_stacked": {"layer": MOE, "buffers": BUFFERS, "fields": FUSED},
    "moe_per_layer": {"layer": MOE, "buffers": BUFFERS, "fields": ADAMW, "stacked": False},
    "weights_only": {"layer": DENSE},
    "dense_flattened": {"layer": BIASED, "fields": ADAMW, "master": "fp32_param", "flattened": "recorded"},
    "flattened_plain_1d": {"layer": BIASED, "fields": FUSED, "master": "fp32_param", "flattened": "plain_1d",
                           "stacked": False},
    "flattened_lost": {"layer": DENSE, "fields": FUSED, "master": "fp32_param", "flattened": "lost", "seed": 1},
    "moe_flattened_chained": {"layer": MOE, "buffers": BUFFERS, "fields": FUSED, "master": "fp32_param",
                              "flattened": "recorded", "chained": True},
    "moe_flattened_lost": {"layer": MOE, "buffers": BUFFERS, "fields": ADAMW, "master": "fp32_param",
                           "flattened": "lost", "stacked": False},
}


class Variants(Converted):
    test_map = None
    test_folder = None  # for iteration 4

    @classmethod
    def sources(cls):
        runs = [os.path.join(cls.work, name) for name in VARIANTS]
        for run, options in zip(runs, VARIANTS.values()):
            make_source(run, **options)
        return runs


del Converted  # its tests are not run again here
