"""page.py PAGE HEADING...: a page of HTML is well-formed, refers to nothing outside itself, runs no script, draws no number that is
none, and has these headings (h1 and h2, up to a colon) and as many charts as --charts=N says."""

import html.parser
import re
import sys

EMPTY = {"meta", "input", "br", "path"}  # no end; of an svg: ended in the tag


class Page(html.parser.HTMLParser):
    def __init__(self):
        super().__init__()
        self.open, self.text, self.headings, self.styles, self.charts, self.ids = [], "", [], "", 0, set()

    def refuse(self, why):
        raise SystemExit(f"{sys.argv[1]}:{self.getpos()[0]}: {why}")

    def handle_starttag(self, tag, attributes):
        names = [name for name, _ in attributes]
        if len(names) != len(set(names)):
            self.refuse(f"{tag} has an attribute twice")
        for name, value in attributes:
            if name in ("src", "href", "xlink:href", "srcset", "data", "action", "poster") or name.startswith("on"):
                self.refuse(f"{tag} has {name}={value}")
            if name in ("d", "style") and re.search("nan|inf|url", value or ""):
                self.refuse(f"{tag} has {name}={value}")
            if name == "id":
                if value in self.ids:
                    self.refuse(f"id {value} is there twice")
                self.ids.add(value)
        if tag in ("script", "link", "iframe", "img", "object", "embed", "base"):
            self.refuse(f"a {tag}")
        self.charts += tag == "svg"
        self.text = ""
        if tag not in EMPTY:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        if "svg" not in self.open:
            self.refuse(f"<{tag}/> outside of a drawing")
        self.handle_starttag(tag, attributes)

    def handle_endtag(self, tag):
        if not self.open or self.open.pop() != tag:
            self.refuse(f"</{tag}> ends nothing")
        if tag in ("h1", "h2"):
            self.headings.append(self.text.split(":")[0])
        if tag == "style":
            self.styles += self.text

    def handle_data(self, data):
        self.text += data


charts = [int(a.split("=")[1]) for a in sys.argv[2:] if a.startswith("--charts=")]
wanted = [a for a in sys.argv[2:] if not a.startswith("--")]
page = Page()
with open(sys.argv[1], encoding="utf-8") as file:
    text = file.read()
page.feed(text)
page.close()
assert text.startswith("<!DOCTYPE html>\n<html lang="), "no document type"
assert page.open == [], f"not ended: {page.open}"
assert "url(" not in page.styles and "@import" not in page.styles, "the style refers to something"
assert "prefers-color-scheme:dark" in page.styles, "one colour scheme"
assert page.headings == wanted, page.headings
assert not charts or page.charts == charts[0], f"{page.charts} charts"
