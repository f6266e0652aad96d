#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# megatron_requests.sh - what Megatron's own loaders ask for, against tests/golden/requests.
#
# Usage: megatron_requests.sh check [--only REGEX] [--trees "core_v0.19.0 HEAD"] | make
#   check          ask every release anew; exit 1 where a fixture differs
#   --only         what matches as release.format.case
#   --trees        of these releases
#   make           write all fixtures anew
# Environment:
#   MEGATRON_TREES folder of Megatron-LM trees: core_v0.15.3 core_v0.16.1 core_v0.17.1 core_v0.18.2 core_v0.19.0 HEAD
#   PYTHON         python with torch 2.11, numpy, einops, packaging, pyyaml, click, six, regex, pydantic,
#                  requests, psutil; default python3
#   DCPK_KEEP=1    keep the work folder
# About a second for a rank of a case, and ten for a release. What dcpkit takes the requests to be is held against the
# fixtures by tests/golden/test_requests_golden.c.
set -u

usage() { sed -n '5,17s/^# \{0,1\}//p' "$0" >&2; exit 2; }
[ $# -ge 1 ] || usage
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
fixtures=$here/../golden/requests
action=$1 only=. trees='core_v0.15.3 core_v0.16.1 core_v0.17.1 core_v0.18.2 core_v0.19.0 HEAD'
shift
case $action in check | make) ;; *) usage ;; esac
while [ $# -gt 0 ]; do
    case $1 in
    --only) only=$2; shift 2 ;;
    --trees) trees=$2; shift 2 ;;
    *) usage ;;
    esac
done
: "${MEGATRON_TREES:?set it to the folder of Megatron trees}"
python=${PYTHON:-python3}
export MEGATRON_TREES OMP_NUM_THREADS=1 PYTHONDONTWRITEBYTECODE=1

work=$(mktemp -d "${TMPDIR:-/tmp}/megatron_requests.XXXXXX") || exit 4
[ "${DCPK_KEEP:-}" = 1 ] || trap 'rm -rf "$work"' EXIT

failed=0
for tree in $trees; do
    "$python" -W ignore "$here/megatron_requests.py" ask "$tree" "$work/asked" "$only" 2>"$work/stderr" || failed=1
done
if [ "$action" = make ]; then
    [ "$failed" = 0 ] && [ "$only" = . ] || exit 1
    rm -f "$fixtures"/*.txt
    "$python" "$here/megatron_requests.py" join "$work/asked" "$fixtures" || exit 4
else
    "$python" "$here/megatron_requests.py" compare "$work/asked" "$fixtures" "$trees" "$only" || failed=1
fi
exit "$failed"
