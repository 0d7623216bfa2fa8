"""Errors caused by a user's input; each message is one sentence that says what to do.

SofaError
├── ConfigError    a key or a value of the configuration
├── DataError      a dataset, a partition, a file of samples
├── ModelError     a network that does not fit the engine or the data
├── EngineError    an engine that cannot run here, or whose workers keep dying
├── RunError       a run folder that cannot be written, read or resumed
└── TopologyError  an edit or a constructor call that would break the tree
"""

import traceback


class SofaError(Exception):
    """Base of all errors that the command line shows as one sentence, without a traceback."""


class ConfigError(SofaError, ValueError):
    """A key or a value of the configuration is wrong."""


class DataError(SofaError, ValueError):
    """A dataset cannot be found, read or assigned to clients as requested."""


class ModelError(SofaError, ValueError):
    """A network does not fit the engine or the data."""


class EngineError(SofaError, RuntimeError):
    """An engine cannot run here, or its workers keep dying."""


class RunError(SofaError, RuntimeError):
    """A run folder cannot be written, read or resumed."""


class TopologyError(SofaError, ValueError):
    """An edit or a constructor call would break an invariant of the tree."""


def release(error: BaseException | None) -> None:
    """Release what the functions that an error ended still hold, when execution continues.

    Before torch 2.13 a checkpoint (`torch.utils`) in which something is raised hooks itself to
    all tensors that are saved later, for as long as its variables are there.
    """
    while error is not None:
        traceback.clear_frames(error.__traceback__)
        error = error.__cause__ or error.__context__


def printable(text: str) -> str:
    """`text` with every control character spelled out: names come from users and from files."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)
