# SPDX-License-Identifier: Apache-2.0
# test_items.py - the tensor items that formats/dcp writes, read by torch: every dtype, several shapes.
import functools
import io
import os
import subprocess
import tempfile
import unittest
import zipfile

import numpy as np
import torch

from tool import WRITE_ITEMS


def pattern(dtype, shape):
    """The tensor that write_items.c writes."""
    n_bytes = dtype.itemsize * int(np.prod(shape, dtype=np.int64))
    if n_bytes == 0:
        return torch.empty(shape, dtype=dtype)
    i = np.arange(n_bytes, dtype=np.uint64)
    data = (i % 3 == 0) if dtype == torch.bool else (37 * i + 11) % 256
    return torch.from_numpy(data.astype(np.uint8)).view(dtype).reshape(shape)


def per_item(test):
    """Run a test for every item; one that fails does not hide the others."""
    @functools.wraps(test)
    def run(self):
        for name, dtype, shape, data in self.items:
            with self.subTest(item=name):
                self.assertIsNotNone(dtype, "torch has no such dtype")
                test(self, dtype, shape, data)
    return run


class Items(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.work = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.work.cleanup)
        folder = os.path.join(cls.work.name, "items")
        subprocess.run([WRITE_ITEMS, folder], check=True)
        cls.items = []
        for name in sorted(os.listdir(folder)):
            dtype, shape, _ = name.split(".")
            with open(os.path.join(folder, name), "rb") as f:
                data = f.read()
            shape = () if shape == "scalar" else tuple(map(int, shape.split("x")))
            cls.items.append((name, getattr(torch, dtype, None), shape, data))

    def test_dtypes(self):
        """Every dtype that torch saves plainly is there."""
        written = {dtype for _, dtype, _, _ in self.items}
        quantised = {torch.qint8, torch.quint8, torch.qint32, torch.quint4x2, torch.quint2x4}
        for name in dir(torch):
            dtype = getattr(torch, name)
            if not isinstance(dtype, torch.dtype) or dtype in quantised | written:
                continue
            try:
                torch.save(torch.zeros(16, dtype=torch.uint8).view(dtype), io.BytesIO())
            except Exception:  # torch itself cannot
                continue
            self.fail(f"no item of {dtype} was written")

    @per_item
    def test_load(self, dtype, shape, data):
        """torch's strict unpickler takes it and gives the dtype, the shape and every byte."""
        got = torch.load(io.BytesIO(data), weights_only=True)
        want = pattern(dtype, shape)
        self.assertEqual((got.dtype, got.shape), (want.dtype, want.shape))
        self.assertTrue(got.is_contiguous() and not got.requires_grad)
        got, want = (bytes(x.untyped_storage().tolist()) for x in (got, want))
        self.assertEqual(got, want)

    @per_item
    def test_like_torch(self, dtype, shape, data):
        """The records and their places are those of torch.save (2.7 and later)."""
        theirs = io.BytesIO()
        torch.save(pattern(dtype, shape).clone(), theirs)
        ours, theirs = zipfile.ZipFile(io.BytesIO(data)), zipfile.ZipFile(theirs)
        self.assertIsNone(ours.testzip())
        places = [[(x.filename, x.header_offset, x.file_size) for x in z.infolist()] for z in (ours, theirs)]
        self.assertEqual(*places)
        for name in ours.namelist():
            if not name.endswith("serialization_id"):  # a hash that says nothing
                self.assertEqual(ours.read(name), theirs.read(name), name)


if __name__ == "__main__":
    unittest.main()
