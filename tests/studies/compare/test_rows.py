"""What a row says of the attacks."""

from typing import Any

from codedfl.studies.compare.rows import strongest


def outcome(verdict: str, error: float | None, attack: str, assumption: str = "") -> dict[str, Any]:
    known = {"verdict": verdict, "relative_error": error, "attack": attack, "assumption": assumption}
    return {**known, "view": "a view", "asset": "gram", "holder": "somebody", "auc": None, "seconds": 1.0}


class TestStrongest:
    def test_the_worst_verdict_counts_then_the_smallest_error(self) -> None:
        outcomes = [
            outcome("holds", 1e-9, "none"),
            outcome("leaks", None, "a"),
            outcome("leaks", 0.2, "b"),
            outcome("leaks", 0.1, "c"),
        ]
        found = strongest(outcomes)
        assert (found["verdict"], found["attack"], found["tried"], found["assuming"]) == ("leaks", "c", 4, None)

    def test_what_needs_an_assumption_stands_apart(self) -> None:
        found = strongest([outcome("holds", 1.0, "a"), outcome("falls", 0.0, "b", "all others collude")])
        assert (found["verdict"], found["tried"]) == ("holds", 1)
        assert (found["assuming"]["verdict"], found["assuming"]["assumption"]) == ("falls", "all others collude")

    def test_nothing_to_attack(self) -> None:
        assert strongest([])["verdict"] is None
        assert strongest([outcome("holds", 1.0, "null")])["tried"] == 0
