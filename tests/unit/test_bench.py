"""Statistics against numpy and simulated machines whose truth is known; real engines only as ratios, with slack."""

import json

import numpy as np
import pytest
import torch
from matplotlib.figure import Figure

from helpers import bench, fresh, layers, plots_bench, roofline
from helpers.artifacts import require
from helpers.bench import Ratio, bootstrap, measure, race
from helpers.cli import bench as command
from helpers.contenders import BARE, MODULE, SESSION, TORCH, contenders, image_for_mobilenet, mobilenet_v2
from helpers.data import test_set as mnist
from helpers.model import MnistCNN, load_weights
from helpers.onnx_export import summary


class Machine:
    """A clock that only work moves on. `speed(now)` divides all durations; `step` is what the clock can tell apart."""

    def __init__(self, speed=lambda now: 1.0, step=0.0):
        self.now, self.speed, self.step, self.calls = 0.0, speed, step, 0

    def clock(self):
        return self.now // self.step * self.step if self.step else self.now

    def work(self, *durations):
        """A function that takes these durations in turn, in seconds."""
        count = iter(range(10**9))

        def function():
            self.calls += 1
            self.now += durations[next(count) % len(durations)] / self.speed(self.now)

        return function


def slowing_down(now):
    """Half as fast after one second, and so on: a CPU that gets hot."""
    return 1 / (1 + now)


# --- measure ------------------------------------------------------------------------------------------------


def test_percentiles_are_numpys_and_every_call_is_a_sample():
    durations = np.random.default_rng(0).exponential(0.01, 500)
    machine = Machine()
    timing = measure(machine.work(*durations), warmup=0, repeats=500, min_time=0, clock=machine.clock)
    assert timing.n == 500 and timing.calls == 1
    expected = np.percentile(np.roll(durations, -5), [50, 90, 99])  # five calls find out how long one takes
    np.testing.assert_allclose([timing.p50, timing.p90, timing.p99], expected, rtol=1e-9)
    assert timing.min == pytest.approx(durations.min())
    low, high = np.percentile(durations, [25, 75])
    assert timing.spread == pytest.approx((high - low) / np.median(durations))


def test_the_first_slow_calls_are_not_counted():
    machine = Machine()
    slow_start = machine.work(5.0, 1.0, *[0.001] * 1000)
    assert measure(slow_start, warmup=2, repeats=50, min_time=0, clock=machine.clock).percentile(100) < 0.0011


@pytest.mark.parametrize(("repeats", "min_time", "expected"), [(30, 0, 30), (5, 1.0, 100), (200, 1.0, 200)])
def test_it_goes_on_until_there_are_enough_samples_and_enough_time_has_passed(repeats, min_time, expected):
    machine = Machine()
    timing = measure(machine.work(0.01), repeats=repeats, min_time=min_time, clock=machine.clock)
    assert abs(timing.n - expected) <= 1


def test_calls_too_short_for_the_clock_are_timed_many_in_a_row():
    machine = Machine(step=1e-6)
    fast = machine.work(3e-7)

    def clock():
        machine.now += 1e-7  # reading it takes time, so that it moves at all
        return machine.clock()

    timing = measure(fast, repeats=50, min_time=0, clock=clock)
    assert timing.calls >= 100
    assert timing.p50 == pytest.approx(3e-7, rel=0.02)


def test_the_clocks_step_is_the_smallest_that_it_makes():
    readings = iter(np.repeat(np.arange(5000) * 0.25, 2))
    assert bench.clock_step(lambda: next(readings)) == 0.25
    assert bench.clock_step(lambda: 7.0) == 0.0


# --- race ---------------------------------------------------------------------------------------------------


def test_on_a_machine_that_slows_down_two_equals_are_even_where_one_after_the_other_says_otherwise():
    machine = Machine(slowing_down)
    a, b = machine.work(0.001), machine.work(0.001)
    one, two = (measure(f, warmup=0, repeats=500, min_time=0, clock=machine.clock) for f in (a, b))
    assert two.p50 / one.p50 > 1.5
    machine = Machine(slowing_down)
    result = race({"a": machine.work(0.001), "b": machine.work(0.001)}, turn=0.002, clock=machine.clock)
    assert result.ratio("b").verdict == "no difference seen"


@pytest.mark.parametrize("factor", [0.7, 1.1])
def test_a_true_difference_is_found_in_drift_and_noise(factor):
    noise = np.random.default_rng(1).lognormal(0, 0.2, 997) * 0.001
    noise[::50] *= 30  # something else had the core
    machine = Machine(slowing_down)
    candidates = {"a": machine.work(*noise), "b": machine.work(*(factor * noise[::-1]))}
    ratio = race(candidates, rounds=200, turn=0.008, clock=machine.clock).ratio("b")
    assert ratio.verdict == ("slower" if factor > 1 else "faster")
    assert ratio.low <= factor <= ratio.high and ratio.high / ratio.low < 1.1


def test_every_function_has_its_turn_in_every_round_in_changing_order():
    order = []
    machine = Machine()
    functions = {name: machine.work(0.01) for name in "abc"}
    noted = {name: lambda name=name: (order.append(name), functions[name]()) for name in functions}
    result = race(noted, warmup=0, rounds=40, turn=0.001, clock=machine.clock)
    rounds = [tuple(order[start : start + 3]) for start in range(0, 120, 3)]
    assert all(sorted(names) == list("abc") for names in rounds) and len(set(rounds)) > 3
    assert result.seconds.shape == (40, 3)


def test_the_ratio_is_that_to_the_reference_or_to_whom_one_asks():
    machine = Machine()
    result = race({"a": machine.work(0.01), "b": machine.work(0.02), "c": machine.work(0.08)}, clock=machine.clock)
    assert result.ratio("b").value == pytest.approx(2) and result.ratio("c", "b").value == pytest.approx(4)
    assert result.ratio("a").verdict == "no difference seen"


@pytest.mark.parametrize(
    ("ratio", "verdict"),
    [((1.3, 1.2, 1.4), "slower"), ((0.5, 0.4, 0.6), "faster"), ((1.3, 0.9, 1.5), "no difference seen"),
     ((1.01, 1.005, 1.015), "no difference seen"), ((0.985, 0.98, 0.99), "no difference seen")],
)  # fmt: skip
def test_a_difference_inside_the_noise_or_too_small_to_matter_is_none(ratio, verdict):
    assert Ratio(*ratio).verdict == verdict


def test_a_race_of_one_is_refused():
    with pytest.raises(ValueError, match="at least two functions.*alone"):
        race({"alone": lambda: None})


def test_a_race_prints_and_records_what_it_belongs_to():
    machine = Machine()
    result = race({"a": machine.work(0.01), "b": machine.work(0.02)}, threads=2, clock=machine.clock)
    text = str(result)
    assert "2.00 (2.00 to 2.00)  slower" in text and "60 rounds, 2 threads, 95% intervals" in text
    assert "MNN 3." in text and result.environment["cpu"] in text
    record = json.loads(json.dumps(result.record()))
    assert record["results"]["b"]["ratio"] == pytest.approx(2) and record["results"]["b"]["p50"] == pytest.approx(0.02)
    assert {"cpu", "features", "cores", "python", "torch", "MNN", "onnxruntime"} <= set(record["environment"])
    assert record["threads"] == 2 and record["reference"] == "a"


# --- bootstrap ----------------------------------------------------------------------------------------------


def test_the_bootstrap_interval_of_a_mean_is_about_that_of_theory():
    samples = np.random.default_rng(2).normal(10, 3, 400)
    low, high = bootstrap(samples, statistic=np.mean)
    half = 1.96 * samples.std(ddof=1) / 20
    np.testing.assert_allclose([low, high], [samples.mean() - half, samples.mean() + half], atol=0.15 * half)


def test_the_interval_of_a_median_holds_the_truth_about_as_often_as_it_says():
    rng = np.random.default_rng(3)
    held = 0
    for _ in range(200):
        low, high = bootstrap(rng.exponential(size=60), resamples=400)
        held += low <= np.log(2) <= high
    assert 0.9 <= held / 200 <= 0.99


def test_the_interval_shrinks_with_more_samples_and_grows_with_confidence():
    samples = np.random.default_rng(4).normal(size=4000)

    def width(interval):
        return interval[1] - interval[0]

    assert width(bootstrap(samples)) < 0.2 * width(bootstrap(samples[:60]))
    assert width(bootstrap(samples, confidence=0.99)) > 1.15 * width(bootstrap(samples))
    assert bootstrap(samples) == bootstrap(samples)  # seeded


# --- real engines -------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def engines(course):
    images, _ = mnist()
    return contenders(
        course / "mnist_cnn.mnn", course / "mnist_cnn.onnx", load_weights(course / "mnist_cnn.pt"), images[:1]
    )


def test_the_helpers_calls_cost_little_more_than_the_bare_engine(engines):
    result = race({name: engines[name] for name in (BARE, SESSION, MODULE)}, rounds=150, threads=1)
    for name in (SESSION, MODULE):
        assert result.ratio(name).value < 1.35  # 1.15 is promised; the rest is for a busy machine


def test_pytorch_is_slower_than_mnn_on_one_small_image(engines):
    assert race({name: engines[name] for name in (MODULE, TORCH)}, threads=1).ratio(TORCH).value > 1.5


def test_an_engine_with_another_answer_is_not_raced(course):
    torch.manual_seed(3)
    stranger = MnistCNN().eval()
    with pytest.raises(RuntimeError, match="MnnSession does not answer as PyTorch does"):
        contenders(course / "mnist_cnn.mnn", course / "mnist_cnn.onnx", stranger, mnist()[0][:1])


def test_mobilenet_is_the_same_every_time_and_its_answers_are_no_zeros():
    x = torch.from_numpy(image_for_mobilenet())
    torch.manual_seed(99)
    expected = torch.rand(1)
    torch.manual_seed(99)
    with torch.inference_mode():
        first, second = mobilenet_v2()(x), mobilenet_v2()(x)
    assert torch.equal(first, second) and 0.01 < first.std() < 10
    assert torch.rand(1) == expected  # the caller's random numbers go on as if nothing had been


def test_the_command_prints_the_tables_and_writes_them_as_json(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("helpers.paths.ARTIFACTS", tmp_path)
    machine = {"a": lambda: sum(range(100)), "b": lambda: sum(range(3000))}
    monkeypatch.setattr(command, "entries", lambda: [("Two sums", machine, 20)])
    assert command.main(None, None) == 0
    out = capsys.readouterr().out
    assert "Two sums" in out and "slower" in out
    written = json.loads((tmp_path / "bench.json").read_text(encoding="utf-8"))
    assert written["Two sums"]["results"]["b"]["ratio"] > 3


# --- layers and roofline ------------------------------------------------------------------------------------


def test_the_layers_of_both_engines_are_paired_with_the_graphs(course):
    x = mnist()[0][:16]
    steps = {
        "MNN": layers.mnn_steps(course / "mnist_cnn.mnn", x),
        "ORT": layers.ort_steps(course / "mnist_cnn.onnx", x),
    }
    rows = layers.side_by_side(summary(course / "mnist_cnn.onnx"), steps)
    assert list(rows)[:6] == ["Conv 1", "MaxPool 1", "Conv 2", "MaxPool 2", "Gemm 1", "Gemm 2"]
    assert all(row[engine] > 0 for row in list(rows.values())[:6] for engine in steps)
    for engine, each in steps.items():
        assert sum(row[engine] for row in rows.values()) == pytest.approx(sum(step.seconds for step in each))
    assert rows["Conv 2"]["ORT"] > rows["Gemm 2"]["ORT"] and rows["Conv 2"]["MNN"] > rows["Gemm 2"]["MNN"]


def test_layers_that_do_not_pair_are_refused(course):
    steps = [layers.Step("Convolution", "a", 1.0)]
    with pytest.raises(ValueError, match="MNN ran 1 steps of the kind 'layer', the graph has 4: Convolution a"):
        layers.side_by_side(summary(course / "mnist_cnn.onnx"), {"MNN": steps})


def test_a_layers_work_is_that_computed_by_hand(course):
    conv = roofline.work(summary(course / "mnist_cnn.onnx"), batch=3)[1]
    assert (conv.name, conv.op) == ("Conv 2", "Conv")
    assert conv.flops == 2 * 3 * 14 * 14 * 32 * 16 * 9
    assert conv.bytes == 4 * (3 * 16 * 14 * 14 + 3 * 32 * 14 * 14 + 32 * 16 * 9 + 32)
    assert conv.intensity == conv.flops / conv.bytes


def test_the_roof_is_the_lower_of_the_two_limits():
    limits = roofline.Limits(flops=100e9, memory=10e9, cache=50e9)
    assert [limits.attainable(i, "memory") for i in (1, 10, 100)] == [10e9, 100e9, 100e9]
    work = roofline.Work("x", "Gemm", flops=10**9, bytes=10**9)
    assert limits.seconds(work, "memory") == pytest.approx(0.1) and limits.seconds(work) == pytest.approx(0.02)
    assert "100 GFLOP/s" in str(limits)


def test_the_limits_are_measured_on_one_thread_and_pytorchs_number_is_put_back():
    torch.set_num_threads(2)
    limits = roofline.limits(seconds=0.2)
    assert torch.get_num_threads() == 2
    assert 1e9 < limits.flops < 1e12 and 1e8 < limits.memory < 1e12
    assert limits.cache > 0.5 * limits.memory


# --- fresh processes ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("engine", "kind"), [("MNN", "mnn"), ("ONNX Runtime", "onnx")])
@pytest.mark.parametrize("threads", [1, 3])
def test_the_threads_that_work_are_counted(course, engine, kind, threads):
    x = mnist()[0][:8]
    counted, times = fresh.sweep(engine, course / f"mnist_cnn.{kind}", [x[:1], x], threads, seconds=0.05)
    assert counted == threads and len(times) == 2 and all(time > 0 for time in times)


def test_a_process_of_its_own_says_what_starting_costs(course):
    found = {
        engine: fresh.start_up(engine, course / f"mnist_cnn.{kind}", mnist()[0][:1])
        for engine, kind in zip(fresh.ENGINES, ("mnn", "onnx", "pt"), strict=True)
    }
    for report in found.values():
        assert min(report.python, report.imports, report.load, report.first, report.steady) > 0
        assert report.first > report.steady and report.until_answer > report.load
    assert found["PyTorch"].peak > 2 * found["MNN"].peak > 2 * 10e6


def test_a_distribution_comes_from_a_process_of_its_own(course):
    timing = fresh.timing("MNN", course / "mnist_cnn.mnn", mnist()[0][:2], 2, seconds=0.05)
    assert timing.name == "MNN, 2 threads, batch 2" and timing.n >= 30 and timing.p50 > 0


def test_memory_grows_with_the_batch(course):
    peaks = fresh.memory_by_batch("MNN", course / "mnist_cnn.mnn", mnist()[0][:1], [1, 256])
    assert peaks[1] - peaks[0] > 256 * 28 * 28 * 4


# --- pictures -----------------------------------------------------------------------------------------------


def labels(fig):
    axes = fig.axes[0]
    return [text.get_text() for text in (*axes.get_yticklabels(), *axes.texts)] + axes.get_legend_handles_labels()[1]


def test_pictures_name_what_they_show():
    machine = Machine()
    a, b, c = machine.work(1e-5), machine.work(1e-5), machine.work(3e-5)
    result = race({"a": a, "b": b, "c": c}, clock=machine.clock)
    drawn = plots_bench.race(result)
    assert {"a", "b", "c"} <= set(labels(drawn)) and any("no difference seen" in text for text in labels(drawn))
    timing = measure(machine.work(*np.linspace(1e-5, 2e-5, 99)), name="the name", clock=machine.clock)
    fig = plots_bench.distribution([timing, timing])
    assert "the name" in fig.axes[0].get_title(loc="left") and any("p99" in text for text in labels(fig))
    assert "b" in labels(plots_bench.rounds(result))
    fig = plots_bench.layers({"Conv 1": {"MNN": 1e-3, "ORT": 2e-3}, "memory order": {"MNN": 1e-4, "ORT": 0.0}})
    assert {"Conv 1", "memory order", "MNN", "ORT", "2,000"} <= set(labels(fig))
    assert "ideal" in labels(plots_bench.scaling([1, 2, 4], {"MNN": [1, 2, 3]}, "t", "x", "y", ideal=[1, 2, 4]))
    report = fresh.StartUp(0.1, 0.2, 0.3, 0.4, 0.001, 10**7)
    assert "1.00 s" in labels(plots_bench.start_up({"MNN": report}))
    work = roofline.Work("Conv 1", "Conv", 10**6, 10**5)
    fig = plots_bench.roofline(roofline.Limits(1e11, 1e10, 5e10), [("MNN", work, 1e-4)])
    assert isinstance(fig, Figure) and {"Conv 1", "MNN", "limit, data in memory"} <= set(labels(fig))


def test_a_recipe_makes_mobilenet_from_torchvision(tmp_path, monkeypatch, capsys):
    tiny = torch.nn.Sequential(torch.nn.Conv2d(3, 2, 3), torch.nn.Flatten(), torch.nn.Linear(2 * 222 * 222, 4)).eval()
    monkeypatch.setattr("helpers.contenders.mobilenet_v2", lambda: tiny)
    path = require("mobilenet_v2.onnx", tmp_path)
    assert "made from torchvision's MobileNetV2, seeded random weights" in capsys.readouterr().out
    assert summary(path).inputs == {"input": (1, 3, 224, 224)}
