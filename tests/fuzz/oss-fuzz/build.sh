#!/bin/bash -eu
# SPDX-License-Identifier: Apache-2.0
# build.sh - build all fuzz targets as OSS-Fuzz wants them; tests/fuzz/README.md says how to run it by hand.
#
# From the environment: SRC/dcpkit, the repository; WORK, for the build; OUT, for the result; CC, CXX, CFLAGS, CXXFLAGS
# and LIB_FUZZING_ENGINE. Into OUT go fuzz_<target>, its seeds as fuzz_<target>_seed_corpus.zip, its options, and in
# lib/ the libraries that it needs.
targets=()
for source in "$SRC"/dcpkit/tests/fuzz/fuzz_*.c; do
    targets+=("$(basename "$source" .c)")
done

# The targets and what they are linked with: no tests, which need a sanitizer's and a preloaded malloc side by side.
cmake -S "$SRC/dcpkit" -B "$WORK/dcpkit" -G Ninja -DCMAKE_BUILD_TYPE=None -DDCPK_FUZZ=ON \
    -DDCPK_FUZZ_ENGINE="$LIB_FUZZING_ENGINE" -DDCPK_MPI=OFF \
    -DCMAKE_EXE_LINKER_FLAGS="-Wl,--disable-new-dtags,-rpath,'\$ORIGIN/lib'" -DCMAKE_SKIP_BUILD_RPATH=ON
cmake --build "$WORK/dcpkit" --target "${targets[@]}"

mkdir -p "$OUT/lib"
for target in "${targets[@]}"; do
    cp "$WORK/dcpkit/tests/$target" "$OUT/"
    zip -q -j "$OUT/${target}_seed_corpus.zip" "$SRC/dcpkit/tests/fuzz/corpus/${target#fuzz_}"/*
    printf '[libfuzzer]\ntimeout = 60\nrss_limit_mb = 2048\n' >"$OUT/$target.options"
done
# The machines that run them have the C library and no more.
ldd "${targets[@]/#/$OUT/}" | awk '$2 == "=>" && $3 ~ /^\// && $1 !~ /^lib(c|m|dl|rt|pthread|resolv)\.so/ { print $3 }' |
    sort -u | xargs -r cp -Lt "$OUT/lib"
