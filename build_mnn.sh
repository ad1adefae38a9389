#!/usr/bin/env bash
# MNN from source: converter, quantizer, benchmark, basic tools and the Python package.
#
# Each step leaves a stamp in the build tree that says what it was done for. What is up to date is not done again, an
# interrupted build goes on where it stopped, a changed option starts over from the first step it concerns. What was
# installed before is replaced only after the new build has passed its checks.
#
# Bash 3.2 (macOS) and GNU or BSD tools will do.
set -euo pipefail

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
ARTIFACTS=${MNN_COURSE_ARTIFACTS:-$ROOT/artifacts}
RELEASE=3.6.1
GIGABYTES=4           # the static libraries and ten programs, each with the engine inside, and the sources
OLDEST_CMAKE=3.13     # MNN asks for 3.10; `cmake -S … -B …` came with 3.13

usage() {
    cat <<EOF
Usage: ./build_mnn.sh [OPTION]...

Builds MNN from source and installs its Python package into an environment and its command line tools into a folder.
That takes a while; call it again to go on after an interruption.

  --ref TAG         the release to fetch with git (default: $RELEASE)
  --source PATH     a folder or an archive (.tar.gz, .zip) with MNN's source, instead of fetching it;
                    it stays as it is. MNN_SOURCE=PATH does the same where neither --source nor --ref is given
  --prefix DIR      where the command line tools go (default: artifacts/mnn)
  --python PYTHON   the Python whose environment gets the package (default: that of the active environment,
                    else of .venv, else python3)
  --jobs N          how many files to compile at a time (default: the number of cores; fewer take less memory)
  --mini            build the small engine too: fixed shapes only, no converter, no Module API
  --with-llm        include the language model engine, as the wheel does (notebook 10 needs it)
  --with-opencl     include the OpenCL (GPU) backend
  --dry-run         print the plan, one line a step, and touch nothing
  --clean           delete the build tree (artifacts/mnn-build) and stop; what is installed stays
  --help            this text

Everything the tools say goes to artifacts/logs/build_mnn.log. MNN_REPOSITORY=URL fetches from a mirror;
CC, CXX and CMAKE_GENERATOR are CMake's own. Notebook 04 explains each step.
EOF
}

# --- words --------------------------------------------------------------------------------------------

# short PATH: as the learner thinks of it, relative to the project.
short() {
    case $1 in
        "$ARTIFACTS" | "$ARTIFACTS"/*) printf '%s' "artifacts${1#"$ARTIFACTS"}" ;;
        "$ROOT"/*) printf '%s' "${1#"$ROOT"/}" ;;
        *) printf '%s' "$1" ;;
    esac
}

# words COMMAND...: the command as one line that a shell would understand, paths shortened.
words() {
    local word line=
    for word in "$@"; do
        word=$(short "$word")
        case $word in
            *[!A-Za-z0-9_./:=@%+,-]* | '') word="'$(printf '%s' "$word" | sed "s/'/'\\\\''/g")'" ;;
        esac
        line="$line $word"
    done
    printf '%s' "${line# }"
}

say() {
    printf '%s\n' "$1"
    printf '== %s\n' "$1" >>"$LOG"
}

note() { say "$(printf '[%s/%s] %-10s %s' "$NUMBER" "$TOTAL" "$STEP" "$1")"; }

# fail WHAT REMEDY: the only way out after an error.
fail() {
    local message="error: $1"$'\n'"       $2"
    [ ! -f "$LOG" ] || message="$message (log: $(short "$LOG"))"
    printf '%s\n' "$message" >&2
    [ ! -f "$LOG" ] || printf '%s\n' "$message" >>"$LOG"
    SAID=yes
    exit 1
}

bad_option() {
    printf 'error: %s\n       ./build_mnn.sh --help lists the options.\n' "$1" >&2
    SAID=yes
    exit 2
}

# --- the command line ---------------------------------------------------------------------------------

absolute() {
    case $1 in
        /) printf / ;;
        /*) printf '%s' "${1%/}" ;;
        *) printf '%s' "$PWD/${1%/}" ;;
    esac
}

cores() { getconf _NPROCESSORS_ONLN 2>/dev/null || nproc 2>/dev/null || sysctl -n hw.ncpu 2>/dev/null || echo 2; }

default_python() {
    if [ -n "${VIRTUAL_ENV:-}" ] && [ -x "$VIRTUAL_ENV/bin/python" ]; then
        printf '%s' "$VIRTUAL_ENV/bin/python"
    elif [ -n "${CONDA_PREFIX:-}" ] && [ -x "$CONDA_PREFIX/bin/python" ]; then
        printf '%s' "$CONDA_PREFIX/bin/python"
    elif [ -x "$ROOT/.venv/bin/python" ]; then
        printf '%s' "$ROOT/.venv/bin/python"
    else
        printf 'python3'
    fi
}

parse() {
    local name value
    REF='' SOURCE='' PREFIX=$ARTIFACTS/mnn PYTHON='' JOBS='' MINI=OFF LLM=OFF OPENCL=OFF DRY_RUN='' CLEAN=''
    while [ $# -gt 0 ]; do
        name=${1%%=*} value=''
        case $name in
            --ref | --source | --prefix | --python | --jobs)
                if [ "$name" != "$1" ]; then
                    value=${1#*=}
                elif [ $# -gt 1 ]; then
                    value=$2
                    shift
                fi
                case $value in '' | --*) bad_option "$name needs a value." ;; esac
                ;;
            --mini | --with-llm | --with-opencl | --dry-run | --clean | --help | -h)
                [ "$name" = "$1" ] || bad_option "$name takes no value."
                ;;
            *) bad_option "Unknown option '$1'." ;;
        esac
        case $name in
            --ref) REF=$value ;;
            --source) SOURCE=$value ;;
            --prefix) PREFIX=$(absolute "$value") ;;
            --python) PYTHON=$value ;;
            --jobs) JOBS=$value ;;
            --mini) MINI=ON ;;
            --with-llm) LLM=ON ;;
            --with-opencl) OPENCL=ON ;;
            --dry-run) DRY_RUN=yes ;;
            --clean) CLEAN=yes ;;
            --help | -h)
                usage
                exit 0
                ;;
        esac
        shift
    done
    [ -z "$REF" ] || [ -z "$SOURCE" ] || bad_option "--ref and --source exclude each other: fetch a release, or give one."
    [ -n "$REF$SOURCE" ] || SOURCE=${MNN_SOURCE:-}
    [ -z "$SOURCE" ] || SOURCE=$(absolute "$SOURCE")
    [ -n "$REF" ] || REF=$RELEASE
    case $REF in -* | *[!A-Za-z0-9._/-]*) bad_option "'$REF' is no name of a tag. MNN's look like $RELEASE." ;; esac
    [ -n "$JOBS" ] || JOBS=$(cores)
    case $JOBS in '' | 0* | *[!0-9]*) bad_option "--jobs must be a whole number from 1, found '$JOBS'." ;; esac
    [ -n "$PYTHON" ] || PYTHON=$(default_python)
    case $PYTHON in */*) PYTHON=$(absolute "$PYTHON") ;; esac
}

# --- the plan -----------------------------------------------------------------------------------------

REPOSITORY=${MNN_REPOSITORY:-https://github.com/alibaba/MNN.git}
BUILD=$ARTIFACTS/mnn-build
LOG=$ARTIFACTS/logs/build_mnn.log
STAMPS=$BUILD/stamps
SRC=$BUILD/source
TREE=$SRC/pymnn_build # MNN's setup.py looks for the libraries in this folder of the sources
MINI_TREE=$BUILD/mini
WHEELS=$BUILD/wheel
STAGE=$BUILD/stage
REFERENCE=$BUILD/reference
BACKUP=$BUILD/backup
SYSTEM=$(uname -s)
NUMBER=0 STEP='' CHILD='' SAID='' LOCKED=''

prepare_plan() {
    PROGRAMS=(MNNConvert MNNDump2Json GetMNNInfo quantized.out benchmark.out MNNV2Basic.out ModuleBasic.out
        timeProfile.out testModel.out)
    # The options MNN's own build_deps.py gives, so that its setup.py finds what it links, and the tools beside.
    OPTIONS=(-DCMAKE_BUILD_TYPE=Release -DCMAKE_POSITION_INDEPENDENT_CODE=ON
        -DMNN_BUILD_CONVERTER=ON -DMNN_BUILD_QUANTOOLS=ON -DMNN_BUILD_BENCHMARK=ON -DMNN_BUILD_TOOLS=ON
        -DMNN_BUILD_TRAIN=ON -DMNN_BUILD_OPENCV=ON -DMNN_IMGCODECS=ON -DMNN_BUILD_AUDIO=ON -DMNN_LOW_MEMORY=ON
        -DMNN_SEP_BUILD=OFF)
    if [ "$SYSTEM" = Darwin ]; then
        # There setup.py puts the shared libraries into the wheel; the tools find theirs beside them.
        OPTIONS+=(-DMNN_BUILD_SHARED_LIBS=ON -DCMAKE_BUILD_WITH_INSTALL_RPATH=ON
            -DCMAKE_INSTALL_RPATH=@loader_path/../lib)
    else
        OPTIONS+=(-DMNN_BUILD_SHARED_LIBS=OFF)
    fi
    if [ "$LLM" = ON ]; then
        OPTIONS+=(-DMNN_BUILD_LLM=ON -DMNN_SUPPORT_TRANSFORMER_FUSE=ON)
        PROGRAMS+=(llm_demo)
    fi
    [ "$OPENCL" = OFF ] || OPTIONS+=(-DMNN_OPENCL=ON)
    # A mini engine has no geometry computation, so the converter and the Module API cannot be built with it.
    MINI_OPTIONS=(-DCMAKE_BUILD_TYPE=Release -DMNN_BUILD_MINI=ON -DMNN_BUILD_TOOLS=OFF -DMNN_SEP_BUILD=OFF
        -DMNN_BUILD_SHARED_LIBS=ON)

    CONFIGURE=(cmake -S "$SRC" -B "$TREE" "${OPTIONS[@]}")
    COMPILE=(cmake --build "$TREE" -- "-j$JOBS" MNN "${PROGRAMS[@]}")
    WHEEL=("$PYTHON" setup.py bdist_wheel --dist-dir "$WHEELS")
    MINI_CONFIGURE=(cmake -S "$SRC" -B "$MINI_TREE" "${MINI_OPTIONS[@]}")
    MINI_COMPILE=(cmake --build "$MINI_TREE" -- "-j$JOBS" MNN)
    INSTALL=("$PYTHON" -m pip install --no-deps --no-index --force-reinstall --disable-pip-version-check)
    TOTAL=8
    [ "$MINI" = OFF ] || TOTAL=9
}

plan() {
    say_step() {
        NUMBER=$((NUMBER + 1))
        printf 'step %s/%s  %-9s  %s\n' "$NUMBER" "$TOTAL" "$1" "$2"
    }
    if [ -n "$SOURCE" ]; then
        printf 'plan: MNN from %s; a dry run touches nothing\n' "$(short "$SOURCE")"
    else
        printf 'plan: MNN %s; a dry run touches nothing\n' "$REF"
    fi
    say_step check "git, cmake $OLDEST_CMAKE or newer, make, a C++11 compiler, Python's headers, $GIGABYTES GB of disk space"
    if [ -z "$SOURCE" ]; then
        say_step source "$(words git clone --depth 1 --branch "$REF" "$REPOSITORY" "$SRC")"
    elif [ -d "$SOURCE" ]; then
        say_step source "$(words cp -R "$SOURCE" "$SRC")"
    else
        say_step source "$(words tar -xf "$SOURCE" -C "$SRC")"
    fi
    say_step configure "$(words "${CONFIGURE[@]}")"
    say_step compile "$(words "${COMPILE[@]}")"
    say_step wheel "$(words cd "$SRC/pymnn/pip_package") && $(words "${WHEEL[@]}")"
    [ "$MINI" = OFF ] || say_step mini "$(words "${MINI_CONFIGURE[@]}") && $(words "${MINI_COMPILE[@]}")"
    say_step verify "import, convert and run the course's model with the wheel unpacked in $(short "$STAGE")"
    say_step install "$(words "${INSTALL[@]}" "$WHEELS")/*.whl && verify it there, else bring the earlier one back"
    say_step tools "$(words cp "${PROGRAMS[@]}" "$PREFIX/bin")"
}

# --- running things -----------------------------------------------------------------------------------

# run COMMAND...: in the background, everything it says into the log, so that a signal is heard at once.
run() {
    local status=0
    printf '\n$ %s\n' "$(words "$@")" >>"$LOG"
    MARK=$(($(wc -c <"$LOG") + 1))
    "$@" >>"$LOG" 2>&1 </dev/null &
    CHILD=$!
    [ -z "${WATCH:-}" ] || watch
    { wait "$CHILD"; } 2>/dev/null || status=$?
    CHILD=''
    [ "$status" -le 128 ] || printf 'error: killed by signal %s\n' "$((status - 128))" >>"$LOG"
    return "$status"
}

# What the last command said.
said() { tail -c "+$MARK" "$LOG"; }

# Its first words that look like a reason (CMake gives the place first and the reason below), else its last.
reason() {
    said | awk '
        NF { last = $0 }
        NF && place { sub(/^ +/, ""); place = place " " $0; if (++found == 3) exit; next }
        /^CMake Error.*:$/ { place = $0; next }
        tolower($0) ~ /(error|fatal|failed): |no rule to make/ { print; found = 1; exit }
        END { if (place) print place; else if (!found) print last == "" ? "(it said nothing)" : last }' | cut -c 1-300
}

# Progress of the compilation, from make's "[ 12%]" or ninja's "[3/25]".
watch() {
    local percent shown=-1
    while kill -0 "$CHILD" 2>/dev/null; do
        percent=$(tail -n 50 "$LOG" | awk -F '[][]' '
            /^\[ *[0-9]+%\]/ { sub("%", "", $2); n = $2 + 0 }
            /^\[[0-9]+\/[0-9]+\]/ { split($2, part, "/"); n = int(100 * part[1] / part[2]) }
            END { if (n != "") print n }')
        if [ -n "$percent" ] && [ "$percent" -ge $((shown + 10)) ]; then
            printf '[%s/%s] %-10s %s\n' "$NUMBER" "$TOTAL" "$STEP" "$percent %"
            shown=$((percent / 10 * 10))
        fi
        sleep 0.2
    done
}

descendants() {
    ps -A -o pid= -o ppid= | awk -v root="$1" '
        { parent[$1] = $2 }
        END { for (pid in parent) { up = pid; while (up in parent && up != root) up = parent[up]; if (up == root && pid != root) print pid } }'
}

stopped() {
    local pid
    trap '' INT TERM HUP
    if [ -n "$CHILD" ]; then
        for pid in $(descendants "$CHILD") "$CHILD"; do kill "$pid" 2>/dev/null || true; done
        wait "$CHILD" 2>/dev/null || true
    fi
    restore
    SAID=yes
    printf '\nInterrupted in step %s (%s). The same command goes on from there.\n' "$NUMBER" "$STEP" >&2
    exit "$1"
}

leave() {
    local status=$?
    [ -z "$LOCKED" ] || rm -rf "$BUILD/lock"
    [ "$status" = 0 ] || [ -n "$SAID" ] ||
        printf 'error: build_mnn.sh itself failed in step %s (%s).\n       The log: %s\n' "$NUMBER" "$STEP" "$(short "$LOG")" >&2
}

lock() {
    local owner
    if ! mkdir "$BUILD/lock" 2>/dev/null; then
        owner=$(cat "$BUILD/lock/pid" 2>/dev/null || true)
        if [ -n "$owner" ] && kill -0 "$owner" 2>/dev/null; then
            fail "Another build_mnn.sh (process $owner) is working in $(short "$BUILD")." "Wait for it, or stop it."
        fi
    fi
    echo $$ >"$BUILD/lock/pid"
    LOCKED=yes
}

# fresh STEP KEY: was this step done for exactly this?
fresh() { [ -f "$STAMPS/$1" ] && [ "$(cat "$STAMPS/$1")" = "$2" ]; }

begin() {
    rm -f "$STAMPS/$STEP"
    STARTED=$SECONDS
    note "$1"
}

finish() {
    printf '%s\n' "$1" >"$STAMPS/$STEP.new"
    mv "$STAMPS/$STEP.new" "$STAMPS/$STEP"
    note "done in $((SECONDS - STARTED)) s${2:+: $2}"
}

next() {
    STEP=$1
    NUMBER=$((NUMBER + 1))
}

# --- Python's share -----------------------------------------------------------------------------------

# Prints "fine|version|include folder|environment" or "problem|what|remedy". Any Python 3 must be able to read it.
read -r -d '' FACTS <<'EOF' || true
import importlib.util, os, sys, sysconfig
version = "%d.%d.%d" % sys.version_info[:3]
paths = sysconfig.get_paths()
managed = os.path.join(sysconfig.get_path("stdlib"), "EXTERNALLY-MANAGED")
missing = [name for name in ("pip", "setuptools", "numpy") if importlib.util.find_spec(name) is None]
if sys.version_info < (3, 8):
    print("problem|Python %s is too old: 3.8 or newer is needed|Choose another with --python." % version)
elif sys.prefix == sys.base_prefix and os.path.exists(managed):
    print("problem|%s belongs to the operating system, which does not let pip install into it"
          "|Set the course's environment up (python3 -m helpers lab), or choose another Python with --python." % sys.executable)
elif missing:
    print("problem|%s lacks %s|Install with: %s -m pip install %s"
          % (sys.executable, ", ".join(missing), sys.executable, " ".join(missing)))
elif not os.access(paths["platlib"], os.W_OK):
    print("problem|%s cannot be written to|Choose an environment of your own with --python." % paths["platlib"])
elif not os.path.exists(os.path.join(paths["include"], "Python.h")):
    print("problem|The C headers of Python %s are missing (%s/Python.h)|Debian, Ubuntu: apt-get install python3-dev; "
          "or choose a Python that has them with --python." % (version, paths["include"]))
else:
    print("fine|%s|%s|%s" % (version, paths["include"], sys.prefix))
EOF

# Can this Python export the course's model?
read -r -d '' CAN_EXPORT <<'EOF' || true
import importlib.util, sys
sys.exit(any(importlib.util.find_spec(name) is None for name in ("torch", "torchvision", "onnx", "onnxscript", "numpy")))
EOF

# A fingerprint of a folder (names, sizes, times) or of a file (content).
read -r -d '' FINGERPRINT <<'EOF' || true
import hashlib, os, sys
digest, path = hashlib.sha256(), sys.argv[1]
if os.path.isdir(path):
    for folder, folders, names in os.walk(path):
        folders[:] = sorted(set(folders) - {".git", "pymnn_build"})
        for name in sorted(names):
            file = os.path.join(folder, name)
            facts = os.lstat(file)
            digest.update(("%s %d %d\n" % (os.path.relpath(file, path), facts.st_size, facts.st_mtime_ns)).encode())
else:
    with open(path, "rb") as file:
        for block in iter(lambda: file.read(1 << 20), b""):
            digest.update(block)
print(digest.hexdigest())
EOF

# The course's model as ONNX, some test images, and PyTorch's answers to them: what the new build has to reproduce.
read -r -d '' MAKE_REFERENCE <<'EOF' || true
import sys
from pathlib import Path
import numpy as np
from helpers.data import test_set
from helpers.model import load_pretrained
from helpers.onnx_export import export_onnx
from helpers.runtime import TorchModel
folder, model = Path(sys.argv[1]), load_pretrained()
images = test_set()[0][:200]
export_onnx(model, folder / "mnist_cnn.onnx")
np.savez(folder / "reference.npz", images=images, logits=TorchModel(model)(images))
EOF

# Import, conversion, inference. Needs nothing but numpy and the package it judges, which must lie in `home`.
# The converter returns True whatever happened (so the file counts), and is called through _tools: the console
# commands mnnconvert and mnnquant would install further packages behind the learner's back.
read -r -d '' VERIFY <<'EOF' || true
import sys, tempfile
from pathlib import Path
import numpy as np
import MNN, MNN.expr, MNN.nn, _tools
home, version, llm, reference = Path(sys.argv[1]).resolve(), sys.argv[2], sys.argv[3], Path(sys.argv[4])
for module in (MNN, _tools):
    if home not in Path(module.__file__).resolve().parents:
        sys.exit("verify failed: %s was imported from %s, not from %s" % (module.__name__, module.__file__, home))
if MNN.version() != version:
    sys.exit("verify failed: MNN says it is %s, its source says %s" % (MNN.version(), version))
if llm == "ON":
    import MNN.llm
    MNN.llm.create
with tempfile.TemporaryDirectory() as scratch:
    model = Path(scratch, "mnist_cnn.mnn")
    _tools.mnnconvert(["MNNConvert", "-f", "ONNX", "--modelFile", str(reference / "mnist_cnn.onnx"),
                       "--MNNModel", str(model), "--bizCode", "build_mnn"])
    if not model.exists():
        sys.exit("verify failed: the converter wrote nothing")
    size = model.stat().st_size
    module = MNN.nn.load_module_from_file(str(model), ["input"], ["logits"])
expected = np.load(reference / "reference.npz")
images = MNN.expr.placeholder(list(expected["images"].shape), MNN.expr.NCHW, MNN.expr.float)
images.write(expected["images"])
results = module.onForward([images])
if len(results) != 1:
    sys.exit("verify failed: the model gave %d outputs instead of 1" % len(results))
result = MNN.expr.convert(results[0], MNN.expr.NCHW) if results[0].data_format == MNN.expr.NC4HW4 else results[0]
logits = result.read().copy()
difference = float(np.abs(logits - expected["logits"]).max())
agree = int((logits.argmax(axis=1) == expected["logits"].argmax(axis=1)).sum())
summary = "MNN %s, model of %d bytes, %d of %d predictions as PyTorch's, logits within %.1e" % (
    version, size, agree, len(logits), difference)
if agree != len(logits) or not difference < 1e-3:
    sys.exit("verify failed: " + summary)
print("verified: " + summary)
EOF

# Exit code 0 when what this environment has is exactly what the wheel contains.
read -r -d '' IS_INSTALLED <<'EOF' || true
import sys, sysconfig, zipfile
from pathlib import Path
def same(home, wheel):
    return all((home / name).is_file() and (home / name).read_bytes() == wheel.read(name)
               for name in wheel.namelist() if ".dist-info/" not in name and ".data/" not in name)
with zipfile.ZipFile(sys.argv[1]) as wheel:
    sys.exit(not any(same(Path(sysconfig.get_path(home)), wheel) for home in ("purelib", "platlib")))
EOF

# Keeps the files of the installed MNN in a tar file (an empty one when there is none).
read -r -d '' KEEP <<'EOF' || true
import os, sys, sysconfig, tarfile
from importlib.metadata import distributions
homes = sorted({sysconfig.get_path("purelib"), sysconfig.get_path("platlib")})
files = set()
for distribution in distributions(path=homes):
    if (distribution.metadata["Name"] or "").lower() == "mnn":
        files.update(os.path.normpath(str(distribution.locate_file(file))) for file in distribution.files or ())
with tarfile.open(sys.argv[1], "w") as tar:
    for file in sorted(files):
        if os.path.isfile(file):
            tar.add(file, os.path.relpath(file, sys.prefix))
EOF

read -r -d '' PUT_BACK <<'EOF' || true
import sys, tarfile
with tarfile.open(sys.argv[1]) as tar:
    if hasattr(tarfile, "fully_trusted_filter"):
        tar.extraction_filter = tarfile.fully_trusted_filter
    tar.extractall(sys.prefix)
EOF

python() { (cd "$BUILD" && unset PYTHONPATH PYTHONHOME && exec "$PYTHON" -c "$@"); }

# Brings back the installation that was there before, where a run was cut off or failed amid installing.
restore() {
    local python
    [ -d "$BACKUP" ] || return 0
    python=$(cat "$BACKUP/python")
    printf '\n$ bringing back the earlier installation of %s\n' "$python" >>"$LOG"
    if (
        cd "$BUILD"
        "$python" -m pip uninstall -y --disable-pip-version-check MNN
        "$python" -c "$PUT_BACK" "$BACKUP/files.tar"
    ) >>"$LOG" 2>&1 </dev/null; then
        rm -rf "$BACKUP"
    else
        say "warning: the earlier installation could not be brought back; its files: $(short "$BACKUP/files.tar")"
    fi
}

# --- the steps ----------------------------------------------------------------------------------------

check_python() {
    local facts kind
    command -v "$PYTHON" >/dev/null 2>&1 ||
        fail "There is no Python '$PYTHON'." "Give the path of one with --python; \`python3 -m helpers doctor\` tells which the course uses."
    facts=$("$PYTHON" -c "$FACTS" 2>>"$LOG" | tail -n 1) || facts=''
    IFS='|' read -r kind PYTHON_VERSION PYTHON_INCLUDE PYTHON_HOME <<<"$facts"
    case $kind in
        fine) ;;
        problem) fail "$PYTHON_VERSION." "$PYTHON_INCLUDE" ;;
        *) fail "'$PYTHON' is no working Python 3." "Give the path of one with --python." ;;
    esac
}

check_reference_python() {
    local candidate
    for candidate in "$PYTHON" "$ROOT/.venv/bin/python" python3; do
        if "$candidate" -c "$CAN_EXPORT" >/dev/null 2>&1; then
            EXPORTER=$candidate
            return
        fi
    done
    fail "No Python here can export the course's model, on which the build is verified (torch, torchvision, onnx, onnxscript)." \
        "Set the course's environment up first: python3 -m helpers lab"
}

check_cmake() {
    local version
    command -v cmake >/dev/null 2>&1 ||
        fail "cmake is missing." "Debian, Ubuntu: apt-get install cmake; macOS: brew install cmake; anywhere: python3 -m pip install cmake."
    version=$(cmake --version 2>/dev/null | sed -n 's/^cmake version \([0-9.]*\).*/\1/p' | head -n 1)
    [ -n "$version" ] || fail "cmake does not run: $(command -v cmake)." "Install it anew: python3 -m pip install cmake."
    case $(printf '%s\n%s\n' "$OLDEST_CMAKE" "$version" | sort -t . -k 1,1n -k 2,2n | head -n 1) in
        "$OLDEST_CMAKE") ;;
        *) fail "cmake $version is too old: $OLDEST_CMAKE or newer is needed." "Install a newer one: python3 -m pip install --upgrade cmake." ;;
    esac
    CMAKE_VERSION=$version
    [ -n "${CMAKE_GENERATOR:-}" ] || command -v make >/dev/null 2>&1 ||
        fail "make is missing." "Debian, Ubuntu: apt-get install make; macOS: xcode-select --install; or set CMAKE_GENERATOR=Ninja."
}

check_compiler() {
    local compiler command flags
    local remedy="Debian, Ubuntu: apt-get install g++; macOS: xcode-select --install; conda: conda install cxx-compiler."
    for compiler in "${CC:-cc}" "${CXX:-c++}"; do
        read -r -a command <<<"$compiler"
        command -v "${command[0]}" >/dev/null 2>&1 || fail "There is no C++ compiler: '${command[0]}' was not found." "$remedy"
    done
    read -r -a flags <<<"${CPPFLAGS:-} ${CXXFLAGS:-} ${LDFLAGS:-}" # conda's compilers find conda's zlib through them
    printf '#include <Python.h>\n#include <new>\nint main() { return PY_MAJOR_VERSION == 2; }\n' >"$BUILD/probe.cc"
    run "${command[@]}" ${flags[@]+"${flags[@]}"} -std=c++11 "-I$PYTHON_INCLUDE" -c "$BUILD/probe.cc" -o "$BUILD/probe.o" ||
        fail "The C++ compiler '$compiler' cannot compile a small program: $(reason)" "$remedy"
    [ "$SYSTEM" != Linux ] || run "${command[@]}" "$BUILD/probe.o" ${flags[@]+"${flags[@]}"} -lz -o "$BUILD/probe" ||
        fail "The C++ compiler '$compiler' cannot link zlib, which MNN's converter needs: $(reason)" \
            "Debian, Ubuntu: apt-get install zlib1g-dev; conda: conda install zlib."
    rm -f "$BUILD/probe.cc" "$BUILD/probe.o" "$BUILD/probe"
    COMPILER_VERSION=$("${command[@]}" --version 2>/dev/null | sed -n 1p) || COMPILER_VERSION=$compiler
}

check_disk() {
    local free
    free=$(df -Pk "$BUILD" | awk 'NR == 2 { print $4 }')
    [ "$free" -ge $((GIGABYTES * 1024 * 1024)) ] ||
        fail "The disk of $(short "$BUILD") has $((free / 1024)) MB free; the build needs $GIGABYTES GB." \
            "Make room, or put artifacts/ on another disk: MNN_COURSE_ARTIFACTS=/elsewhere ./build_mnn.sh"
}

# check: only what the steps still to be done will need, so that a finished build asks for nothing.
step_check() {
    next check
    case $SYSTEM in
        MINGW* | MSYS* | CYGWIN*) fail "This script does not build on Windows itself." "Use WSL, or the wheel: python -m pip install MNN" ;;
    esac
    check_python
    if [ -n "$SOURCE" ]; then
        [ -e "$SOURCE" ] || fail "There is no '$(short "$SOURCE")'." "--source (or MNN_SOURCE) takes a folder or an archive with MNN's source."
        KEY_SOURCE="source $SOURCE $(python "$FINGERPRINT" "$SOURCE")"
    else
        KEY_SOURCE="source $REPOSITORY $REF"
    fi
    KEY_CONFIGURE="$KEY_SOURCE
configure ${OPTIONS[*]} CC=${CC:-} CXX=${CXX:-} generator=${CMAKE_GENERATOR:-}"
    KEY_COMPILE="$KEY_CONFIGURE
compile ${PROGRAMS[*]}"
    KEY_WHEEL="$KEY_COMPILE
wheel $PYTHON $PYTHON_VERSION"
    KEY_MINI="$KEY_SOURCE
mini ${MINI_OPTIONS[*]} CC=${CC:-} CXX=${CXX:-} generator=${CMAKE_GENERATOR:-}"
    KEY_INSTALL="$KEY_WHEEL
install $PYTHON_HOME"
    KEY_TOOLS="$KEY_COMPILE
tools $PREFIX mini=$MINI"
    local found="Python $PYTHON_VERSION"
    if ! source_done && [ -z "$SOURCE" ]; then
        command -v git >/dev/null 2>&1 ||
            fail "git is missing." "Debian, Ubuntu: apt-get install git; macOS: xcode-select --install; or give MNN's source with --source."
    fi
    if ! wheel_done || ! compile_done || { [ "$MINI" = ON ] && ! mini_done; }; then
        check_cmake
        check_compiler
        check_disk
        found="$found, cmake $CMAKE_VERSION, $COMPILER_VERSION"
    fi
    install_done || check_reference_python
    if [ -d "$PREFIX" ] && [ ! -f "$PREFIX/BUILT.txt" ] && [ -n "$(ls -A "$PREFIX")" ]; then
        fail "$(short "$PREFIX") exists and was not made by this script, which replaces the folder as a whole." "Choose another with --prefix."
    fi
    note "$found"
}

copy_folder() { tar -C "$SOURCE" --exclude ./.git --exclude ./pymnn_build -cf - . | tar -C "$SRC" -xf -; }

unpack() {
    case $SOURCE in
        *.zip) "$PYTHON" -m zipfile -e "$SOURCE" "$BUILD/unpacked" ;;
        *) tar -C "$BUILD/unpacked" -xf "$SOURCE" ;;
    esac
}

source_done() { fresh source "$KEY_SOURCE" && [ -f "$SRC/CMakeLists.txt" ]; }

step_source() {
    local found
    next source
    if source_done; then
        note "up to date"
    else
        begin "from $(short "${SOURCE:-$REPOSITORY, tag $REF}")"
        rm -rf "$SRC" "$BUILD/unpacked"
        if [ -z "$SOURCE" ]; then
            run env GIT_TERMINAL_PROMPT=0 git -c advice.detachedHead=false -c http.lowSpeedLimit=1000 -c http.lowSpeedTime=60 \
                clone --depth 1 --branch "$REF" "$REPOSITORY" "$SRC" || clone_failed
        elif [ -d "$SOURCE" ]; then
            mkdir "$SRC"
            run copy_folder || fail "'$(short "$SOURCE")' could not be copied: $(reason)" "Look into the log."
        else
            mkdir "$BUILD/unpacked"
            run unpack || fail "'$(short "$SOURCE")' could not be unpacked: $(reason)" \
                "Is it a complete .tar.gz or .zip? Download it again."
            found=$(find "$BUILD/unpacked" -maxdepth 2 -name CMakeLists.txt | head -n 1)
            [ -z "$found" ] || mv "$(dirname "$found")" "$SRC"
            rm -rf "$BUILD/unpacked"
        fi
        for found in CMakeLists.txt include/MNN/MNNDefine.h pymnn/pip_package/setup.py; do
            [ -f "$SRC/$found" ] || fail "'$(short "${SOURCE:-$REPOSITORY}")' does not hold MNN's source: there is no $found in it." \
                "Give the folder that contains MNN's CMakeLists.txt, or an archive of it."
        done
        finish "$KEY_SOURCE"
    fi
    VERSION=$(awk '/#define MNN_VERSION_(MAJOR|MINOR|PATCH)/ { v = v "." $3 } END { print substr(v, 2) }' "$SRC/include/MNN/MNNDefine.h")
}

clone_failed() {
    if said | grep -qE 'Remote branch .* not found'; then
        fail "There is no tag '$REF' in $REPOSITORY." "MNN's tags look like $RELEASE: git ls-remote --tags $REPOSITORY lists them."
    elif said | grep -q 'No space left on device'; then
        disk_full
    fi
    fail "git could not fetch $REPOSITORY: $(reason)" \
        "Check the network (a proxy?), or give MNN's source as a folder or archive with --source."
}

disk_full() { fail "The disk is full." "Make room and call the same command again, or --clean to delete the build tree."; }

configure_failed() { fail "CMake could not configure MNN: $(reason)" "Look into the log; after mending it call the same command again."; }

compile_failed() {
    if said | grep -q 'No space left on device'; then disk_full; fi
    if said | grep -qE 'Killed|out of memory|virtual memory exhausted'; then
        fail "The compiler ran out of memory." "Call again with fewer files at a time: --jobs 1"
    fi
    fail "MNN did not compile: $(reason)" "The same command tries again from there. If it fails again, try --clean first, then another --ref or compiler (CXX=…)."
}

configure_done() { source_done && fresh configure "$KEY_CONFIGURE" && [ -f "$TREE/CMakeCache.txt" ]; }

step_configure() {
    local unknown
    next configure
    if configure_done; then
        note "up to date"
        return
    fi
    begin "MNN $VERSION"
    rm -rf "$TREE" # what an option leaves behind in CMake's cache would otherwise outlive it
    run "${CONFIGURE[@]}" || configure_failed
    unknown=$(said | sed -n '/Manually-specified variables were not used/,/^--/p' | sed -n 's/^ *\([A-Z][A-Z0-9_]*\)$/\1/p' | tr '\n' ' ')
    [ -z "$unknown" ] || note "this source does not know: $unknown"
    finish "$KEY_CONFIGURE"
}

built() { find "$TREE" -type f -name "$1" -perm -100 2>/dev/null | head -n 1; }

compile_done() {
    local program
    configure_done && fresh compile "$KEY_COMPILE" || return 1
    for program in "${PROGRAMS[@]}"; do [ -n "$(built "$program")" ] || return 1; done
}

step_compile() {
    next compile
    if compile_done; then
        note "up to date"
        return
    fi
    begin "the engine and ${#PROGRAMS[@]} programs, $JOBS at a time"
    WATCH=yes run "${COMPILE[@]}" || compile_failed
    finish "$KEY_COMPILE"
}

wheel() { find "$WHEELS" -name '*.whl' 2>/dev/null | head -n 1; }

wheel_done() { fresh wheel "$KEY_WHEEL" && [ -n "$(wheel)" ]; }

# setup.py finds the sources through its working folder, and takes what an earlier call compiled for current.
build_wheel() {
    cd "$SRC/pymnn/pip_package" && rm -rf build dist "$WHEELS" ./*.egg-info && "${WHEEL[@]}"
}

step_wheel() {
    next wheel
    if wheel_done; then
        note "up to date"
        return
    fi
    begin "the Python package, for Python $PYTHON_VERSION"
    run build_wheel || fail "MNN's setup.py could not build the Python package: $(reason)" \
        "Look into the log; it needs Python's headers, numpy and setuptools of $PYTHON."
    [ -n "$(wheel)" ] || fail "MNN's setup.py ended well but left no wheel in $(short "$WHEELS")." "Look into the log."
    finish "$KEY_WHEEL" "$(basename "$(wheel)")"
}

mini_library() { find "$MINI_TREE" -maxdepth 1 -type f \( -name 'libMNN.so*' -o -name 'libMNN*.dylib' \) 2>/dev/null | head -n 1; }

mini_done() { fresh mini "$KEY_MINI" && [ -n "$(mini_library)" ]; }

step_mini() {
    [ "$MINI" = ON ] || return 0
    next mini
    if mini_done; then
        note "up to date"
        return
    fi
    begin "the engine alone, for fixed shapes"
    rm -rf "$MINI_TREE"
    run "${MINI_CONFIGURE[@]}" || configure_failed
    WATCH=yes run "${MINI_COMPILE[@]}" || compile_failed
    [ -n "$(mini_library)" ] || fail "The mini engine was built, but $(short "$MINI_TREE") holds no libMNN." "Look into the log."
    finish "$KEY_MINI" "$(basename "$(mini_library)"), $(wc -c <"$(mini_library)" | tr -d ' ') bytes"
}

make_reference() {
    local weights
    weights="weights $(cksum <"$ROOT/data/pretrained/mnist_cnn.pt")" || return 1
    if fresh reference "$weights" && [ -f "$REFERENCE/reference.npz" ]; then return; fi
    rm -rf "$REFERENCE" && mkdir "$REFERENCE"
    (cd "$ROOT" && PYTHONPATH=$ROOT exec "$EXPORTER" -c "$MAKE_REFERENCE" "$REFERENCE") && printf '%s\n' "$weights" >"$STAMPS/reference"
}

# The programs, libraries, headers and the wheel, as they will lie in the prefix.
lay_out() {
    local program library to=$1
    rm -rf "$to" && mkdir -p "$to/bin" "$to/lib" "$to/include" || return 1
    for program in "${PROGRAMS[@]}"; do cp "$(built "$program")" "$to/bin/" || return 1; done
    for library in "$TREE"/libMNN.* "$TREE"/tools/converter/libMNNConvertDeps.dylib; do
        [ ! -f "$library" ] || cp "$library" "$to/lib/" || return 1
    done
    if [ "$MINI" = ON ]; then mkdir "$to/lib/mini" && cp "$(mini_library)" "$to/lib/mini/" || return 1; fi
    cp -R "$SRC/include/MNN" "$to/include/" && cp "$(wheel)" "$to/" &&
        printf 'MNN %s, made by build_mnn.sh\n%s\n' "$VERSION" "$KEY_TOOLS" >"$to/BUILT.txt"
}

install_done() { wheel_done && fresh install "$KEY_INSTALL" && [ ! -d "$BACKUP" ] && python "$IS_INSTALLED" "$(wheel)" 2>/dev/null; }

unpack_wheel() { "$PYTHON" -m pip install --target "$STAGE/site" --no-deps --no-index --disable-pip-version-check "$(wheel)"; }

verify_in_stage() { cd "$BUILD" && PYTHONPATH=$STAGE/site exec "$PYTHON" -c "$VERIFY" "$STAGE/site" "$VERSION" "$LLM" "$REFERENCE"; }

verify_in_place() { python "$VERIFY" "$PYTHON_HOME" "$VERSION" "$LLM" "$REFERENCE"; }

try_converter() {
    "$STAGE/prefix/bin/MNNConvert" -f ONNX --modelFile "$REFERENCE/mnist_cnn.onnx" --MNNModel "$STAGE/tried.mnn" --bizCode build_mnn &&
        [ -s "$STAGE/tried.mnn" ]
}

verdict() { said | sed -n 's/^verified: //p' | tail -n 1; }

step_verify() {
    next verify
    if install_done && fresh tools "$KEY_TOOLS"; then
        note "up to date"
        return
    fi
    begin "on the course's own model, before anything is installed"
    run make_reference || fail "The course's model could not be exported for the check: $(reason)" \
        "See whether the course's own environment is in order: python3 -m helpers doctor"
    rm -rf "$STAGE" && mkdir "$STAGE"
    run unpack_wheel || fail "The wheel could not be unpacked: $(reason)" "Look into the log."
    run lay_out "$STAGE/prefix" || fail "The tools could not be copied: $(reason)" "Look into the log."
    run try_converter || fail "The new MNNConvert did not convert the course's model: $(reason)" \
        "Nothing was installed. Try another release with --ref."
    run verify_in_stage || fail "The new build did not pass its check: $(reason)" \
        "Nothing was installed. Try another release with --ref, or another compiler with CXX=…"
    finish "$KEY_INSTALL" "$(verdict)"
}

step_install() {
    local why
    next install
    if install_done; then
        note "up to date"
        return
    fi
    begin "into $(short "$PYTHON_HOME")"
    rm -rf "$BACKUP.new" && mkdir "$BACKUP.new"
    printf '%s\n' "$PYTHON" >"$BACKUP.new/python"
    run python "$KEEP" "$BACKUP.new/files.tar" || fail "The earlier installation could not be kept aside: $(reason)" "Look into the log."
    mv "$BACKUP.new" "$BACKUP" # from here on, whatever ends this run early brings the earlier one back
    if ! run "${INSTALL[@]}" "$(wheel)"; then
        why="pip could not install the wheel: $(reason)"
    elif ! run python "$IS_INSTALLED" "$(wheel)"; then
        why="What is installed is not what the wheel contains."
    elif ! run verify_in_place; then
        why="The installed package did not pass its check: $(reason)"
    else
        rm -rf "$BACKUP"
        finish "$KEY_INSTALL" "$(verdict)"
        return
    fi
    restore
    fail "$why" "The environment is as it was before. Look into the log."
}

step_tools() {
    next tools
    if fresh tools "$KEY_TOOLS" && [ -f "$PREFIX/BUILT.txt" ]; then
        note "up to date"
        return
    fi
    begin "into $(short "$PREFIX")"
    mkdir -p "$(dirname "$PREFIX")" || fail "$(short "$PREFIX") cannot be made." "Choose another place with --prefix."
    run lay_out "$PREFIX.new" || { rm -rf "$PREFIX.new" && fail "The tools could not be copied to $(short "$PREFIX"): $(reason)" "Choose another place with --prefix."; }
    rm -rf "$PREFIX.old"
    [ ! -d "$PREFIX" ] || mv "$PREFIX" "$PREFIX.old"
    mv "$PREFIX.new" "$PREFIX"
    rm -rf "$PREFIX.old" "$STAGE"
    finish "$KEY_TOOLS" "${PROGRAMS[*]}"
}

main() {
    parse "$@"
    prepare_plan
    if [ -n "$DRY_RUN" ]; then
        if [ -n "$CLEAN" ]; then
            printf 'plan: delete the build tree; a dry run touches nothing\nstep 1/1  clean      %s\n' "$(words rm -rf "$BUILD")"
        else
            plan
        fi
        exit 0
    fi
    export LC_ALL=C # so that the words of git and of the compiler can be told apart
    export CLICOLOR_FORCE=0 # Jupyter sets it to 1; CMake would then colour the lines that are searched for here
    mkdir -p "$BUILD" "$(dirname "$LOG")" 2>/dev/null || fail "$ARTIFACTS cannot be written to." "Choose another place: MNN_COURSE_ARTIFACTS=/elsewhere ./build_mnn.sh"
    printf '\n===== %s  build_mnn.sh %s\n' "$(date '+%Y-%m-%d %H:%M:%S')" "$*" >>"$LOG"
    trap leave EXIT
    trap 'stopped 130' INT
    trap 'stopped 143' TERM HUP
    lock
    if [ -n "$CLEAN" ]; then
        restore
        rm -rf "$BUILD"
        say "Deleted $(short "$BUILD"). What is installed stays."
        exit 0
    fi
    mkdir -p "$STAMPS"
    restore
    step_check
    step_source
    step_configure
    step_compile
    step_wheel
    step_mini
    step_verify
    step_install
    step_tools
    say "MNN $VERSION is installed in $(short "$PYTHON_HOME"); its tools are in $(short "$PREFIX/bin")."
}

main "$@"
