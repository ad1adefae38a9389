"""How far from the machine's limit: work and traffic of each layer, and what one core can do of either.

The roofline model (Williams, Waterman, Patterson 2009, doi:10.1145/1498765.1498785): a layer that does F operations on
B bytes cannot take less than F / (the core's operations a second), nor less than B / (its bytes a second).
"""

import math
import time
from dataclasses import dataclass

from .layers import layer_names


@dataclass(frozen=True)
class Work:
    """What a layer has to do for one batch: flops (2 for each multiply-accumulate), bytes it must at least move.

    The bytes are those of input, output and weights, each read or written once, as float32.
    """

    name: str
    op: str
    flops: int
    bytes: int

    @property
    def intensity(self):
        """Operations for each byte moved."""
        return self.flops / self.bytes


@dataclass(frozen=True)
class Limits:
    """What one core reached: flops a second in a product of matrices, bytes a second in memory and in its caches."""

    flops: float
    memory: float
    cache: float

    def seconds(self, work, where="cache"):
        """The least time that `work` can take, its data lying in the "cache" or in the "memory"."""
        return max(work.flops / self.flops, work.bytes / getattr(self, where))

    def attainable(self, intensity, where="cache"):
        """The flops a second that the roof allows at this intensity."""
        return min(self.flops, intensity * getattr(self, where))

    def __str__(self):
        ridge = self.flops / self.cache
        return (
            f"{self.flops / 1e9:.0f} GFLOP/s; {self.memory / 1e9:.0f} GB/s from memory, {self.cache / 1e9:.0f} GB/s "
            f"from cache; below {ridge:.1f} operations a byte the cache is the limit"
        )


def work(summary, batch):
    """`Work` of every layer with weights of an OnnxSummary, by its short name, for a batch of that size."""
    names = layer_names(summary)
    return [
        Work(
            names[node.name], node.op, 2 * node.macs * batch,
            4 * (_elements(node.input_shape, batch) + _elements(node.output_shape, batch) + node.parameters),
        )
        for node in summary.nodes if node.macs
    ]  # fmt: skip


def _elements(shape, batch):
    """Elements of a tensor whose first axis is the batch, whatever the graph says there."""
    return batch * math.prod(shape[1:])


def limits(seconds=1.0):
    """Measure `Limits` with PyTorch on one thread: the best of many tries, for about `seconds` in all.

    Products of 512 × 512 and 1024 × 1024 matrices; the sum of two arrays into a third, 3 bytes moved for each of its
    own (as STREAM counts), 192 MiB in all for the memory and 768 KiB for the caches.
    """
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with torch.inference_mode():
            flops = max(2 * side**3 / _best(_product(side), seconds / 4) for side in (512, 1024))
            memory, cache = (12 * count / _best(_sum(count), seconds / 4) for count in (2**24, 2**16))
    finally:
        torch.set_num_threads(threads)
    return Limits(flops, memory, cache)


def _product(side):
    import torch

    a, b, out = (torch.rand(side, side) for _ in range(3))
    return lambda: torch.mm(a, b, out=out)


def _sum(count):
    import torch

    a, b, out = (torch.rand(count) for _ in range(3))
    return lambda: torch.add(a, b, out=out)


def _best(fn, seconds, clock=time.perf_counter):
    """The shortest of at least 5 calls within `seconds`: a limit is what the machine can do undisturbed."""
    fn()
    times, end = [], clock() + seconds
    while len(times) < 5 or clock() < end:
        start = clock()
        fn()
        times.append(clock() - start)
    return min(times)
