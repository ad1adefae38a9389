"""What notebook 10 draws beside `helpers.plots`: how an answer comes about, and what each way to run a model costs."""

from matplotlib.figure import Figure

from .plots import BLACK, BLUE, GREEN, ORANGE, SKY, VERMILION

MARKS = (("o", BLUE), ("s", VERMILION), ("D", ORANGE), ("^", GREEN), ("v", SKY), ("P", BLACK))


def reading_and_writing(stats, title="First read, then write"):
    """stats: {name: llm.Stats}. Tokens that went through the model, over the seconds since the question.

    Steep while the prompt is read, flat while the answer is written; the dot between is the first token.
    """
    fig = Figure(figsize=(7.2, 3.2))
    axes = fig.add_subplot(title=title, xlabel="seconds since the question", ylabel="tokens through the model")
    for (name, one), (mark, color) in zip(stats.items(), MARKS, strict=False):
        read = one.prompt_tokens - one.cached_tokens
        seconds = [0, one.prefill_seconds, one.prefill_seconds + one.decode_seconds]
        axes.plot(seconds, [0, read, read + one.forwards], color=color, label=name)
        axes.plot(one.prefill_seconds, read, mark, color=color)
    axes.legend(loc="lower right")
    return fig


def cost_and_loss(rows, title="What each way to run the model loses, and what it costs"):
    """rows: list of llm_quality.Quality. KL divergence over the file's size, and over peak memory; a mark for each row.

    Down is nearer to the original, left is smaller.
    """
    fig = Figure(figsize=(9, 3.9))
    file, memory = fig.subplots(1, 2, sharey=True)
    for row, (mark, color) in zip(rows, MARKS, strict=False):
        look = {"marker": mark, "color": color, "s": 70, "label": row.name}
        file.scatter(row.bytes / 1e6, row.kl, **look)
        memory.scatter(row.peak_bytes / 1e6, row.kl, **look)
    file.set(title=title, xlabel="file of the weights (MB, 1,000,000 bytes)", ylabel="KL from the original (nats)")
    file.set_yscale("log")
    memory.set(xlabel="peak memory (MB)")
    for axes in (file, memory):
        axes.margins(0.12)
        axes.set_xlim(left=0)
    fig.legend(*file.get_legend_handles_labels(), loc="outside lower center", ncols=3)
    return fig
