"""Solutions of notebook 09, each with answers that are wrong in a usual way."""

# %% 09.1 solution
counts = np.bincount(labels)
answer = (int(counts.argmax()), counts.max() / len(labels))
# %% 09.1 wrong: the first hundred only
counts = np.bincount(labels[:100])
answer = (int(counts.argmax()), counts.max() / 100)
# %% 09.1 wrong: the count instead of the share
counts = np.bincount(labels)
answer = (int(counts.argmax()), int(counts.max()))
# %% 09.1 wrong: thinks that all digits are equally frequent
answer = (8, 0.1)

# %% 09.2 solution
# The squares of 1 and 0.01 differ by a factor of 10,000.
answer = 10 * np.log10(1 / 0.01**2)
# %% 09.2 wrong: without the squares
answer = 10 * np.log10(1 / 0.01)
# %% 09.2 wrong: upside down
answer = 10 * np.log10(0.01**2)
# %% 09.2 wrong: takes one percent for 60 dB
answer = 60

# %% 09.3 solution
def unpack(flat, shape, pack):
    _, channels, height, width = shape
    groups = -(-channels // pack)
    packed = np.asarray(flat).reshape(groups, height, width, pack)
    return packed.transpose(0, 3, 1, 2).reshape(1, groups * pack, height, width)[:, :channels]


answer = unpack

# %% 09.3 wrong: cuts off the end and hopes
def unpack(flat, shape, pack):
    return np.asarray(flat)[: np.prod(shape)].reshape(shape)


answer = unpack

# %% 09.3 wrong: keeps the padding
def unpack(flat, shape, pack):
    _, channels, height, width = shape
    groups = -(-channels // pack)
    packed = np.asarray(flat).reshape(groups, height, width, pack)
    return packed.transpose(0, 3, 1, 2).reshape(1, groups * pack, height, width)


answer = unpack

# %% 09.3 wrong: takes all channels for one pack
def unpack(flat, shape, pack):
    _, channels, height, width = shape
    return np.asarray(flat).reshape(height, width, -1).transpose(2, 0, 1)[None, :channels]


answer = unpack

# %% 09.4 solution
# Two faults spoil the answers; the third is silent: `thread` is ignored.
answer = """
def logits_of(path, images):
    net = MNN.Interpreter(path)
    session = net.createSession({"numThread": 1})
    source, target = net.getSessionInput(session), net.getSessionOutput(session)
    rows = []
    for image in images:
        shape = (1, 1, 28, 28)
        source.copyFrom(MNN.Tensor(shape, MNN.Halide_Type_Float, image[None], MNN.Tensor_DimensionType_Caffe))
        net.runSession(session)
        rows.append(target.getNumpyData()[0].copy())
    return np.array(rows)
"""
# %% 09.4 wrong: nothing changed
answer = COLLEAGUE
# %% 09.4 wrong: copies, but writes nothing
answer = COLLEAGUE.replace("getNumpyData()[0]", "getNumpyData()[0].copy()")
# %% 09.4 wrong: writes, but keeps views
answer = COLLEAGUE.replace(
    "source.fromNumpy(image[None])",
    "source.copyFrom(MNN.Tensor((1, 1, 28, 28), MNN.Halide_Type_Float, image[None], MNN.Tensor_DimensionType_Caffe))",
)
# %% 09.4 wrong: right logits, on as many threads as MNN likes
answer = COLLEAGUE.replace(
    "source.fromNumpy(image[None])",
    "source.copyFrom(MNN.Tensor((1, 1, 28, 28), MNN.Halide_Type_Float, image[None], MNN.Tensor_DimensionType_Caffe))",
).replace("getNumpyData()[0]", "getNumpyData()[0].copy()")
# %% 09.4 wrong: uses a helper of the page, which the text does not bring along
answer = COLLEAGUE.replace("source.fromNumpy(image[None])", "source.copyFrom(host(image[None]))")
# %% 09.4 wrong: hands the array itself to copyFrom
answer = COLLEAGUE.replace("fromNumpy", "copyFrom")

# %% 09.5 solution
# Every layer has the price of half precision; one has more than that, by itself.
answer = layer_parity(good_onnx, bad_mnn, few).first.name
# %% 09.5 wrong: the layer with the largest difference
answer = max(layer_parity(good_onnx, bad_mnn, few).layers, key=lambda layer: layer.max_abs).name
# %% 09.5 wrong: the first layer that differs at all
answer = next(layer.name for layer in layer_parity(good_onnx, bad_mnn, few).layers if layer.max_abs > 0)
# %% 09.5 wrong: the name of a tensor
answer = layer_parity(good_onnx, bad_mnn, few).first.tensor
