# SPDX-License-Identifier: Apache-2.0
# tool.py - run dcpkit and find samples; run.sh sets the environment.
import os
import subprocess

DCPKIT = os.environ["DCPKIT"]
SAMPLES = os.environ["DCPK_SAMPLES"]
WRITE_ITEMS = os.environ["DCPK_WRITE_ITEMS"]
MAKE_CHECKPOINT = os.environ["DCPK_MAKE_CHECKPOINT"]


def sample(name):
    return os.path.join(SAMPLES, name)


def iteration(run):
    """The iteration folder that a run folder's tracker names."""
    with open(os.path.join(run, "latest_checkpointed_iteration.txt"), encoding="ascii") as f:
        return os.path.join(run, f"iter_{int(f.read()):07d}")


def dcpkit(*args):
    """Run it; an AssertionError with its message when it fails. Returns stdout."""
    done = subprocess.run([DCPKIT, *args], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise AssertionError(f"dcpkit {' '.join(args)}: exit {done.returncode}: {done.stderr.strip()}")
    return done.stdout


def dcpkit_fails(*args):
    """Run it; it must fail. Returns (exit status, stderr)."""
    done = subprocess.run([DCPKIT, *args], capture_output=True, text=True, check=False)
    if done.returncode == 0:
        raise AssertionError(f"dcpkit {' '.join(args)}: succeeded")
    return done.returncode, done.stderr.strip()
