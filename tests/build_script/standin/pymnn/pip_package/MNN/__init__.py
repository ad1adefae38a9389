from _mnncengine import version  # noqa: F401

from . import expr, nn  # noqa: F401

try:
    from . import llm
except ImportError:
    llm = None
