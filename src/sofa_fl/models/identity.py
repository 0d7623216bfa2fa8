"""A dictionary that finds models and arrays by identity: which object, not which numbers."""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from typing import Any, TypeVar

from sofa_fl.models.mix import Mix, identity

V = TypeVar("V")


class IdentityDict(MutableMapping[Any, V]):
    """Values by the identity of a model, an array, or a tuple of such objects and plain values.

    Mixes of the same models by the same weights are one key. The dictionary holds its keys: Python
    gives the id of an object that is gone to another.
    """

    def __init__(self) -> None:
        self._entries: dict[object, tuple[Any, V]] = {}

    def __getitem__(self, key: Any) -> V:
        return self._entries[_id_of(key)][1]

    def __setitem__(self, key: Any, value: V) -> None:
        self._entries[_id_of(key)] = key, value

    def __delitem__(self, key: Any) -> None:
        del self._entries[_id_of(key)]

    def __iter__(self) -> Iterator[Any]:
        return (key for key, _ in self._entries.values())

    def __len__(self) -> int:
        return len(self._entries)


def _id_of(key: Any) -> object:
    if isinstance(key, tuple):
        return tuple(_id_of(part) for part in key)
    if isinstance(key, str | bool):  # compared by value
        return key
    if isinstance(key, Mix):
        return identity(key)
    return (id(key),)
