"""The course's small package: what the notebooks import, and `python3 -m helpers` (see `__main__.py`)."""

import os

# Nothing calls home. These libraries look here once, while they are imported, so it has to be done before.
os.environ.update({
    "ORT_DISABLE_TELEMETRY": "1",  # ONNX Runtime (1.29 and later) reports its use to its maker
    "HF_HUB_OFFLINE": "1",  # Hugging Face's libraries ask no hub, whatever they are given
    "TRANSFORMERS_OFFLINE": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "DO_NOT_TRACK": "1",
})  # fmt: skip


def __getattr__(name):
    """`helpers.diagnose`, loaded when somebody asks for it: importing the package itself stays cheap."""
    if name != "diagnose":
        raise AttributeError(f"module 'helpers' has no attribute {name!r}")
    from .diagnosis import diagnose

    return diagnose
