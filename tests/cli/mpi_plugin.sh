#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# mpi_plugin.sh - MPI is a plug-in: nothing of it is linked, one process never loads it, and several say what is missing.
sample torch_dist_c_dense_tp2pp2 in
echo "libraries of MPI that the program needs: $(ldd "$DCPKIT" | grep -c mpi)"

# One process asks nobody for MPI: a plug-in that cannot be loaded is not noticed.
DCPKIT_MPI=missing.so "$DCPKIT" hash --quiet in | wc -l

# refuses LABEL VARIABLE...: exit status and message of a job of four processes.
refuses() {
    local label=$1 status=0
    shift
    env OMPI_COMM_WORLD_SIZE=4 "$@" "$DCPKIT" hash in >"$GOT/out" 2>"$GOT/err" || status=$?
    echo "$label: exit $status: $(tr '\n' ' ' <"$GOT/err" | tr -s ' ')"
}
refuses "no such file" DCPKIT_MPI="$TMP/missing.so"
refuses "another library" DCPKIT_MPI=libc.so.6
touch empty.so
refuses "not a library" DCPKIT_MPI="$TMP/empty.so"
cat >other.c <<'C'
const struct { const char *interface; } dcpkit_mpi_plugin = {"another"};
C
"${CC:-cc}" -shared -fPIC -o other.so other.c
refuses "another version" DCPKIT_MPI="$TMP/other.so"
DCPKIT_MPI="$TMP/empty.so" "$DCPKIT" --version | grep -A 1 '^transports'
