"""Solutions of notebook 03, and the usual wrong answers. Each runs in the notebook's kernel after its exercise."""

# %% 03.1 solution
heaviest = max(report.nodes, key=lambda node: node.parameters)
answer = heaviest.macs / report.macs

# %% 03.1 wrong: the share of the parameters
answer = max(node.parameters for node in report.nodes) / report.parameters

# %% 03.1 wrong: in percent
answer = 100 * max(report.nodes, key=lambda node: node.parameters).macs / report.macs

# %% 03.1 wrong: the operator with the most work
answer = max(node.macs for node in report.nodes) / report.macs


# %% 03.2 solution
# Each value of the output is one sum over the input channels and the kernel's height and width.
def macs(weight, output):
    values = output[1] * output[2] * output[3]
    return values * weight[1] * weight[2] * weight[3]


answer = macs


# %% 03.2 wrong: output channels counted twice
def macs(weight, output):
    return np.prod(weight) * np.prod(output)


answer = macs


# %% 03.2 wrong: one input channel only
def macs(weight, output):
    return np.prod(output) * weight[2] * weight[3]


answer = macs


# %% 03.2 wrong: FLOPs
def macs(weight, output):
    return 2 * np.prod(output) * np.prod(weight[1:])


answer = macs


# %% 03.2 wrong: once for each weight
def macs(weight, output):
    return np.prod(weight)


answer = macs

# %% 03.3 solution
# Forwards: `side` pixels seen by one value, `step` pixels between two neighbours. Each operator widens the view by
# (kernel - 1) steps; a pooling then doubles the step.
side, step = 1, 1
for kernel, stride in ((3, 1), (2, 2), (3, 1), (2, 2)):
    side += (kernel - 1) * step
    step *= stride
answer = side

# %% 03.3 wrong: sizes divided
answer = 28 / 7

# %% 03.3 wrong: the second block counted in pixels
answer = 1 + 2 + 1 + 2 + 1

# %% 03.3 wrong: one operator forgotten
answer = 8

# %% 03.3 wrong: the area
answer = 100

# %% 03.4 solution
# What the suspect has and the original does not.
answer = {node.name for node in onnx.load(suspects[0]).graph.node} - {node.name for node in graph.node}

# %% 03.4 wrong: the type
answer = "Cast"

# %% 03.4 wrong: half of it
answer = {"node__to_copy"}

# %% 03.4 wrong: an operator of the network
answer = {"node_Reshape_23"}

# %% 03.4 wrong: too much
answer = {"node__to_copy", "node__to_copy_1", "node_max_pool2d"}

# %% 03.4 wrong: a name that isn't there
answer = {"Cast_1", "Cast_2"}

# %% 03.5 solution
# The only operators that ever compute over a batch are the BatchNormalizations; one has training_mode = 1.
answer = next(
    node.name
    for node in onnx.load(suspects[1]).graph.node
    for attribute in node.attribute
    if attribute.name == "training_mode" and attribute.i == 1
)

# %% 03.5 wrong: the healthy one
answer = "features.1.BatchNormalization"

# %% 03.5 wrong: the type
answer = "BatchNormalization"

# %% 03.5 wrong: another operator
answer = "classifier.0.Flatten"
