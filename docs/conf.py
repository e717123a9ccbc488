"""The documentation site: ``make docs`` builds it into out/site, from Markdown that can be read without it.

The source folder is the repository, so that links from pages to README, SECURITY and CHANGELOG hold in both places.
"""

import atexit
import os
import shutil
import sys
import tempfile
from importlib.metadata import version as installed
from pathlib import Path

from sphinx.application import Sphinx

project = "codedfl"
author = "the authors of codedfl"
version = release = installed("codedfl")

extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
root_doc = "docs/index"
include_patterns = ["README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md"]
include_patterns += ["docs/*.md", "docs/tutorials/*.md", "examples/*.ipynb"]
myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 4

# cells of tutorials call codedfl as a reader does
os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # threads that spin disturb each other on small data
startup = Path(tempfile.mkdtemp(prefix="codedfl-docs-")) / "profile_default" / "startup"
startup.mkdir(parents=True)
shutil.copy(Path(__file__).parent / "shell_magic.py", startup)
atexit.register(shutil.rmtree, startup.parents[1], ignore_errors=True)
os.environ["IPYTHONDIR"] = str(startup.parents[1])
nb_execution_mode = "force"
nb_execution_in_temp = True
nb_execution_raise_on_error = True
nb_execution_timeout = 600

autodoc_typehints = "none"  # shapes of arrays are in the signatures, and say more than links would
napoleon_google_docstring = False

html_theme = "furo"
html_title = "codedfl"
html_use_index = html_domain_indices = False  # the search finds more
html_copy_source = False
html_show_search_summary = False  # it would fetch pages, which files cannot
html_show_sourcelink = False
html_extra_path = ["start"]

# what the theme leaves to be desired for keyboards and screen readers
FOR_ACCESS = {
    'class="caption" role="heading">': 'class="caption" role="heading" aria-level="2">',
    "<pre>": '<pre tabindex="0">',
    '<div class="table-wrapper ': '<div tabindex="0" class="table-wrapper ',
}


def improve_access(app: Sphinx, error: Exception | None) -> None:
    """Name levels of headings, and let keyboards reach what scrolls."""
    for page in Path(app.outdir).rglob("*.html") if error is None else ():
        text = page.read_text(encoding="utf-8")
        for found, better in FOR_ACCESS.items():
            text = text.replace(found, better)
        page.write_text(text, encoding="utf-8")


def setup(app: Sphinx) -> None:
    """Register the above."""
    app.connect("build-finished", improve_access)
