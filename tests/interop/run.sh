#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# run.sh - the tests that need PyTorch: torch reads what dcpkit writes.
#
#   DCPKIT=build/dcpkit tests/interop/run.sh [--require] [TEST...]
#
# samples/, write_items and make_checkpoint lie beside the binary, in its build folder. The virtual environment
# is $DCPK_VENV, or ~/.cache/dcpkit/venv, never inside the tree; it is made when it is missing, through pip's
# configured index. Where that cannot be reached the tests are left out: the last lines say so and the exit
# status is 77, with --require 1.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
left_out=77
if [ "${1:-}" = --require ]; then
    left_out=1
    shift
fi
DCPKIT=$(realpath "${DCPKIT:-$here/../../build/dcpkit}")
build=$(dirname "$DCPKIT")
venv=${DCPK_VENV:-${XDG_CACHE_HOME:-$HOME/.cache}/dcpkit/venv}

# skip REASON: the tests cannot run here.
skip() {
    echo "interop: $1"
    echo "interop: SKIPPED, no test against PyTorch was run"
    exit "$left_out"
}

# A venv that pip did not finish is no venv: the imports tell.
has_torch() {
    "$venv/bin/python" -c 'import numpy, tensorboard, torch, transformers, xxhash' >/dev/null 2>&1
}

if ! has_torch; then
    echo "interop: making $venv"
    python3 -m venv "$venv" || skip "python3 -m venv does not work here"
    "$venv/bin/pip" install --quiet --disable-pip-version-check --retries 2 --timeout 60 \
        -r "$here/requirements.txt" || skip "pip could not install $(tr '\n' ' ' <"$here/requirements.txt")"
    has_torch || skip "tensorboard, torch, transformers or xxhash was installed but cannot be imported"
fi

export DCPKIT DCPK_SAMPLES=$build/samples DCPK_WRITE_ITEMS=$build/tests/interop/write_items
export DCPK_MAKE_CHECKPOINT=$build/tests/bench/make_checkpoint DCPK_RUN_OPS=$build/tests/interop/run_ops
export DCPK_RUN_GPT=$build/tests/interop/run_gpt
export DCPKIT_LIBRARY=$build/libdcpkit.so DCPKIT_SAMPLES=$build/samples
export OMP_NUM_THREADS=1 PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=$here/../../tools/python:$here/../python
for need in "$DCPKIT" "$DCPKIT_LIBRARY" "$DCPK_SAMPLES" "$DCPK_WRITE_ITEMS" "$DCPK_MAKE_CHECKPOINT" "$DCPK_RUN_OPS" \
    "$DCPK_RUN_GPT"; do
    if [ ! -e "$need" ]; then
        echo "interop: $need is missing: build first" >&2
        exit 2
    fi
done
cd "$here"
[ $# -gt 0 ] || set -- test_default test_buckets test_gathered test_variants test_inspector test_items test_hash test_commands test_zarr test_state test_objects test_torchrun test_dcpkit test_engine test_meeting test_names test_ops test_gpt test_train test_huggingface test_hub
exec "$venv/bin/python" -W ignore -m unittest -v "$@"
