#!/usr/bin/env python3
"""Writes tests/ops/quantise_vectors.h: hashes of what every bf16 is quantised to, by ml_dtypes and numpy alone.

    python3 -m venv venv && venv/bin/pip install ml_dtypes numpy
    venv/bin/python tests/ops/quantise_vectors.py > tests/ops/quantise_vectors.h

The matrix is 256 x 256, all 65536 bf16 in order (a block's have one exponent) or mixed within 1024 neighbours (eight exponents);
infinities and NaN are 0. Its row copy is hashed, codes and scales in plain layout, by FNV-1a of 64 bits."""
import ml_dtypes
import numpy as np

F = np.float32
ELEMENTS = {"E4M3": (ml_dtypes.float8_e4m3fn, F(448)), "E5M2": (ml_dtypes.float8_e5m2, F(57344)),
            "E2M1": (ml_dtypes.float4_e2m1fn, F(6))}


def matrix(order):
    i = np.arange(65536, dtype=np.uint32)
    bits = i if order == "ordered" else (i & ~np.uint32(1023)) | (i * 357 & 1023)
    x = bits.astype(np.uint16).view(ml_dtypes.bfloat16).astype(F)
    return np.where(np.isfinite(x), x, F(0)).reshape(256, 256)


def codes_of(element, y):
    kind, largest = ELEMENTS[element]
    return np.clip(y, -largest, largest).astype(kind).view(np.uint8)


def scale_for(largest, amax):
    safe = np.where(amax == 0, F(1), amax)
    return np.where(amax == 0, F(1), np.minimum(largest / safe, np.finfo(F).max)).astype(F)


def blocks_of(x, lines, columns):
    """amax of each block, and a function that spreads one number a block over its elements."""
    r, c = x.shape
    amax = np.abs(x).reshape(r // lines, lines, c // columns, columns).max(axis=(1, 3))
    return amax, lambda s: np.repeat(np.repeat(s, lines, axis=0), columns, axis=1)


def quantise(element, scale, power, x):
    largest = ELEMENTS[element][1]
    if scale == "Tensor":
        return codes_of(element, x * scale_for(largest, np.abs(x).max())), b""
    lines, columns = {"1x128": (1, 128), "128x128": (128, 128), "1x32": (1, 32), "1x16": (1, 16), "16x16": (16, 16)}[scale]
    amax, spread = blocks_of(x, lines, columns)
    if scale in ("1x128", "128x128"):
        s = scale_for(largest, amax)
        if power:
            s = np.exp2(np.floor(np.log2(s.astype(np.float64)))).astype(F)
        return codes_of(element, x * spread(s)), (F(1) / s).astype(F).tobytes()
    if scale == "1x32":
        powers = np.arange(255, dtype=np.uint8).view(ml_dtypes.float8_e8m0fnu).astype(np.float64)
        code = np.searchsorted(powers * float(largest), amax.astype(np.float64), side="left")
        code = np.where(amax == 0, 127, np.minimum(code, 254))
        return codes_of(element, (x.astype(np.float64) / spread(powers[code])).astype(F)), code.astype(np.uint8).tobytes()
    s = scale_for(largest * F(448), np.abs(x).max())
    block = np.clip(amax * s / largest, 0, 448).astype(F).astype(ml_dtypes.float8_e4m3fn)
    divide = spread(block.astype(F))
    y = x * s / np.where(divide == 0, F(1), divide)
    return np.where(divide == 0, 0, codes_of(element, y)).astype(np.uint8), block.view(np.uint8).tobytes()


def fnv(data):
    h = 0xCBF29CE484222325
    for b in data:
        h = (h ^ b) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return h


HEAD = """// Written by tests/ops/quantise_vectors.py, which explains it.
#pragma once

#include <cstdint>

#include "ops/quantise_format.h"

namespace assay {

struct QuantiseVector {
  QuantFormat format;
  int mixed;  // 0: in order
  uint64_t codes, scales;
};

// clang-format off
inline constexpr QuantiseVector kQuantiseVectors[] = {"""


def main():
    np.seterr(all="ignore")
    print(HEAD)
    for order in ("ordered", "mixed"):
        x = matrix(order)
        for element in ELEMENTS:
            for scale in ("Tensor", "1x128", "1x128 power", "128x128", "1x32", "1x16", "16x16"):
                kind, _, power = scale.partition(" ")
                codes, scales = quantise(element, kind, power, x)
                data = codes.astype(np.uint8)
                if element == "E2M1":
                    data = (data[:, 0::2] | data[:, 1::2] << 4).astype(np.uint8)
                more = ", .scale_rounding = ScaleRounding::kPowerOfTwo" if power else ""
                print(f"    {{{{.element = ElementFormat::k{element}, .scale = ScaleKind::k{kind}{more}}},"
                      f" {int(order == 'mixed')}, 0x{fnv(data.tobytes()):016x}, 0x{fnv(scales):016x}}},")
    print("};\n// clang-format on\n\n}  // namespace assay")


main()
