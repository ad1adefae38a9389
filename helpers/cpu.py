"""What the processor offers, as the operating system tells it. Standard library only: `doctor` uses it too."""

import contextlib
import ctypes
import os
import platform
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

SPELLINGS = {
    "AVX2": ("avx2",),
    "FMA": ("fma",),
    "F16C": ("f16c",),
    "AVX-512": ("avx512f",),
    "AVX-512 VNNI": ("avx512_vnni", "avx512vnni"),
    "AVX VNNI": ("avx_vnni",),
    "AMX": ("amx_int8",),
    "NEON": ("asimd", "neon", "advsimd"),
    "fp16": ("asimdhp", "feat_fp16"),
    "dot product": ("asimddp", "feat_dotprod"),
    "i8mm": ("i8mm", "feat_i8mm"),
    "bf16": ("bf16", "feat_bf16"),
    "SVE2": ("sve2",),
    "SME2": ("sme2", "feat_sme2"),
}
"""What decides how fast a neural network can be: our name: as Linux or macOS spell it. x86 first, then ARM."""

WINDOWS = {"AVX2": 40, "AVX-512": 41, "NEON": 19, "dot product": 43}
"""Windows has numbers instead (PF_… in winnt.h), and none for most of the features."""


@dataclass(frozen=True)
class Cpu:
    """model: the maker's name; machine: the architecture, as in "x86_64"; features: {name: True, False or None}.

    The names are those of SPELLINGS; None where the system does not tell.
    """

    model: str
    machine: str
    features: dict


def describe():
    """The processor of this machine as a `Cpu`. Never fails: what can't be read is None."""
    model, flags = "", set()
    if sys.platform == "darwin":
        model, flags = _macos()
    elif sys.platform == "linux":
        with contextlib.suppress(OSError):  # a container may hide it
            model, flags = parse(Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace"))
    features = {name: any(word in flags for word in words) if flags else None for name, words in SPELLINGS.items()}
    if sys.platform == "win32":
        features.update({name: bool(_windows_has(number)) for name, number in WINDOWS.items()})
    return Cpu(model or platform.processor() or platform.machine(), platform.machine(), features)


def usable_cores():
    """Cores that this process may run on: fewer than the machine has under taskset or in some containers."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()


def parse(cpuinfo):
    """(model, set of flags in small letters) from the text of Linux's /proc/cpuinfo; ("", empty) when it tells none."""
    fields = {}
    for line in cpuinfo.splitlines():
        key, _, value = line.partition(":")
        fields.setdefault(key.strip(), value.strip())  # the first core stands for all
    model = fields.get("model name") or fields.get("Model") or fields.get("CPU part") or ""
    return model, set((fields.get("flags") or fields.get("Features") or "").lower().split())


def _macos():
    lines = [line for line in _sysctl("hw.optional").splitlines() if line.endswith(": 1")]
    flags = {line.split(":")[0].rsplit(".", 1)[-1] for line in lines}
    flags |= set(_sysctl("-n", "machdep.cpu.features", "machdep.cpu.leaf7_features").split())
    return _sysctl("-n", "machdep.cpu.brand_string"), {flag.lower() for flag in flags}


def _sysctl(*arguments):
    try:
        return subprocess.check_output(["sysctl", *arguments], stderr=subprocess.DEVNULL).decode().strip()
    except (OSError, subprocess.CalledProcessError):
        return ""


def _windows_has(number):
    return ctypes.windll.kernel32.IsProcessorFeaturePresent(number)
