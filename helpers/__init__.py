"""The course's small package: what the notebooks import, and `python3 -m helpers` (see `__main__.py`)."""

import os

# ONNX Runtime (1.29 and later) reports its use to its maker unless told not to before it is loaded.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
