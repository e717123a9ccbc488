"""Mutants are single changes, blocks are found where they stand, and what is computed once counts for every reader."""

import ast
import builtins
import functools
import importlib
import json
import random
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from mutation import changes, compiled, forks, places, reach
from mutation.changes import ROOT, Mutant, default_files, judged_equivalent, keyed, mutants
from mutation.places import Place
from mutation.reach import HITS, Map, Reached, Scope

FILES = random.Random(0).sample([file for file in default_files() if mutants(file)], 12)


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_mutant_changes_one_place_of_a_function(file: Path) -> None:
    source = file.read_bytes()
    for mutant in random.Random(1).sample(every := mutants(file), min(5, len(every))):
        changed = mutant.written(source)
        assert ast.dump(ast.parse(changed)) != ast.dump(ast.parse(source))
        found = places.block_of(mutant)
        assert found is not None
        before, after = (places.compiled(mutant.file, text) for text in (source, changed))
        assert before.keys() == after.keys()
        assert {place for place in before if before[place].co_code != after[place].co_code} <= {found[0]}


def test_every_judged_mutant_is_one_of_the_code() -> None:
    judged = judged_equivalent()
    every = (one for file in sorted({key[0] for key, _ in judged}) for one in mutants(ROOT / file))
    found = {(key, number) for _, key, which in keyed(every) for number in (0, which)}
    assert sorted(judged - found) == [], "entries of equivalent.toml whose line has changed: judge them again"


def test_a_judgement_may_be_of_one_of_those_alike_on_a_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "code.py"
    file.write_text("def pair():\n    return (7, 8), (7, 9)\n")
    monkeypatch.setattr(changes, "ROOT", tmp_path)
    entry = {"file": "code.py", "line": "return (7, 8), (7, 9)", "old": "7", "new": "(8)", "reason": "why not"}
    for which, left in ((0, []), (1, [20]), (2, [12]), (3, [12, 20])):
        number = f"which = {which}\n" if which else ""
        monkeypatch.setattr(changes, "EQUIVALENT", tmp_path / "judged.toml")
        lines = "".join(f"{name} = {json.dumps(value)}\n" for name, value in entry.items())
        changes.EQUIVALENT.write_text(f"[[mutant]]\n{lines}{number}")
        drawn, every = changes.drawn_from([file], None, seed=3)
        assert every - len(drawn) == 2 - len(left)
        assert sorted(one.span[1] for one in drawn if (one.old, one.new) == ("7", "(8)")) == left


SUPER = """
class Inner(Outer):
    def __init__(self):
        super().__init__()

    def count(self):
        return super().count()
"""


def test_a_dropped_call_of_super_fits_the_function(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "made.py"
    file.write_text(SUPER)
    monkeypatch.setattr(changes, "ROOT", tmp_path)
    before = places.compiled("made.py", SUPER.encode())
    found = mutants(file)
    assert [mutant.new for mutant in found] == ["__class__", "return __class__ and None"]
    for mutant in found:
        after = places.compiled("made.py", mutant.written(SUPER.encode()))
        assert {place: code.co_freevars for place, code in after.items()} == dict.fromkeys(before, ("__class__",))
        assert sum("super" in code.co_names for code in after.values()) == 1


def module(text: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Write a module where the tool looks for files."""
    (folder / "made.py").write_text(text)
    monkeypatch.setattr(places, "ROOT", folder)
    places._parsed.cache_clear()
    return "made.py"


BRANCHES = """
class Two:
    @property
    def sign(self):
        if self.x > 0:
            return 1
        return 0

    @sign.setter
    def sign(self, x):
        self.x = x

def loop(n):
    total = 0
    for i in range(n):
        if i % 2:
            total += i
    return total
"""


def test_every_block_has_a_number_and_says_when_it_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = module(BRANCHES, tmp_path, monkeypatch)
    numbers: dict[tuple[Place, int], int] = {}
    code = places.instrumented(file, numbers)
    assert {(place.name, place.number, block) for place, block in numbers} == {
        *(("Two.sign", 0, block) for block in range(2)),
        ("Two.sign", 1, 0),
        *(("loop", 0, block) for block in range(3)),
    }
    ran: list[int] = []
    monkeypatch.setattr(builtins, places.HIT, ran.append, raising=False)
    loop = type(test_every_block_has_a_number_and_says_when_it_runs)(code[Place(file, "loop", 0)], {})
    place = Place(file, "loop", 0)
    for n, blocks in ((0, [0]), (1, [0, 1]), (2, [0, 1, 1, 2])):
        ran.clear()
        assert loop(n) == n // 2
        assert ran == [numbers[place, block] for block in blocks]


@pytest.mark.parametrize(
    ("line", "old", "name", "number", "block"),
    [(5, "0", "Two.sign", 0, 0), (6, "1", "Two.sign", 0, 1), (16, "2", "loop", 0, 1), (17, "i", "loop", 0, 2)],
)
def test_a_mutant_lies_in_its_innermost_block(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: int, old: str, name: str, number: int, block: int
) -> None:
    file = module(BRANCHES, tmp_path, monkeypatch)
    start = BRANCHES.splitlines()[line - 1].rindex(old)
    mutant = Mutant(file, line, (line, start, line, start + 1), old, "x")
    assert places.block_of(mutant) == (Place(file, name, number), block)


def test_what_is_remembered_counts_for_every_reader() -> None:
    functions = {}
    exec(  # a function of the package, as caches see it
        "def inner(n):\n    HITS.add(n)\n    return n\ndef outer(n):\n    HITS.add(100)\n    return inner(n)\n",
        functions | {"__name__": "codedfl.made", "HITS": HITS},
        functions,
    )
    inner = reach.remembering_lru_cache(functions["inner"])
    made = functions["outer"]
    made.__globals__["inner"] = inner
    outer = reach.remembering_lru_cache(maxsize=None)(made)
    with Scope() as whole:
        for _ in range(2):
            with Scope() as scope:
                assert (outer(3), inner(4)) == (3, 4)
            assert scope.hits == {3, 4, 100}
            with Scope() as nothing:
                pass
            assert nothing.hits == frozenset()
    assert whole.hits == {3, 4, 100}
    assert outer.cache_info().hits == inner.cache_info().hits == 1
    assert reach.remembering_lru_cache(1)(sum).__wrapped__ is sum
    assert isinstance(reach.remembering_lru_cache(1)(sum), type(functools.lru_cache(1)(sum)))


def test_what_tests_reach_is_kept_until_their_file_changes(tmp_path: Path) -> None:
    kept = Map(tmp_path / "out" / "reached.json")
    own = str(Path(__file__).relative_to(ROOT))
    assert kept.outdated([own]) == [own]
    kept.put(own, {f"{own}::a": Reached(0.5, frozenset({"f g 0 1", "f g 0 2"}))}, {"numpy"})
    kept.save()
    again = Map(kept.path)
    assert again.outdated([own]) == []
    assert (again.tests, again.modules) == (kept.tests, {own: ["numpy"]})
    again.put(own, {f"{own}::b": Reached(1.0, frozenset())}, ())
    assert list(again.tests) == [f"{own}::b"]


def _computes() -> None:
    forks.WAITING = 10**6  # only the limit of processor time counts, however busy the machine is
    forks._limit(0.05)
    while True:
        pass


def _waits() -> None:
    forks._limit(0.02)
    time.sleep(60)


def _dies() -> None:
    raise RuntimeError("in words")


def test_forks_return_fail_in_words_or_end_by_a_limit(request: pytest.FixtureRequest) -> None:
    tasks = {"sum": partial(sum, (1, 2)), "computes": _computes, "waits": _waits, "dies": _dies}
    found = dict(forks.in_forks(request.config, iter(tasks.items()), 2))
    assert found == {
        "sum": 3,
        "computes": "ended by SIGPROF",
        "waits": "ended by SIGALRM",
        "dies": "RuntimeError: in words",
    }


MADE_INSIDE = """
def scaled(by):
    def call(x):
        return by * x
    return call

double = scaled(2)
"""


def test_functions_made_inside_have_the_code_of_a_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = module(MADE_INSIDE, tmp_path, monkeypatch)
    made: dict[str, Any] = {}
    exec(compile(MADE_INSIDE, str(tmp_path / file), "exec"), made)
    place = Place(file, "scaled", 0)
    functions = places.living([file])[place]
    assert {function.__qualname__ for function in functions} == {"scaled", "scaled.<locals>.call"}
    (change,) = (mutant for mutant in mutants_in(tmp_path, monkeypatch) if mutant.old == "by * x")
    code = places.compiled(file, change.written(MADE_INSIDE.encode()))[place]
    assert [places.put_in_place(function, code) for function in functions] == [True, True]
    assert (made["double"](6), made["scaled"](3)(6)) == (2 / 6, 3 / 6)


def mutants_in(folder: Path, monkeypatch: pytest.MonkeyPatch) -> list[Mutant]:
    monkeypatch.setattr(changes, "ROOT", folder)
    return mutants(folder / "made.py")


def test_kernels_that_call_a_changed_function_are_compiled_again() -> None:
    folder = "src/codedfl/codes/modular/"
    kernel, vectors = f"{folder}field_61_kernels.py", f"{folder}vector_kernels.py"
    importlib.import_module("codedfl.codes.modular.field_61_kernels")
    known = compiled.lookups([kernel, vectors])
    for name, file in (("_residue", kernel), ("_more", kernel), ("load", vectors), ("accumulation", vectors)):
        found = compiled.callers(Place(file, name, 0), known) & set(compiled.kernels())
        assert Place(kernel, "product_61", 0) in found
        assert (Place(kernel, "subtract_61", 0) in found) is False
