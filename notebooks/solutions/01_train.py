"""Solutions to the exercises of notebook 01, and the wrong answers its checks know. Paste one into its cell."""

# %% 01.1 solution
# 1 is the most frequent digit of the test set too.
answer = np.bincount(test_labels).max() / len(test_labels)
# %% 01.1 wrong: takes the digits for equally frequent
answer = 0.1
# %% 01.1 wrong: counts in the training set
answer = np.bincount(train_labels).max() / len(train_labels)
# %% 01.1 wrong: counts in the first 100 images
answer = np.bincount(test_labels[:100]).max() / 100
# %% 01.1 wrong: gives the number of images
answer = np.bincount(test_labels).max()

# %% 01.2 solution
# (pixel / 255 - MEAN) / STD = 0 when pixel = 255 * MEAN
answer = 255 * MEAN
# %% 01.2 wrong: takes the padding for black
answer = 0
# %% 01.2 wrong: on the scale from 0 to 1
answer = MEAN
# %% 01.2 wrong: what black becomes
answer = -MEAN / STD

# %% 01.3 solution
# Height and width stay at 14, so the first linear layer gets 32 * 14 * 14 inputs; nothing else changes.
answer = sum(by_hand.values()) + 128 * 32 * (14 * 14 - 7 * 7)
# %% 01.3 wrong: a pool has no parameters, so nothing changes
answer = sum(by_hand.values())
# %% 01.3 wrong: everything grows by four
answer = 4 * sum(by_hand.values())
# %% 01.3 wrong: only one side stays at 14
answer = sum(by_hand.values()) + 128 * 32 * (14 * 7 - 7 * 7)

# %% 01.4 solution
# The target: 0.9 + 0.1 / 10 for the right digit, 0.1 / 10 for each of the nine others.
answer = -(0.91 * math.log(0.91) + 9 * 0.01 * math.log(0.01))
# %% 01.4 wrong: takes zero for reachable
answer = 0
# %% 01.4 wrong: counts the right digit only
answer = -math.log(0.9)
# %% 01.4 wrong: spreads the smoothing over nine digits
answer = -(0.9 * math.log(0.9) + 0.1 * math.log(0.1 / 9))
# %% 01.4 wrong: counts one wrong digit
answer = -(0.91 * math.log(0.91) + 0.01 * math.log(0.01))

# %% 01.5 solution
# The network has seen centred digits only; a few pixels are enough to confuse it.
def share_right(shift):
    return evaluate(model, normalize(np.roll(test_pixels[:1000], shift, axis=2)), test_labels[:1000])


answer = next(shift for shift in range(28) if share_right(shift) < 0.9)
# %% 01.5 wrong: the last shift that does no harm
answer = next(
    shift for shift in range(28)
    if evaluate(model, normalize(np.roll(test_pixels[:1000], shift + 1, axis=2)), test_labels[:1000]) < 0.9
)
# %% 01.5 wrong: the accuracy instead of the shift
answer = evaluate(model, normalize(np.roll(test_pixels[:1000], 3, axis=2)), test_labels[:1000])
# %% 01.5 wrong: below one half
answer = next(
    shift for shift in range(28)
    if evaluate(model, normalize(np.roll(test_pixels[:1000], shift, axis=2)), test_labels[:1000]) < 0.5
)
