#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# installed.sh - install dcpkit, then build programs of somebody else's on it: by pkg-config and CMake, in C and C++, with the
# shared library and with the archive.
#
#   BUILD=build SAMPLES=build/samples tests/api/installed.sh
#
# Skips C++ (77 at the end) where there is no compiler for it. Prints one line a program.
set -euo pipefail
export LC_ALL=C

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
prefix=$work/usr
sample=$SAMPLES/torch_dist_c_dense_tp2pp2/iter_0000004
key=decoder.final_layernorm.weight

DESTDIR='' cmake --install "$BUILD" --prefix "$prefix" >"$work/log" 2>&1 || {
    cat "$work/log"
    exit 1
}
lib=$(dirname "$(find "$prefix" -name libdcpkit.a)")
export PKG_CONFIG_PATH=$lib/pkgconfig LD_LIBRARY_PATH=$lib
hash=$("$prefix/bin/dcpkit" hash "$sample" | awk -v key="$key" '$2 == key { print $1 }')

# A program sees what dcpkit.h declares, and nothing else.
strangers=$(nm -D --defined-only "$lib/libdcpkit.so" | awk '$3 !~ /^dcpkit_/ { print $3 }')
strangers+=$(nm -g --defined-only "$lib/libdcpkit.a" | awk 'NF == 3 && $3 !~ /^dcpkit_/ { print $3 }')
if [ -n "$strangers" ]; then
    echo "symbols that are not of the interface: $strangers"
    exit 1
fi
for declared in $(grep -oE '^DCPKIT_API .*\b(dcpkit_\w+)\(' "$prefix/include/dcpkit.h" | grep -oE 'dcpkit_\w+\($' | tr -d '('); do
    nm -D --defined-only "$lib/libdcpkit.so" | grep -q " T $declared\$" || {
        echo "$declared is declared and not there"
        exit 1
    }
    zgrep -qw "$declared" "$(find "$prefix" -name dcpkit.3.gz)" || {
        echo "$declared does not stand in the man page"
        exit 1
    }
done

# Python asks the system for the library by its name.
soname=$(readelf -d "$lib/libdcpkit.so" | sed -n 's/.*SONAME.*\[\(.*\)\]/\1/p')
grep -qF "\"$soname\"" "$here/../../tools/python/dcpkit/_library.py" || {
    echo "the library is $soname, which tools/python does not ask for"
    exit 1
}

# works NAME PROGRAM: it runs, and says so.
works() {
    echo "$1: $("$2" "$sample" "$key" "$hash" "$work/out.$1")"
}

# moves NAME PROGRAM: so does the one that moves tensors between threads.
moves() {
    echo "$1: $("$2")"
}

read -ra flags <<<"$(pkg-config --cflags --libs dcpkit)"
read -ra static_flags <<<"$(pkg-config --cflags --libs --static dcpkit)"
static_flags=("${static_flags[@]/-ldcpkit/-l:libdcpkit.a}")
warnings=(-Wall -Wextra -Wpedantic -Werror)
"${CC:-cc}" -std=c11 "${warnings[@]}" -o "$work/c" "$here/consumer.c" "${flags[@]}"
works c "$work/c"
"${CC:-cc}" -std=c11 "${warnings[@]}" -o "$work/engine" "$here/engine.c" "${flags[@]}" -pthread
moves engine "$work/engine"
"${CC:-cc}" -std=c11 "${warnings[@]}" -o "$work/static" "$here/consumer.c" "${static_flags[@]}"
works static "$work/static"

languages=C
if command -v "${CXX:-c++}" >/dev/null; then
    languages='C;CXX'
    "${CXX:-c++}" -x c++ -std=c++11 "${warnings[@]}" -o "$work/cpp" "$here/consumer.c" "${flags[@]}"
    works cpp "$work/cpp"
    "${CXX:-c++}" -x c++ -std=c++11 "${warnings[@]}" -o "$work/engine_cpp" "$here/engine.c" "${flags[@]}" -pthread
    moves engine_cpp "$work/engine_cpp"
fi
mkdir "$work/project"
cp "$here/consumer.c" "$work/project/consumer.c"
cp "$here/consumer.c" "$work/project/consumer.cpp"
cat >"$work/project/CMakeLists.txt" <<'EOF'
cmake_minimum_required(VERSION 3.22)
project(consumer LANGUAGES ${LANGUAGES})
find_package(dcpkit ${VERSION} REQUIRED)
add_executable(from_c consumer.c)
target_link_libraries(from_c PRIVATE dcpkit::dcpkit)
if("CXX" IN_LIST LANGUAGES)
    add_executable(from_cpp consumer.cpp)
    target_link_libraries(from_cpp PRIVATE dcpkit::dcpkit)
endif()
EOF
build() {
    cmake -S "$work/project" -B "$work/build" -DLANGUAGES="$languages" -DVERSION="${soname#libdcpkit.so.}" -DCMAKE_PREFIX_PATH="$prefix" &&
        cmake --build "$work/build"
}
build >"$work/log" 2>&1 || {
    cat "$work/log"
    exit 1
}
works cmake "$work/build/from_c"
if [ "$languages" = C ]; then
    echo "no compiler for C++ here: those programs were not built"
    exit 77
fi
works cmake_cpp "$work/build/from_cpp"
