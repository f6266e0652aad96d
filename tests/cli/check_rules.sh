#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# check_rules.sh - each rule of Megatron-FSDP (lib/rules/RULES.md 7): args of a sample that break it alone, and args
# next to them that break none. Megatron's own words, from a run of its parse_args and validate_args at core 0.15.3 to main d98e8a64
# (or the place named, which a run reaches later), stand above each.
fd=$SAMPLES/fsdp_dtensor_native_dp2
"$DCPKIT" print-tensor --json "$fd" args | jq '.value | .gradient_accumulation_fusion = false' >args.json
"$DCPKIT" modify-state-dict --quiet --op 'remove ^args$' "$fd" less >modified

# warns CHANGE KEPT: a run with the first change of args breaks one rule, one with the second breaks none.
warns() {
    local got change
    for change in "$1" "$2"; do
        jq "$change" args.json >changed.json
        got=$("$DCPKIT" check --args-from changed.json less 2>said | sed -n 's/^warning *//p')
        if [ "$change" = "$1" ]; then
            echo "$change: ${got:-no warning}"
        else
            [ -z "$got" ] || echo "$change: $got"
        fi
    done
}
strategy=.data_parallel_sharding_strategy

warns '.' '.iteration = 1'
# "Megatron-FSDP requires the `fsdp_dtensor` checkpointing format."
warns '.ckpt_format = "torch_dist"' '.ckpt_format = "torch_dist" | .use_megatron_fsdp = false'
# "--ckpt-format fsdp_dtensor is only tested with Megatron FSDP."
warns '.use_megatron_fsdp = false' '.use_megatron_fsdp = null | .ckpt_format = null'
# "--use-torch-fsdp2 requires --ckpt-format torch_dist or torch_dcp"
warns '.use_torch_fsdp2 = true' '.use_torch_fsdp2 = false'
# Bridge: "use_tp_pp_dp_mapping is not supported with Megatron FSDP"
warns '.use_tp_pp_dp_mapping = true' '.use_tp_pp_dp_mapping = null'
# mcore_fsdp_adapter.py _get_dp_tp_mesh: EinopsError; core 0.15: its groups are not those of the mesh
warns '.pipeline_model_parallel_size = 2' '.pipeline_model_parallel_size = 1'
# "FSDP manual registration is only supported with --nccl-ub argument."
warns '.fsdp_manual_registration = true' '.fsdp_manual_registration = true | .nccl_ub = true'
# 0.19 and main: "Megatron-FSDP does not currently support moe_single_grouped_weight or moe_single_grouped_bias."
warns '.moe_single_grouped_weight = true' '.moe_single_grouped_weight = 0'
warns '.moe_single_grouped_bias = true' '.moe_single_grouped_bias = ""'
# "Megatron-FSDP does not support the muon optimizer yet."
warns '.optimizer = "muon"' '.optimizer = "sgd"'
# "Hybrid context parallelism not supported with Megatron FSDP"
warns '.hybrid_context_parallel = true' '.hybrid_context_parallel = false'
# "check_weight_hash_across_dp_replicas_interval is not supported with optim_grads_params"
warns '.check_weight_hash_across_dp_replicas_interval = 5' \
    ".check_weight_hash_across_dp_replicas_interval = 5 | $strategy = \"optim\""
# param_and_grad_buffer.py, of several instances: "Optimizer fully-sharded HFSDP is only supported with full-sharding on DP-Shard."
outer='.outer_dp_sharding_strategy = "optim" | .num_distributed_optimizer_instances ='
warns "$outer 2 | $strategy = \"optim_grads\"" "$outer 2"
warns "$outer 3 | $strategy = \"no_shard\" | .swiglu = false" "$outer 1 | $strategy = \"optim_grads\""
# 0.18 to main: "Meta device initialization [...] is not supported or necessary for the 'no_shard' / 0 sharding strategy."
warns ".init_model_with_meta_device = true | $strategy = \"no_shard\" | .swiglu = false" \
    ".init_model_with_meta_device = true | $strategy = \"optim\""
# formats/fsdp_dtensor/FORMAT.md 5.1
warns "$strategy = \"no_shard\"" "$strategy = \"no_shard\" | .swiglu = false"
# mcore_fsdp_adapter.py: "[...] Transformer Engine version 2.10 or higher."
warns '.gradient_accumulation_fusion = true' '.gradient_accumulation_fusion = true | .use_megatron_fsdp = null | .ckpt_format = null'
# formats/fsdp_dtensor/FORMAT.md 13
warns '.megatron_fsdp_version = 2' '.megatron_fsdp_version = 1'
