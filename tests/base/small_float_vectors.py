#!/usr/bin/env python3
"""Writes tests/base/small_float_vectors.txt: the code of every bf16 in each small format, computed
by ml_dtypes and numpy.

    python3 -m venv venv && venv/bin/pip install ml_dtypes numpy
    venv/bin/python tests/base/small_float_vectors.py > tests/base/small_float_vectors.txt

Each line holds format, first bf16 (bits) and code, in hexadecimal: all bf16 from that one to the
next line's have this code. ml_dtypes does not saturate, so values are clipped to the largest first;
e2m1 has no NaN, so NaN follows the rule of base/small_float.h. A table `decode FORMAT CODE BITS`
follows: the float32 of each code."""
import ml_dtypes
import numpy as np

ELEMENTS = {"e4m3": (ml_dtypes.float8_e4m3fn, 448.0), "e5m2": (ml_dtypes.float8_e5m2, 57344.0),
            "e2m1": (ml_dtypes.float4_e2m1fn, 6.0)}


def all_bf16():
    return np.arange(65536, dtype=np.uint32).astype(np.uint16).view(ml_dtypes.bfloat16).astype(np.float32)


def element(name, x):
    kind, largest = ELEMENTS[name]
    codes = np.clip(x, -largest, largest).astype(kind).view(np.uint8)
    return np.where(np.isnan(x), 7, codes) if name == "e2m1" else codes


def unsigned_e4m3(x):
    codes = np.clip(x, 0, 448).astype(np.float32).astype(ml_dtypes.float8_e4m3fn).view(np.uint8)
    codes = np.where(x <= 0, 0, codes)
    return np.where(np.isnan(x), 0x7F, codes)


def power_of_two_above(x, largest):
    """The code of ml_dtypes' smallest power of two >= x / largest, compared in double."""
    powers = np.arange(255, dtype=np.uint8).view(ml_dtypes.float8_e8m0fnu).astype(np.float64)
    codes = np.searchsorted(powers * largest, x.astype(np.float64), side="left")
    codes = np.minimum(codes, 254)
    return np.where(np.isnan(x) | (x < 0), 255, codes)


def main():
    np.seterr(invalid="ignore")
    x = all_bf16()
    tables = {name: element(name, x) for name in ELEMENTS}
    tables["ue4m3"] = unsigned_e4m3(x)
    for largest in (448, 57344, 6):
        tables[f"e8m0/{largest}"] = power_of_two_above(x, largest)
    for name, codes in tables.items():
        codes = codes.astype(np.int64)
        for i in np.flatnonzero(np.diff(codes, prepend=-1)):
            print(f"{name} {i:04x} {codes[i]:02x}")
    kinds = {name: kind for name, (kind, _) in ELEMENTS.items()}
    kinds["e8m0"] = ml_dtypes.float8_e8m0fnu
    for name, kind in kinds.items():
        count = 16 if name == "e2m1" else 256
        values = np.arange(count, dtype=np.uint8).view(kind).astype(np.float32)
        for code, value in enumerate(values):
            text = "nan" if np.isnan(value) else f"{value.view(np.uint32):08x}"
            print(f"decode {name} {code:02x} {text}")


main()
