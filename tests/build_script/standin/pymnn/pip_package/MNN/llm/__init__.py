def create(config):
    raise NotImplementedError("a stand-in has no language model")
