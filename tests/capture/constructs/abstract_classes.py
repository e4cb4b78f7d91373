"""Abstract classes of the program that say themselves what their subclasses are."""

import abc

from tests.capture.constructs.harness import program


class HasArea(abc.ABC):
    @classmethod
    def __subclasshook__(cls, other):
        return True if any("area" in base.__dict__ for base in other.__mro__) else NotImplemented

    @abc.abstractmethod
    def name(self): ...


class Loud(abc.ABC):
    @classmethod
    def __subclasshook__(cls, other):
        ASKED.append(other.__name__)
        return hasattr(other, "area")


ASKED: list[str] = []


class Square:
    def area(self):
        return 1


class Named(HasArea):
    def name(self):
        return "named"


class Registered: ...


HasArea.register(Registered)


@program("abstract classes")
def what_a_hook_says(x, y):
    objects = Square(), 3, Named(), Registered(), "a", x, x.shape[0]
    return (
        x + 1,
        [isinstance(one, HasArea) for one in objects],
        issubclass(int, (float, HasArea)),
        issubclass(Named, HasArea),
    )


@program("abstract classes")
def a_class_made_inside(x, y):
    class Made:
        def area(self):
            return 3

    return isinstance(Made(), HasArea), x * Made().area()


@program("abstract classes", whole=False)
def a_hook_with_an_effect(x, y):
    return x + 1, isinstance(Square(), Loud), ASKED.clear()
