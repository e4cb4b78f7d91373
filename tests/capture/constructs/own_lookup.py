"""Classes of the program that look up their attributes themselves."""

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
