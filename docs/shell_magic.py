"""What kernels of tutorials run first: ``%%sh`` that shows its output in one piece, and fails if a command does."""

import subprocess
import sys

from IPython.core.magic import register_cell_magic


@register_cell_magic
def sh(line: str, cell: str) -> None:
    """Run a cell with the shell."""
    words = ["sh", "-e", "-c", cell]
    done = subprocess.run(words, check=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    sys.stdout.write(done.stdout)
