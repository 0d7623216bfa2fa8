"""A step recorded as a CUDA graph, or why it could not be.

A recording that fails leaves traces in torch, by which later steps fail that have nothing to do
with it: they are removed here.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import torch

from sofa_fl.errors import release
from sofa_fl.models.networks import said_by

MOST = 160  # letters of what torch says


def record_graph(step: Callable[[], object]) -> torch.cuda.CUDAGraph | str:
    """The recorded step, or why there is none, as the end of a sentence.

    Only the lack of memory is raised: with fewer clients it may go well.
    """
    graph, stream = torch.cuda.CUDAGraph(), torch.cuda.current_stream()
    pool, device = torch.cuda.graph_pool_handle(), torch.cuda.current_device()
    generator = torch.cuda.default_generators[device]
    before = generator.graphsafe_get_state()
    # While it is recorded, torch's generator is marked so, and after a failure it remains.
    generator.graphsafe_set_state(generator.clone_state())
    try:
        # Of this thread alone: another may be copying the last models into a checkpoint.
        with torch.cuda.graph(graph, pool=pool, capture_error_mode="thread_local"):
            step()
    except Exception as error:
        first = error.__context__ if isinstance(error.__context__, Exception) else error
        torch.cuda.set_stream(stream)  # a recording that fails stays on its own
        generator.graphsafe_set_state(before)
        with suppress(RuntimeError):  # what it had ended itself
            torch._C._cuda_endAllocateToPool(device, pool)
            torch._C._cuda_releasePool(device, pool)
        torch.cuda.synchronize()
        if isinstance(first, torch.cuda.OutOfMemoryError):
            raise first from None
        why = _meaning(first)
        release(error)
        return why
    return graph


def _meaning(error: Exception) -> str:
    said = said_by(error)
    if "captur" in said:  # "operation not permitted when stream is capturing" and the like
        return "the network waits for the GPU in it"
    return f"torch says '{said[:MOST]}{'…' if len(said) > MOST else ''}'"
