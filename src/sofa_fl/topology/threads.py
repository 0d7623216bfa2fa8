"""One thread for matrix products, while many small ones follow each other.

Clustering multiplies blocks that take a millisecond. Two threads that wait for each other at every
one of them are no faster on a free machine, and ten times slower on a busy one.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

from threadpoolctl import ThreadpoolController


@contextmanager
def one_thread() -> Iterator[None]:
    """Products of matrices use one thread in here."""
    with _controller().limit(limits=1, user_api="blas"):
        yield


@cache
def _controller() -> ThreadpoolController:
    return ThreadpoolController()  # to look for all libraries takes milliseconds
