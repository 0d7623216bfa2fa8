"""Messages as one line."""

from __future__ import annotations

import traceback

from sofa_fl.cli.screen import sentence


def test_a_message_is_one_line() -> None:
    assert sentence("too large:\n  3 > 2\n\n") == "too large: 3 > 2"


def test_of_a_traceback_the_exception_is_named() -> None:
    try:
        try:
            raise KeyError("first")
        except KeyError as error:
            raise RuntimeError("CUDA error: out of luck\nPass THIS to debug.\nOr THAT.") from error
    except RuntimeError:
        text = traceback.format_exc()
    assert sentence(f"S1, seed 3: \n{text}") == "S1, seed 3: RuntimeError: CUDA error: out of luck"
    assert sentence(text) == "RuntimeError: CUDA error: out of luck"
