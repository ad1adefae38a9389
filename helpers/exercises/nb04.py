"""Exercises of notebook 04: wheel or source, what strip leaves, a repaired CMake call, ignored options, imports."""

import posixpath
import re
import shlex
import struct
from importlib.metadata import distribution
from pathlib import Path

from helpers import native
from helpers.checks import Correct, exercise

_WISHES = (  # what is right, and the hint for the other one
    ("wheel", "The first wish needs no build: the wheel's _tools converts ONNX."),
    ("source", "The second wish: a C++ app needs headers to compile and a library to link; the wheel has neither."),
    ("wheel", "The third wish needs no build: mnnquant is in the wheel's _tools, whatever an article's options say."),
    ("source", "The fourth wish: without an OpenCL back end the wheel takes the CPU, and says so in one line only."),
    ("wheel", "The fifth wish needs no build: MNN.llm is in the wheel."),
    ("source", "The sixth wish: -f TORCH is refused by the wheel; it takes MNN_BUILD_TORCH."),
)


@exercise("04.1", hint='six words, each "wheel" or "source"; the picture "Who has what" decides them all.')
def wheel_or_source(answer):
    words = [str(word).strip().lower() for word in answer] if not isinstance(answer, str) else answer.lower().split()
    if len(words) != len(_WISHES) or set(words) - {"wheel", "source"}:
        return f'Six words are expected, each "wheel" or "source"; found {words!r}.'
    if set(words) == {"source"}:
        return "That is the article's belief, MNN must be compiled. Three of the six work with what pip installed."
    if set(words) == {"wheel"}:
        return "pip's package has neither C++ headers nor a graphics back end nor the TorchScript front end."
    for word, (right, hint) in zip(words, _WISHES, strict=True):
        if word != right:
            return hint
    return Correct("Python on a PC is the wheel's business; what is linked, or was switched off, needs a build.")


def _engine():
    """(bytes of the engine's library, bytes that are loaded, of these the code)."""
    file = next(file for file in distribution("MNN").files if file.name.startswith("_mnncengine."))
    data = Path(file.locate()).read_bytes()
    if data[:6] != b"\x7fELF\x02\x01":
        return len(data), len(data), len(data)
    (table,) = struct.unpack_from("<Q", data, 0x28)
    length, count = struct.unpack_from("<HH", data, 0x3A)
    loaded = code = 0
    for row in range(count):
        _, kind, flags, _, _, size = struct.unpack_from("<IIQQQQ", data, table + row * length)
        if flags & 2 and kind != 8:  # loaded, and present in the file
            loaded += size
            code += size * bool(flags & 4)  # may be executed
    return len(data), loaded, code


@exercise("04.2", hint="strip keeps what is loaded: code, and constants and tables.")
def the_stripped_engine(answer):
    answer = float(answer)
    whole, loaded, code = _engine()
    if abs(answer - loaded) <= 0.04 * loaded:
        return Correct(f"About {loaded / whole:.0%} of the file is ever loaded; the rest is for debuggers.")
    if abs(answer * 1e6 - loaded) <= 0.04 * loaded or abs(answer * 2**20 - loaded) <= 0.04 * loaded:
        return "That is the number of megabytes; bytes are asked for."
    if abs(answer - code) <= 0.04 * code:
        return "That is the code alone. The constants and tables it works with are loaded too."
    if abs(answer - (whole - loaded)) <= 0.08 * whole:
        return "That is what strip takes away; the question is what it leaves."
    return f"It leaves {'less' if answer > loaded else 'more'} than that."


_KNOWN = {"MNN_BUILD_CONVERTER", "MNN_BUILD_QUANTOOLS", "MNN_BUILD_SHARED_LIBS"}


@exercise("04.3", hint="one option has another name, and CMake has to be told where the source is (-S).")
def the_repaired_command(answer):
    if not isinstance(answer, str):
        return f"The command is expected as one text; found {type(answer).__name__}."
    words = shlex.split(answer.replace("\\\n", " "))
    if not words or words[0] != "cmake":
        return "It should begin with the word cmake."
    options, folders, sources = {}, [], []
    rest = iter(words[1:])
    for word in rest:
        if word[:2] in ("-S", "-B"):
            (sources if word[1] == "S" else folders).append(posixpath.normpath(word[2:] or next(rest, ".")))
        elif word.startswith("-D"):
            name, _, value = (word[2:] or next(rest, "")).partition("=")
            options[name.split(":")[0]] = value.upper()
        else:
            sources.append(posixpath.normpath(word))
    if "MNN_BUILD_QUANTIZER" in options:
        return "MNN_BUILD_QUANTIZER is still there: CMake does not know it, and builds no quantized.out."
    if options.get("MNN_BUILD_QUANTOOLS") not in ("ON", "1", "YES", "TRUE"):
        return "The quantizer is not switched on: which option makes quantized.out?"
    if options.get("MNN_BUILD_CONVERTER") not in ("ON", "1", "YES", "TRUE"):
        return "The converter got lost on the way."
    if options.get("MNN_BUILD_SHARED_LIBS") not in ("OFF", "0", "NO", "FALSE"):
        return "The same build is asked for, a static one: MNN_BUILD_SHARED_LIBS=OFF is missing."
    if unknown := set(options) - _KNOWN:
        return f"The article's build did not have {', '.join(sorted(unknown))}; leave it as it was otherwise."
    if "." in sources or not sources:
        return "The source is looked for in the folder beside the clone: there is no CMakeLists.txt in it."
    if sources != ["MNN"]:
        return f"The source is the folder MNN, you gave {sources}."
    if folders != ["MNN/pymnn_build"]:
        return f"MNN's setup.py looks for the libraries in MNN/pymnn_build; you gave {folders}."
    return Correct("Both places by name, and options that exist: CMake has nothing to warn of, quantized.out is built.")


_QUIET = "-- The C compiler identification is GNU 12.2.0\n-- MNN_BUILD_MINI: OFF\n-- Configuring done\n"
_END = "-- Generating done\n-- Build files have been written to: MNN_build\n"


def _cmake_said(*names):
    lines = "".join(f"    {name}\n" for name in names)
    return f"{_QUIET}CMake Warning:\n  Manually-specified variables were not used by the project:\n\n{lines}\n\n{_END}"


_LOGS = (  # log, what is right, the hint when it isn't found
    (_cmake_said("MNN_BUILD_QUANTIZER"), {"MNN_BUILD_QUANTIZER"},
     "The option that stands below the warning is all that counts; other lines name options and folders too."),
    (_cmake_said("MNN_BUILD_QUANTIZER", "MNN_FASTER"), {"MNN_BUILD_QUANTIZER", "MNN_FASTER"},
     "With two unknown options in the warning it does not return both."),
    (_QUIET + _END, set(), "A log without the warning: an empty list is expected."),
    (_cmake_said("CMAKE_BUILD_TIPE"), {"CMAKE_BUILD_TIPE"}, "An unknown option need not begin with MNN_."),
)  # fmt: skip


@exercise("04.4", hint="CMake indents the names by four spaces, below the line of the warning.")
def the_options_cmake_ignored(answer):
    if not callable(answer):
        return f"answer must be the function itself (answer = ignored), found {type(answer).__name__}."
    for log, right, hint in _LOGS:
        found = answer(log)
        if isinstance(found, (bool, str)) or found is None:
            return f"A list of names is expected, found {found!r}: who reads it wants to know which option."
        if set(found) != right:
            return hint
    return Correct("A warning that nobody has to discover any more; build_mnn.sh does the same in its step configure.")


_CANDIDATES = ("MNN", "MNN.tools", "MNN.cv", "MNN.tools.utils", "_tools", "MNN.expr")
_ASK = """
import sys
def note(event, arguments):
    if event in ("os.system", "subprocess.Popen", "os.posix_spawn", "urllib.Request", "socket.connect"):
        print("OUTSIDE", event, flush=True)
        raise PermissionError("refused")
sys.addaudithook(note)
sys.modules["aliyun"] = None
__import__(sys.argv[1])
"""


@exercise("04.5", hint='importing a module imports the packages it lies in first; try attempts("import MNN.tools").')
def the_safe_imports(answer):
    named = {answer} if isinstance(answer, str) else {str(name).strip() for name in answer}
    if stranger := named - set(_CANDIDATES):
        return f"Not among the six: {', '.join(sorted(stranger))}."
    logs = {name: native.run_snippet(_ASK, name).log for name in _CANDIDATES}
    safe = {name for name, log in logs.items() if not re.search("^OUTSIDE", log, re.MULTILINE)}
    if named == safe:
        return Correct("MNN.tools imports every command, and whatever lies below it imports MNN.tools first.")
    if "MNN.tools.utils" in named - safe and "MNN.tools" not in named:
        return "MNN.tools.utils has nothing but comments in it, but Python imports MNN.tools before it."
    if named - safe:
        return f"{', '.join(sorted(named - safe))} tries to start pip: importing MNN.tools imports the commands."
    return f"{len(safe - named)} more are safe. Only what lies in MNN.tools imports the logger."
