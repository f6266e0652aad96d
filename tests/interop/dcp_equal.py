# SPDX-License-Identifier: Apache-2.0
# dcp_equal.py - are two DCP folders equal? Keys, dtypes, shapes, every bit of tensors, objects by value.
"""Usage: dcp_equal.py A B     prints what differs; exit 0 when nothing does, else 1."""
import sys

from dcp_folder import Folder, same, same_tensor


def compare(a, b):
    """The differences of two Folders, one line each; chunks and places may differ."""
    keys_a, keys_b = (set(x.tensors) | set(x.objects) for x in (a, b))
    faults = [f"only in {a.path}: {k}" for k in sorted(keys_a - keys_b)]
    faults += [f"only in {b.path}: {k}" for k in sorted(keys_b - keys_a)]
    both = sorted(keys_a & keys_b)
    faults += [f"{k}: a tensor here, an object there" for k in both if (k in a.tensors) != (k in b.tensors)]
    for folder in (a, b):
        covers = ((k, folder.cover_fault(k)) for k in folder.tensors)
        faults += [f"{folder.path}: {k}: {fault}" for k, fault in covers if fault]
    common = [k for k in both if k in a.tensors and k in b.tensors]
    tensors_a, tensors_b = a.load(common), b.load(common)
    for key in common:
        x, y = tensors_a[key], tensors_b[key]
        if not same_tensor(x, y):
            faults.append(f"{key}: {x.dtype} {tuple(x.shape)} and {y.dtype} {tuple(y.shape)} differ")
    for key in (k for k in both if k in a.objects and k in b.objects):
        if not same(a.object(key), b.object(key)):
            faults.append(f"{key}: {a.object(key)!r:.200} is not {b.object(key)!r:.200}")
    return faults


if __name__ == "__main__":
    found = compare(Folder(sys.argv[1]), Folder(sys.argv[2]))
    print("\n".join(found) or "equal")
    sys.exit(1 if found else 0)
