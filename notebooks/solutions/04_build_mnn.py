"""Solutions of notebook 04, and the usual wrong answers. Each runs in the notebook's kernel after its exercise."""

# %% 04.1 solution
# What runs in Python on a PC is in the wheel, quantizer and language models included. What has to be linked into
# another program, or was switched off when the wheel was built, is not.
answer = ["wheel", "source", "wheel", "source", "wheel", "source"]

# %% 04.1 wrong: MNN must be compiled
answer = ["source"] * 6

# %% 04.1 wrong: pip has everything
answer = ["wheel"] * 6

# %% 04.1 wrong: the quantizer needs a build option, so it needs a build
answer = ["wheel", "source", "source", "source", "wheel", "source"]

# %% 04.1 wrong: a package that knows the name OpenCL will have it
answer = ["wheel", "source", "wheel", "wheel", "wheel", "source"]

# %% 04.2 solution
# All that is loaded. The names of functions go too: who links or debugs needs them, who runs doesn't.
answer = sum(size for kind, size in parts["_mnncengine"].items() if kind in ("code", "constants and tables"))

# %% 04.2 wrong: the code alone
answer = parts["_mnncengine"]["code"]

# %% 04.2 wrong: what strip takes away
answer = parts["_mnncengine"]["debug information"] + parts["_mnncengine"]["names of functions"]

# %% 04.2 wrong: megabytes
answer = sum(size for kind, size in parts["_mnncengine"].items() if kind in ("code", "constants and tables")) / 1e6

# %% 04.2 wrong: the file as it is
answer = len(content["_mnncengine"])

# %% 04.3 solution
# -S names the source, and the quantizer's option is MNN_BUILD_QUANTOOLS.
answer = (
    "cmake -S MNN -B MNN/pymnn_build -DMNN_BUILD_CONVERTER=ON -DMNN_BUILD_QUANTOOLS=ON -DMNN_BUILD_SHARED_LIBS=OFF"
)

# %% 04.3 wrong: the place only
answer = (
    "cmake -S MNN -B MNN/pymnn_build -DMNN_BUILD_CONVERTER=ON -DMNN_BUILD_QUANTIZER=ON -DMNN_BUILD_SHARED_LIBS=OFF"
)

# %% 04.3 wrong: the option only
answer = "cmake -B MNN/pymnn_build -DMNN_BUILD_CONVERTER=ON -DMNN_BUILD_QUANTOOLS=ON -DMNN_BUILD_SHARED_LIBS=OFF ."

# %% 04.3 wrong: the quantizer left out
answer = "cmake -S MNN -B MNN/pymnn_build -DMNN_BUILD_CONVERTER=ON -DMNN_BUILD_SHARED_LIBS=OFF"

# %% 04.3 wrong: another build folder
answer = "cmake -S MNN -B build -DMNN_BUILD_CONVERTER=ON -DMNN_BUILD_QUANTOOLS=ON -DMNN_BUILD_SHARED_LIBS=OFF"


# %% 04.4 solution
# Only what stands below the warning, one name a line, indented by four spaces.
def ignored(log):
    _, _, after = log.partition("Manually-specified variables were not used by the project:")
    return re.findall(r"^    (\w+)$", after, re.MULTILINE)


answer = ignored


# %% 04.4 wrong: whatever looks like an option
def ignored(log):
    return re.findall(r"MNN_\w+", log)


answer = ignored


# %% 04.4 wrong: the first one only
def ignored(log):
    return re.findall(r"project:\s+(\w+)", log)


answer = ignored


# %% 04.4 wrong: yes or no
def ignored(log):
    return "Manually-specified variables were not used" in log


answer = ignored


# %% 04.4 wrong: MNN's own only
def ignored(log):
    return re.findall(r"^    (MNN_\w+)$", log, re.MULTILINE)


answer = ignored

# %% 04.5 solution
# Ask the hook.
names = ["MNN", "MNN.tools", "MNN.cv", "MNN.tools.utils", "_tools", "MNN.expr"]
answer = {name for name in names if not attempts(f"import {name}")}

# %% 04.5 wrong: the package of the commands is no command
answer = {"MNN", "MNN.tools", "MNN.cv", "MNN.tools.utils", "_tools", "MNN.expr"}

# %% 04.5 wrong: an empty package can't do anything
answer = {"MNN", "MNN.cv", "MNN.tools.utils", "_tools", "MNN.expr"}

# %% 04.5 wrong: distrusts the converter's library
answer = {"MNN", "MNN.cv", "MNN.expr"}
