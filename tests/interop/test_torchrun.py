# SPDX-License-Identifier: Apache-2.0
# test_torchrun.py - dcpkit started by PyTorch's torchrun: rank 0 does the work once, and its failure is the job's.
import filecmp
import os
import subprocess
import sys
import tempfile
import unittest

from tool import DCPKIT, sample

N = 4


def torchrun(*args):
    """dcpkit as N processes of one torchrun: exit code, stdout, stderr."""
    env = {k: v for k, v in os.environ.items() if not k.startswith(("DCPKIT_", "OMPI_", "PMI_", "SLURM_"))}
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={N}", "--no-python"]
    run = subprocess.run([*command, DCPKIT, *args], capture_output=True, text=True, env=env, timeout=300)
    return run.returncode, run.stdout, run.stderr


class Torchrun(unittest.TestCase):
    def test_convert(self):
        with tempfile.TemporaryDirectory() as folder:
            out, want = os.path.join(folder, "out"), os.path.join(folder, "want")
            code, said, told = torchrun("convert", "--to", "fsdp_dtensor", sample("torch_dist_c_dense_tp2pp2"), out)
            self.assertEqual(code, 0, told)
            self.assertEqual(said.count("converted"), 1, said)
            self.assertEqual(told.count("under torchrun has nothing to do"), N - 1, told)
            subprocess.run(
                [DCPKIT, "convert", "--to", "fsdp_dtensor", sample("torch_dist_c_dense_tp2pp2"), want],
                check=True,
                capture_output=True,
            )
            self.assertEqual(sorted(os.listdir(out)), sorted(os.listdir(want)))
            for name in os.listdir(os.path.join(want, "iter_0000004")):
                ours, theirs = (os.path.join(f, "iter_0000004", name) for f in (out, want))
                self.assertTrue(filecmp.cmp(ours, theirs, shallow=False), name)

    def test_failure(self):
        with tempfile.TemporaryDirectory() as folder:
            code, said, told = torchrun("convert", "--to", "fsdp_dtensor", folder, os.path.join(folder, "out"))
            self.assertNotEqual(code, 0)
            self.assertEqual(told.count("under torchrun has nothing to do"), N - 1, told)
            self.assertRegex(told, r"rank\s*: 0 ")  # torchrun's own summary: the rank that failed first


if __name__ == "__main__":
    unittest.main()
