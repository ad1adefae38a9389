"""requirements.txt, environment.yml and pyproject.toml agree, and pip can resolve them on every Python and system."""

import json
import re
import subprocess
import sys
import tomllib
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import distribution

import pytest
import yaml
from tiny_project import ROOT

from helpers.cli import bootstrap

PYTHONS = ("3.11", "3.12", "3.13")
RESOLVER = "pip==26.3"  # reads wheels' metadata without downloading the wheels, which for torch alone is 0.5 GB
LINES = (ROOT / "requirements.txt").read_text(encoding="utf-8").splitlines()


@pytest.fixture(scope="module")
def pyproject():
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


@pytest.mark.parametrize("line", [line for line in LINES if line.strip() and not line.startswith("#")])
def test_every_requirement_is_pinned_exactly_and_says_what_for(line):
    assert re.fullmatch(r"[A-Za-z0-9-]+==\d+(\.\d+)+ +# \S.{5,}", line)


def test_no_package_is_pinned_twice():
    names = [bootstrap.normal(line.split("==")[0]) for line in LINES if "==" in line]
    pins = bootstrap.read_pins(ROOT)
    assert len(names) == len(set(names)) == len(pins)


def test_package_metadata_takes_the_pins_from_requirements_txt(pyproject):
    assert pyproject["project"]["dynamic"] == ["dependencies"]
    assert pyproject["tool"]["setuptools"]["dynamic"]["dependencies"] == {"file": ["requirements.txt"]}
    assert "dependencies" not in pyproject["project"]


def test_setuptools_reads_from_there_the_same_pins_as_the_commands():
    program = (
        "import json\nfrom setuptools.config.pyprojecttoml import apply_configuration\n"
        "from setuptools.dist import Distribution\n"
        "print(json.dumps(apply_configuration(Distribution(), 'pyproject.toml').install_requires))"
    )
    result = subprocess.run([sys.executable, "-W", "ignore", "-c", program], cwd=ROOT, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    pins = bootstrap.read_pins(ROOT)
    assert sorted(json.loads(result.stdout)) == sorted(f"{name}=={version}" for name, version in pins.items())


def test_the_same_pythons_everywhere(pyproject):
    oldest, newest = bootstrap.OLDEST, bootstrap.NEWEST
    assert pyproject["project"]["requires-python"] == f">=3.{oldest[1]},<3.{newest[1] + 1}"
    assert tuple(f"3.{minor}" for minor in range(oldest[1], newest[1] + 1)) == PYTHONS
    assert pyproject["tool"]["ruff"]["target-version"] == f"py3{oldest[1]}"


def test_conda_environment_brings_the_tools_and_leaves_the_packages_to_the_same_pins(pyproject):
    environment = yaml.safe_load((ROOT / "environment.yml").read_text(encoding="utf-8"))
    assert environment["name"] == pyproject["project"]["name"] == "mnn-course"
    assert environment["channels"] == ["conda-forge"]
    *conda, pip = environment["dependencies"]
    assert conda == ["python=3.11", "cmake", "ninja", "cxx-compiler", "make", "git", "pip"]
    assert pip == {"pip": ["-r requirements.txt", "-e ."]}


def test_every_module_of_the_package_is_installed(pyproject):
    from setuptools import find_packages

    found = set(find_packages(str(ROOT), include=pyproject["tool"]["setuptools"]["packages"]["find"]["include"]))
    folders = {path.parent.relative_to(ROOT) for path in (ROOT / "helpers").rglob("*.py")}
    assert found == {".".join(folder.parts) for folder in folders}


# --- asking pip ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def pip(tmp_path_factory):
    """The command of a pip that resolves without downloading wheels. Skips when no package index can be reached."""
    folder = tmp_path_factory.mktemp("resolver")
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--retries", "1", "--timeout", "10"]
    result = subprocess.run([*install, "--target", folder, RESOLVER], capture_output=True, text=True)
    if result.returncode != 0:
        pytest.skip(f"no package index can be reached, which {RESOLVER} would come from")
    return [sys.executable, str(folder / "pip")]


def resolve(pip, folder, requirements, python, platforms):
    """Start pip resolving a requirements file; nothing is installed. Returns the process."""
    tags = [part for tag in platforms for part in ("--platform", tag)]
    return subprocess.Popen(
        [*pip, "install", "--dry-run", "--ignore-installed", "--only-binary=:all:", "--use-feature=fast-deps",
         "--python-version", python, *tags, "--target", str(folder / python),
         "--report", str(folder / f"{python}.json"), "-r", str(requirements)],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip


def resolved(folder, python):
    report = json.loads((folder / f"{python}.json").read_text(encoding="utf-8"))
    packages = [entry["metadata"] for entry in report["install"]]
    return {bootstrap.normal(package["name"]): package["version"].split("+")[0] for package in packages}


LINUX = [f"manylinux_2_{minor}_x86_64" for minor in range(28, 4, -1)] + ["manylinux2014_x86_64", "manylinux1_x86_64"]
OTHERS = {
    "macOS": ["macosx_14_0_arm64", "macosx_12_0_arm64", "macosx_11_0_arm64", "macosx_10_9_universal2"],
    "Windows": ["win_amd64"],
}


@pytest.mark.network
@pytest.mark.skipif(sys.platform != "linux", reason="pip judges markers by the system it runs on")
def test_pins_resolve_on_each_python(pip, tmp_path):
    processes = {python: resolve(pip, tmp_path, ROOT / "requirements.txt", python, LINUX) for python in PYTHONS}
    logs = {python: process.communicate(timeout=300)[0] for python, process in processes.items()}
    for python, process in processes.items():
        assert process.returncode == 0, f"Python {python}:\n{logs[python][-3000:]}"
        found = resolved(tmp_path, python)
        assert bootstrap.unmet(bootstrap.read_pins(ROOT), found) == {}
        assert len(found) > 100  # the packages that the pinned ones need were asked for too


def of_one_system():
    """The pinned packages whose wheels depend on the system; the others' are for any."""
    found = []
    for name in bootstrap.read_pins(ROOT):
        tags = re.findall(r"^Tag: \S+-(\S+)$", distribution(name).read_text("WHEEL"), re.MULTILINE)
        found += [name] if tags != ["any"] * len(tags) else []
    return found


@pytest.mark.network
def test_every_pin_has_a_wheel_for_the_other_systems(pip):
    """Of the pinned packages themselves, on the newest Python, the one most likely to lack some.

    What they need besides depends on markers, which pip reads from this system.
    """
    asked = [(name, python, system) for name in of_one_system() for python in PYTHONS[-1:] for system in OTHERS]

    def versions(question):
        name, python, system = question
        tags = [part for tag in OTHERS[system] for part in ("--platform", tag)]
        ask = [*pip, "index", "versions", name, "--json", "--only-binary=:all:", "--python-version", python, *tags]
        answer = subprocess.run(ask, capture_output=True, text=True, timeout=60)
        return json.loads(answer.stdout)["versions"] if answer.returncode == 0 else [answer.stderr[-300:]]

    with ThreadPoolExecutor(2) as pool:
        answers = dict(zip(asked, pool.map(versions, asked), strict=True))
    pins = bootstrap.read_pins(ROOT)
    assert len(asked) >= 12
    assert {question: answer for question, answer in answers.items() if pins[question[0]] not in answer} == {}


@pytest.mark.network
def test_pins_that_exclude_one_another_are_found(pip, tmp_path):
    conflict = tmp_path / "requirements.txt"
    conflict.write_text("ipywidgets==8.1.9\nwidgetsnbextension==3.6.0\n")
    process = resolve(pip, tmp_path, conflict, "3.12", LINUX)
    log = process.communicate(timeout=120)[0]
    assert process.returncode != 0 and "conflicting dependencies" in log
