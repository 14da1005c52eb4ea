r"""Write docs/gallery/ from the scripts in examples/gallery/.

    python tools/gallery.py            # run all scripts and draw their figures
    python tools/gallery.py lorenz     # run some of them

A page consists of the docstring, the figure, the output and the code of its script. Do not edit
docs/gallery/ by hand.
"""

from __future__ import annotations

import ast
import contextlib
import importlib.util
import io
import re
import sys
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).resolve().parents[1]
SCRIPTS = ROOT / "examples" / "gallery"
PAGES = ROOT / "docs" / "gallery"
PICTURES = ROOT / "docs" / "assets" / "gallery"
GROUPS = {
    "Finding equations": (
        "lorenz", "hare_lynx", "pendulum", "van_der_pol", "colonies", "rc_circuit", "intervals",
    ),
    "Finding partial differential equations": ("burgers", "flames", "spirals", "pacific"),
    "Forecasting": ("nino", "ocean"),
    "Solving": ("beam", "stiff", "million", "smoothing"),
    "Learning": ("influenza", "ageing_spring", "network"),
}  # fmt: skip
NAMES = tuple(name for names in GROUPS.values() for name in names)
OUTPUT = re.compile(r"^Output:\n\n```text\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def load(name: str) -> ModuleType:
    """Import a script as a module, without running it."""
    spec = importlib.util.spec_from_file_location(f"gallery_{name}", SCRIPTS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def parts(name: str) -> tuple[str, str, str]:
    """Title, text and code of a script."""
    source = (SCRIPTS / f"{name}.py").read_text(encoding="utf-8")
    tree = ast.parse(source)
    title, _, text = (ast.get_docstring(tree) or "").partition("\n\n")
    code = "".join(source.splitlines(keepends=True)[tree.body[0].end_lineno :]).lstrip("\n")
    return title.rstrip("."), text, code


def page(name: str, printed: str) -> str:
    """The page of a script, with the text that it printed."""
    title, text, code = parts(name)
    return "\n\n".join(
        [
            f"# {title}",
            text,
            f"![{title}](../assets/gallery/{name}.png)",
            f"Output:\n\n```text\n{printed.rstrip()}\n```",
            f"Code: `examples/gallery/{name}.py`. Pass a path to save the figure.",
            f"```py\n{code.rstrip()}\n```\n",
        ]
    )


def index() -> str:
    """The overview page."""
    found = [
        "# Gallery",
        "Short scripts on real and classic data. Each runs in a few seconds on one core, prints "
        "its result, and saves its figure to a given path: "
        "`python examples/gallery/lorenz.py lorenz.png`. All of them run as tests, which compare "
        "their results with known values.",
    ]
    for group, names in GROUPS.items():
        found += [f"## {group}", '<div class="grid cards" markdown>']
        for name in names:
            title, text, _ = parts(name)
            first = re.split(r"(?<=[.?])\s", " ".join(text.split()), maxsplit=1)[0]
            found.append(
                f"-   [![{title}](../assets/gallery/{name}.png)]({name}.md)\n\n"
                f"    **[{title}]({name}.md)**\n\n    {first}"
            )
        found.append("</div>")
    return "\n\n".join(found) + "\n"


def printed_on(name: str) -> str:
    """The output of a script, as shown on its page."""
    match = OUTPUT.search((PAGES / f"{name}.md").read_text(encoding="utf-8"))
    return match[1] if match else ""


def make(name: str) -> None:
    """Run a script and write its figure and its page."""
    import torch
    from PIL import Image

    torch.set_default_dtype(torch.float32)  # some scripts change it
    module, printed = load(name), io.StringIO()
    with contextlib.redirect_stdout(printed):
        found = module.run()
    drawn = io.BytesIO()
    module.draw(found).savefig(drawn, dpi=110, format="png")
    picture = Image.open(drawn).convert("RGB").quantize(256)  # halves the file size
    picture.save(PICTURES / f"{name}.png", optimize=True)
    (PAGES / f"{name}.md").write_text(page(name, printed.getvalue()), encoding="utf-8")


def main() -> int:
    """Write the given pages, or all."""
    import matplotlib

    matplotlib.use("Agg")
    PAGES.mkdir(exist_ok=True)
    PICTURES.mkdir(parents=True, exist_ok=True)
    for name in sys.argv[1:] or NAMES:
        make(name)
        print(f"Written: docs/gallery/{name}.md")
    (PAGES / "index.md").write_text(index(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
