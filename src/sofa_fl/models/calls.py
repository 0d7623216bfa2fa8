"""What is around the calls of a network: where it makes tensors, what it keeps, what it raises.

A hidden state, a counter or a cache must not travel from one client to the next, so all that a
network keeps beside its model is put back before a model is loaded.
"""

from __future__ import annotations

import copy
import traceback
from collections import deque
from collections.abc import Callable, Collection, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from sofa_fl.errors import ModelError, SofaError, release

T = TypeVar("T")
INTERNAL = frozenset(vars(nn.Module()))  # what torch itself keeps in a module
SCALARS = (type(None), bool, int, float, complex, str, bytes)
CONTAINERS = (list, tuple, dict, set, deque)


class Home:
    """On the CPU, as ever; but if a network then fails on a GPU, there.

    `torch.zeros(3)` in a `forward` is no fault on a CPU, and anywhere else it is. It is not put
    on the GPU for all: many networks make small tensors to read numbers off them.
    """

    def __init__(self, device: torch.device) -> None:
        self.device, self.is_default = device, False

    def __call__(self) -> AbstractContextManager[object]:
        """What is around every call of the network, and around its backward pass."""
        return self.device if self.is_default else nullcontext()

    def trying(self, call: Callable[[], T]) -> T:
        """What `call` returns, here or there; its first error if it fails both times."""
        try:
            with self():
                return call()
        except ModelError as error:
            if self.is_default or self.device.type == "cpu":
                raise
            first = error
            release(error)
        self.is_default = True
        try:
            with self():
                return call()
        except ModelError:
            self.is_default = False
            raise first from None


@contextmanager
def naming(what: str) -> Iterator[None]:
    """Say in one sentence what a user's network raises in here."""
    try:
        yield
    except (SofaError, torch.cuda.OutOfMemoryError):
        raise
    except Exception as error:
        raise ModelError(f"{what}: {said_by(error)}{_where(error)}") from error


def _where(error: Exception) -> str:
    """The last line of the user's that an error went through; torch and this package are none."""
    others = (str(Path(torch.__file__).parent), str(Path(__file__).parents[1]), "<")
    frames = traceback.extract_tb(error.__traceback__)
    if own := [frame for frame in frames if not frame.filename.startswith(others)]:
        return f" ({own[-1].filename}, line {own[-1].lineno})"
    return ""


def said_by(error: Exception) -> str:
    """The first line of an error, with its type where that line alone says little."""
    lines = str(error).strip().splitlines()
    if isinstance(error, RuntimeError | ValueError | TypeError) and lines:
        return lines[0]
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__


@dataclass(slots=True)
class _Entry:
    """One attribute: where it is, what it was at first, and how to see that it has changed."""

    place: dict[str, Any]
    name: str
    value: Any
    signature: Any
    first: Any  # a copy of the value, where it can be changed in place and has memory of its own


class Kept:
    """What a network keeps, as it was when this was made; `but` are buffers of its model."""

    def __init__(self, network: nn.Module, but: Collection[str] = ()) -> None:
        self.entries: list[_Entry] = []
        self.names: list[tuple[dict[str, Any], frozenset[str]]] = []
        buffers = {id(b): b for name, b in network.named_buffers() if name in but}
        held = {_memory(tensor) for tensor in (*network.parameters(), *buffers.values())}
        for module in network.modules():
            for place, skipped in ((vars(module), INTERNAL), (module._buffers, frozenset[str]())):
                if not isinstance(place, dict):  # a compiled module shows a view of its own
                    continue
                self.names.append((place, frozenset(place) | skipped))
                for name, value in place.items():
                    if name in skipped or not is_plain(value) or id(value) in buffers:
                        continue
                    if isinstance(value, Tensor) and value.grad_fn is not None:
                        value = place[name] = value.detach()  # computed of parameters, and will be
                    is_alias = isinstance(value, Tensor) and _memory(value) in held
                    first = value if is_alias or isinstance(value, SCALARS) else _copied(value)
                    self.entries.append(_Entry(place, name, value, _signature(value), first))

    @property
    def scalars(self) -> list[Any]:
        """Numbers, words and the like as they are now, such as a counter of calls."""
        now = [entry.place.get(entry.name) for entry in self.entries]
        return [value if isinstance(value, SCALARS) else None for value in now]

    @property
    def has_left_tensors(self) -> bool:
        """Whether tensors, or containers of them, were kept that were not there at first."""
        places = [(entry.place, entry.name) for entry in self._changed()]
        left = [place.get(name) for place, name in (*places, *self._added())]
        return any(not isinstance(value, SCALARS) for value in left)

    def forget(self) -> None:
        """Put back what was replaced, but numbers; tensors that were written to stay as they are.

        After a call that was made for many clients at once, what it has left is no one's.
        """
        for entry in list(self._changed()):
            now = entry.place.get(entry.name)
            is_counted = isinstance(now, SCALARS) and isinstance(entry.value, SCALARS)
            if is_counted or (now is entry.value and isinstance(now, Tensor)):
                continue
            self._put_back(entry)
        self._drop_added()

    @torch.no_grad()
    def restore(self, *, always: bool = False) -> None:
        """Put everything back; `always`: also what a replayed graph writes to without a trace."""
        for entry in self.entries if always else list(self._changed()):
            self._put_back(entry)
        self._drop_added()

    def _put_back(self, entry: _Entry) -> None:
        _put_back(entry.value, entry.first)
        entry.place[entry.name] = entry.value
        entry.signature = _signature(entry.value)

    def _drop_added(self) -> None:
        for place, name in list(self._added()):
            del place[name]

    def _changed(self) -> Iterator[_Entry]:
        for entry in self.entries:
            is_same = entry.place.get(entry.name, self) is entry.value
            if not is_same or (
                entry.value is not entry.first and _signature(entry.value) != entry.signature
            ):
                yield entry

    def _added(self) -> Iterator[tuple[dict[str, Any], str]]:
        for place, names in self.names:
            if not place.keys() <= names:
                for name in place.keys() - names:
                    if is_plain(place[name]):
                        yield place, name


def is_plain(value: Any) -> bool:
    """Whether a value is data through and through: no module, parameter or object of a class."""
    if isinstance(value, dict):
        return all(is_plain(key) and is_plain(each) for key, each in value.items())
    if isinstance(value, CONTAINERS):
        return all(is_plain(each) for each in value)
    return isinstance(value, SCALARS) or (
        isinstance(value, Tensor) and not isinstance(value, nn.Parameter)
    )


def _memory(tensor: Tensor) -> int:
    """Which memory a tensor is on; a negative number if it has none."""
    is_dense = tensor.layout == torch.strided and tensor.numel()
    return tensor.untyped_storage().data_ptr() if is_dense else -id(tensor)


def _signature(value: Any) -> Any:
    """Differs once a value was changed in place; the value itself must not be gone by then."""
    if isinstance(value, Tensor):
        return id(value), 0 if value.is_inference() else value._version
    if isinstance(value, dict):
        return id(value), tuple((key, _signature(each)) for key, each in value.items())
    if isinstance(value, CONTAINERS):
        return id(value), tuple(map(_signature, value))
    return value


def _copied(value: Any) -> Any:
    """A copy that shares nothing which can be changed, without the history of tensors."""
    if isinstance(value, Tensor):
        return value.detach().clone()
    if isinstance(value, dict):
        named = copy.copy(value)
        named.update((key, _copied(each)) for key, each in value.items())
        return named
    if isinstance(value, list | deque):
        items = copy.copy(value)
        items.clear()
        items.extend(map(_copied, value))
        return items
    if type(value) is tuple:
        return tuple(map(_copied, value))
    return copy.copy(value)


def _put_back(value: Any, first: Any) -> None:
    """Give a value that was changed in place the content it had at first."""
    if value is first:
        return
    if isinstance(value, Tensor):
        with suppress(RuntimeError):  # memory that cannot be written to was not
            value.copy_(first)
    elif isinstance(value, dict | set):
        value.clear()
        value.update(_copied(first))
    elif isinstance(value, list | deque):
        value.clear()
        value.extend(_copied(first))
