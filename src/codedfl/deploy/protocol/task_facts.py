"""What a site tells about its task: kind, number of classes, and a digest of their names instead of the names."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

from codedfl.deploy.protocol import fields
from codedfl.errors import EngineError


def class_digest(names: Sequence[str]) -> str:
    """Return the digest by which sites with the same classes in the same order are known."""
    return hashlib.sha256(json.dumps(list(names)).encode()).hexdigest()


@final
@dataclass(frozen=True)
class TaskFacts:
    """A task; ``names`` of the classes are told only if they are public."""

    kind: str
    classes: int
    digest: str
    names: tuple[str, ...] | None = None

    @classmethod
    def of(cls, kind: str, names: Sequence[str], *, share: bool) -> "TaskFacts":
        """Describe a task; without ``share``, names are left out."""
        return cls(kind, len(names), class_digest(names), tuple(names) if share else None)

    def to_fields(self) -> dict[str, Any]:
        """Return fields of a reply."""
        names = None if self.names is None else list(self.names)
        return {"kind": self.kind, "classes": self.classes, "class_digest": self.digest, "class_names": names}

    @classmethod
    def read(cls, reply: Mapping[str, Any]) -> "TaskFacts":
        """Read and check the fields of a reply."""
        names = None if reply["class_names"] is None else tuple(fields.names(reply, "class_names"))
        made = cls(
            fields.text(reply, "kind"), fields.count(reply, "classes"), fields.text(reply, "class_digest"), names
        )
        sound = made.kind in ("classification", "regression")
        if names is not None:
            sound = sound and (len(names), class_digest(names)) == (made.classes, made.digest)
        if not sound:
            raise EngineError("the description of a task is invalid; check that versions agree")
        return made

    def alike(self, other: "TaskFacts") -> bool:
        """Return whether two sites have the same task."""
        return (self.kind, self.classes, self.digest) == (other.kind, other.classes, other.digest)

    def known_names(self, *candidates: Sequence[str]) -> tuple[str, ...] | None:
        """Return the names of the classes if they are told, or among candidates; else None."""
        if self.names is not None:
            return self.names
        return next((tuple(names) for names in candidates if class_digest(names) == self.digest), None)

    def __str__(self) -> str:
        if not self.classes:
            return self.kind
        shown = ", ".join(self.names[:5]) if self.names else f"{self.classes} classes"
        return f"{self.kind} of {shown}{' and more' if self.names and self.classes > 5 else ''}"
