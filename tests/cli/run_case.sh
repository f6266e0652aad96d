#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# run_case.sh - run one case of the command line and compare what it says with what lies beside it.
#
#   run_case.sh CASE.sh DCPKIT MANGLE SAMPLES
#
# A case is a bash script; CASE.stdout, CASE.stderr and CASE.exit say what must come out (absent: empty,
# empty, 0). It runs in a fresh folder and sees
#   $DCPKIT $MANGLE $SAMPLES $TMP    the program, the damager, the samples (read only), its own folder
#   $TOOLS                           the folder of scripts
#   $BOUNDED                         the command that a case of tests/attacks/ runs within
#   $CAPTIVE                         the library that stands for hostile code (tests/attacks/captive.c)
#   $SERVER                          the server of files (tests/cli/server.c)
#   $INJECTION                       the profiler that prints NVTX ranges (tests/cli/injection.c); "": not built
#   $FAKE_GPUS                       the folder of libraries that tell of GPUs: tests/cli/fake_nvml.c, fake_nccl.c
#   the functions of helpers.bash
# Paths of $TMP and $SAMPLES in the output are replaced by these words. Exit 77 of a case: skipped.
set -euo pipefail
export LC_ALL=C COLUMNS=1000 # rows stay lines, which a case can grep

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
case_file=$(realpath "$1")
DCPKIT=$(realpath "$2")
MANGLE=$(realpath "$3")
SAMPLES=$(realpath "$4")
work=$(mktemp -d)
trap 'chmod -R u+rwX "$work"; rm -rf "$work"' EXIT
mkdir "$work/tmp" "$work/got"
TMP=$work/tmp GOT=$work/got
TOOLS=$(realpath "$here/../../tools")
export DCPKIT MANGLE SAMPLES TMP GOT TOOLS
export OMPI_MCA_orte_tmpdir_base=$work/mpi # of this case: tests/CMakeLists.txt says why

status=0
(cd "$TMP" && BASH_ENV="$here/helpers.bash" bash -u "$case_file" >"$work/stdout" 2>"$work/stderr" </dev/null) || status=$?
case_name=${case_file%.sh}
wanted=0
[ ! -e "$case_name.exit" ] || wanted=$(tr -d '[:space:]' <"$case_name.exit")
if [ "$status" -eq 77 ] && [ "$wanted" -ne 77 ]; then
    cat "$work/stdout" "$work/stderr"
    exit 77
fi

# compare STREAM: the normalised stream against the file beside the case.
compare() {
    local expected=$case_name.$1
    [ -e "$expected" ] || expected=/dev/null
    sed -i -e "s|$TMP|TMP|g" -e "s|$SAMPLES|SAMPLES|g" "$work/$1"
    diff -u --label "wanted $1" --label "got $1" "$expected" "$work/$1"
}

failed=0
compare stdout || failed=1
compare stderr || failed=1
if [ "$status" -ne "$wanted" ]; then
    echo "exit $status, wanted $wanted"
    failed=1
fi
exit "$failed"
