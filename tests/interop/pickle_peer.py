# SPDX-License-Identifier: Apache-2.0
"""Prints tests/unit/pickle_cases.h: pickles that CPython makes, each with its tree as the tests spell it.

python tests/interop/pickle_peer.py > tests/unit/pickle_cases.h      (needs torch and numpy)
"""
import argparse, collections, copyreg, functools, pathlib, pickle, platform, signal, struct, sys, types
import numpy, torch


class Pair(tuple):
    """A class whose pickle needs keywords: NEWOBJ_EX."""
    def __new__(cls, a, *, b):
        return tuple.__new__(cls, (a, b))
    def __getnewargs_ex__(self):
        return (self[0],), {"b": self[1]}
Pair.__module__ = Pair.__new__.__module__ = "peer"


def text(b):
    return "".join(chr(c) if 32 <= c < 127 and c not in b'"\\' else f"\\x{c:02x}" for c in b)


def many(xs, proto):
    return "".join(show(x, proto) + "," for x in xs)


def pairs(kv, proto):
    return "".join(f"{show(k, proto)}:{show(v, proto)}," for k, v in kv)


def name(f):
    return f"{f.__module__}.{f.__qualname__}"


def show_call(o, proto):
    """What __reduce_ex__ tells pickle: callable, arguments, state, items, pairs."""
    reduced = copyreg.dispatch_table[type(o)](o) if type(o) in copyreg.dispatch_table else o.__reduce_ex__(proto)
    f, args, state, items, kv = (tuple(reduced) + (None,) * 5)[:5]
    how = "reduce"
    if f is copyreg.__newobj__:
        f, args, how = args[0], args[1:], "new"
    elif f is copyreg.__newobj_ex__ and proto < 4:
        cls, a, k = args     # CPython's save_reduce before protocol 4
        return "reduce:(" + show(functools.partial(cls.__new__, cls, *a, **k), proto) + ",(),)"
    out = f"{how}:{name(f)}({many(args, proto)})"
    if items is not None:
        out += "".join(["[", many(items, proto), "]"]) if (items := list(items)) else ""
    if kv is not None:
        out += "".join(["{", pairs(kv, proto), "}"]) if (kv := list(kv)) else ""
    return out + ("|" + show(state, proto) if state is not None else "")


def show(o, proto):
    t = type(o)
    if o is None or t is bool:
        return str(o)
    if t is int:
        if -2**63 <= o < 2**63:
            return str(o)
        return "L" + pickle.encode_long(o).hex()
    if t is float:
        return "f" + struct.pack(">d", o).hex()
    if t is str:
        return f'"{text(o.encode("utf-8", "surrogatepass"))}"'
    if t is bytes:
        return f'b"{text(o)}"'
    if t is bytearray:       # save_bytearray of _pickle.c
        return f"reduce:builtins.bytearray({show(bytes(o), proto) + ',' if o or proto == 5 else ''})"
    if t in (tuple, torch.Size):
        return "(" + many(o, proto) + ")"
    if t is list:
        return "[" + many(o, proto) + "]"
    if t in (set, frozenset):
        return "<" + "".join(sorted(show(x, proto) + "," for x in o)) + ">"
    if t is dict or (t is collections.OrderedDict and not o.__dict__):
        return "{" + pairs(o.items(), proto) + "}"
    if t is torch.dtype:
        return "@" + str(o)
    if t is torch.layout:
        return f'reduce:torch.serialization._get_layout("{o}",)'
    if isinstance(o, (type, types.FunctionType, types.BuiltinFunctionType)):
        return "@" + name(o)
    return show_call(o, proto)


def attributed():
    d = collections.OrderedDict(w=1)
    d._metadata = {"v": 2}
    return d


shared = ["x", 1.5]
CASES = {
    "None": None, "True": True, "False": False,
    **{f"int {i}": i for i in (0, 255, 256, 65535, 65536, -1, 2**31 - 1, -2**31, 2**31, 2**63 - 1, -2**63)},
    "uint64 seed": 2**63, "below int64": -2**63 - 1, "LONG4": -(1 << 2100) - 7,
    "float": 1e-5, "minus zero": -0.0, "infinity": float("inf"), "nan": float("nan"),
    "empty str": "", "str": "decoder.layers.0", "str non-ascii": "é€😀\u07ff\uffff", "str surrogate": "\ud800", "str NUL": "a\0b",
    "str 300": "y" * 300,
    "empty bytes": b"", "bytes": b"\x00a\x7f\x80\xbf\xc0\xff", "bytes 300": b"\xfe" * 300,
    "empty bytearray": bytearray(), "bytearray": bytearray(b"\x80a"),
    "tuples": [(), (1,), (1, 2), (1, 2, 3), (1, 2, 3, 4)], "list": [1, "a", None], "list of one": [7], "empty list": [],
    "dict": {"a": 1, 2: [3], (4, "t"): {}, None: True}, "dict of one": {"k": 0.5}, "empty dict": {},
    "empty set": set(), "set": {1, 2}, "frozenset": frozenset([3]),
    "shared": [shared, shared, {"k": shared}],
    "OrderedDict": collections.OrderedDict(a=1, b=2), "OrderedDict with attributes": attributed(),
    "defaultdict": collections.defaultdict(list, {"a": [1]}), "Counter": collections.Counter("aab"), "deque": collections.deque([1, 2]),
    "Namespace": argparse.Namespace(lr=0.1, dtype=torch.bfloat16), "SimpleNamespace": types.SimpleNamespace(a=1),
    "PosixPath": pathlib.PosixPath("/a/b"), "signal": signal.SIGTERM, "partial": functools.partial(int, base=2),
    "nested class": argparse._SubParsersAction._ChoicesPseudoAction, "keywords": Pair(1, b=2), "range": range(3),
    "complex": complex(1, 2), "function": collections.namedtuple,
    "dtypes": [torch.float32, torch.float8_e4m3fn], "Size": torch.Size([4, 192, 64]), "layout": torch.strided,
    "numpy array": numpy.array([1, 2**31], dtype=numpy.uint32),
}
# protocol 2 pickles that must come out byte for byte: no bytes, no objects, one identity per text
EXACT = {"None", "True", "False", "uint64 seed", "below int64", "float", "minus zero", "infinity", "empty str", "str",
         "str non-ascii", "str surrogate", "str NUL", "str 300", "tuples", "list", "list of one", "empty list", "dict",
         "dict of one", "empty dict", "shared"} | {k for k in CASES if k.startswith("int ")}


def c_string(s):
    return "\n     ".join(f'"{s[i:i + 84]}"' for i in range(0, max(len(s), 1), 84))


def main():
    sys.modules["peer"] = sys.modules["__main__"]
    print("/* SPDX-License-Identifier: Apache-2.0 */")
    print(f"/* pickle_cases.h - made by tests/interop/pickle_peer.py; CPython {platform.python_version()}, torch {torch.__version__.split('+')[0]}, numpy {numpy.__version__}. */")
    print("/* clang-format off */")
    print("static const struct pickle_case {\n    const char *label, *hex, *tree;\n    int protocol;\n    bool is_exact; /* CPython's bytes are ours */\n} pickle_cases[] = {")
    for label, o in CASES.items():
        for proto in (2, 3, 4, 5):
            if (proto == 3 and label not in ("bytes", "bytearray", "set", "nested class", "empty bytes", "signal")) or \
               (proto == 5 and label not in ("bytearray", "Namespace", "str 300", "keywords", "empty bytearray")):
                continue
            tree = show(o, proto).replace("\\", "\\\\").replace('"', '\\"')
            exact = "true" if proto == 2 and label in EXACT else "false"
            print(f'    {{"{label}, protocol {proto}",\n     {c_string(pickle.dumps(o, proto).hex())},\n     "{tree}",\n     {proto}, {exact}}},')
    print("};\n/* clang-format on */")


if __name__ == "__main__":
    main()
