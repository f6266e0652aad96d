# SPDX-License-Identifier: Apache-2.0
# test_inspector.py - --like-megatron-inspector against what Megatron's own converter wrote.
import os
import tempfile
import unittest

from dcp_equal import compare
from dcp_folder import Folder
from tool import dcpkit, dcpkit_fails, iteration, sample

SOURCE = "torch_dist_b_dense_tp2pp2"


class Inspector(unittest.TestCase):
    def setUp(self):
        self.work = tempfile.TemporaryDirectory()
        self.addCleanup(self.work.cleanup)
        self.out = os.path.join(self.work.name, "out")

    def test_equal(self):
        group_map = os.path.join(sample(SOURCE + "_p2g"), "param_to_param_group_map.json")
        dcpkit("convert", "--to", "fsdp_dtensor", "--like-megatron-inspector", "--swiglu",
               "--param-to-param-group-map-json", group_map, sample(SOURCE), self.out)
        theirs = Folder(iteration(sample("fsdp_dtensor_converted_by_megatron")))
        ours = Folder(iteration(self.out))
        self.assertGreater(len(theirs.tensors), 100)
        self.assertEqual(compare(ours, theirs), [])

    def test_refused(self):
        """Where Megatron's converter stops (no common.pt) or crashes (experts), this mode refuses."""
        for source in ("torch_dist_c_dense_tp2pp2", "torch_dist_c_moe_ep2pp2"):
            with self.subTest(source=source):
                status, message = dcpkit_fails("convert", "--to", "fsdp_dtensor", "--swiglu",
                                               "--like-megatron-inspector", sample(source), self.out)
                self.assertIn(status, (2, 3), message)
                self.assertFalse(os.path.exists(self.out))


if __name__ == "__main__":
    unittest.main()
