"""Solutions to notebook 02, each after the wrong answers that its check must recognize."""

# %% 02.1 wrong: rtol alone
answer = 2.0 + 1e-3 * 2.0
# %% 02.1 wrong: rtol not multiplied by the reference
answer = 2.0 + 1e-4 + 1e-3
# %% 02.1 wrong: the difference instead of the value
answer = 1e-4 + 1e-3 * 2.0
# %% 02.1 solution
# |c - 2| <= 1e-4 + 1e-3 * 2, and c is above 2.
answer = 2.0 + 1e-4 + 1e-3 * 2.0

# %% 02.2 wrong: believes what was asked for
answer = 11
# %% 02.2 wrong: the oldest that is built without conversion
answer = 18
# %% 02.2 wrong: stops at the first that works
answer = 17
# %% 02.2 solution
# Go down until the file has another opset than asked for.
answer = 18
while export_onnx(model, lab / "mine.onnx", opset=answer - 1).opset == answer - 1:
    answer -= 1

# %% 02.3 wrong: goes by the accuracy
answer = "right"
# %% 02.3 wrong: guesses the usual suspect
answer = "missing"
# %% 02.3 wrong: guesses the largest logits
answer = "raw pixels"
# %% 02.3 solution
# Only one feed reproduces the colleague's logits; the accuracy of two of them is nearly the same.
matches = {key: compare(mystery, session.run(["logits"], {"input": feed[:1000]})[0]).ok for key, feed in feeds.items()}
answer = next(key for key, same in matches.items() if same)

# %% 02.4 wrong: exports the module as it stands
answer = lab / "pixels.onnx"
export_onnx(FromPixels(model), answer, input_names=["pixels"])
# %% 02.4 wrong: fixed batch
answer = lab / "pixels.onnx"
export_onnx(FromPixels(model), answer, input_names=["pixels"], dynamic_batch=False)
# %% 02.4 wrong: forgets the division by 255
class Forgets(FromPixels):
    def forward(self, pixels):
        return self.net((pixels - MEAN) / STD)


answer = lab / "pixels.onnx"
export_onnx(Forgets(model), answer, input_names=["pixels"])
# %% 02.4 wrong: divides by the brightest pixel there is
class Brightest(FromPixels):
    def forward(self, pixels):
        return self.net((pixels / pixels.max() - MEAN) / STD)


answer = lab / "pixels.onnx"
torch.onnx.export(
    Brightest(model).eval(), (example,), answer,
    input_names=["pixels"], output_names=["logits"], dynamic_shapes=({0: "batch"},), external_data=False, verbose=False,
)
# %% 02.4 wrong: divides by 255 and stops
class Stops(FromPixels):
    def forward(self, pixels):
        return self.net(pixels / 255)


answer = lab / "pixels.onnx"
export_onnx(Stops(model), answer, input_names=["pixels"])
# %% 02.4 solution
# The same three steps as helpers.data.normalize, but inside of the graph.
class Normalized(FromPixels):
    def forward(self, pixels):
        return self.net((pixels / 255 - MEAN) / STD)


answer = lab / "pixels.onnx"
torch.onnx.export(
    Normalized(model).eval(), (example,), answer,
    input_names=["pixels"], output_names=["logits"], dynamic_shapes=({0: "batch"},), external_data=False, verbose=False,
)
