"""Solutions of notebook 10, and the usual wrong answers. Each runs in the notebook's kernel after its exercise."""

# %% 10.1 solution
# 4 bits are half a byte; every 32 weights share 8 bytes, a quarter of a byte for each.
answer = 1.5e9 * (4 / 8 + 8 / 32) / 1e9

# %% 10.1 wrong: no scales
answer = 1.5e9 * 4 / 8 / 1e9

# %% 10.1 wrong: scales without zero points
answer = 1.5e9 * (4 / 8 + 4 / 32) / 1e9

# %% 10.1 wrong: gibibytes
answer = 1.5e9 * (4 / 8 + 8 / 32) / 2**30

# %% 10.1 wrong: bytes
answer = 1.5e9 * (4 / 8 + 8 / 32)

# %% 10.2 solution
# Keys and values, layers, key-value heads, numbers per head, bytes; the last token has to fit whole.
answer = 1_000_000_000 // (2 * 32 * 8 * 128 * 2)

# %% 10.2 wrong: the query heads
answer = 1_000_000_000 // (2 * 32 * 32 * 128 * 2)

# %% 10.2 wrong: keys only
answer = 1_000_000_000 // (32 * 8 * 128 * 2)

# %% 10.2 wrong: float32
answer = 1_000_000_000 // (2 * 32 * 8 * 128 * 4)

# %% 10.2 wrong: one layer
answer = 1_000_000_000 // (2 * 8 * 128 * 2)


# %% 10.3 solution
# Subtracting the largest logit changes no probability and keeps exp() from overflowing.
def kl(original, other):
    p, q = (x - x.max() - np.log(np.exp(x - x.max()).sum()) for x in (original, other))
    return (np.exp(p) * (p - q)).sum()


answer = kl


# %% 10.3 wrong: the other way round
def kl(original, other):
    p, q = (x - np.log(np.exp(x).sum()) for x in (original, other))
    return (np.exp(q) * (q - p)).sum()


answer = kl


# %% 10.3 wrong: in bits
def kl(original, other):
    p, q = (np.exp(x) / np.exp(x).sum() for x in (original, other))
    return (p * np.log2(p / q)).sum()


answer = kl


# %% 10.3 wrong: no softmax
def kl(original, other):
    return (original * (original - other)).sum()


answer = kl


# %% 10.3 wrong: overflows
def kl(original, other):
    with np.errstate(all="ignore"):
        p, q = (np.exp(x) / np.exp(x).sum() for x in (original, other))
        return (p * np.log(p / q)).sum()


answer = kl


# %% 10.4 solution
# All weights come from memory for each token; so many times a second that the bandwidth is used up.
def most(bandwidth, parameters, bits, block):
    return bandwidth / (parameters * (bits / 8 + 8 / block))


answer = most


# %% 10.4 wrong: no scales
def most(bandwidth, parameters, bits, block):
    return bandwidth / (parameters * bits / 8)


answer = most


# %% 10.4 wrong: expanded to float32
def most(bandwidth, parameters, bits, block):
    return bandwidth / (parameters * 4)


answer = most


# %% 10.4 wrong: bits for bytes
def most(bandwidth, parameters, bits, block):
    return bandwidth / (parameters * (bits + 64 / block))


answer = most


# %% 10.4 wrong: seconds for a token
def most(bandwidth, parameters, bits, block):
    return parameters * (bits / 8 + 8 / block) / bandwidth


answer = most


# %% 10.5 solution
# What was chosen is read in the next step; that is why writing cannot be done all at once.
def greedy(next_logits, ids, end, most):
    ids, new = list(ids), []
    while len(new) < most:
        token = int(np.argmax(next_logits(ids + new)))
        if token == end:
            break
        new.append(token)
    return new


answer = greedy


# %% 10.5 wrong: forgets what it said
def greedy(next_logits, ids, end, most):
    return [int(np.argmax(next_logits(ids))) for _ in range(most)]


answer = greedy


# %% 10.5 wrong: gives the model the last token alone
def greedy(next_logits, ids, end, most):
    new, given = [], list(ids)
    while len(new) < most:
        token = int(np.argmax(next_logits(given)))
        if token == end:
            break
        new.append(token)
        given = [token]
    return new


answer = greedy


# %% 10.5 wrong: an end of its own
def greedy(next_logits, ids, end, most):
    ids, new = list(ids), []
    while len(new) < most:
        token = int(np.argmax(next_logits(ids + new)))
        if token == 0:
            break
        new.append(token)
    return new


answer = greedy


# %% 10.5 wrong: with the end
def greedy(next_logits, ids, end, most):
    ids, new = list(ids), []
    while len(new) < most and end not in new:
        new.append(int(np.argmax(next_logits(ids + new))))
    return new


answer = greedy


# %% 10.5 wrong: writes into the caller's list
def greedy(next_logits, ids, end, most):
    start = len(ids)
    while len(ids) - start < most:
        token = int(np.argmax(next_logits(ids)))
        if token == end:
            break
        ids.append(token)
    return ids[start:]


answer = greedy


# %% 10.5 wrong: knows the answer, asks nobody
def greedy(next_logits, ids, end, most):
    return [2, 7, 8][:most]


answer = greedy


# %% 10.5 wrong: cuts to `most` when all is said
def greedy(next_logits, ids, end, most):
    ids, new = list(ids), []
    while len(new) < 20:
        token = int(np.argmax(next_logits(ids + new)))
        if token == end:
            break
        new.append(token)
    return new[:most]


answer = greedy


# %% 10.5 wrong: with the prompt
def greedy(next_logits, ids, end, most):
    ids = list(ids)
    for _ in range(most):
        token = int(np.argmax(next_logits(ids)))
        if token == end:
            break
        ids.append(token)
    return ids


answer = greedy


# %% 10.5 wrong: no end
def greedy(next_logits, ids, end, most):
    ids, new = list(ids), []
    while len(new) < most:
        new.append(int(np.argmax(next_logits(ids + new))))
    return new


answer = greedy
