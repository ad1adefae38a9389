"""Solutions of notebook 06, each with answers that are wrong in a usual way."""

# %% 06.1 solution
# (x / 255 - 0.1307) / 0.3081 = (x - 255 * 0.1307) * 1 / (255 * 0.3081)
answer = (255 * 0.1307, 1 / (255 * 0.3081))
# %% 06.1 wrong: for pixels from 0 to 1
answer = (0.1307, 1 / 0.3081)
# %% 06.1 wrong: the deviation instead of its reciprocal
answer = (255 * 0.1307, 255 * 0.3081)
# %% 06.1 wrong: the factor without the 255
answer = (255 * 0.1307, 1 / 0.3081)

# %% 06.2 solution
# numThread counts the calling thread too.
answer = {"backend": 0, "numThread": 3}
# %% 06.2 wrong: thinks that numThread counts the workers
answer = {"backend": 0, "numThread": 2}
# %% 06.2 wrong: the key of the official session example
answer = {"thread": 3}

# %% 06.3 solution
# The first hundred at which both ends are near enough.
for n in range(100, 10_001, 100):
    low, high = interval(round(0.99 * n), n)
    if max(0.99 - low, high - 0.99) <= 0.005:
        break
answer = n
# %% 06.3 wrong: half a point for the whole interval
answer = 1.96**2 * 0.99 * 0.01 / 0.0025**2
# %% 06.3 wrong: the worst case of 50 %
answer = 1.96**2 * 0.25 / 0.005**2
# %% 06.3 wrong: one standard deviation
answer = 0.99 * 0.01 / 0.005**2
# %% 06.3 wrong: a hundred will do
answer = 100

# %% 06.4 solution
# y lives until its numbers are copied.
def collect(net, images):
    rows = []
    for image in images:
        x = expr.placeholder([1, 1, 28, 28], expr.NCHW, expr.float)
        x.write(image)
        y = net.forward(x)
        rows.append(y.read()[0].copy())
    return np.array(rows)


answer = collect

# %% 06.4 wrong: copies after the loop
def collect(net, images):
    rows = []
    for image in images:
        x = expr.placeholder([1, 1, 28, 28], expr.NCHW, expr.float)
        x.write(image)
        rows.append(net.forward(x).read()[0])
    return np.array(rows).copy()


answer = collect

# %% 06.4 wrong: probabilities instead of logits
def collect(net, images):
    logits = np.concatenate([logits_of(net, image[None]) for image in images]).astype(np.float64)
    powers = np.exp(logits - logits.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True)


answer = collect

# %% 06.4 wrong: all images at once
def collect(net, images):
    return logits_of(net, images)


answer = collect

# %% 06.4 wrong: returns digits instead of logits
def collect(net, images):
    return np.array([logits_of(net, image[None]).argmax() for image in images])


answer = collect

# %% 06.5 solution
# Inverted before the normalization: z' = ((1 - p) - MEAN) / STD = (1 - 2 * MEAN) / STD - z
def repair(delivered):
    return (1 - 2 * MEAN) / STD - delivered.transpose(0, 1, 3, 2)


answer = repair

# %% 06.5 wrong: swaps the axes only
def repair(delivered):
    return delivered.transpose(0, 1, 3, 2)


answer = repair

# %% 06.5 wrong: inverts the colours only
def repair(delivered):
    return (1 - 2 * MEAN) / STD - delivered


answer = repair

# %% 06.5 wrong: takes black and white from the array itself
def repair(delivered):
    low, high = (end(delivered, axis=(1, 2, 3), keepdims=True) for end in (np.min, np.max))
    return (high + low - delivered).transpose(0, 1, 3, 2)


answer = repair

# %% 06.5 wrong: turns instead of swapping
def repair(delivered):
    return (1 - 2 * MEAN) / STD - np.rot90(delivered, axes=(2, 3))


answer = repair

# %% 06.5 wrong: negates, which is not the inversion
def repair(delivered):
    return -delivered.transpose(0, 1, 3, 2)


answer = repair
