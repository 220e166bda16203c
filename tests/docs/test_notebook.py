"""The notebook of the documentation runs, and prints what it shows; `python tests/docs/test_notebook.py` mends it."""

import ast
import io
import json
import re
from contextlib import redirect_stdout
from pathlib import Path

PLACE = Path(__file__).parents[2] / "docs" / "notebooks" / "first-proof.ipynb"


def run_cell(source, namespace):
    """What a cell prints, and its last value, as Jupyter has them."""
    tree, value, printed = ast.parse(source), None, io.StringIO()
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    with redirect_stdout(printed):
        exec(compile(tree, "cell", "exec"), namespace)
        if last is not None:
            value = eval(compile(ast.Expression(last.value), "cell", "eval"), namespace)
    return printed.getvalue(), value


def outputs(printed, value):
    found = []
    if printed:
        found.append({"name": "stdout", "output_type": "stream", "text": printed.splitlines(keepends=True)})
    if value is not None:
        kinds = {"_repr_html_": "text/html", "_repr_svg_": "image/svg+xml"}
        data = {kind: getattr(value, name)() for name, kind in kinds.items() if hasattr(value, name)}
        data["text/plain"] = repr(value)
        shown = {kind: text.splitlines(keepends=True) for kind, text in data.items() if text is not None}
        found.append({"data": shown, "execution_count": None, "metadata": {}, "output_type": "execute_result"})
    return found


def texts(found):
    """What is compared: what was printed, and values as text without addresses; HTML without its seconds."""
    for output in found:
        if output["output_type"] == "stream":
            yield "".join(output["text"])
            continue
        for kind, lines in output["data"].items():
            if kind != "image/svg+xml":  # matplotlib's releases draw the same figure in other words
                yield re.sub(r"0x[0-9a-f]+|<th>seconds</th><td>[^<]*</td>", "", "".join(lines))


def test_the_notebook_prints_what_it_shows():
    namespace = {}
    for cell in json.loads(PLACE.read_text())["cells"]:
        if cell["cell_type"] == "code":
            found = outputs(*run_cell("".join(cell["source"]), namespace))
            assert list(texts(found)) == list(texts(cell["outputs"])), "".join(cell["source"])


if __name__ == "__main__":
    notebook, namespace, number = json.loads(PLACE.read_text()), {}, 0
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            number += 1
            cell["execution_count"], cell["outputs"] = number, outputs(*run_cell("".join(cell["source"]), namespace))
            for output in cell["outputs"]:
                output.update({"execution_count": number} if "execution_count" in output else {})
    PLACE.write_text(json.dumps(notebook, indent=1) + "\n")
