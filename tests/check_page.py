# SPDX-License-Identifier: MIT
"""Checks a page that `tidepool all` has written: usage: check_page.py DIR/report.html

Every element is closed in its turn; no id stands twice; links and references lead to an id of the
page or to a file beside it, so nothing is fetched from elsewhere; there is no script. Prints what
is wrong and ends with status 1.
"""
import html.parser
import os
import re
import sys

VOID = {"meta", "link", "br", "hr", "img", "input", "col", "wbr"}


class Page(html.parser.HTMLParser):
    def __init__(self):
        super().__init__(convert_charrefs=True)
        self.open, self.wrong, self.ids, self.links = [], [], set(), []
        self.elements = {}

    def fail(self, text):
        self.wrong.append("line %d: %s" % (self.getpos()[0], text))

    def look(self, tag, attributes):
        self.elements[tag] = self.elements.get(tag, 0) + 1
        names = [name for name, _ in attributes]
        if len(names) != len(set(names)):
            self.fail("<%s> has an attribute twice" % tag)
        for name, value in attributes:
            value = value or ""
            if name == "id":
                if value in self.ids:
                    self.fail("id %s stands twice" % value)
                self.ids.add(value)
            elif name in ("href", "src", "xlink:href", "action", "srcset"):
                self.links.append((self.getpos()[0], value))
            elif name.startswith("on"):
                self.fail("<%s> has a script" % tag)
            for target in re.findall(r"url\(\s*['\"]?([^)'\"]*)", value):
                self.links.append((self.getpos()[0], target))
        if tag in ("script", "iframe", "object", "embed"):
            self.fail("<%s>" % tag)

    def handle_starttag(self, tag, attributes):
        self.look(tag, attributes)
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.look(tag, attributes)

    def handle_endtag(self, tag):
        if not self.open or self.open[-1] != tag:
            self.fail("</%s> closes %s" % (tag, self.open[-1] if self.open else "nothing"))
        elif self.open:
            self.open.pop()

    def handle_data(self, data):
        if self.open and self.open[-1] == "style":
            if re.search(r"@import|url\(", data):
                self.fail("the style sheet fetches something")
        elif "\ufffd" in data:
            self.fail("a broken character")

    def check(self, directory):
        if self.open:
            self.wrong.append("not closed: %s" % ", ".join(self.open))
        for line, target in self.links:
            if target.startswith("#"):
                good = target[1:] in self.ids
            else:
                good = re.fullmatch(r"[\w./-]+", target) and not target.startswith("/")
                good = good and os.path.isfile(os.path.join(directory, target))
            if not good:
                self.wrong.append("line %d: %s leads nowhere" % (line, target))
        for tag in ("html", "head", "title", "body", "main", "h1"):
            if self.elements.get(tag) != 1 and tag != "title":
                self.wrong.append("%d times <%s>" % (self.elements.get(tag, 0), tag))
        return self.wrong


def main(path):
    page = Page()
    with open(path, encoding="utf-8") as file:
        text = file.read()
    if not text.startswith("<!DOCTYPE html>"):
        page.wrong.append("no <!DOCTYPE html>")
    page.feed(text)
    page.close()
    wrong = page.check(os.path.dirname(path))
    for line in wrong[:20]:
        print(line)
    return 1 if wrong else 0


sys.exit(main(sys.argv[1]))
