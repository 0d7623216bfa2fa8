"""One thread for matrix products and k-means, while many small ones follow each other.

Clustering works on blocks that take a millisecond. Two threads that wait for each other at every
one of them are little faster on a free machine, and many times slower on a busy one. And a sum does
not depend on how many there are.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

from threadpoolctl import ThreadpoolController


@contextmanager
def one_thread() -> Iterator[None]:
    """Compiled libraries use one thread in here."""
    with _controller().limit(limits=1):
        yield


@cache
def _controller() -> ThreadpoolController:
    return ThreadpoolController()  # to look for all libraries takes milliseconds
