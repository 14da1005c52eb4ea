"""Run the notebooks in examples/notebooks/ and write their outputs and docs/notebooks/.

    python tools/notebooks.py                      # all
    python tools/notebooks.py csv_to_equations     # some

Outputs are stored in the notebooks. Pages of the documentation are written from them; do not edit
docs/notebooks/ by hand.
"""

from __future__ import annotations

import ast
import base64
import contextlib
import io
import json
import re
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
NOTEBOOKS = ROOT / "examples" / "notebooks"
PAGES = ROOT / "docs" / "notebooks"
NAMES = ("csv_to_equations", "mechanistic_layer", "forecasting_a_panel")
DPI = 80


def load(name: str) -> dict[str, Any]:
    """The contents of a notebook."""
    found: dict[str, Any] = json.loads((NOTEBOOKS / f"{name}.ipynb").read_text(encoding="utf-8"))
    return found


def source(cell: dict[str, Any]) -> str:
    """The text of a cell."""
    return "".join(cell["source"])


def run(notebook: dict[str, Any]) -> dict[str, Any]:
    """Run all code cells as Jupyter does, store their outputs, and return their variables."""
    import matplotlib

    matplotlib.use("Agg")
    scope: dict[str, Any] = {"__name__": "__main__"}
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    with contextlib.chdir(NOTEBOOKS):
        for count, cell in enumerate(cells, 1):
            cell["execution_count"] = count
            cell["outputs"] = _outputs(source(cell), scope, count)
    return scope


def _outputs(code: str, scope: dict[str, Any], count: int) -> list[dict[str, Any]]:
    import matplotlib.pyplot as plt

    tree, printed, value = ast.parse(code), io.StringIO(), None
    with contextlib.redirect_stdout(printed):
        last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
        exec(compile(tree, "<cell>", "exec"), scope)
        if isinstance(last, ast.Expr):
            value = eval(compile(ast.Expression(last.value), "<cell>", "eval"), scope)
    found: list[dict[str, Any]] = []
    if printed.getvalue():
        text = printed.getvalue().splitlines(keepends=True)
        found.append({"name": "stdout", "output_type": "stream", "text": text})
    if value is not None and not code.rstrip().endswith(";"):
        html = getattr(value, "_repr_html_", lambda: None)()
        data = {"text/html": html.splitlines(keepends=True)} if html else {}
        data["text/plain"] = repr(value).splitlines(keepends=True)
        found.append({"data": data, "execution_count": count, "metadata": {},
                      "output_type": "execute_result"})  # fmt: skip
    for number in plt.get_fignums():
        image = io.BytesIO()
        plt.figure(number).savefig(image, format="png", dpi=DPI)
        data = {"image/png": base64.b64encode(image.getvalue()).decode()}
        found.append({"data": data, "metadata": {}, "output_type": "display_data"})
    plt.close("all")
    return found


def page(name: str, notebook: dict[str, Any]) -> str:
    """The notebook with its outputs as a page of the documentation."""
    parts = []
    for cell in notebook["cells"]:
        if cell["cell_type"] == "markdown":
            parts.append(source(cell))
            continue
        parts.append(f"```py\n{source(cell).removesuffix(';')}\n```")  # hides output, as in Jupyter
        for output in cell["outputs"]:
            if "text" in output:
                parts.append(f"```text\n{''.join(output['text']).rstrip()}\n```")
            elif "text/html" in output["data"]:
                html = re.sub(r"\n\s*", " ", "".join(output["data"]["text/html"]))
                parts.append(f'<div class="output">{html}</div>')
            elif "image/png" in output["data"]:
                image = output["data"]["image/png"]
                parts.append(f'<img alt="Output" src="data:image/png;base64,{image}">')
            else:
                parts.append(f"```text\n{''.join(output['data']['text/plain'])}\n```")
    note = f"This page is the notebook `examples/notebooks/{name}.ipynb` with its outputs."
    first, *rest = parts
    title, _, text = first.partition("\n\n")
    return "\n\n".join([title, note, text, *rest]) + "\n"


def main() -> int:
    """Run the given notebooks, or all."""
    PAGES.mkdir(exist_ok=True)
    for name in sys.argv[1:] or NAMES:
        notebook = load(name)
        run(notebook)
        text = json.dumps(notebook, indent=1, ensure_ascii=False) + "\n"
        (NOTEBOOKS / f"{name}.ipynb").write_text(text, encoding="utf-8")
        (PAGES / f"{name}.md").write_text(page(name, notebook), encoding="utf-8")
        print(f"Written: examples/notebooks/{name}.ipynb, docs/notebooks/{name}.md")
    return 0


if __name__ == "__main__":
    sys.exit(main())
