# SPDX-License-Identifier: Apache-2.0
# expected.py - what a torch_dist folder must become as fsdp_dtensor, computed with torch from the source alone.
"""Follows what Megatron-FSDP's loader asks for (Megatron-LM megatron/training/checkpointing.py
preprocess_fsdp_dtensor_state_dict, core/transformer/fsdp_dtensor_checkpoint.py): unstacked layers and
experts, fp32 masters as weights, SwiGLU halves as weight_w and weight_v, one item per group field."""
import re

import torch

from flattened import STATE, model_shaped

ROLES = {"param": "weight", "fp32_param": "weight", "exp_avg": "exp_avg", "exp_avg_sq": "exp_avg_sq"}
# Fields of a group dict under Transformer Engine's FusedAdam; torch's AdamW adds the second list.
FIELDS = ["is_expert_parallel", "default_config", "wd_mult", "lr_mult", "is_decoupled_lr", "max_lr",
          "min_lr", "lr", "bias_correction", "betas", "eps", "weight_decay", "step"]
FIELDS_ADAMW = ["amsgrad", "foreach", "maximize", "capturable", "differentiable", "fused",
                "decoupled_weight_decay"]
SCHEDULER = ["max_lr", "lr_warmup_steps", "num_steps", "lr_decay_style", "lr_decay_steps", "min_lr",
             "start_wd", "end_wd", "wd_incr_style", "wd_incr_steps"]
# What torch's AdamW puts into a group where a FusedAdam source has nothing; core before 0.16 has no default_config.
DEFAULTS = {"default_config": True, "bias_correction": True, "amsgrad": False, "foreach": None, "maximize": False,
            "capturable": False, "differentiable": False, "fused": None, "decoupled_weight_decay": True}
GATED = re.compile(r"\.mlp\.(linear_fc1\.(weight|bias)|experts\.linear_fc1\.(weight|bias)\d+|"
                   r"shared_experts\.linear_fc1\.(weight|bias))$")


def unstack(key, tensor):
    """The (name, tensor) pairs that a stored tensor holds, experts under their grouped names."""
    if ".layers." in key and not re.search(r"\.layers\.\d+\.", key):
        for layer, part in enumerate(tensor):
            yield from unstack(key.replace(".layers.", f".layers.{layer}.", 1), part)
    elif ".mlp.experts.experts." in key:
        for expert, part in enumerate(tensor):
            yield key.replace(".experts.experts.", ".experts.") + str(expert), part
    else:
        yield key, tensor


def spellings(name, is_moe_layer):
    """A parameter's live name in a Transformer Engine model and in a --transformer-impl local one."""
    te = local = name
    if name.endswith("self_attention.linear_qkv.layer_norm_weight"):
        local = name.replace("self_attention.linear_qkv.layer_norm_weight", "input_layernorm.weight")
    elif name.endswith(".mlp.linear_fc1.layer_norm_weight"):
        local = name.replace("mlp.linear_fc1.layer_norm_weight", "pre_mlp_layernorm.weight")
        te = local if is_moe_layer else name  # the same module in both
    elif ".mlp.experts.linear_fc" in name:
        local = re.sub(r"\.experts\.(linear_fc[12]\.\w+?)(\d+)$", r".experts.local_experts.\2.\1", name)
    return {"te": te, "local": local}


def halves(name, tensor, is_gated):
    """(suffix, tensor): the gate and up halves of a SwiGLU fc1, else the tensor itself."""
    if not is_gated:
        return [("", tensor)]
    gate, up = tensor.chunk(2, 0)
    return [("_w", gate), ("_v", up)]


def param_groups(common):
    """The group dicts in the order that a map's numbers mean: dense, then expert optimizers."""
    optimizer = common["optimizer"]
    if "param_groups" in optimizer:
        return optimizer["param_groups"]
    if "optimizer" in optimizer:
        return optimizer["optimizer"]["param_groups"]
    return [g for k in sorted(optimizer) for g in optimizer[k]["optimizer"]["param_groups"]]


def group_of(name, tensor, groups):
    """The number of a parameter's group by Megatron's standard rule (no map)."""
    decayed = tensor.dim() > 1 and not name.endswith(".bias")
    wanted = (1.0 if decayed else 0.0, ".mlp.experts." in name)
    fits = [i for i, g in enumerate(groups) if (g["wd_mult"], g["is_expert_parallel"]) == wanted]
    assert len(fits) == 1, f"{name}: {len(fits)} groups fit {wanted}"
    return fits[0]


class Expected:
    """tensors: key -> tensor. alias_sets: lists of keys that must name the same bytes. objects: key ->
    value, but for `args`. groups: live name -> number of its group. target: any, te or local. unrounded: names of
    parameters whose stored weight is not their rounded master."""

    def __init__(self, source, target="any", group_map=None):
        self.common = source.common()
        self.args = self.common["args"]
        self.targets = ["te", "local"] if target == "any" else [target]
        self.groups = {}
        self.tensors, self.objects, self.alias_sets = {}, {}, []
        self.prefix = "module.module.module." if self.args.bf16 or self.args.fp16 else "module.module."
        self._read_params(source)
        self._put_params(group_map)
        self._put_objects()
        self._put_rng(source)

    def _read_params(self, source):
        self.params = {}  # name -> {role: tensor}
        for key, tensor in model_shaped(source).items():
            match = STATE.match(key)
            role = ROLES[match[1]] if match else "stored"
            for name, part in unstack(match[2] if match else key, tensor):
                self.params.setdefault(name, {})[role] = part
        self.unrounded = [name for name, roles in self.params.items() if {"weight", "stored"} <= roles.keys()
                          and not torch.equal(roles["weight"].to(roles["stored"].dtype), roles["stored"])]
        self.moe_layers = {name.split(".mlp.")[0] for name in self.params if ".mlp.experts." in name}

    def _put_params(self, group_map):
        groups = param_groups(self.common) if "optimizer" in self.common else None
        for name, roles in self.params.items():
            roles.setdefault("weight", roles.pop("stored", None))
            roles.pop("stored", None)
            names = spellings(name, name.split(".mlp.")[0] in self.moe_layers)
            live = list(dict.fromkeys(names[t] for t in self.targets))
            if groups is None or "exp_avg" not in roles:  # no optimizer, or a buffer
                self._put_tensors(name, live, roles, None)
                continue
            group = group_of(name, roles["weight"], groups)
            if group_map is not None:
                mapped = group_map[f"model.module.{names['local']}"]
                assert mapped == group, f"{name}: the map says group {mapped}, the rule {group}"
            for x in live:
                self.groups[x] = group
            self._put_tensors(name, live, roles, groups[group])
            self._put_group(live, groups[group])

    def _put_tensors(self, name, live, roles, group):
        is_gated = self.args.swiglu and GATED.search("." + name)
        for role, tensor in roles.items():
            for suffix, half in halves(name, tensor, is_gated):
                keys = [self._key(x + suffix, role) for x in live]
                self.alias_sets.append(keys)
                self.tensors.update({key: half for key in keys})
        for suffix, _ in halves(name, roles["weight"], is_gated) if group is not None else ():
            for x in live:
                key = self._key(x + suffix, "step")
                self.tensors[key] = torch.tensor(float(group["step"]), dtype=torch.float32)

    def _key(self, name, role):
        if role == "weight":
            return f"model.module.{name}"
        return f"optimizer.state.{self.prefix}{name}.{role}"

    def _put_group(self, live, group):
        values = {**DEFAULTS, **group, "step": int(group["step"])}
        for x in live:
            for field in FIELDS + FIELDS_ADAMW:
                self.objects[f"optimizer.param_to_group_meta.{self.prefix}{x}.{field}"] = values[field]

    def _put_objects(self):
        for key in ("checkpoint_version", "iteration", "num_floating_point_operations_so_far"):
            self.objects[key] = self.common[key]
        for field in SCHEDULER if "opt_param_scheduler" in self.common else ():
            self.objects[f"opt_param_scheduler.{field}"] = self.common["opt_param_scheduler"][field]

    def _put_rng(self, source):
        for key in source.objects:
            match = re.match(r"rng_state/shard_0\.(\d+)_", key)
            for i, states in enumerate(source.object(key)[0] if match else []):
                self._put_rng_states(f"rng_state.(0, {match[1]}).{i}.", states)

    def _put_rng_states(self, prefix, states):
        for field in ("random_rng_state", "np_rng_state"):
            self.objects[prefix + field] = states[field]
        for field in ("torch_rng_state", "cuda_rng_state"):
            self.tensors[prefix + field] = states[field]
        for name, state in states["rng_tracker_states"].items():
            self.tensors[f"{prefix}rng_tracker_states.{name}"] = state
