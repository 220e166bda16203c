"""In index.md, the line "every other page" of a toctree stands for the pages of docs/ that no toctree there names."""

from pathlib import Path

LINE = "every other page\n"


def setup(app):
    app.connect("source-read", fill)
    return {"parallel_read_safe": True}


def fill(app, name, source):
    if name == "index":
        source[0] = filled(source[0], Path(app.srcdir))


def filled(text: str, docs: Path) -> str:
    """The text with the names of the other pages, in order, in place of the line.

    >>> filled("a\\nevery other page\\n", Path("/nowhere"))
    'a\\n'
    """
    named = {line.strip() for line in text.splitlines()}
    others = sorted({path.stem for path in docs.glob("*.md")} - named - {"index"})
    return text.replace(LINE, "".join(f"{name}\n" for name in others))
