"""Classes of the program that look up their attributes themselves."""

import types

from tests.capture.constructs.harness import program


class Disguised:
    def __init__(self):
        self.v = 1

    def __getattribute__(self, name):
        if name == "__class__":
            return int
        return super().__getattribute__(name)


class Defaulting:
    def __init__(self):
        self.v = 1

    def __getattr__(self, name):
        if name.startswith("_"):
            raise AttributeError(name)
        return object.__getattribute__(self, "__dict__").get(name, "none")


DISGUISED, DEFAULTING = Disguised(), Defaulting()


@program("own lookup")
def class_that_an_object_claims(x, y):
    return x + 1, DISGUISED.__class__, DISGUISED.v, type(DISGUISED) is Disguised, Disguised().__class__


@program("own lookup")
def defaults_of_attributes(x, y):
    DEFAULTING.zz = 2
    found = DEFAULTING.v, DEFAULTING.q, DEFAULTING.zz, DEFAULTING.__class__, DEFAULTING.__dict__
    del DEFAULTING.zz
    return x + 1, found, hasattr(DEFAULTING, "_a"), getattr(DEFAULTING, "_b", 3)


LOG = []


class Listening(types.ModuleType):
    """A class of modules that tells what it is asked."""

    def __getattribute__(self, name):
        LOG.append(name)
        return super().__getattribute__(name)

    def __setattr__(self, name, value):
        LOG.append((name, value))
        super().__setattr__(name, value)

    def __delattr__(self, name):
        LOG.append(("del", name))
        super().__delattr__(name)


class WithProperty(types.ModuleType):
    @property
    def half(self):
        return self.whole / 2

    @half.setter
    def half(self, value):
        self.whole = 2 * value


@program("own lookup", whole=False)
def modules_of_a_listening_class(x, y):
    LOG.clear()
    module = Listening("module")
    module.n = 12
    found = x * module.n
    del module.n
    return found, list(LOG)


@program("own lookup", whole=False)
def modules_with_properties(x, y):
    module = WithProperty("module")
    module.half = 3
    return x * module.whole, module.half, "half" in vars(module)


class Noting(types.ModuleType):
    """A class of modules that notes what is stored, and stores it."""

    def __setattr__(self, name, value):
        if name != "noted":
            super().__setattr__("noted", name)
        super().__setattr__(name, value)

    def __delattr__(self, name):
        super().__delattr__(name)
        super().__setattr__("noted", "del " + name)


NOTING = Noting("noting")


@program("own lookup")
def stores_by_a_class_of_modules(x, y):
    NOTING.n = x.shape[0]
    found = NOTING.noted
    NOTING.m = 1
    del NOTING.m
    return x * NOTING.n, found, NOTING.noted, hasattr(NOTING, "m")
