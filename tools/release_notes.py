#!/usr/bin/env python3
"""Real rows for the demo: PostgreSQL's own release notes, one row for each change.

    python3 tools/release_notes.py prepare                  rows into .cortex/release-notes/release_note.jsonl
    python3 tools/release_notes.py load --dir .cortex/demo  rows into the table release_note of a cluster

The notes come from Debian's package postgresql-doc-15, downloaded and unpacked, not installed. Which rows:
every list item of the pages of release 15 and its first ten minor releases, in the order of the pages. Later
minor releases are left out, so that every version of the package gives the same rows. Where the package is
not to be had, the descriptions in a server's own catalogue stand in, and SOURCE.json says so.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import subprocess
import sys
import tarfile
import tempfile
from dataclasses import asdict, dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from typing import Callable, Dict, Iterable, List, Optional, Tuple

import cluster
import embedded_postgres
import fetch
import places
import system_packages
from places import SetupError
from progress import Progress, Step

PACKAGE = "postgresql-doc-15"
_MAJOR = 15
_MINORS = range(1, 11)
_PAGE = re.compile(r"(?:^|/)(release-[0-9][0-9-]*\.html)$")
_CATALOGUE_ROWS = 600
# Raised whenever the same pages would give other rows, so that rows of an older parser are made anew.
_PARSER = 1

FOLDER = places.STATE / "release-notes"
ROWS = FOLDER / "release_note.jsonl"
SOURCE = FOLDER / "SOURCE.json"


@dataclass(frozen=True)
class Note:
    """One row of the table release_note. `released_on` is an ISO date or None."""

    id: int
    version: str
    released_on: Optional[str]
    section: str
    body: str


# Parsing

@dataclass
class Page:
    """What one page of release notes says: (section, body) for each change."""

    version: str = ""
    released_on: Optional[str] = None
    items: List[Tuple[str, str]] = field(default_factory=list)


class _PageParser(HTMLParser):
    """Reads a page as DocBook's stylesheets write it.

    Sections are `div.sect1` to `div.sect4`, each with a heading; a change is an outermost `li.listitem`, made
    of paragraphs and perhaps of lists inside it, which belong to the same change.
    """

    _HEADINGS = {"h2", "h3", "h4", "h5", "h6"}
    # Elements that HTML never closes; they would upset the stack.
    _VOID = {"br", "hr", "img", "link", "meta", "col", "input"}

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.page = Page()
        self._open: List[Tuple[str, str]] = []
        self._titles: List[str] = []
        self._item_depth = 0
        self._paragraphs: List[str] = []
        self._text: Optional[List[str]] = None
        self._date_follows = False

    def handle_starttag(self, tag: str, attributes) -> None:
        if tag in self._VOID:
            return
        kind = next((value or "" for name, value in attributes if name == "class"), "")
        self._open.append((tag, kind))
        if tag == "div" and re.fullmatch(r"sect[1-9]", kind):
            self._titles.append("")
        elif tag in self._HEADINGS and kind == "title":
            self._text = []
        elif tag == "li" and kind == "listitem":
            self._end_paragraph()
            self._item_depth += 1
        elif tag in ("p", "pre", "dt", "dd", "td") and self._item_depth:
            self._end_paragraph()
        elif tag == "strong" and not self._item_depth:
            self._text = []

    def handle_endtag(self, tag: str) -> None:
        if tag in self._VOID or not any(name == tag for name, _ in self._open):
            return
        while True:
            name, kind = self._open.pop()
            self._close(name, kind)
            if name == tag:
                return

    def _close(self, tag: str, kind: str) -> None:
        if tag == "div" and re.fullmatch(r"sect[1-9]", kind):
            self._titles.pop()
        elif tag in self._HEADINGS and kind == "title" and self._titles and not self._item_depth:
            title = re.sub(r"^[A-Z0-9]+(\.[0-9]+)*\. ", "", _tidy(self._text or []))
            self._titles[-1] = title
            if len(self._titles) == 1:
                named = re.fullmatch(r"Release (\d+(?:\.\d+)*)", title)
                self.page.version = named.group(1) if named else ""
            self._text = None
        elif tag == "li" and kind == "listitem":
            self._end_paragraph()
            self._item_depth -= 1
            if self._item_depth == 0:
                self._end_item()
        elif tag in ("p", "pre", "dt", "dd", "td") and self._item_depth:
            self._end_paragraph()
        elif tag == "strong" and not self._item_depth:
            self._date_follows = _tidy(self._text or []) == "Release date:"
            self._text = None

    def handle_data(self, data: str) -> None:
        if self._item_depth:
            # The section sign links to a commit; it says nothing.
            if ("a", "ulink") in self._open and data.strip() == "\u00a7":
                return
            if self._text is None:
                self._text = []
            self._text.append(data)
        elif self._text is not None:
            self._text.append(data)
        elif self._date_follows and data.strip():
            found = re.match(r"\s*(\d{4}-\d{2}-\d{2})\b", data)
            self.page.released_on = found.group(1) if found else None
            self._date_follows = False

    def _end_paragraph(self) -> None:
        text = _tidy(self._text or [])
        if text and self._item_depth:
            self._paragraphs.append(text)
        self._text = None

    def _end_item(self) -> None:
        if self._paragraphs:
            section = " / ".join(title for title in self._titles[1:] if title)
            self.page.items.append((section, "\n\n".join(self._paragraphs)))
        self._paragraphs = []


def _tidy(pieces: Iterable[str]) -> str:
    return " ".join("".join(pieces).split())


def parse_page(html: str) -> Page:
    """The changes of one page. Raises where it has no release number or no change: the shape is not as expected."""
    parser = _PageParser()
    parser.feed(html)
    parser.close()
    if not parser.page.version:
        raise SetupError("a page of release notes has no heading `Release <number>`")
    if not parser.page.items:
        raise SetupError(f"the page of release {parser.page.version} lists no change")
    return parser.page


def notes_of(pages: Iterable[Page]) -> List[Note]:
    """The rows of pages, numbered from 1 in the order of releases and within a page."""
    notes: List[Note] = []
    for page in sorted(pages, key=lambda page: [int(part) for part in page.version.split(".")]):
        for section, body in page.items:
            notes.append(Note(len(notes) + 1, page.version, page.released_on, section, body))
    return notes


# Where the rows come from

def prepare(step: Step, progress: Progress) -> Dict:
    """Makes the rows unless they are here and whole. Returns what SOURCE.json says."""
    known = _known_source()
    if known:
        return known
    FOLDER.mkdir(parents=True, exist_ok=True)
    try:
        notes, source = _from_package(step)
    except SetupError as error:
        progress.note(f"{PACKAGE} is not to be had here, so the server's catalogue descriptions stand in")
        progress.note(f"reason: {str(error).splitlines()[0]}")
        progress.note(f"remove {FOLDER} and run this again to try once more")
        notes, source = _from_catalogue(step, progress)
    text = "".join(json.dumps(asdict(note), ensure_ascii=False) + "\n" for note in notes)
    _write_whole(ROWS, text)
    source.update(rows=len(notes), parser=_PARSER, rows_sha256=hashlib.sha256(text.encode()).hexdigest())
    _write_whole(SOURCE, json.dumps(source, indent=2) + "\n")
    return source


def _known_source() -> Optional[Dict]:
    try:
        source = json.loads(SOURCE.read_text(encoding="utf-8"))
        if source["parser"] == _PARSER and source["rows_sha256"] == fetch.file_sha256(ROWS):
            return source
    except (OSError, ValueError, KeyError, TypeError):
        pass
    return None


def _from_package(step: Step) -> Tuple[List[Note], Dict]:
    places.DOWNLOADS.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=places.DOWNLOADS) as scratch:
        step.say(f"downloading {PACKAGE}")
        archive = system_packages.download(step, PACKAGE, Path(scratch))
        version = _package_field(archive, "Version")
        found, listed = fetch.file_sha256(archive), system_packages.listed_sha256(PACKAGE, version)
        if listed and listed != found:
            raise SetupError(f"{archive.name} has SHA-256 {found}, but the signed package list says {listed}")
        step.say(f"reading {PACKAGE} {version}")
        pages = [parse_page(html) for html in _release_pages(archive).values()]
    source = {
        "kind": "release notes",
        "package": PACKAGE,
        "version": version,
        "sha256": found,
        "signature": "checked by apt" if listed else "checked by apt at download, not listed by apt-cache",
        "rule": f"every change listed for releases {_MAJOR} and {_MAJOR}.{_MINORS[0]} to {_MAJOR}.{_MINORS[-1]}",
    }
    return notes_of(pages), source


def _package_field(archive: Path, name: str) -> str:
    shown = subprocess.run(["dpkg-deb", "--field", str(archive), name], stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if shown.returncode != 0:
        raise SetupError(f"{archive.name} is not a Debian package: {shown.stderr.strip()}")
    return shown.stdout.strip()


def _release_pages(archive: Path) -> Dict[str, str]:
    """The chosen pages of the package by file name. Nothing is written to disk."""
    wanted = {f"release-{_MAJOR}.html", *(f"release-{_MAJOR}-{minor}.html" for minor in _MINORS)}
    pages = {}
    unpack = subprocess.Popen(
        ["dpkg-deb", "--fsys-tarfile", str(archive)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    with unpack, tarfile.open(fileobj=unpack.stdout, mode="r|") as files:
        for member in files:
            found = _PAGE.search(member.name)
            if member.isfile() and found and found.group(1) in wanted:
                content = files.extractfile(member)
                if content is not None:
                    pages[found.group(1)] = content.read().decode("utf-8")
    missing = wanted - set(pages)
    if missing:
        raise SetupError(f"{archive.name} lacks the pages {', '.join(sorted(missing))}")
    return pages


def _from_catalogue(step: Step, progress: Progress) -> Tuple[List[Note], Dict]:
    """Descriptions of functions and operators, in the order of their object ids, from a server made for this."""
    installation = embedded_postgres.chosen(step, progress)
    step.say("reading the server's catalogue")
    with tempfile.TemporaryDirectory(prefix="cortex-") as scratch:
        source_cluster = cluster.Cluster(Path(scratch) / "catalogue", say=step.say)
        source_cluster.create(installation, tcp=False, fsync=False)
        try:
            rows = json.loads(source_cluster.psql(_CATALOGUE_QUERY) or "[]")
        finally:
            source_cluster.destroy()
    if not rows:
        raise SetupError("the server's catalogue holds no descriptions")
    notes = [Note(number, installation.version, None, "catalogue", body) for number, body in enumerate(rows, 1)]
    rule = f"the first {_CATALOGUE_ROWS} descriptions of functions of at least 20 characters, by object id"
    return notes, {"kind": "catalogue", "version": installation.version, "rule": rule}


_CATALOGUE_QUERY = f"""
SELECT json_agg(body ORDER BY oid)
FROM (
    SELECT p.oid, format('%s(%s): %s', p.proname, pg_get_function_arguments(p.oid), d.description) AS body
    FROM pg_description d
    JOIN pg_proc p ON p.oid = d.objoid AND d.classoid = 'pg_proc'::regclass AND d.objsubid = 0
    WHERE length(d.description) >= 20 AND d.description NOT LIKE 'implementation of %'
    ORDER BY p.oid
    LIMIT {_CATALOGUE_ROWS}
) described;
"""


def _write_whole(path: Path, text: str) -> None:
    part = path.with_name(path.name + ".part")
    part.write_text(text, encoding="utf-8")
    part.replace(path)


# Loading

def load(run_sql: Callable[[str], str], rows: Path = ROWS) -> Tuple[int, bool]:
    """Creates the table release_note and copies the rows into it, in one transaction.

    `run_sql` runs psql input and returns its output. Returns the number of rows in the table and whether they
    were loaded now; a table that exists is left as it is.
    """
    existing = run_sql("SELECT to_regclass('public.release_note') IS NOT NULL;")
    if existing == "t":
        return int(run_sql("SELECT count(*) FROM public.release_note;")), False
    try:
        notes = [Note(**json.loads(line)) for line in rows.read_text(encoding="utf-8").splitlines()]
    except FileNotFoundError:
        raise SetupError(f"there are no rows in {rows}; run `python3 tools/setup.py docs-data`") from None
    lines = "\n".join(
        "\t".join(map(_copy_field, (note.id, note.version, note.released_on, note.section, note.body))) for note in notes
    )
    run_sql(
        "BEGIN;\n"
        "CREATE TABLE public.release_note (\n"
        "    id int PRIMARY KEY, version text NOT NULL, released_on date, section text NOT NULL, body text NOT NULL\n"
        ");\n"
        f"COPY public.release_note (id, version, released_on, section, body) FROM stdin;\n{lines}\n\\.\n"
        "COMMIT;\n"
        "ANALYZE public.release_note;\n"
    )
    return int(run_sql("SELECT count(*) FROM public.release_note;")), True


def _copy_field(value) -> str:
    if value is None:
        return r"\N"
    return str(value).replace("\\", "\\\\").replace("\t", "\\t").replace("\n", "\\n").replace("\r", "\\r")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    verbs = parser.add_subparsers(dest="verb", required=True)
    verbs.add_parser("prepare", help="make the rows")
    loading = verbs.add_parser("load", help="load the rows into a cluster made by cluster.py")
    loading.add_argument("--dir", required=True, type=Path, help="the cluster's folder")
    loading.add_argument("--database", default="postgres")
    options = parser.parse_args()
    progress = Progress()
    try:
        if options.verb == "prepare":
            with progress.step("docs-data") as step:
                step.detail = describe(prepare(step, progress))
        else:
            target = cluster.Cluster(options.dir)
            rows, loaded = load(lambda sql: target.psql(sql, options.database))
            print(f"{rows} rows in release_note" + ("" if loaded else ", which existed and was left as it is"))
    except SetupError as error:
        if options.verb == "load":
            print(f"release_notes.py: {error}", file=sys.stderr)
        return 1
    return 0


def describe(source: Dict) -> str:
    """One line about where the rows are from."""
    if source["kind"] == "catalogue":
        return f"{source['rows']} descriptions from the catalogue of PostgreSQL {source['version']} (no release notes here)"
    return f"{source['rows']} changes from {source['package']} {source['version']}"


if __name__ == "__main__":
    sys.exit(main())
