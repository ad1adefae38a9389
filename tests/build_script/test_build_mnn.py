"""build_mnn.sh from end to end, without the network, on a stand-in for MNN's sources (standin/README.md)."""

import os
import re
import shutil
import signal
import subprocess
import sysconfig
import tarfile
import time
import zipfile
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
from workbench import ROOT, SCRIPT, STANDIN, Workbench, interrupt

pytestmark = pytest.mark.skipif(os.name == "nt", reason="build_mnn.sh says on Windows that it builds elsewhere")

OPTIONS = [
    "--ref", "--source", "--prefix", "--jobs", "--mini", "--with-llm", "--with-opencl", "--python", "--dry-run",
    "--clean", "--help",
]  # fmt: skip
TOOLS = [
    "MNNConvert", "MNNDump2Json", "GetMNNInfo", "quantized.out", "benchmark.out", "MNNV2Basic.out", "ModuleBasic.out",
    "timeProfile.out", "testModel.out",
]  # fmt: skip


@pytest.fixture(scope="session")
def build_tools():
    """On a learner's machine these tests may be left out; CI has what they need, or fails."""
    missing = [name for name in ("git", "cmake", "make", "cc", "c++") if shutil.which(name) is None]
    if not Path(sysconfig.get_path("include"), "Python.h").exists():
        missing.append("the C headers of Python")
    if missing and "CI" not in os.environ:
        pytest.skip(f"building needs {', '.join(missing)}")
    assert not missing, f"CI must have {', '.join(missing)}"


@pytest.fixture
def bench(tmp_path, build_tools):
    return Workbench(tmp_path)


@pytest.fixture(scope="session")
def repository(tmp_path_factory, build_tools):
    """URL of a local git repository of the stand-in with the tags 3.6.0 and 3.6.1."""
    folder = tmp_path_factory.mktemp("git") / "MNN"
    shutil.copytree(STANDIN, folder)

    def git(*arguments):
        name = ["-c", "user.name=nobody", "-c", "user.email=nobody@example.org"]
        subprocess.run(["git", "-C", folder, *name, *arguments], check=True, capture_output=True)

    git("init", "--quiet")
    header = folder / "include" / "MNN" / "MNNDefine.h"
    edit(header, "MNN_VERSION_PATCH 1", "MNN_VERSION_PATCH 0")
    git("add", "--all")
    git("commit", "--quiet", "-m", "older")
    git("tag", "3.6.0")
    edit(header, "MNN_VERSION_PATCH 0", "MNN_VERSION_PATCH 1")
    git("commit", "--quiet", "--all", "-m", "newer")
    git("tag", "3.6.1")
    return folder.as_uri()


class Finished(Workbench):
    """A workbench on which the release was built, installed and verified; later runs find that state again."""

    def __init__(self, folder, repository):
        super().__init__(folder)
        self.repository = repository
        self.complete_state = None  # what was installed after the last run, if that was a complete one
        for command in ("mnnconvert", "mnnquant", "mnn"):  # must never be called: they install packages (claims, C-15)
            for place in (self.path, self.environment / "bin"):
                (place / command).write_text(f"#!/bin/sh\ntouch '{self.folder}/called-{command}'\n")
                (place / command).chmod(0o755)

    def variables(self, **more):
        return super().variables(MNN_REPOSITORY=self.repository, **more)

    def run(self, *options, **more):
        self.complete_state = None
        return super().run(*options, **more)

    def complete(self, *options):
        """Run, and insist that it ends well; the output."""
        status, output = self.run(*options)
        assert status == 0, output + self.log.read_text()
        self.complete_state = None if options else self.state()
        return output

    @contextmanager
    def spoilt(self, file, old, new):
        """The package is built again from a source with a fault in it; what is installed is the good one."""
        path = self.build / "source" / file
        good = path.read_text()
        edit(path, old, new)
        (self.build / "stamps" / "wheel").unlink(missing_ok=True)
        try:
            yield
        finally:
            path.write_text(good)
            (self.build / "stamps" / "wheel").unlink(missing_ok=True)


@pytest.fixture(scope="session")
def session_bench(tmp_path_factory, build_tools, repository):
    return Finished(tmp_path_factory.mktemp("finished"), repository)


@pytest.fixture
def finished(session_bench):
    if session_bench.complete_state is None or session_bench.complete_state != session_bench.state():
        session_bench.complete()
    return session_bench


@pytest.fixture(scope="session")
def good_state(session_bench):
    session_bench.complete()
    return session_bench.state()


@pytest.fixture
def installed(session_bench, good_state):
    """The complete installation, whatever the build tree looks like: all that a failing build must not touch."""
    if session_bench.state() != good_state:
        session_bench.complete()
    return session_bench


def steps(output):
    """{step: everything said about it}."""
    said = {}
    for name, text in re.findall(r"^\[\d/\d\] (\w+) +(.*)$", output, re.MULTILINE):
        said.setdefault(name, []).append(text)
    return said


def edit(path, old, new):
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def refused(result, *words):
    """It failed, and said so in two lines: what is wrong and what to do, and where the log is."""
    status, output = result
    assert status == 1
    error = output[output.index("error: ") :].rstrip()
    assert len(error.splitlines()) == 2, error
    for word in words:
        assert word in error, error
    assert "artifacts/logs/build_mnn.log" in error


# --- the text of the script ---------------------------------------------------------------------------


def test_shellcheck_finds_nothing():
    shellcheck = shutil.which("shellcheck")
    if shellcheck is None and "CI" not in os.environ:
        pytest.skip("shellcheck is not installed (CI has it)")
    assert shellcheck, "CI must have shellcheck"
    found = subprocess.run([shellcheck, SCRIPT], capture_output=True, text=True)
    assert found.stdout == "" and found.returncode == 0


def test_bash_can_read_it():
    subprocess.run(["bash", "-n", SCRIPT], check=True)
    assert os.access(SCRIPT, os.X_OK)


NEWER = {
    "Bash 4": r"declare -[Agn]|local -[An]|mapfile|readarray|\$\{\w+(,,|\^\^|,|\^|@)|&>>|\|&|coproc|\[-1\]|wait -n"
    r"|\[\[ -v|printf '%\(|EPOCHSECONDS",
    "GNU": r"sed -i|sed -r|grep -P|readlink -f|realpath|date -d|date --|find .*-printf|stat -c|xargs -r|tac\b"
    r"|mktemp -t|cp --|df --|tail --|head -c|sort -V|timeout ",
}


@pytest.mark.parametrize("pattern", NEWER.values(), ids=NEWER)
def test_nothing_is_used_that_macos_lacks(pattern):
    shell = re.sub(r"<<'EOF'.*?^EOF$", "", SCRIPT.read_text(), flags=re.DOTALL | re.MULTILINE)
    assert re.findall(rf"^(?! *#).*(?:{pattern}).*$", shell, re.MULTILINE) == []


# --- options and plan ---------------------------------------------------------------------------------


def test_help_explains_every_option(bench):
    status, output = bench.run("--help")
    assert status == 0
    assert set(re.findall(r"^  (--[a-z-]+)", output, re.MULTILINE)) == set(OPTIONS)
    assert not bench.artifacts.exists()


@pytest.mark.parametrize(
    "options, complaint",
    [
        (["--fast"], "Unknown option '--fast'."),
        (["3.6.1"], "Unknown option '3.6.1'."),
        (["--jobs"], "--jobs needs a value."),
        (["--source", "--mini"], "--source needs a value."),
        (["--ref="], "--ref needs a value."),
        (["--jobs", "0"], "--jobs must be a whole number from 1, found '0'."),
        (["--jobs", "two"], "--jobs must be a whole number from 1, found 'two'."),
        (["--mini=yes"], "--mini takes no value."),
        (["--ref", "3.6.1", "--source", "."], "--ref and --source exclude each other"),
        (["--ref", "3.6.1; ls"], "'3.6.1; ls' is no name of a tag."),
    ],
)
def test_wrong_option_is_named_and_nothing_happens(bench, options, complaint):
    status, output = bench.run(*options)
    assert status == 2
    assert complaint in output and "--help" in output
    assert not bench.artifacts.exists()


def dry_run(bench, *options, **more):
    """The plan as [(name, command)], after checking that its lines are what a program can read."""
    status, output = bench.run("--dry-run", *options, **more)
    assert status == 0
    first, *lines = output.splitlines()
    assert first.startswith("plan: ")
    plan = [re.fullmatch(r"step (\d)/(\d)  (\w+) +(\S.*)", line).groups() for line in lines]
    assert [(int(number), int(total)) for number, total, *_ in plan] == [(n + 1, len(plan)) for n in range(len(plan))]
    assert not bench.artifacts.exists()
    return [(name, command) for *_, name, command in plan]


PLAN = ["check", "source", "configure", "compile", "wheel", "verify", "install", "tools"]


def test_dry_run_needs_no_tools_and_touches_nothing(bench):
    bench.lack("git", "cmake", "make", "cc", "gcc", "c++", "g++")
    bench.python.unlink()
    before = sorted(bench.folder.rglob("*"))
    assert [name for name, _ in dry_run(bench)] == PLAN
    assert sorted(bench.folder.rglob("*")) == before


@pytest.mark.parametrize(
    "options, step, expected",
    [
        (
            [],
            "source",
            "git clone --depth 1 --branch 3.6.1 https://github.com/alibaba/MNN.git artifacts/mnn-build/source",
        ),
        (["--ref", "3.5.0"], "source", "--branch 3.5.0 "),
        (["--ref=3.5.0"], "source", "--branch 3.5.0 "),
        (["--source", "source"], "source", "cp -R '"),
        (["--source", "MNN.tar.gz"], "source", "tar -xf '"),
        (["--with-llm"], "configure", " -DMNN_BUILD_LLM=ON -DMNN_SUPPORT_TRANSFORMER_FUSE=ON"),
        (["--with-llm"], "compile", " llm_demo"),
        (["--with-opencl"], "configure", " -DMNN_OPENCL=ON"),
        (["--mini"], "mini", " -DMNN_BUILD_MINI=ON "),
        (["--jobs", "7"], "compile", " -j7 "),
        (["--prefix", "/opt/mnn"], "tools", " /opt/mnn/bin"),
        (["--python", "python3.12"], "wheel", " python3.12 setup.py bdist_wheel "),
        (["--clean"], "clean", "rm -rf artifacts/mnn-build"),
    ],
)
def test_dry_run_shows_what_an_option_changes(bench, options, step, expected):
    assert expected in dict(dry_run(bench, *options))[step]
    assert options == [] or expected not in dict(dry_run(bench)).get(step, "")


def test_mnn_source_counts_only_where_nothing_else_is_said(bench):
    def source(*options):
        return dict(dry_run(bench, *options, MNN_SOURCE="from/here"))["source"]

    assert "from/here" in source()
    assert "--branch 3.5.0" in source("--ref", "3.5.0")
    assert "elsewhere" in source("--source", "elsewhere")


def test_default_python_is_that_of_the_active_environment(bench):
    active = str(bench.environment)
    for name in ("VIRTUAL_ENV", "CONDA_PREFIX"):
        command = [SCRIPT, "--dry-run"]
        plan = subprocess.run(command, env=bench.variables(**{name: active}), capture_output=True, text=True).stdout
        assert f"'{bench.python}' setup.py" in plan


# --- a whole build ------------------------------------------------------------------------------------


def test_build_ends_with_an_importable_package_in_the_environment(finished):
    where, version = finished.ask("import MNN; print(MNN.__file__, MNN.version(), sep='\\n')").splitlines()
    assert Path(where).is_relative_to(finished.packages)
    assert version == "3.6.1"


def test_build_leaves_the_tools_in_the_prefix(finished):
    bin_folder = finished.artifacts / "mnn" / "bin"
    assert set(TOOLS) <= {file.name for file in bin_folder.iterdir()}
    said = subprocess.run([bin_folder / "quantized.out"], capture_output=True, text=True).stdout
    assert said == "stand-in for quantized.out, engine 3\n"
    assert (finished.artifacts / "mnn" / "lib" / "libMNN.a").exists() or list(
        finished.artifacts.glob("mnn/lib/*.dylib")
    )
    assert (finished.artifacts / "mnn" / "include" / "MNN" / "MNNDefine.h").exists()


def test_build_converts_and_runs_the_courses_model(finished):
    assert re.search(r"verified: MNN 3\.6\.1, .* 200 of 200 predictions as PyTorch's", finished.log.read_text())


def test_build_never_calls_mnns_console_commands(finished):
    assert list(finished.folder.glob("called-*")) == []


def test_second_run_does_nothing_whatever_the_number_of_jobs(finished):
    def files():
        return {file: file.stat().st_mtime_ns for file in finished.build.rglob("*") if file.is_file()}

    before, state = files(), finished.state()
    needless = ("git", "cmake", "make", "c++", "cc")
    for name in needless:
        (finished.path / name).rename(finished.folder / name)
    try:
        output = finished.complete("--jobs", "1")
    finally:
        for name in needless:
            (finished.folder / name).rename(finished.path / name)
    said = steps(output)
    assert {name: said[name] for name in PLAN[1:]} == dict.fromkeys(PLAN[1:], ["up to date"])
    assert files() == before
    assert finished.state() == state


def test_package_removed_by_hand_is_installed_again(finished):
    (finished.packages / "_tools.py").unlink()
    output = finished.complete()
    assert steps(output)["compile"] == ["up to date"]
    assert (finished.packages / "_tools.py").exists()


# --- where the source comes from ----------------------------------------------------------------------


def stop_at_configure(bench):
    bench.fake("cmake", '[ "$1" = --version ] && echo "cmake version 3.25.1" || { echo "Error: enough seen"; exit 1; }')


@pytest.mark.parametrize("tag", ["3.6.0", "3.6.1"])
def test_release_is_cloned_by_its_tag(bench, repository, tag):
    stop_at_configure(bench)
    _, output = bench.run("--ref", tag, MNN_REPOSITORY=repository)
    assert steps(output)["configure"] == [f"MNN {tag}"]
    count = subprocess.run(
        ["git", "-C", bench.build / "source", "rev-list", "--all", "--count"], capture_output=True, text=True
    )
    assert count.stdout.strip() == "1"  # depth 1: nothing of the history


@pytest.mark.parametrize("kind", ["tar.gz", "zip"])
@pytest.mark.parametrize("top", ["MNN-3.6.1/", ""])
def test_archive_is_unpacked_with_or_without_a_folder_at_its_top(bench, kind, top):
    archive = bench.folder / f"MNN.{kind}"
    files = [file for file in STANDIN.rglob("*") if file.is_file()]
    if kind == "zip":
        with zipfile.ZipFile(archive, "w") as writer:
            for file in files:
                writer.write(file, top + file.relative_to(STANDIN).as_posix())
    else:
        with tarfile.open(archive, "w:gz") as writer:
            for file in files:
                writer.add(file, top + file.relative_to(STANDIN).as_posix())
    stop_at_configure(bench)
    _, output = bench.run("--source", archive)
    assert steps(output)["configure"] == ["MNN 3.6.1"]
    assert (bench.build / "source" / "pymnn" / "pip_package" / "setup.py").exists()


# --- interruptions ------------------------------------------------------------------------------------


@pytest.mark.parametrize("with_signal", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_compilation_stops_everything_and_resumes(bench, with_signal):
    edit(bench.source / "pymnn" / "pip_package" / "setup.py", "setup(\n", "raise SystemExit('far enough')\nsetup(\n")
    child = bench.start("--source", "source", STANDIN_SLEEP="97")
    deadline = time.monotonic() + 60
    while not (bench.tree / "started").exists():
        assert child.poll() is None and time.monotonic() < deadline, bench.log.read_text()
        time.sleep(0.1)
    status, output = interrupt(child, with_signal)
    assert status == 128 + with_signal
    assert "Interrupted in step 4 (compile). The same command goes on from there." in output
    assert [p.pid for p in psutil.process_iter(["cmdline"]) if "sleep 97" in " ".join(p.info["cmdline"] or [])] == []
    library = next(bench.tree.glob("libMNN.*"))
    age = library.stat().st_mtime_ns
    said = steps(bench.run("--source", "source")[1])
    assert said["source"] == said["configure"] == ["up to date"]
    assert said["compile"][-1].startswith("done")
    assert library.stat().st_mtime_ns == age  # what was compiled before was not compiled again


def test_edited_source_is_taken_anew_and_left_as_it_is(bench):
    stop_at_configure(bench)
    before = sorted(bench.source.rglob("*"))
    assert steps(bench.run("--source", "source")[1])["configure"] == ["MNN 3.6.1"]
    assert "up to date" in steps(bench.run("--source", "source")[1])["source"]
    edit(bench.source / "include" / "MNN" / "MNNDefine.h", "MNN_VERSION_PATCH 1", "MNN_VERSION_PATCH 2")
    assert steps(bench.run("--source", "source")[1])["configure"] == ["MNN 3.6.2"]
    assert sorted(bench.source.rglob("*")) == before


def test_killed_installation_is_undone_by_the_next_run(installed):
    before = installed.state()
    # A Python that kills the script at the worst moment: the earlier package gone, the new one half there.
    murderous = installed.folder / "python"
    murderous.write_text(
        f'#!/bin/sh\ncase "$*" in *--force-reinstall*) rm "{installed.packages}/MNN/__init__.py"; '
        f'echo 1/0 >"{installed.packages}/_tools.py"; kill -9 $PPID; exit 1 ;; esac\nexec "{installed.python}" "$@"\n'
    )
    murderous.chmod(0o755)
    with installed.spoilt("pymnn/pip_package/README.md", "package", "parcel"):
        assert installed.run("--python", murderous)[0] == -signal.SIGKILL
    assert installed.state() != before
    refused(installed.run("--source", "nowhere"), "nowhere")  # fails, but not before it has tidied up
    assert installed.state() == before


def test_two_builds_at_a_time_are_refused(bench):
    (bench.build / "lock").mkdir(parents=True)
    (bench.build / "lock" / "pid").write_text(f"{os.getpid()}\n")
    refused(bench.run("--source", "source"), f"Another build_mnn.sh (process {os.getpid()})", "Wait for it")
    (bench.build / "lock" / "pid").write_text("999999999\n")  # left behind by a run that was killed
    stop_at_configure(bench)
    assert "configure" in steps(bench.run("--source", "source")[1])


# --- failures -----------------------------------------------------------------------------------------


def test_missing_git_is_named(bench):
    bench.lack("git")
    refused(bench.run(), "git is missing.", "apt-get install git", "--source")


def test_missing_cmake_is_named(bench):
    bench.lack("cmake")
    refused(bench.run("--source", "source"), "cmake is missing.", "pip install cmake")


@pytest.mark.parametrize("version", ["2.8.12", "3.9.6", "3.12.4"])
def test_old_cmake_is_refused(bench, version):
    bench.fake("cmake", f"echo cmake version {version}")
    refused(
        bench.run("--source", "source"), f"cmake {version} is too old: 3.13 or newer", "pip install --upgrade cmake"
    )


@pytest.mark.parametrize("version", ["3.13.0", "3.31.6", "4.1.2-rc1"])
def test_new_cmake_is_accepted(bench, version):
    bench.fake("cmake", f'[ "$1" = --version ] && echo cmake version {version} || exit 1')
    assert "configure" in steps(bench.run("--source", "source")[1])


def test_missing_make_is_named(bench):
    bench.lack("make")
    refused(bench.run("--source", "source"), "make is missing.", "CMAKE_GENERATOR=Ninja")


def test_missing_compiler_is_named(bench):
    bench.lack("c++")
    refused(bench.run("--source", "source"), "There is no C++ compiler: 'c++' was not found.", "apt-get install g++")
    refused(bench.run("--source", "source", CXX="no-such-compiler"), "'no-such-compiler' was not found.")


def test_broken_compiler_is_named_with_its_own_words(bench):
    bench.fake("c++", "echo 'c++: fatal error: out of order' >&2; exit 1")
    refused(bench.run("--source", "source"), "cannot compile a small program: c++: fatal error: out of order")


def test_missing_zlib_is_named(bench):
    bench.fake("c++", 'case "$*" in *-lz*) echo "ld: error: cannot find -lz" >&2; exit 1 ;; esac; exit 0')
    refused(bench.run("--source", "source"), "cannot link zlib", "zlib1g-dev")


def test_full_disk_is_seen_before_the_build(bench):
    bench.fake("df", "echo Filesystem 1024-blocks Used Available Capacity Mounted; echo x 9 9 2097152 9% /")
    refused(bench.run("--source", "source"), "has 2048 MB free; the build needs 4 GB.", "MNN_COURSE_ARTIFACTS=")


def test_unknown_tag_is_named(bench, repository):
    refused(bench.run("--ref", "v3.6.1", MNN_REPOSITORY=repository), "There is no tag 'v3.6.1'", "look like 3.6.1")


def test_unreachable_repository_is_named(bench):
    gone = (bench.folder / "gone").as_uri()
    refused(bench.run(MNN_REPOSITORY=gone), f"git could not fetch {gone}", "fatal: ", "Check the network", "--source")


def test_missing_source_is_named(bench):
    refused(bench.run("--source", "nowhere"), "nowhere'.", "takes a folder or an archive")


@pytest.mark.parametrize("name", ["MNN.tar.gz", "MNN.zip"])
def test_broken_archive_is_named(bench, name):
    (bench.folder / name).write_bytes(b"\x1f\x8b\x08\x00 only the beginning")
    refused(bench.run("--source", name), f"{name}' could not be unpacked", "Download it again")


def test_folder_without_mnn_is_named(bench):
    (bench.source / "CMakeLists.txt").unlink()
    refused(bench.run("--source", "source"), "does not hold MNN's source: there is no CMakeLists.txt")


def test_failed_configuration_quotes_cmake(bench):
    edit(
        bench.source / "CMakeLists.txt", "option(MNN_OPENCL", 'message(FATAL_ERROR "no such thing")\noption(MNN_OPENCL'
    )
    refused(bench.run("--source", "source"), "CMake could not configure MNN: CMake Error", "no such thing")


def test_option_unknown_to_the_source_is_reported(bench):
    edit(bench.source / "CMakeLists.txt", 'option(MNN_BUILD_AUDIO "" OFF)\n', "")
    edit(bench.source / "source" / "engine.c", "return", "retrun")
    _, output = bench.run("--source", "source")
    assert "this source does not know: MNN_BUILD_AUDIO" in steps(output)["configure"][1]


def test_failed_compilation_quotes_the_compiler_and_keeps_what_was_installed(bench):
    before = bench.install_earlier()
    edit(bench.source / "source" / "engine.c", "return", "retrun")
    refused(
        bench.run("--source", "source"), "MNN did not compile: ", "engine.c:3", "error: 'retrun' undeclared", "--clean"
    )
    assert bench.state() == before
    assert not (bench.artifacts / "mnn").exists()


@pytest.mark.parametrize(
    "words, complaint",
    [
        (
            "c++: fatal error: Killed signal terminated program cc1plus",
            "ran out of memory.\n       Call again with fewer",
        ),
        ("fatal error: error writing to x.s: No space left on device", "The disk is full.\n       Make room"),
    ],
)
def test_compilation_without_room_says_which(bench, words, complaint):
    cmake = shutil.which("cmake")
    bench.fake("cmake", f'case "$*" in *--build*) echo \'{words}\' >&2; exit 1 ;; esac; exec {cmake} "$@"')
    refused(bench.run("--source", "source"), complaint)


def test_failed_package_is_named_and_keeps_what_was_installed(installed):
    before = installed.state()
    with installed.spoilt("pymnn/pip_package/setup.py", "setup(\n", "raise ImportError('no such header')\nsetup(\n"):
        refused(installed.run(), "could not build the Python package: ImportError: no such header")
    assert installed.state() == before


ENGINE = "pymnn/pip_package/_mnncengine.py"
RUN = "self.session.run(outputs, inputs)"


@pytest.mark.parametrize(
    "file, old, new, complaint",
    [
        (ENGINE, RUN, f"[array + 1 for array in {RUN}]", "logits within 1.0e+00"),
        (ENGINE, "class Model", "raise ImportError('undefined symbol')\nclass Model", "ImportError: undefined symbol"),
        (ENGINE, 'installed_version("MNN")', '"9.9"', "MNN says it is 9.9, its source says 3.6.1"),
        (ENGINE, "import onnxruntime", "import os; os.abort()", "killed by signal 6"),
        ("pymnn/pip_package/_tools.py", "shutil.copyfile(", "print(", "the converter wrote nothing"),
    ],
    ids=["answers", "import", "version", "crash", "conversion"],
)
def test_check_catches_a_faulty_package_before_anything_is_replaced(installed, file, old, new, complaint):
    before = installed.state()
    with installed.spoilt(file, old, new):
        refused(installed.run(), "The new build did not pass its check: ", complaint, "Nothing was installed.")
    assert installed.state() == before
    assert (installed.artifacts / "mnn" / "BUILT.txt").exists()


def test_check_catches_a_faulty_converter_program(installed):
    for stamp in ("compile", "tools"):
        (installed.build / "stamps" / stamp).unlink()
    try:
        with installed.spoilt("tools/converter/convert.c", "fputc(byte, to)", "(void)byte"):
            refused(installed.run(), "MNNConvert did not convert", "Nothing was installed.")
    finally:
        (installed.build / "stamps" / "compile").unlink()


def test_package_that_fails_only_once_installed_is_rolled_back(installed):
    before = installed.state()
    with installed.spoilt(ENGINE, RUN, f"[array + ('site-packages' in __file__) for array in {RUN}]"):
        refused(installed.run(), "The installed package did not pass its check", "The environment is as it was before.")
    assert installed.state() == before
    assert installed.ask("import MNN; print(MNN.version())") == "3.6.1"


def test_python_that_lacks_something_is_refused(bench):
    refused(bench.run("--source", "source", "--python", "no-python"), "There is no Python 'no-python'.", "--python")
    (bench.packages / "course.pth").unlink()
    refused(bench.run("--source", "source"), "lacks pip, setuptools, numpy", "-m pip install pip setuptools numpy")


def test_foreign_folder_is_never_replaced(bench):
    (bench.folder / "mine").mkdir()
    (bench.folder / "mine" / "thesis.txt").touch()
    refused(bench.run("--source", "source", "--prefix", "mine"), "was not made by this script", "--prefix")
    assert (bench.folder / "mine" / "thesis.txt").exists()


def test_clean_deletes_the_build_tree_only(bench):
    stop_at_configure(bench)
    bench.run("--source", "source")
    before = bench.install_earlier()
    (bench.artifacts / "mnn").mkdir()
    status, output = bench.run("--clean")
    assert status == 0
    assert output == "Deleted artifacts/mnn-build. What is installed stays.\n"
    assert not bench.build.exists()
    assert (bench.artifacts / "mnn").exists() and bench.source.exists() and bench.state() == before


# --- other options (last, since it leaves another build behind) ----------------------------------------


def test_changed_option_configures_afresh_and_ends_up_installed(finished):
    assert finished.ask("import MNN; print(MNN.llm)") == "None"
    leftover = finished.tree / "leftover"
    leftover.touch()
    output = finished.complete("--with-llm", "--with-opencl", "--mini")
    said = steps(output)
    assert said["source"] == ["up to date"]
    assert all(said[name][-1].startswith("done") for name in ("configure", "compile", "wheel", "mini", "install"))
    assert "does not know" not in output  # every option is one of MNN's
    assert not leftover.exists()
    assert finished.ask("import MNN.llm; print(callable(MNN.llm.create))") == "True"
    assert (finished.artifacts / "mnn" / "bin" / "llm_demo").exists()
    assert list((finished.artifacts / "mnn" / "lib" / "mini").glob("libMNN.*"))


# --- the weekly build ---------------------------------------------------------------------------------


def test_weekly_workflow_uses_options_that_exist():
    workflow = (ROOT / ".github" / "workflows" / "build-mnn.yml").read_text()
    calls = re.findall(r"\./build_mnn\.sh(.*)", workflow)
    assert calls
    assert {option for call in calls for option in re.findall(r"--[a-z-]+", call)} <= set(OPTIONS)
