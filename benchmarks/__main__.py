"""Run the named benchmarks (all if none is named) and keep their results in out/bench/NAME.json.

Options after the name of a single benchmark are its own: ``python -m benchmarks chaos --trainings 5``.
"""

import importlib
import pkgutil
import sys
from inspect import signature
from pathlib import Path

import benchmarks
from codedfl.storage import write_json

SUPPORT = {"__main__", "cohorts", "hostile_server", "lab", "lying_devices", "measure", "networks", "pictures"}
SUPPORT |= {"chaos_faults", "private_figure", "reconstruction", "screenshots"}


def main(words: list[str]) -> None:
    """Run benchmarks one after the other."""
    first = next((place for place, word in enumerate(words) if word.startswith("-")), len(words))
    names, options = words[:first], words[first:]
    if options and len(names) != 1:
        sys.exit(f"'{options[0]}' is an option of one benchmark; name that one only")
    known = [module.name for module in pkgutil.iter_modules(benchmarks.__path__) if module.name not in SUPPORT]
    unknown = [name for name in names if name not in known]
    if unknown:
        sys.exit(f"no benchmark is called '{unknown[0]}'; benchmarks are {', '.join(known)}")
    out = Path("out/bench")
    out.mkdir(parents=True, exist_ok=True)
    for name in names or known:
        print(f"== {name}", flush=True)
        run = importlib.import_module(f"benchmarks.{name}").main
        if options and "arguments" not in signature(run).parameters:
            sys.exit(f"{name} takes no options, but was given '{' '.join(options)}'")
        results = run(options) if options else run()
        write_json(out / f"{name}.json", results)


if __name__ == "__main__":
    main(sys.argv[1:])
