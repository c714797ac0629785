"""libchoir.so in Python: the functions that header.py found, with tensors as objects.

    with choir.Run(seed=1) as run:
        layer = run.module(C.nn_linear, 3, 2)
        with run.step() as step:
            x = step.tensor(numpy.ones((5, 3), "f4"), grad=True)
            y = layer(x)                    # or C.linear(x, w, b): choir_linear
            C.backward(C.mean(y))
            C.grad(x).numpy()

C.name is choir_name. A tuple serves for a choir_shape; numpy arrays come and go by copy. A call that
returns a status other than success raises Error with the library's message; so does reading a tensor
of a scope that failed.
"""
import ctypes as c
import os

import numpy as np

from header import Header

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
HEADER = Header(os.path.join(ROOT, "include", "choir"))
E = type("E", (), HEADER.enumerators)  # E.CHOIR_F32
NUMPY = {E.CHOIR_F32: np.float32, E.CHOIR_F64: np.float64, E.CHOIR_I64: np.int64,
         E.CHOIR_I32: np.int32, E.CHOIR_U8: np.uint8, E.CHOIR_BOOL: np.bool_}
VISIT = c.CFUNCTYPE(None, c.c_char_p, c.c_void_p, c.c_void_p)
MATCH = c.CFUNCTYPE(c.c_bool, c.c_char_p, c.c_void_p, c.c_void_p)


class Error(Exception):
    pass


class Tensor:
    def __init__(self, handle):
        self.handle = handle

    @property
    def shape(self):
        shape = C.tensor_shape(self)
        return tuple(shape.dim[:shape.ndim])

    def numpy(self):
        C.scope_status(C.tensor_scope(self))
        array = np.empty(self.shape, NUMPY[C.tensor_dtype(self)])
        C.read(self, array.ctypes.data, array.nbytes)
        return array

    def item(self):
        return float(self.numpy())

    def write(self, array):
        """Overwrites the values; the shape and type must be ours."""
        array = np.asarray(array, NUMPY[C.tensor_dtype(self)], order="C")
        if array.shape != self.shape:
            raise Error("a tensor of %s got values of %s" % (self.shape, array.shape))
        C.write(self, array.ctypes.data, array.nbytes)


class Module:
    def __init__(self, handle):
        self.handle = handle

    def __call__(self, *inputs):
        return C.forward_n(self, inputs, len(inputs))

    def train(self, on=True):
        C.module_train(self, on)
        return self

    def tensors(self, buffers=True):
        """Full name -> parameter or buffer."""
        found = {}
        visit = VISIT(lambda name, t, arg: found.__setitem__(name.decode(), Tensor(t)))
        C.module_visit(self, buffers, c.cast(visit, c.c_void_p), None)
        return found


class Scope:
    def __init__(self, handle):
        self.handle = handle

    def __enter__(self):
        return self

    def __exit__(self, kind, value, trace):
        handle, self.handle = self.handle, None
        status = LIB["choir_scope_close"](handle)
        if status and kind is None:
            raise Error(C.error_message())

    def tensor(self, array, grad=False):
        array = np.asarray(array, order="C")
        dtype = next(k for k, v in NUMPY.items() if v == array.dtype)
        t = getattr(C, "from")(self, dtype, array.shape, array.ctypes.data)
        return C.require_grad(t) if grad else t


class Run(Scope):
    def __init__(self, seed=1):
        super().__init__(C.scope_open(None, seed))
        self.steps, self.kept = 0, []

    def step(self):
        self.steps += 1
        return Scope(C.step_open(self, self.steps - 1))

    def module(self, make, *arguments):
        return Module(make(self, *arguments))

    def group(self, optim, match, lr, decay):
        """A parameter group of the parameters for which match(name) is true."""
        callback = MATCH(lambda name, t, arg: match(name.decode()))
        C.optim_group(optim, c.cast(callback, c.c_void_p), None, lr, decay)


def shape(dims):
    value = HEADER.structs["choir_shape"]()
    value.ndim = len(dims)
    for i, n in enumerate(dims):
        value.dim[i] = n
    return value


def convert(value, type_):
    if type_ is HEADER.structs["choir_shape"] and isinstance(value, tuple):
        return shape(value)
    if isinstance(value, (Tensor, Module, Scope)):
        return value.handle
    if type_ is c.c_void_p and isinstance(value, (list, tuple)):
        return c.cast((c.c_void_p * max(len(value), 1))(*[v.handle for v in value]), c.c_void_p)
    if isinstance(value, str):
        return value.encode()
    return value


class Functions:
    def __getattr__(self, name):
        full = "choir_" + name
        if full not in HEADER.functions:
            raise AttributeError("no header declares %s" % full)
        result, types, _ = HEADER.functions[full]
        call = LIB[full]

        def function(*arguments):
            if len(arguments) != len(types):
                raise TypeError("%s takes %d arguments, not %d" % (full, len(types), len(arguments)))
            value = call(*[convert(a, t) for a, t in zip(arguments, types)])
            if result == "choir_status" and value != 0:
                raise Error(self.error_message())
            if result == "choir_tensor *":
                return Tensor(value) if value else None
            return value.decode() if isinstance(value, bytes) else value

        setattr(self, name, function)
        return function


class Library(dict):
    """Functions with their types, looked up on first use."""

    def __missing__(self, name):
        result, types, _ = HEADER.functions[name]
        function = getattr(self.library, name)
        function.argtypes = types
        if "*" in result:
            function.restype = c.c_char_p if result == "const char *" else c.c_void_p
        else:
            function.restype = None if result == "void" else HEADER.types[result]
        self[name] = function
        return function


LIB = Library()
LIB.library = c.CDLL(os.environ.get("CHOIR_LIB", os.path.join(ROOT, "build", "libchoir.so")))
C = Functions()


def options(make, **changes):
    """Returns the options of C.NAME_defaults with these fields changed."""
    value = make()
    names = [name for name, _ in value._fields_]
    for name, x in changes.items():
        if name not in names:
            raise TypeError("%s has no field %s" % (type(value).__name__, name))
        setattr(value, name, x)
    return value


def is_held(i):
    """Whether record i is held out: one of each ten, by the finaliser of splitmix64."""
    first = 1 if i < 10 else 0  # the very first record is trained on
    z = 0x9E3779B97F4A7C15 * (i // 10 + 1) % 2**64
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 % 2**64
    z = (z ^ z >> 27) * 0x94D049BB133111EB % 2**64
    return i % 10 == first + (z ^ z >> 31) % (10 - first)
