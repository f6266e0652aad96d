# SPDX-License-Identifier: Apache-2.0
"""megatron_integrity.py - integrity.json of `convert --integrity` in Megatron's own functions, and theirs in ours.

    megatron_integrity.py DCPKIT SAMPLES TREE...

TREE: a Megatron-LM tree of core 0.17.1 or later. In each, without GPU: Megatron accepts what we wrote, and would have
written the same bytes; we accept what Megatron wrote for its own checkpoint; a changed byte is refused by both, by the
name of the file. Prints a line a tree; exit 1 when one fails.
"""
import os
import shutil
import subprocess
import sys
import tempfile

SAMPLE = "torch_dist_c_dense_tp2pp2/iter_0000004"

# Runs with a tree in front of sys.path: "save DIR" or "verify DIR"; exit 3 and the reason when it is refused.
PEER = """
import sys
from megatron.core.dist_checkpointing.core import CheckpointingException
from megatron.core.dist_checkpointing.validation import save_integrity_manifest, verify_integrity_manifest
try:
    {"save": save_integrity_manifest, "verify": verify_integrity_manifest}[sys.argv[1]](sys.argv[2])
except CheckpointingException as refused:
    print(refused)
    sys.exit(3)
"""


def run(*command, tree=None):
    """Exit code and what was said."""
    env = dict(os.environ, PYTHONPATH=tree) if tree else None
    done = subprocess.run(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    return done.returncode, done.stdout


def megatron(tree, what, folder):
    return run(sys.executable, "-W", "ignore", "-c", PEER, what, folder, tree=tree)


def flip(path):
    """Change the byte in the middle."""
    with open(path, "r+b") as file:
        file.seek(os.path.getsize(path) // 2)
        byte = file.read(1)
        file.seek(-1, os.SEEK_CUR)
        file.write(bytes([byte[0] ^ 1]))


def expect(got, code, *words):
    assert got[0] == code and all(word in got[1] for word in words), f"wanted {code} and {words}, got {got}"


def judge(dcpkit, samples, tree, work):
    ours, theirs = os.path.join(work, "ours"), os.path.join(work, "theirs")
    written = os.path.join(ours, "iter_0000004")
    listed = os.path.join(written, "integrity.json")
    expect(run(dcpkit, "convert", "--integrity", "--to", "torch_dist", "--target-mesh", "tp=1",
               os.path.join(samples, SAMPLE), ours), 0)
    expect(megatron(tree, "verify", written), 0)
    with open(listed, "rb") as file:
        text = file.read()
    os.remove(listed)
    expect(megatron(tree, "save", written), 0)
    with open(listed, "rb") as file:
        assert file.read() == text, "Megatron lists the same folder otherwise"
    flip(os.path.join(written, "__0_0.distcp"))
    expect(megatron(tree, "verify", written), 3, "__0_0.distcp")
    expect(run(dcpkit, "verify", ours), 1, "integrity   FAILED", "'__0_0.distcp'")

    shutil.copytree(os.path.join(samples, SAMPLE), theirs)
    expect(megatron(tree, "save", theirs), 0)
    expect(run(dcpkit, "verify", theirs), 0, "integrity   ok")
    flip(os.path.join(theirs, "__1_0.distcp"))
    expect(run(dcpkit, "verify", theirs), 1, "integrity   FAILED", "'__1_0.distcp'")


def main(dcpkit, samples, *trees):
    n_failed = 0
    for tree in trees:
        with tempfile.TemporaryDirectory() as work:
            try:
                judge(dcpkit, samples, tree, work)
                print(f"ok   {tree}")
            except AssertionError as wrong:
                print(f"FAIL {tree}: {wrong}")
                n_failed += 1
    return 1 if n_failed or not trees else 0


if __name__ == "__main__":
    if len(sys.argv) < 4:
        sys.exit(__doc__)
    sys.exit(main(*sys.argv[1:]))
