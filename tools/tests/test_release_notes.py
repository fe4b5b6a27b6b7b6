"""The parser of release notes, on small pages in the shape of the real ones."""

import json
import tempfile
import unittest
from pathlib import Path

import release_notes
from places import SetupError
from release_notes import Note, Page

_HEAD = """<?xml version="1.0" encoding="UTF-8" standalone="no"?>
<!DOCTYPE html PUBLIC "-//W3C//DTD XHTML 1.0 Transitional//EN" "http://www.w3.org/TR/xhtml1/DTD/xhtml1-transitional.dtd">
<html xmlns="http://www.w3.org/1999/xhtml"><head><meta http-equiv="Content-Type" content="text/html; charset=UTF-8" />
<title>E.3. Release 15.3</title><link rel="next" href="x.html" title="E.4. Release 15.2" /></head><body>
<div class="navheader"><table><tr><th>Appendix E. Release Notes</th></tr></table><hr /></div>"""
_FOOT = """<div class="navfooter"><hr /><table><tr><td>Prev</td></tr></table></div></body></html>"""

_PAGE = _HEAD + """
<div class="sect1" id="RELEASE-15-3"><div class="titlepage"><div><div>
<h2 class="title" style="clear: both">E.3. Release 15.3</h2></div></div></div>
<div class="toc"><dl class="toc"><dt><span class="sect2"><a href="#a">E.3.1. Changes</a></span></dt></dl></div>
<p><strong>Release date: </strong>2023-05-11</p><p>This release contains <strong>important</strong> fixes from 15.2.</p>
<div class="sect2" id="a"><div class="titlepage"><div><div><h3 class="title">E.3.1. Changes</h3></div></div></div>
<p>Not a change.</p>
<div class="sect3"><div class="titlepage"><div><div><h4 class="title">E.3.1.1. Server</h4></div></div></div>
<div class="itemizedlist"><ul class="itemizedlist"><li class="listitem"><p>
      Keep <code class="literal">a &lt;   b</code>
      right (A.&#160;Person)
      <a class="ulink" href="https://example.org/c/1" target="_top">\u00a7</a>
      <a class="ulink" href="https://example.org/c/2" target="_top">\u00a7</a>
     </p><p>
      Second paragraph with <strong>weight</strong>, a<br />break and \u00a7 4 of a law.
     </p></li><li class="listitem"><p>Choose one of</p>
      <div class="itemizedlist"><ul class="itemizedlist"><li class="listitem"><p>this</p></li>
      <li class="listitem"><p>that</p></li></ul></div><p>as you like.</p></li></ul></div>
<div class="sect4"><div class="titlepage"><div><div><h5 class="title">E.3.1.1.1. Optimizer</h5></div></div></div>
<div class="itemizedlist"><ul class="itemizedlist"><li class="listitem"><p>Plan better</p></li></ul></div></div></div>
<div class="sect3"><div class="titlepage"><div><div><h4 class="title">E.3.1.2. psql 2.0 tools</h4></div></div></div>
<div class="itemizedlist"><ul class="itemizedlist"><li class="listitem"><p>   </p></li>
<li class="listitem"><p>Show more</p></li></ul></div></div></div></div>""" + _FOOT


class Parsing(unittest.TestCase):
    def test_reads_items_with_their_sections(self):
        page = release_notes.parse_page(_PAGE)
        self.assertEqual((page.version, page.released_on), ("15.3", "2023-05-11"))
        self.assertEqual(page.items, [
            ("Changes / Server",
             "Keep a < b right (A. Person)\n\nSecond paragraph with weight, abreak and \u00a7 4 of a law."),
            ("Changes / Server", "Choose one of\n\nthis\n\nthat\n\nas you like."),
            ("Changes / Server / Optimizer", "Plan better"),
            ("Changes / psql 2.0 tools", "Show more"),
        ])

    def test_a_date_that_is_no_date_is_none(self):
        for written in ("AS OF 2026-05-11", "never", "2023-5-11", ""):
            with self.subTest(written):
                page = release_notes.parse_page(_PAGE.replace("2023-05-11", written))
                self.assertIsNone(page.released_on)

    def test_a_date_elsewhere_is_not_the_release_date(self):
        page = release_notes.parse_page(_PAGE.replace("<strong>Release date: </strong>", "<strong>Last update: </strong>"))
        self.assertIsNone(page.released_on)

    def test_refuses_pages_of_another_shape(self):
        cases = {
            "heading": _PAGE.replace("E.3. Release 15.3</h2>", "Release Notes</h2>"),
            "no change": _PAGE.replace('class="listitem"', 'class="other"'),
        }
        for what, html in cases.items():
            with self.subTest(what), self.assertRaises(SetupError):
                release_notes.parse_page(html)
        for html in ("", "<html><body><p>404", "</div></li></html>"):
            with self.subTest(html), self.assertRaises(SetupError):
                release_notes.parse_page(html)

    def test_rows_are_numbered_by_release_then_place(self):
        pages = [
            Page("15.10", "2024-11-21", [("Changes", "third")]),
            Page("15.2", None, [("Changes", "second")]),
            Page("15", "2022-10-13", [("Overview", "first"), ("Overview", "first again")]),
        ]
        self.assertEqual(release_notes.notes_of(pages), [
            Note(1, "15", "2022-10-13", "Overview", "first"),
            Note(2, "15", "2022-10-13", "Overview", "first again"),
            Note(3, "15.2", None, "Changes", "second"),
            Note(4, "15.10", "2024-11-21", "Changes", "third"),
        ])
        self.assertEqual(release_notes.notes_of(reversed(pages)), release_notes.notes_of(pages))


class KeptRows(unittest.TestCase):
    """Rows on disk are used again only while they are whole and of this parser."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        for name in ("FOLDER", "ROWS", "SOURCE"):
            self.addCleanup(setattr, release_notes, name, getattr(release_notes, name))
        release_notes.FOLDER = Path(folder.name)
        release_notes.ROWS = release_notes.FOLDER / "rows.jsonl"
        release_notes.SOURCE = release_notes.FOLDER / "SOURCE.json"
        self.addCleanup(setattr, release_notes, "_from_package", release_notes._from_package)
        self.made = 0

        def from_package(step):
            self.made += 1
            return [Note(1, "15", None, "Overview", "caf\u00e9")], {"kind": "release notes", "package": "p", "version": "1"}

        release_notes._from_package = from_package

    def prepare(self):
        return release_notes.prepare(None, None)

    def test_made_once(self):
        first = self.prepare()
        self.assertEqual(self.prepare(), first)
        self.assertEqual(self.made, 1)
        row = json.loads(release_notes.ROWS.read_text(encoding="utf-8"))
        self.assertEqual(row, {"id": 1, "version": "15", "released_on": None, "section": "Overview", "body": "caf\u00e9"})

    def test_made_again_when_damaged(self):
        for damage in (
            lambda: release_notes.ROWS.write_text("{}\n"),
            release_notes.ROWS.unlink,
            lambda: release_notes.SOURCE.write_text("nonsense"),
            lambda: release_notes.SOURCE.write_text("[]"),
            lambda: release_notes.SOURCE.write_text(
                json.dumps({**json.loads(release_notes.SOURCE.read_text()), "parser": release_notes._PARSER - 1})),
        ):
            self.prepare()
            before = self.made
            damage()
            self.prepare()
            self.assertEqual(self.made, before + 1)


if __name__ == "__main__":
    unittest.main()
