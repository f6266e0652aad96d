#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# doctor.sh - what is wrong with a machine, and what to do: limits, variables, folders, GPUs of a driver's library that the test brings.

# says LABEL PATTERN COMMAND...: exit code, and the findings whose subject PATTERN finds.
says() {
    local label=$1 pattern=$2 status=0
    shift 2
    "$@" >"$GOT/out" || status=$?
    echo "$label: exit $status"
    grep -E "^(ok|note|wrong) +($pattern) " "$GOT/out" | sed 's/  */ /g' || true
}
good() {
    ulimit -n 4096
    unset CUDA_DEVICE_MAX_CONNECTIONS PYTORCH_CUDA_ALLOC_CONF PYTORCH_ALLOC_CONF NCCL_ALGO NVTE_ALLOW_NONDETERMINISTIC_ALGO CUBLAS_WORKSPACE_CONFIG
}
# without GPUs, on any machine
mkdir none
echo text >none/libnvidia-ml.so.1
alone() {
    (good && LD_LIBRARY_PATH=$TMP/none "$DCPKIT" doctor "$@")
}
limited() {
    (good && ulimit -S "$1" "$2" && LD_LIBRARY_PATH=$TMP/none "$DCPKIT" doctor)
}
gpus() {
    (good && LD_LIBRARY_PATH=$FAKE_GPUS env "$@" "$DCPKIT" doctor)
}

says "no GPU" 'GPUs|open files' alone
says "a folder" 'writing|nothing' alone .
says "few files" 'open files' limited -n 256
says "no locked memory" 'locked memory' limited -l 16
says "small files" 'size of a file' limited -f 1024
says "a variable" 'CUDA_DEVICE_MAX_CONNECTIONS' env CUDA_DEVICE_MAX_CONNECTIONS=1 "$DCPKIT" doctor
says "one of several settings" 'PYTORCH_CUDA_ALLOC_CONF' env PYTORCH_CUDA_ALLOC_CONF=a:1,expandable_segments:True "$DCPKIT" doctor
says "its other name" 'PYTORCH_ALLOC_CONF' env PYTORCH_ALLOC_CONF=expandable_segments:True "$DCPKIT" doctor
says "another" 'CUDA_DEVICE_MAX_CONNECTIONS' env CUDA_DEVICE_MAX_CONNECTIONS=16 "$DCPKIT" doctor
says "no number" 'CUDA_DEVICE_MAX_CONNECTIONS' env CUDA_DEVICE_MAX_CONNECTIONS=abc "$DCPKIT" doctor
says "one algorithm that differs" 'NCCL_ALGO' env NCCL_ALGO=Ring,Tree "$DCPKIT" doctor
says "algorithms" 'NCCL_ALGO' env NCCL_ALGO=Ring,^NVLS "$DCPKIT" doctor
says "values for determinism" 'NVTE.*|CUBLAS.*' env NVTE_ALLOW_NONDETERMINISTIC_ALGO=1 CUBLAS_WORKSPACE_CONFIG=:16:8 "$DCPKIT" doctor
[ "$(id -u)" -eq 0 ] || { mkdir -m 500 closed && says "a closed folder" writing alone closed; }
says "two GPUs" 'driver|GPU.*|NVLink|NCCL' gpus FAKE_N=2
says "four GPUs, one of which has lost links" 'NVLink|GPU pairs' gpus FAKE_N=4 FAKE_DOWN=3
says "an old NCCL" NCCL gpus FAKE_NCCL=21003
says "an old driver" driver gpus FAKE_CUDA=11040
says "a driver without GPUs" GPUs gpus FAKE_N=0
says "a driver that fails" GPUs gpus FAKE_FAILS=9
says "a folder that is not there" none alone nothing 2>&1
says "a file" writing alone none/libnvidia-ml.so.1 2>&1
# as programs read it: the same answer
alone --json . | jq -c '[.version, .ok, .n_wrong, (.findings | map(select(.state == "wrong")) | length), (.findings | map(.subject) | index("file system") != null)]'
limited -n 256 >/dev/null || (good && ulimit -S -n 256 && "$DCPKIT" doctor --json | jq -c '[.ok, (.findings[] | select(.subject == "open files"))]')
