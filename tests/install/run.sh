#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# run.sh - what tools/release.sh makes works where nothing is installed: archive, packages, wheel, source distribution.
#
#   BUILD=build tests/install/run.sh [OUT]       OUT: the result of an earlier tools/release.sh; default: one is made
#
# BUILD has the program that a wheel's result is held against, samples/ and tests/bench/make_checkpoint. Needs root (chroot), pip's
# index and Debian's source packages. Exit 77 where these cannot be reached; 1 when a check failed.
set -euo pipefail
export LC_ALL=C

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
build=$(realpath "${BUILD:-$root/build}")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
n_failed=0

# check TEXT COMMAND...: prints TEXT, and what COMMAND says when it fails.
check() {
    local text=$1
    shift
    if "$@" >"$work/log" 2>&1; then
        echo "ok      $text"
    else
        echo "FAILED  $text"
        tail -n 30 "$work/log"
        n_failed=$((n_failed + 1))
    fi
}

[ "$(id -u)" -eq 0 ] || { echo "install: not root, so nothing can be tried in a chroot; skipped" && exit 77; }
if [ $# -gt 0 ]; then
    out=$(realpath "$1")
else
    "$root/tools/deps.sh" release || { echo "install: packages cannot be installed; skipped" && exit 77; }
    apt-get -qq --print-uris download libcjson-dev >/dev/null 2>&1 || { echo "install: no package index; skipped" && exit 77; }
    out=$work/out
    export DCPK_STATIC_PREFIX=${DCPK_STATIC_PREFIX:-${XDG_CACHE_HOME:-$HOME/.cache}/dcpkit/static}
    check "tools/release.sh" "$root/tools/release.sh" "$out"
    [ "$n_failed" -eq 0 ] || exit 1
    # The same commit gives the same bytes, from another folder and under another mask. All of it takes as long again, and is asked for
    # by DCPK_ALL_AGAIN=1; the source distribution takes a second.
    git clone --quiet --shared "$root" "$work/clone"
    again() (
        umask 077
        if [ -n "${DCPK_ALL_AGAIN:-}" ]; then
            "$work/clone/tools/release.sh" "$work/again"
        else
            "$work/clone/tools/packaging/sdist.sh" "$work/again"
        fi || return 1
        (cd "$work/again" && sha256sum -- dcpkit*) >"$work/sums" || return 1
        ! grep -vxFf "$out/SHA256SUMS" "$work/sums"
    )
    check "made again, the same bytes: $([ -n "${DCPK_ALL_AGAIN:-}" ] && echo all || echo the source distribution)" again
fi
sample=$build/samples/torch_dist_c_dense_tp2pp2
"$build/dcpkit" convert --quiet --to fsdp_dtensor "$sample" "$work/wanted"
version=$(basename "$out"/dcpkit-*.spdx.json .spdx.json)
check "CHANGELOG.md begins with ${version#dcpkit-}" sh -c "grep -m 1 '^## ' '$root/CHANGELOG.md' | grep -qw '${version#dcpkit-}'"
check "checksums" sh -c "cd '$out' && sha256sum --quiet -c SHA256SUMS"

# unpack FILE FOLDER
unpack() {
    mkdir -p "$2"
    case $1 in
    *.deb) dpkg -x "$1" "$2" ;;
    *.rpm) (cd "$2" && rpm2cpio "$1" | cpio -id --quiet) ;;
    *.tar.gz) mkdir "$2/usr" && tar -xzf "$1" -C "$2/usr" --strip-components=1 ;;
    esac
}

# works FOLDER SAMPLE: a system of nothing but libc converts and proves the sample that was installed.
works() {
    local library
    while read -r library; do
        install -D "$library" "$1$library"
    done < <(ldd "$1/usr/bin/dcpkit" | grep -oE '/[^ ]+\.so[^ ]*')
    [ "$(find "$1/lib" "$1/lib64" -name '*.so*' 2>/dev/null | wc -l)" -le 5 ] || { ldd "$1/usr/bin/dcpkit" && return 1; }
    mkdir "$1/tmp" "$1/proc"
    chroot "$1" /usr/bin/dcpkit convert --quiet --verify --to fsdp_dtensor "$2" /out &&
        chroot "$1" /usr/bin/dcpkit verify --against "$2" /out &&
        diff -r "$work/wanted" "$1/out" &&
        chroot "$1" /usr/bin/dcpkit --version | grep -q '^  no mpi ' # the plug-in, or its MPI, is not there
}
for file in "$out"/dcpkit-*-linux-*.tar.gz "$out"/dcpkit_*.deb "$out"/dcpkit-[0-9]*.rpm; do
    check "unpack ${file##*/}" unpack "$file" "$work/${file##*.}"
    check "convert and verify in a root with libc alone: ${file##*/}" works "$work/${file##*.}" \
        "/usr/share/dcpkit/sample-data/${sample##*/}"
done
for file in "$out"/*.deb; do
    ! command -v lintian >/dev/null || check "lintian ${file##*/}" lintian --allow-root --fail-on error "$file"
done
! command -v rpmlint >/dev/null || check "rpmlint" rpmlint -c "$root/tools/packaging/rpmlint.toml" "$out"/*.rpm

# The archive, unpacked anywhere, with the machine's MPI.
ranks() {
    OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1 mpirun -n 2 \
        "$work/gz/usr/bin/dcpkit" convert --quiet --to fsdp_dtensor "$sample" "$work/by_two" && diff -r "$work/wanted" "$work/by_two"
}
check "two processes of mpirun, from the unpacked archive" ranks

# A wheel in each Python there is, without compiler or index.
wheel=$(echo "$out"/dcpkit-*.whl)
pythons=()
for python in /usr/bin/python3 "$HOME"/.pyenv/versions/*/bin/python3; do
    ! "$python" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 9))' 2>/dev/null || pythons+=("$python")
done
in_python() {
    local venv=$work/venv.$1
    "${pythons[$1]}" -m venv "$venv" && "$venv/bin/pip" install --quiet --no-index --disable-pip-version-check "$wheel" || return 1
    rm -rf "$work/by_wheel"
    env -i PATH="$venv/bin" dcpkit convert --quiet --to fsdp_dtensor "$sample" "$work/by_wheel" && diff -r "$work/wanted" "$work/by_wheel" || return 1
    env -i PATH="$venv/bin" python - "$sample" <<'PYTHON'
import sys, dcpkit
with dcpkit.open(sys.argv[1]) as ckpt:
    assert ckpt.format == "torch_dist" and len(ckpt) == 36, (ckpt.format, len(ckpt))
    ckpt.verify()
PYTHON
}
for i in "${!pythons[@]}"; do
    check "wheel in $("${pythons[$i]}" --version)" in_python "$i"
done

# Ctrl-C ends a conversion that Python asked for, and leaves nothing.
interrupted() {
    local status=0
    "$build/tests/bench/make_checkpoint" --like "$sample/iter_0000004" --gb 0.5 "$work/large" >/dev/null
    # a job in the background ignores SIGINT, and Python then does, too
    env --default-signal=INT "$work/venv.0/bin/python" - "$work/large" "$work/cut" <<'PYTHON' || status=$?
import os, signal, sys, dcpkit
def progress(stage, done, total):
    if done:
        os.kill(os.getpid(), signal.SIGINT)
try:
    dcpkit.convert(sys.argv[1], sys.argv[2], "fsdp_dtensor", progress=progress)
except KeyboardInterrupt:
    sys.exit(3)
PYTHON
    [ "$status" -eq 3 ] && [ ! -e "$work/cut" ]
}
check "Ctrl-C during a conversion from Python" interrupted

# The source distribution builds by itself, as conda's recipe has it.
from_source() {
    mkdir "$work/sdist" && tar -xzf "$(find "$out" -name "dcpkit-*.tar.gz" ! -name "*linux*")" -C "$work/sdist" &&
        (cd "$work"/sdist/dcpkit-* && CMAKE_ARGS='' sh -c "$(sed -n 's/^ *- \(cmake -S .*\)/\1/p' "$out"/dcpkit-*.conda.yaml)") &&
        find "$work/sdist" -path '*/build/build.ninja' | grep -q .
}
check "the source distribution configures by itself" from_source

# The steps of the images, in a copy of this system that is thrown away: a layer over its files, in memory.
# image LINES: the steps as a shell script; then the command works for a user who is not root.
image() {
    # shellcheck disable=SC2016 # for the inner shell
    unshare --mount --propagation private bash -euc '
        mount -t tmpfs tmpfs "$1"
        mkdir "$1/upper" "$1/work" "$1/root"
        mount -t overlay -o "lowerdir=/,upperdir=$1/upper,workdir=$1/work" overlay "$1/root"
        mount --rbind /dev "$1/root/dev" && mount -t proc proc "$1/root/proc" && mount -t tmpfs tmpfs "$1/root/tmp"
        cp "$2"/dcpkit-*-linux-*.tar.gz "$1/root/srv/"
        cp -rL "$3" "$1/root/tmp/in"
        chroot "$1/root" bash -exuc "cd /srv; $4"
        chroot --userspec=1000:1000 "$1/root" sh -exc "cd /tmp && dcpkit --version && dcpkit verify in && $5"
    ' - "$work/layer" "$out" "$sample" "$1" "$2"
}
if unshare --mount true 2>/dev/null; then
    mkdir "$work/layer"
    check "Containerfile, step by step" image "$(sed -nE 's/^COPY --from=unpacked (\S+) (\S+)/cp -r \1\/. \2/p; s/^COPY ([^-]\S*) (\S+)/cp \1 \2/p; s/^RUN //p
    s/^ARG (PACKAGES=)/\1/p' "$root/tools/packaging/Containerfile")" 'cmp /opt/dcpkit/bin/dcpkit /usr/bin/dcpkit'
    check "dcpkit.def, step by step" image "cp dcpkit-*-linux-*.tar.gz /opt/; $(sed -n '/^%post/,/^$/{/^ /p}' "$root/tools/packaging/dcpkit.def")" \
        "$(sed -n '/^%test/,/^$/{/^ /p}' "$root/tools/packaging/dcpkit.def")"
else
    echo "left out: steps of the images, no mount namespaces here"
fi

# The recipes for Spack and conda: they are Python and YAML, and name the source distribution's version and checksum.
recipes() {
    (cd "$out" && /usr/bin/python3 - dcpkit-*.spack.py dcpkit-*.conda.yaml "$(find . -name 'dcpkit-*.tar.gz' ! -name '*linux*')") <<'PYTHON'
import ast, hashlib, os, re, sys, yaml
spack, conda, sdist = sys.argv[1:]
version = re.search(r"dcpkit-(.*)\.tar\.gz", sdist).group(1)
with open(sdist, "rb") as file:
    digest = hashlib.sha256(file.read()).hexdigest()
with open(spack) as file:
    tree = ast.parse(file.read())
calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "version"]
assert [(c.args[0].value, c.keywords[0].value.value) for c in calls] == [(version, digest)], "package.py"
with open(conda) as file:
    recipe = yaml.safe_load(file)
assert recipe["context"]["version"] == version and recipe["source"]["sha256"] == digest, recipe
assert recipe["source"]["path"].replace("${{ version }}", version) == os.path.basename(sdist), recipe
PYTHON
}
check "recipes for Spack and conda" recipes

[ "$n_failed" -eq 0 ] || { echo "$n_failed checks failed" && exit 1; }
echo "install: all checks passed, ${#pythons[@]} versions of Python, $SECONDS s"
