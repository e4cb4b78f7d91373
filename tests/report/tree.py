"""A page as elements, read by the standard library's parser, which browsers agree with on well-formed pages."""

from html.parser import HTMLParser

_EMPTY = {"meta", "link", "br", "input", "img", "hr", "path", "rect", "line"}


class Element:
    def __init__(self, tag, attributes, parent):
        self.tag, self.attributes, self.parent = tag, attributes, parent
        self.children, self.texts = [], []

    @property
    def id(self):
        return self.attributes.get("id")

    @property
    def classes(self):
        return (self.attributes.get("class") or "").split()

    def all(self, tag=None, cls=None):
        """Elements below, in order."""
        for child in self.children:
            if (tag is None or child.tag == tag) and (cls is None or cls in child.classes):
                yield child
            yield from child.all(tag, cls)

    @property
    def text(self):
        return " ".join("".join(self._parts()).split())

    def _parts(self):
        for one in self.texts:
            yield from [one] if isinstance(one, str) else one._parts()


class _Reader(HTMLParser):
    def __init__(self):
        super().__init__(convert_charrefs=True)
        self.root = self.here = Element("", {}, None)

    def handle_starttag(self, tag, attributes):
        new = Element(tag, dict(attributes), self.here)
        self.here.children.append(new)
        self.here.texts.append(new)
        if tag not in _EMPTY:
            self.here = new

    def handle_startendtag(self, tag, attributes):
        new = Element(tag, dict(attributes), self.here)
        self.here.children.append(new)

    def handle_endtag(self, tag):
        if tag in _EMPTY:
            return
        assert self.here.tag == tag, f"</{tag}> ends <{self.here.tag}> at {self.getpos()}"
        self.here = self.here.parent

    def handle_data(self, data):
        self.here.texts.append(data)


def read(text):
    reader = _Reader()
    reader.feed(text)
    assert reader.here is reader.root, f"<{reader.here.tag}> is open at the end"
    return reader.root
