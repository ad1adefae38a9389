"""Solutions of notebook 05, and the usual wrong answers. Each runs in the notebook's kernel after its exercise."""

# %% 05.1 solution
# Six bits for each weight of the four layers; biases, scales and the rest as in the file with 8-bit weights, which is
# symmetric with one scale a channel too.
weights_8, scales_8, biases_8, rest_8 = bytes_of["w8"]
answer = sum(weight.numel() for weight in matrices) * 6 / 8 + scales_8 + biases_8 + rest_8

# %% 05.1 wrong: six thirty-seconds of the whole file
answer = report.mnn_bytes * 6 / 32

# %% 05.1 wrong: the weights alone
answer = summary(source).parameters * 6 / 8

# %% 05.1 wrong: bits instead of bytes
answer = summary(source).parameters * 6


# %% 05.2 solution
# Both witnesses: the file, and a log with the good words and none of the bad ones.
def succeeded(log, path):
    return path.exists() and "Converted Success!" in log and "Not support option" not in log


answer = succeeded


# %% 05.2 wrong: any file will do
def succeeded(log, path):
    return path.exists()


answer = succeeded


# %% 05.2 wrong: the good words will do
def succeeded(log, path):
    return path.exists() and "Converted Success!" in log


answer = succeeded


# %% 05.2 wrong: looks for bad words only
def succeeded(log, path):
    return path.exists() and "Does Not Exist" not in log and "Not support" not in log


answer = succeeded


# %% 05.2 wrong: only the log
def succeeded(log, path):
    return "Converted Success!" in log and "Not support" not in log


answer = succeeded


# %% 05.3 solution
# A convolution's bias is one more constant, so it goes through the formula in the place of x.
convolution, norm = model.features[0], model.features[1]
answer = (convolution.bias - norm.running_mean) / torch.sqrt(norm.running_var + norm.eps) * norm.weight + norm.bias

# %% 05.3 wrong: divides by the variance
convolution, norm = model.features[0], model.features[1]
answer = (convolution.bias - norm.running_mean) / (norm.running_var + norm.eps) * norm.weight + norm.bias

# %% 05.3 wrong: forgets what BatchNorm adds
convolution, norm = model.features[0], model.features[1]
answer = (convolution.bias - norm.running_mean) / torch.sqrt(norm.running_var + norm.eps) * norm.weight

# %% 05.3 wrong: the biases as they were
answer = model.features[0].bias

# %% 05.4 solution
# Convert with every divisor of 1,568; keep those that bring more scales to the layer in question, the third.
used = []
for size in (size for size in range(16, 129) if 1568 % size == 0):
    trial = convert_onnx(source, scratch / "trial.mnn", weight_bits=4, weight_block=size)
    if len(layers(trial.path)[2]["quanParameter"]["alpha"]) > 128:
        used.append(size)
answer = max(used)

# %% 05.4 wrong: the largest allowed
answer = 128

# %% 05.4 wrong: the next largest divisor
answer = 98

# %% 05.4 wrong: the one from the lesson
answer = 32

# %% 05.5 solution
# Three bits are few, but with an offset for each channel all eight values are put to use.
answer = dict(weight_bits=3, asymmetric=True)

# %% 05.5 wrong: four bits are too many
answer = dict(weight_bits=4)

# %% 05.5 wrong: two bits are too few
answer = dict(weight_bits=2, asymmetric=True)

# %% 05.5 wrong: three bits without an offset
answer = dict(weight_bits=3)
