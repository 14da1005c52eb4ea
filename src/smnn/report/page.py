"""A self-contained HTML page."""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from smnn._util.files import GENERATOR

STYLE = """
:root { --ink: #1d2330; --soft: #5b6474; --line: #d9dee7; --paper: #ffffff; --tint: #f5f7fa;
  --accent: #0b5fa5; --good: #1a7f4b; --bad: #b3261e; color-scheme: light; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6e9ef; --soft: #a3adbd; --line: #343b48; --paper: #14181f; --tint: #1c222b;
    --accent: #6cb2f2; --good: #58c08b; --bad: #f2867d; color-scheme: dark; } }
* { box-sizing: border-box; }
h1, h3, p, li, dd, figcaption { overflow-wrap: anywhere; }
body { margin: 0; background: var(--paper); color: var(--ink);
  font: 16px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", sans-serif; }
main { max-width: 62rem; margin: 0 auto; padding: 2.5rem 1.5rem 4rem; }
h1 { font-size: 1.9rem; line-height: 1.2; margin: 0 0 .4rem; letter-spacing: -.01em; }
h2 { font-size: 1.2rem; margin: 2.6rem 0 .5rem; }
p { margin: .5rem 0; max-width: 46rem; }
.lead { color: var(--soft); font-size: 1.05rem; }
.findings { display: grid; grid-template-columns: repeat(auto-fit, minmax(9.5rem, 1fr)); gap: 1rem;
  margin: 1.8rem 0 0; padding: 0; list-style: none; }
.findings li { border: 1px solid var(--line); border-radius: 8px; background: var(--tint);
  padding: .9rem 1.1rem; min-width: 0; }
.findings b { display: block; font-size: 1.45rem; line-height: 1.25; color: var(--accent);
  font-variant-numeric: tabular-nums; }
.findings span { color: var(--soft); font-size: .92rem; }
.scroll { overflow-x: auto; margin-top: .8rem; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; width: 100%;
  font-size: .93rem; }
thead > tr > * { border-bottom: 2px solid var(--ink); }
th, td { padding: .28rem .7rem; text-align: right; white-space: nowrap; font-weight: 400; }
th[scope=rowgroup] { text-align: left; vertical-align: top; font-weight: 600; }
th[scope=row] { text-align: left; color: var(--soft); }
thead th { font-weight: 600; }
tbody tr:last-child > * { border-bottom: 1px solid var(--line); }
tbody th[scope=rowgroup] { border-bottom: 1px solid var(--line); }
tr.quiet td { color: var(--soft); }
td.best { font-weight: 700; }
.agrees, .differs, .unmarked { margin-left: .35em; font-weight: 700; }
.unmarked { visibility: hidden; }
.agrees { color: var(--good); } .differs { color: var(--bad); }
.caption { color: var(--soft); font-size: .9rem; }
figure { margin: 1rem 0 0; }
figure img { width: 100%; height: auto; display: block; border: 1px solid var(--line);
  border-radius: 8px; background: #ffffff; }
figcaption { color: var(--soft); font-size: .9rem; margin-top: .6rem; }
code { font: .88em ui-monospace, SFMono-Regular, Menlo, Consolas, monospace;
  background: var(--tint); border: 1px solid var(--line); border-radius: 5px; padding: .1em .4em; }
pre { background: var(--tint); border: 1px solid var(--line); border-radius: 8px; overflow-x: auto;
  padding: .8rem 1rem; } pre code { border: 0; padding: 0; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .2rem 1.4rem; font-size: .93rem; }
dt { color: var(--soft); } dd { margin: 0; }
.warnings { margin: 1.2rem 0 0; padding: .7rem 1rem .7rem 2rem; border: 1px solid var(--line);
  border-left: 4px solid var(--bad); border-radius: 6px; font-size: .95rem; }
.contents { display: flex; flex-wrap: wrap; gap: .2rem 1.1rem; margin: 1.1rem 0 0; padding: 0;
  font-size: .93rem; list-style: none; } a { color: var(--accent); }
.contents a { text-decoration: none; } .contents a:hover { text-decoration: underline; }
.block { position: relative; } .block pre { padding-right: 5rem; }
button, select { font: inherit; font-size: .85rem; color: var(--ink); background: var(--paper);
  border: 1px solid var(--line); border-radius: 6px; padding: .2rem .6rem; cursor: pointer; }
.copy { position: absolute; top: .45rem; right: .45rem; }
.download { font-size: .9rem; } .pick:not([hidden]) { display: block; margin: 1.6rem 0 0;
  font-size: .93rem; }
@media (max-width: 40rem) { main { padding: 1.6rem 1rem 3rem; } h1 { font-size: 1.5rem; }
  th, td { padding: .25rem .32rem; } table { font-size: .85rem; } .findings { gap: .7rem; }
  .findings b { font-size: 1.2rem; } dl { grid-template-columns: 1fr; gap: 0; }
  dd { margin-bottom: .5rem; } }
@media print { .contents, .copy, .download, .pick { display: none !important; }
  main { max-width: none; padding: 0; } h2 { break-after: avoid; }
  table, figure { break-inside: avoid; } }
"""

SCRIPT = """
for (const button of document.querySelectorAll('.copy')) {
  button.hidden = false;
  button.addEventListener('click', async () => {
    const code = button.parentElement.querySelector('code');
    try { await navigator.clipboard.writeText(code.textContent); }
    catch { getSelection().selectAllChildren(code); document.execCommand('copy'); }
    button.textContent = 'Copied';
    setTimeout(() => button.textContent = 'Copy', 1500);
  });
}
for (const choice of document.querySelectorAll('.pick select')) {
  choice.parentElement.hidden = false;
  choice.addEventListener('change', () => {
    for (const part of document.querySelectorAll('[data-series]'))
      part.hidden = part.dataset.series !== choice.value;
  });
}
"""
_HEADING = re.compile(r'<section id="([^"]+)">\n<h2>(.*?)</h2>')


def page(
    title: str, lead: str, sections: Sequence[str], *, style: str = "", script: str = ""
) -> str:
    """Return a complete page with sections of HTML.

    `style` is CSS beside that of every page, and `script` runs when the page is there, such as
    those of `charts`. It must not hold anything that comes from data.
    """
    headings = [found for part in sections for found in _HEADING.findall(part)]
    items = "".join(f'<li><a href="#{name}">{text}</a></li>' for name, text in headings)
    contents = f'<nav><ul class="contents">{items}</ul></nav>\n' if len(headings) > 2 else ""
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"{GENERATOR}\n<title>{escape(title)}</title>\n<style>{STYLE}{style}</style>\n</head>\n<body>\n<main>\n"
        f'<h1>{escape(title)}</h1>\n<p class="lead">{escape(lead)}</p>\n'
        + contents
        + "\n".join(sections)
        + f"\n</main>\n<script>{SCRIPT}{script}</script>\n</body>\n</html>\n"
    )


def section(title: str, *parts: str) -> str:
    """Return a section with a heading."""
    name = re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")
    return f'<section id="{name}">\n<h2>{escape(title)}</h2>\n' + "\n".join(parts) + "\n</section>"


def findings(items: Sequence[tuple[str, str]]) -> str:
    """Return a list of key figures with descriptions."""
    cards = "".join(
        f"<li><b>{escape(value)}</b><span>{escape(meaning)}</span></li>" for value, meaning in items
    )
    return f'<ul class="findings">{cards}</ul>'


def picture(png: bytes, alt: str, caption: str) -> str:
    """Return a PNG embedded in the page."""
    data = base64.b64encode(png).decode()
    return (
        f'<figure><img alt="{escape(alt, quote=True)}" src="data:image/png;base64,{data}">'
        f"<figcaption>{escape(caption)}</figcaption></figure>"
    )


def facts(pairs: Mapping[str, Any]) -> str:
    """Return a list of names and values; values of `None` are omitted."""
    lines = (
        f"<dt>{escape(name)}</dt><dd>{escape(str(value))}</dd>"
        for name, value in pairs.items()
        if value is not None
    )
    return "<dl>" + "".join(lines) + "</dl>"


def code_block(text: str) -> str:
    """Return a code block with a button that copies it."""
    button = '<button type="button" class="copy" hidden>Copy</button>'
    return f'<div class="block">{button}<pre><code>{escape(text)}</code></pre></div>'


def download(label: str, name: str, text: str) -> str:
    """Return a link that saves a text file, which is part of the page."""
    data = base64.b64encode(text.encode()).decode()
    return (
        f'<a class="download" download="{escape(name, quote=True)}" '
        f'href="data:text/plain;base64,{data}">{escape(label)}</a>'
    )


def select(label: str, options: Mapping[str, str]) -> str:
    """Return a selector for the elements with the attribute `data-series`.

    `options` are texts by value. The first one is shown without a script.
    """
    items = "".join(
        f'<option value="{escape(value, quote=True)}">{escape(text)}</option>'
        for value, text in options.items()
    )
    return f'<label class="pick" hidden>{escape(label)} <select>{items}</select></label>'


def machine_facts(machine: Mapping[str, Any]) -> dict[str, Any]:
    """Return a description of the machine from the result of `describe_machine`."""
    versions = machine["versions"]
    return {
        "Processor": f"{machine['processor']}, {machine['cores']} cores",
        "Threads used": machine["threads"],
        "Memory": None if machine["memory_gib"] is None else f"{machine['memory_gib']} GiB",
        "System": machine["system"],
        "Python": machine["python"],
        "Packages": ", ".join(f"{k} {v}" for k, v in versions.items() if v is not None),
        "Finished": machine["utc"],
    }
