"""The CRC-32 of bytes out of those of their parts, the same as `zlib.crc32` gives.

One thread takes as long to check a checkpoint as the disk takes to write it. A checksum is a
polynomial over two elements, modulo that of CRC-32: so those of parts can be put together.
"""

from __future__ import annotations

from functools import cache

POLYNOMIAL = 0xEDB88320  # without its highest term; the highest bit is the constant term
ONE, BYTE = 1 << 31, 1 << 23  # 1, and x to the power of 8


def joined(first: int, second: int, num_bytes: int) -> int:
    """Combine the checksums of two pieces of data; the second has `num_bytes`."""
    return _product(_power(BYTE, num_bytes), first) ^ second


def _product(a: int, b: int) -> int:
    """Multiply two polynomials modulo that of CRC-32."""
    product = 0
    while a:
        if a & ONE:
            product ^= b
        a = (a << 1) & 0xFFFFFFFF
        b = (b >> 1) ^ (POLYNOMIAL if b & 1 else 0)
    return product


@cache  # parts have few lengths
def _power(base: int, exponent: int) -> int:
    power = ONE
    while exponent:
        if exponent & 1:
            power = _product(power, base)
        base, exponent = _product(base, base), exponent >> 1
    return power
