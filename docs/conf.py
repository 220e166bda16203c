"""Sphinx: the pages of this folder, the book of claims and the reference, all without a request to the network."""

import sys
from pathlib import Path

from sphinx.errors import ExtensionError
from sphinxcontrib.katex import katex_version

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent), str(HERE / "_ext")]

project = "weightproof"
author = "the weightproof authors"
extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinxcontrib.katex",
    "sphinx_copybutton",
    "docstrings",
    "generated_pages",
    "listed_pages",
    "plain_formulas",
]
exclude_patterns = ["_build", "_ext"]

copybutton_prompt_text = r"\$ |>>> |\.\.\. "  # only what is typed is copied
copybutton_prompt_is_regexp = True

myst_enable_extensions = ["dollarmath", "attrs_block", "deflist"]
myst_heading_anchors = 3
suppress_warnings = [
    "misc.highlighting_failure",  # console blocks hold prompts and output
    "ref.python",  # some classes share a name; a signature links to one of them
]

autodoc_member_order = "bysource"
autodoc_inherit_docstrings = False  # torch.nn.Module's are not ours, and not in our markup
autodoc_typehints = "signature"
autodoc_preserve_defaults = True
add_module_names = False

html_theme = "furo"
html_title = "weightproof"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_js_files = ["records.js"]
html_show_sphinx = False
html_show_copyright = False
html_copy_source = False
pygments_style = "tango"
pygments_dark_style = "github-dark"

katex_css_path = "katex/katex.min.css"  # beside its fonts; the script comes with sphinxcontrib-katex
if f'"{katex_version}"' not in (HERE / "_static" / katex_css_path).read_text():
    raise ExtensionError(f"docs/_static/katex must be of KaTeX {katex_version}, as the script of sphinxcontrib-katex")
