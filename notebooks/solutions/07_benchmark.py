"""Solutions of notebook 07, each with answers that are wrong in a usual way."""

# %% 07.1 solution
answer = {"A": 2, "B": 4, "C": 5}
# %% 07.1 wrong: sees the missing warm-up in A
answer = {"A": 6, "B": 4, "C": 5}
# %% 07.1 wrong: blames the mean in B, which takes the median
answer = {"A": 2, "B": 3, "C": 5}
# %% 07.1 wrong: blames the clock in C
answer = {"A": 2, "B": 4, "C": 1}
# %% 07.1 wrong: leaves C out
answer = {"A": 2, "B": 4}

# %% 07.2 solution
# One call in 1,000 lies above p99.9.
answer = 10 * 1000
# %% 07.2 wrong: one call above it
answer = 1000
# %% 07.2 wrong: a hundred, as usual
answer = 100
# %% 07.2 wrong: counts those below
answer = 9990

# %% 07.3 solution
answer = next(b for b in (1, 2, 4, 8, 16, 32, 64) if b / (40 + 20 * b) * 1e6 >= 45_000)
# %% 07.3 wrong: nearly enough
answer = 16
# %% 07.3 wrong: the largest is safest
answer = 256
# %% 07.3 wrong: no power of two
answer = 18

# %% 07.4 solution
# The layers run one after the other; each takes the longer of its two times.
answer = 1e6 * sum(max(w.flops / 100e9, w.bytes / 20e9) for w in roofline.work(graph, 1))
# %% 07.4 wrong: arithmetic alone
answer = 1e6 * 2 * graph.macs / 100e9
# %% 07.4 wrong: a multiply-accumulate as one operation
answer = 1e6 * sum(max(w.flops / 2 / 100e9, w.bytes / 20e9) for w in roofline.work(graph, 1))
# %% 07.4 wrong: both times added
answer = 1e6 * sum(w.flops / 100e9 + w.bytes / 20e9 for w in roofline.work(graph, 1))
# %% 07.4 wrong: seconds
answer = sum(max(w.flops / 100e9, w.bytes / 20e9) for w in roofline.work(graph, 1))

# %% 07.5 solution
def fair(a, b, rounds=400):
    ratios = []
    for _ in range(rounds):
        one = seconds(a)
        ratios.append(seconds(b) / one)
        # the other order, so that neither is always the first
        two = seconds(b)
        ratios.append(two / seconds(a))
    return statistics.median(ratios)


answer = fair

# %% 07.5 wrong: one after the other
def fair(a, b, calls=1000):
    one, two = (statistics.median(seconds(f) for _ in range(calls)) for f in (a, b))
    return two / one


answer = fair

# %% 07.5 wrong: a single pair
def fair(a, b):
    return 1 / (seconds(a) / seconds(b))


answer = fair

# %% 07.5 wrong: never less than one
def fair(a, b, rounds=400):
    pairs = [(seconds(a), seconds(b)) for _ in range(rounds)]
    return statistics.median(max(pair) / min(pair) for pair in pairs)


answer = fair

# %% 07.5 wrong: in turn, but with the mean
def fair(a, b, rounds=1000):
    pairs = [(seconds(a), seconds(b)) for _ in range(rounds)]
    return statistics.mean(two / one for one, two in pairs)


answer = fair

# %% 07.5 wrong: the other way round
def fair(a, b, rounds=400):
    return statistics.median(seconds(a) / seconds(b) for _ in range(rounds))


answer = fair
