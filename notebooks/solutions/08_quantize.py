"""Solutions of notebook 08, and the usual wrong answers. Each runs in the notebook's kernel after its exercise."""

# %% 08.1 solution
# 254 steps cover 5.0; counted from -127 at -1.0, the value 0.0 is 1 / scale steps higher.
answer = (5 / 254, round(-127 + 1 / (5 / 254)))

# %% 08.1 wrong: the symmetric scale
answer = (4 / 127, 0)

# %% 08.1 wrong: integers from 0 on
answer = (5 / 254, 51)

# %% 08.1 wrong: the sign
answer = (5 / 254, 76)

# %% 08.2 solution
# The ink are the values above the smallest; clipped is what lies beyond the range on either side.
ink = images[images > images.min()]
answer = (np.abs(ink) > kl.tensor("input").high).mean()

# %% 08.2 wrong: of all pixels
answer = (np.abs(images) > kl.tensor("input").high).mean()

# %% 08.2 wrong: what is kept
ink = images[images > images.min()]
answer = (np.abs(ink) <= kl.tensor("input").high).mean()


# %% 08.3 solution
# First who may play, then who wins; min() compares the second part of the key where the first is equal.
def choose(table):
    good = [row for row in table if row.accuracy >= 0.99]
    return min(good, key=lambda row: (row.bytes, -row.accuracy), default=None)


answer = choose


# %% 08.3 wrong: the most accurate
def choose(table):
    return max(table, key=lambda row: row.accuracy)


answer = choose


# %% 08.3 wrong: no second part of the key
def choose(table):
    return min((row for row in table if row.accuracy >= 0.99), key=lambda row: row.bytes, default=None)


answer = choose


# %% 08.3 wrong: the most accuracy for a byte
def choose(table):
    return max((row for row in table if row.accuracy >= 0.99), key=lambda row: row.accuracy / row.bytes, default=None)


answer = choose


# %% 08.3 wrong: rounds before it compares
def choose(table):
    good = [row for row in table if round(row.accuracy, 2) >= 0.99]
    return min(good, key=lambda row: (row.bytes, -row.accuracy), default=None)


answer = choose


# %% 08.3 wrong: nothing to choose from
def choose(table):
    return min((row for row in table if row.accuracy >= 0.99), key=lambda row: (row.bytes, -row.accuracy))


answer = choose

# %% 08.4 solution
# Real strokes, and noise instead of the one black that makes the spike.
answer = noisy_ground(calibration_samples(50))

# %% 08.4 wrong: the real digits
answer = calibration_samples(50)

# %% 08.4 wrong: more of them
answer = calibration_samples(500)

# %% 08.4 wrong: pixels from 0 to 255
answer = 255 * (calibration_samples(50) * STD + MEAN)
