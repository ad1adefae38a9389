"""The exercises of notebook 07: benchmarks are judged on simulated machines whose truth is known."""

import inspect
import math
import time
from unittest import mock

import numpy as np

from ..checks import Correct, exercise
from ..onnx_export import summary
from ..paths import ARTIFACTS
from ..roofline import Limits, work

FLAWS = {"A": 2, "B": 4, "C": 5}
WHERE = {
    "A": "A: which line inside the loop would a program run only once?",
    "B": "B: each engine has 10,000 calls, a warm-up and the median. But when does each of them run?",
    "C": "C: the second line of its output is far too low. What does one call answer?",
}


@exercise("07.1", hint="Ask of each: what lies between the two readings of the clock, and what is it divided by?")
def flaws_of_three_benchmarks(answer):
    if set(answer) != set(FLAWS):
        return f"Give a dict with the keys A, B and C; yours has {sorted(map(str, answer))}."
    answer = {letter: int(flaw) for letter, flaw in answer.items()}
    wrong = [letter for letter, flaw in FLAWS.items() if answer[letter] != flaw]
    if not wrong:
        return Correct("loading in the loop, one after the other, and calls that stand for 64 images each.")
    if answer[wrong[0]] == 6 and wrong[0] == "A":
        return "A lacks a warm-up too, but one slow call in 1,000 hardly counts. Something slow happens every time."
    if answer[wrong[0]] == 3 and wrong[0] == "B":
        return "B takes the median, which a few slow calls don't move. A slow minute does."
    return WHERE[wrong[0]]


@exercise("07.2", hint="What share of the calls lies above p99.9?")
def calls_for_a_percentile(answer):
    answer = float(answer)
    if answer == 10_000:
        return Correct("one call in 1,000 lies above p99.9, and you want ten of them.")
    if answer == 1000:
        return "In 1,000 calls exactly one lies above p99.9: it would rest on that one."
    if answer == 999 or answer == 99.9:
        return "That is the percentile itself. Which share lies above it?"
    if answer == 100:
        return "Of 100 calls none lies above p99.9: it would be the maximum, give or take interpolation."
    return f"Of {answer:,.0f} calls about {answer / 1000:g} lie above p99.9."


@exercise("07.3", hint="The throughput of a batch of b is b / (40 + 20 b) images per µs; try 1, 2, 4, …")
def batch_that_keeps_up(answer):
    size = float(answer)
    rate = 1e6 * size / (40 + 20 * size)
    if size == 32:
        return Correct("47,059 images per second; and more than 50,000 no batch will ever reach.")
    if size == 16:
        return f"A batch of 16 makes {rate:,.0f} per second: nearly enough means an ever longer queue."
    if size > 32:
        return f"It keeps up, with {rate:,.0f} per second, but a smaller one does too, and answers sooner."
    if size < 1 or not math.log2(size).is_integer():
        return "A batch is a power of two here: 1, 2, 4, …"
    return f"A batch of {size:g} makes {rate:,.0f} images per second."


@exercise("07.4", hint="For each layer the larger of flops / 100e9 and bytes / 20e9; then the sum over the layers.")
def least_time(answer):
    given = float(answer)
    layers = work(summary(ARTIFACTS / "mnist_cnn.onnx"), 1)
    limits = Limits(100e9, 20e9, 20e9)
    right = 1e6 * sum(map(limits.seconds, layers))
    arithmetic, traffic = (1e6 * sum(each) for each in zip(
        *((layer.flops / 100e9, layer.bytes / 20e9) for layer in layers), strict=True))  # fmt: skip

    def near(other):
        return math.isclose(given, other, rel_tol=0.02)

    if near(right):
        return Correct("most of it is Gemm 1's weights, which one image reads for a single use of each.")
    if near(right / 1e6) or near(right / 1e3):
        return "The number is right, its unit is not: the answer is asked for in µs."
    if near(arithmetic):
        return "That is the arithmetic alone. A layer also has to move its bytes, and takes the longer of the two."
    if near(traffic):
        return "That is the traffic alone. A convolution does many operations on each byte; the longer time counts."
    if near(arithmetic + traffic):
        return "A core computes while it waits for memory: the longer of the two counts, not their sum."
    if near(max(arithmetic, traffic)):
        return "You compared the sums. The layers run one after the other, and each has its own limit."
    if near(1e6 * sum(max(layer.flops / 2 / 100e9, layer.bytes / 20e9) for layer in layers)):
        return "A multiply-accumulate is two operations, a multiplication and an addition."
    return f"{given:g} µs is {'less than possible' if given < right else 'more than the least'} by the roofline model."


@exercise("07.5", hint="Call a and b in turn, many times, and combine the ratios of neighbours by their median.")
def fair_comparison(answer):
    if not callable(answer):
        return "Give the function itself: answer = fair."
    try:
        inspect.signature(answer).bind(None, None)
    except TypeError:
        return "fair() is called with two functions, a and b, and nothing else."
    for factor, drift, stall, complaint in (
        (1.0, 0, 0, "On an undisturbed machine it says {found:.2f} for two equal functions."),
        (2.0, 0, 0, "Undisturbed, b takes twice as long as a; it says {found:.2f}."),
        (0.5, 0, 0, "Undisturbed, b takes half as long as a; it says {found:.2f}."),
        (1.0, 1, 0, "On a machine that slows down it says {found:.2f} for two equal functions. Do they take turns?"),
        (1.5, 0, 1, "On a machine that freezes now and then it says {found:.2f} instead of 1.50. What do a few very "
                    "slow calls do to a mean, or to a single call?"),
        (1.5, 1, 1, "With drift and stalls together it says {found:.2f} instead of 1.50."),
    ):  # fmt: skip
        for seed in range(3):  # one machine can be lucky
            machine = _Machine(drift, stall, seed)
            with (mock.patch.object(time, "perf_counter", machine.clock),
                  mock.patch.object(time, "perf_counter_ns", lambda machine=machine: round(1e9 * machine.clock()))):
                found = float(answer(machine.work(0.001, "a"), machine.work(0.001 * factor, "b")))
            if min(machine.calls.values()) == 0:
                return "It never called both functions."
            if machine.readings == 0:
                return "It never read `time.perf_counter()` by this full name; only that clock is simulated."
            if min(machine.calls.values()) < 30:
                return f"It rests on a handful of calls ({machine.calls['a']} of a, {machine.calls['b']} of b)."
            if math.isclose(found, 1 / factor, rel_tol=0.05) and factor != 1:
                return "It says how many times as long a takes as b: the other way round."
            if not math.isclose(found, factor, rel_tol=0.05):
                return complaint.format(found=found)
    return Correct("turns cancel the drift, the median ignores the stalls.")


class _Machine:
    """Its clock moves with work, which takes 20 % more or less each time.

    drift 1: every call makes all later ones slower. stall 1: one call in 15 takes 200 times as much.
    """

    def __init__(self, drift, stall, seed):
        self.now, self.drift, self.stall = 0.0, drift, stall
        self.calls, self.readings = {"a": 0, "b": 0}, 0
        self.dice = np.random.default_rng(seed)

    def clock(self):
        self.readings += 1
        return self.now

    def work(self, seconds, name):
        def function():
            self.calls[name] += 1
            count = sum(self.calls.values())
            if count > 1_000_000:
                raise RuntimeError("a million calls are enough")
            frozen = self.stall and self.dice.random() < 1 / 15
            noise = self.dice.uniform(0.8, 1.2)
            self.now += seconds * noise * (1 + self.drift * count / 500) * (200 if frozen else 1)

        return function
