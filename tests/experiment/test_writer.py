"""Work aside: one piece at a time, and no error is lost."""

from __future__ import annotations

import signal
from threading import Event, Timer, get_ident

import pytest

from sofa_fl.errors import RunError
from sofa_fl.experiment.storage.saving import Writer


def test_work_goes_on_aside_one_piece_at_a_time() -> None:
    writer, go, done = Writer(), Event(), []

    def first() -> None:
        go.wait(60)
        done.append(get_ident())

    writer.start(first)
    assert done == []
    go.set()
    writer.start(lambda: done.append(get_ident()))
    assert len(done) >= 1, "the first has ended before the second began"
    writer.wait()
    assert len(done) == 2
    assert get_ident() not in done
    writer.wait()  # once more does no harm


def test_an_error_comes_out_once_at_the_next_call() -> None:
    writer = Writer()

    def fail() -> None:
        raise OSError("no space")

    writer.start(fail)
    with pytest.raises(OSError, match="no space"):
        writer.start(lambda: None)
    writer.wait()
    writer.start(fail)
    with pytest.raises(OSError, match="no space"):
        writer.wait()
    writer.wait()


def test_what_comes_then_is_called_once_by_whoever_waits_and_not_after_an_error() -> None:
    writer, called = Writer(), list[int]()

    def fail() -> None:
        raise OSError("no space")

    writer.start(lambda: None, lambda: called.append(get_ident()))
    writer.wait()
    writer.wait()
    assert called == [get_ident()]
    writer.start(lambda: None, lambda: called.append(1))
    writer.start(fail, lambda: called.append(2))
    assert called[1:] == [1]
    with pytest.raises(OSError, match="no space"):
        writer.wait()
    writer.wait()
    assert called[1:] == [1]


def test_a_wait_that_is_interrupted_can_be_taken_up_again() -> None:
    """As after Ctrl-C: what is under way is waited for all the same."""
    writer, go, done = Writer(), Event(), list[int]()

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    def work() -> None:
        go.wait(60)
        done.append(1)

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        writer.start(work)
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        with pytest.raises(KeyboardInterrupt):
            writer.wait()
    finally:
        signal.signal(signal.SIGALRM, before)
    Timer(0.05, go.set).start()
    writer.wait()
    assert done == [1]


def test_what_is_put_off_is_done_once_and_before_what_comes_next() -> None:
    writer, done = Writer(), list[int]()
    writer.put_off(lambda: done.append(1))
    assert not done
    writer.catch_up()
    writer.catch_up()
    assert done == [1]
    writer.put_off(lambda: done.append(2))
    writer.put_off(lambda: done.append(3))
    assert done == [1, 2]
    writer.start(lambda: done.append(4))
    writer.wait()
    assert done == [1, 2, 3, 4]


def test_an_error_of_what_was_put_off_is_raised_by_who_waits() -> None:
    """It is done in a training, and a training must not fail for a full disk."""
    writer = Writer()

    def fail() -> None:
        raise RunError("the disk is full")

    writer.put_off(fail)
    writer.catch_up()
    with pytest.raises(RunError, match="the disk is full"):
        writer.wait()
    writer.wait()
