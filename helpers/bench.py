"""How long does it take, and which is faster? Measured so that a busy machine does not decide.

`measure(fn)` looks at one function and returns a `Timing`: percentiles of single calls. `race({name: fn})` compares
several: they take turns, round by round, so that whatever else the machine does hits all of them, and a difference is
only called one when its confidence interval says so. Both print themselves as a table; the pictures are in plots_bench.
"""

import gc
import time
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from .environment import describe, environment

EVEN = 0.02
"""Ratios closer to 1 than this are not called a difference: where code and data lie in memory makes as much."""


@dataclass(frozen=True, eq=False)
class Timing:
    """How long the calls of one function took.

    seconds: float64 [n], seconds per call; each is the mean of `calls` calls in a row (1 unless a call is too short for
    the clock). resolution: the clock's smallest step, in seconds.
    """

    name: str
    seconds: np.ndarray
    calls: int
    resolution: float

    def percentile(self, share):
        """The time that `share` percent of the samples stay below, in seconds (numpy's linear interpolation)."""
        return float(np.percentile(self.seconds, share))

    @property
    def n(self):
        return len(self.seconds)

    @property
    def min(self):
        return float(self.seconds.min())

    @property
    def p50(self):
        return self.percentile(50)

    @property
    def p90(self):
        return self.percentile(90)

    @property
    def p99(self):
        return self.percentile(99)

    @property
    def spread(self):
        """Width of the middle half of the samples, as a share of the median."""
        return (self.percentile(75) - self.percentile(25)) / self.p50

    def __str__(self):
        return table(TIMING_HEADER, [timing_row(self)])

    def record(self):
        """The figures as a dict for JSON, times in seconds."""
        figures = ("p50", "p90", "p99", "min", "spread", "n", "calls", "resolution")
        return {figure: getattr(self, figure) for figure in figures}


TIMING_HEADER = ("", "p50", "p90", "p99", "min", "spread", "samples")


def timing_row(timing):
    times = (with_unit(getattr(timing, figure)) for figure in ("p50", "p90", "p99", "min"))
    count = f"{timing.n:,}" + (f" × {timing.calls:,} calls" if timing.calls > 1 else "")
    return (timing.name, *times, f"{timing.spread:.0%}", count)


@dataclass(frozen=True)
class Ratio:
    """How many times as long one takes as the other: `value`, and the interval `low` to `high` around it."""

    value: float
    low: float
    high: float

    @property
    def verdict(self):
        """"slower", "faster", or "no difference seen" where the interval holds 1 or the difference is below EVEN."""
        if self.low <= 1 <= self.high or abs(self.value - 1) < EVEN:
            return "no difference seen"
        return "slower" if self.value > 1 else "faster"

    def __str__(self):
        return f"{self.value:.2f} ({self.low:.2f} to {self.high:.2f})"


@dataclass(frozen=True, eq=False)
class Race:
    """Functions that took turns. Prints itself as a table.

    names: the functions, the reference first. seconds: float64 [rounds, functions], seconds per call in each round (the
    median of the calls in its turn). threads: how many each computed with, as told to race(). environment: see
    environment.py. confidence: of the intervals.
    """

    names: tuple
    seconds: np.ndarray
    threads: int | None
    environment: dict
    resolution: float
    confidence: float = 0.95

    def timing(self, name):
        """The rounds of one function as a `Timing`."""
        return Timing(name, self.seconds[:, self.names.index(name)], 1, self.resolution)

    def ratio(self, name, to=None):
        """`Ratio` of a function's time to that of `to` (default: the reference).

        The value is the median of the rounds' ratios: the two of a round stood side by side in time, so a slow phase of
        the machine is in both and cancels. The interval is a bootstrap over the rounds.
        """
        other = self.names.index(to or self.names[0])
        ratios = self.seconds[:, self.names.index(name)] / self.seconds[:, other]
        return Ratio(float(np.median(ratios)), *bootstrap(ratios, confidence=self.confidence))

    def __str__(self):
        header = ("", "p50", "min", "spread", f"times {self.names[0]}", "verdict")
        rows = []
        for name in self.names:
            timing, ratio = self.timing(name), self.ratio(name)
            comparison = ("1", "") if name == self.names[0] else (str(ratio), ratio.verdict)
            rows.append(
                (name, with_unit(timing.p50), with_unit(timing.min), f"{timing.spread:.0%}", *comparison)
            )
        threads = "" if self.threads is None else f", {self.threads} thread{'s' * (self.threads > 1)}"
        return (
            f"{table(header, rows)}\n{len(self.seconds)} rounds{threads}, {self.confidence:.0%} intervals\n"
            f"{describe(self.environment)}"
        )

    def record(self):
        """The whole table as a dict for JSON, times in seconds, ratios to the reference."""
        rows = {}
        for name in self.names:
            ratio = self.ratio(name)
            rows[name] = self.timing(name).record() | {
                "ratio": ratio.value, "ratio_low": ratio.low, "ratio_high": ratio.high, "verdict": ratio.verdict,
            }  # fmt: skip
        return {"reference": self.names[0], "rounds": len(self.seconds), "threads": self.threads, "results": rows,
                "environment": self.environment}  # fmt: skip


def measure(fn, *, name="", warmup=10, repeats=100, min_time=0.2, clock=time.perf_counter):
    """Call `fn()` again and again and return its `Timing`.

    warmup: calls that are not counted (the first ones load code, fill caches, allocate). It goes on until there are
    `repeats` samples and `min_time` seconds have passed. A sample is one call, or as many in a row as the clock needs
    to tell them apart (100 of its steps). Python's garbage collector rests meanwhile.
    """
    for _ in range(warmup):
        fn()
    resolution = clock_step(clock)
    with _no_garbage_collection():
        shortest = min(_seconds(fn, 1, clock) for _ in range(5))
        calls = max(1, int(np.ceil(100 * resolution / max(shortest, resolution))))
        samples, end = [], clock() + min_time
        while len(samples) < repeats or clock() < end:
            samples.append(_seconds(fn, calls, clock))
    return Timing(name or getattr(fn, "__name__", "function"), np.array(samples), calls, resolution)


def race(candidates, *, warmup=10, rounds=60, turn=0.003, threads=None, seed=0, clock=time.perf_counter):
    """Let the functions {name: function without arguments} take turns and return a `Race`; the first is the reference.

    In each of the `rounds` every function has one turn, in an order that is drawn anew (from `seed`), of about `turn`
    seconds or at least one call. The first call of a turn is not counted where there are three or more: the caches are
    still full of the function before. threads: how many each of them computes with, kept with the result.
    """
    if len(candidates) < 2:
        raise ValueError(f"race() compares at least two functions; found {list(candidates)}.")
    names = list(candidates)
    for fn in candidates.values():
        for _ in range(warmup):
            fn()
    order, seconds = np.random.default_rng(seed), np.empty((rounds, len(names)))
    with _no_garbage_collection():
        for now in range(rounds):
            for index in order.permutation(len(names)):
                seconds[now, index] = _turn(candidates[names[index]], turn, clock)
    return Race(tuple(names), seconds, threads, environment(), clock_step(clock))


def _turn(fn, turn, clock):
    """Median seconds per call of the calls that begin within `turn` seconds."""
    samples, end = [], clock() + turn
    while not samples or clock() < end:
        samples.append(_seconds(fn, 1, clock))
    return np.median(samples[1:] if len(samples) > 2 else samples)


def _seconds(fn, calls, clock):
    start = clock()
    for _ in range(calls):
        fn()
    return (clock() - start) / calls


@contextmanager
def _no_garbage_collection():
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def clock_step(clock=time.perf_counter):
    """The smallest step between two readings of a clock, in seconds: below it the clock tells nothing.

    0.0 for a clock that stands still for 10,000 readings.
    """
    readings = np.array([clock() for _ in range(10_000)])
    steps = np.diff(readings)
    return float(steps[steps > 0].min()) if (steps > 0).any() else 0.0


def bootstrap(samples, *, statistic=np.median, confidence=0.95, resamples=2000, seed=0):
    """(low, high): the interval that a statistic of the samples stays in when they are drawn again.

    The percentile bootstrap (Efron 1979): draw as many samples as there are, with replacement, `resamples` times, and
    take the middle `confidence` of the statistics. statistic: a function of (array, axis=).
    """
    samples = np.asarray(samples, dtype=float)
    draws = np.random.default_rng(seed).integers(len(samples), size=(resamples, len(samples)))
    tail = 50 * (1 - confidence)
    low, high = np.percentile(statistic(samples[draws], axis=1), [tail, 100 - tail])
    return float(low), float(high)


def with_unit(seconds):
    """Seconds as text with a unit that suits: µs, ms or s."""
    if seconds < 1e-3:
        return f"{1e6 * seconds:.1f} µs"
    return f"{1e3 * seconds:.2f} ms" if seconds < 1 else f"{seconds:.2f} s"


def table(header, rows):
    """Texts in columns: the first to the left, the others to the right, a verdict (words, the last) to the left."""
    widths = [max(len(row[column]) for row in (header, *rows)) for column in range(len(header))]
    words = header[-1] == "verdict"

    def line(row):
        cells = [
            text.ljust(width) if column == 0 or (words and column == len(row) - 1) else text.rjust(width)
            for column, (text, width) in enumerate(zip(row, widths, strict=True))
        ]
        return "  ".join(cells).rstrip()

    return "\n".join(line(row) for row in (header, *rows))
