"""page.py PAGE FIGURE...: the page of `zero3d reproduce --page` is well-formed, refers to nothing outside itself, and has a heading and a
drawing, in that order and with something drawn in it, for each figure, and two tables below them."""

import html.parser
import re
import sys

EMPTY = {"meta", "line", "rect", "circle", "polyline"}  # no end; of an svg: ended in the tag
OPTIONAL = {"html": set(), "th": {"th", "tr", "table"}}  # what may end them


class Page(html.parser.HTMLParser):
    def __init__(self):
        super().__init__()
        self.open, self.text, self.figures, self.headings, self.styles = [], "", [], [], ""

    def handle_starttag(self, tag, attributes):
        if self.open and self.open[-1] == tag == "th":
            self.open.pop()
        for name, value in attributes:
            if name in ("src", "href", "xlink:href", "srcset", "data", "action"):
                raise SystemExit(f"line {self.getpos()[0]}: {tag} refers to {value}")
            if re.search("nan|inf", value or "") and tag in EMPTY:
                raise SystemExit(f"line {self.getpos()[0]}: {tag} has {name}={value}")
        if tag in ("script", "link", "iframe", "img", "object"):
            raise SystemExit(f"line {self.getpos()[0]}: a {tag}")
        if tag == "svg":
            self.figures.append((self.headings[-1], {}))
        elif "svg" in self.open:
            drawn = self.figures[-1][1]
            drawn[tag] = drawn.get(tag, 0) + 1
        self.text = ""
        if tag not in EMPTY:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.handle_starttag(tag, attributes)
        if tag not in EMPTY:
            self.open.pop()

    def handle_endtag(self, tag):
        while self.open and self.open[-1] != tag and tag in OPTIONAL.get(self.open[-1], ()):
            self.open.pop()
        if not self.open or self.open.pop() != tag:
            raise SystemExit(f"line {self.getpos()[0]}: </{tag}> ends nothing")
        if tag == "h2":
            self.headings.append(self.text)
        if tag == "style":
            self.styles += self.text

    def handle_data(self, data):
        self.text += data


page, wanted = Page(), sys.argv[2:]
with open(sys.argv[1], encoding="utf-8") as file:
    page.feed(file.read())
page.close()
assert page.open == [], f"not ended: {page.open}"
assert "url(" not in page.styles and "@import" not in page.styles, "the style refers to something"
assert [name.split(":")[0] for name, _ in page.figures] == wanted, page.figures
assert [name.split(":")[0] for name in page.headings] == wanted + ["Table 1", "Table 2"], page.headings
for name, drawn in page.figures:
    assert drawn.get("rect", 0) >= 4, f"{name}: bars {drawn}"
    assert drawn.get("circle", 0) >= 1, f"{name}: nothing published {drawn}"
    assert drawn.get("text", 0) >= 8, f"{name}: no words {drawn}"
