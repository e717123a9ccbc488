"""The documentation site: ``make docs`` builds it into out/site, from Markdown that can be read without it.

The source folder is the repository, so that links from pages to README, SECURITY and CHANGELOG hold in both places.
"""

from importlib.metadata import version as installed

project = "codedfl"
author = "the authors of codedfl"
version = release = installed("codedfl")

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
root_doc = "docs/index"
include_patterns = ["README.md", "CHANGELOG.md", "SECURITY.md", "docs/*.md"]
myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 4

autodoc_typehints = "none"  # shapes of arrays are in the signatures, and say more than links would
napoleon_google_docstring = False

html_theme = "furo"
html_title = "codedfl"
html_use_index = html_domain_indices = False  # the search finds more
html_copy_source = False
html_show_sourcelink = False
html_extra_path = ["start"]
