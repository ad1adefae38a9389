"""What the processor offers: read from each system's own words."""

import subprocess
import sys
from pathlib import Path

import pytest

from helpers import cpu

PC = """processor\t: 0
model name\t: Some Xeon
flags\t\t: fpu sse4_2 avx avx2 fma f16c avx512f avx512_vnni

processor\t: 1
model name\t: Another
flags\t\t: fpu
"""
BOARD = """processor\t: 0
BogoMIPS\t: 48.00
Features\t: fp asimd fphp asimdhp asimddp i8mm
CPU part\t: 0xd0b
"""


def test_cpuinfo_of_a_pc():
    model, flags = cpu.parse(PC)
    assert model == "Some Xeon"  # the first core's
    assert {"avx2", "avx512_vnni"} <= flags and "asimd" not in flags


def test_cpuinfo_of_an_arm_board():
    model, flags = cpu.parse(BOARD)
    assert model == "0xd0b"
    assert {"asimd", "asimddp", "i8mm"} <= flags and "avx2" not in flags


@pytest.mark.parametrize("text", ["", "no colon here\n", "processor : 0\n"])
def test_cpuinfo_that_tells_nothing(text):
    assert cpu.parse(text) == ("", set())


@pytest.mark.skipif(not Path("/proc/cpuinfo").exists(), reason="Linux only")
def test_this_machine_has_what_its_own_cpuinfo_lists():
    words = set(Path("/proc/cpuinfo").read_text().lower().split())
    here = cpu.describe()
    assert here.features == {name: bool(words & set(spellings)) for name, spellings in cpu.SPELLINGS.items()}
    assert here.model and here.machine


def test_a_mac_is_asked_through_sysctl(monkeypatch):
    words = {
        ("hw.optional",): "hw.optional.neon: 1\nhw.optional.arm.FEAT_DotProd: 1\nhw.optional.arm.FEAT_SME2: 0",
        ("-n", "machdep.cpu.brand_string"): "Apple M2",
    }
    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.setattr(cpu, "_sysctl", lambda *arguments: words.get(arguments, ""))
    here = cpu.describe()
    assert here.model == "Apple M2"
    assert here.features["NEON"] and here.features["dot product"]
    assert here.features["SME2"] is False and here.features["AVX2"] is False


def test_an_intel_mac_spells_its_features_in_capitals(monkeypatch):
    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.setattr(cpu, "_sysctl", lambda *arguments: "FMA F16C\nAVX2 AVX512F" if len(arguments) > 2 else "")
    features = cpu.describe().features
    assert features["AVX2"] and features["AVX-512"] and features["FMA"]
    assert features["NEON"] is False


def test_windows_tells_some_features_and_leaves_the_others_open(monkeypatch):
    monkeypatch.setattr(sys, "platform", "win32")
    monkeypatch.setattr(cpu, "_windows_has", lambda number: number == 40)
    features = cpu.describe().features
    assert features["AVX2"] is True and features["AVX-512"] is False
    assert features["AVX-512 VNNI"] is None


@pytest.mark.parametrize("platform", ["darwin", "linux", "freebsd13"])
def test_a_system_that_does_not_tell_is_no_error(monkeypatch, platform):
    monkeypatch.setattr(sys, "platform", platform)
    monkeypatch.setattr(subprocess, "check_output", lambda *_, **__: (_ for _ in ()).throw(FileNotFoundError("sysctl")))
    monkeypatch.setattr(Path, "read_text", lambda *_, **__: (_ for _ in ()).throw(PermissionError("hidden")))
    assert set(cpu.describe().features.values()) == {None}
