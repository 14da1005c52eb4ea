"""Pages and tables of estimates: one file, everything from data escaped."""

import base64
import re
import xml.etree.ElementTree as tree
from html.parser import HTMLParser

import pytest

from smnn.report import intervals, page
from smnn.report.intervals import Estimate, interval_table

EVIL = "<script>alert(1)</script>"


class Tags(HTMLParser):
    """Which elements a page has, and that they are closed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.seen: list[str] = []
        self.open: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.seen.append(tag)
        if tag not in ("meta", "img", "link"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_page_is_whole() -> None:
    parts = [
        page.findings([(EVIL, EVIL)]), page.facts({EVIL: EVIL, "none": None}),
        page.code_block(EVIL), page.section(EVIL, "<p>text</p>"),
    ]  # fmt: skip
    tags = Tags(page.page(EVIL, EVIL, parts))
    assert tags.open == []
    assert tags.seen.count("script") == 1
    assert tags.seen.count("h1") == 1


def test_style_and_script_are_added() -> None:
    text = page.page("t", "l", [], style=".a{}", script="let a = 1 < 2;")
    assert ".a{}</style>" in text
    assert "let a = 1 < 2;</script>\n</body>" in text


def test_contents_lead_to_the_sections() -> None:
    sections = [page.section(title, "<p>text</p>") for title in ("One & all", "Two", "Three")]
    text = page.page("t", "l", sections)
    assert '<a href="#one-all">One &amp; all</a>' in text
    assert '<section id="one-all">' in text
    assert "contents" not in page.page("t", "l", sections[:2]).split("</style>")[1]


def test_downloads_hold_the_text() -> None:
    link = page.download("Save", "a.csv", f"x,µ\n1,{EVIL}")
    data = re.search(r'base64,([^"]+)"', link)
    assert data is not None
    assert base64.b64decode(data[1]).decode() == f"x,µ\n1,{EVIL}"


def test_nothing_comes_from_the_network() -> None:
    text = page.page("t", "l", [], style=intervals.STYLE)
    assert "http" not in text
    assert "url(" not in text


def rows() -> list[Estimate]:
    return [
        Estimate("<i>x</i>", "-10.0 ± 0.5", -10.0, -10.5, -9.5, 1.0),
        Estimate("<i>y</i>", f"30 {EVIL}", 30.0, share=0.5),
        Estimate("<i>z</i>", "–", None, share=0.06),
    ]


def test_interval_table() -> None:
    root = tree.fromstring(interval_table(rows(), value_title=EVIL, share_title="chosen"))
    lines = list(root.iter("tr"))[1:]
    dots = [[p.get("d") for p in line.iter("path") if p.get("class") == "dot"] for line in lines]
    at = [float(d[0].split(" ")[0][1:]) for d in dots if d and d[0]]
    zero = next(p.get("d") or "" for p in lines[0].iter("path") if p.get("class") == "zero")
    origin = float(zero.split(" ")[0][1:])
    # One axis for all rows: distances from zero are as the values.
    assert (at[0] - origin) / (at[1] - origin) == pytest.approx(-10 / 30, rel=1e-2)
    assert dots[2] == []
    assert [line.get("class") for line in lines] == [None, None, "quiet"]
    whisker = next(p.get("d") or "" for p in lines[0].iter("path") if p.get("class") == "whisker")
    assert float(whisker.split("H")[1]) > at[0] > float(whisker.split(" ")[0][1:])
    assert "−10.0 ± 0.5" in "".join(root.itertext())
    assert "50 %" in "".join(root.itertext())


def test_interval_table_without_shares() -> None:
    text = interval_table(rows()[:1], value_title="value")
    assert "bar" not in text
    assert "%</span>" not in text


def test_interval_table_of_zeros() -> None:
    tree.fromstring(interval_table([Estimate("x", "0", 0.0, 0.0, 0.0)], value_title="v"))
    tree.fromstring(interval_table([], value_title="v"))
