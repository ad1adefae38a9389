NCHW, NC4HW4, float = "NCHW", "NC4HW4", "float"


class Variable:
    def __init__(self, array=None):
        self.array, self.data_format = array, NCHW

    def write(self, array):
        self.array = array

    def read(self):
        return self.array


def placeholder(shape, data_format, dtype):
    return Variable()


def convert(variable, data_format):
    return variable
