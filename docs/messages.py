"""Drawings of who sends what to whom, scheme by scheme: ``python docs/messages.py`` writes docs/messages/NAME.svg.

A drawing has a column for each party and a row for each step; time goes down. ``make docs`` makes them anew.
"""

from dataclasses import dataclass
from html import escape
from pathlib import Path

FOLDER = Path(__file__).parent / "messages"
SERVER, FAST, OTHER, SLOW = "server", "fast device", "another device", "slow device"
LANES = (SERVER, FAST, OTHER, SLOW)
_LEFT, _TOP, _STEP, _WIDTH = 90, 40, 44, 780
_CLEAR, _SEALED, _INK = "#b35900", "#005f99", "#222222"


@dataclass(frozen=True)
class Send:
    """A message; a sealed one says nothing to whoever taps it."""

    sender: str
    recipient: str
    text: str
    sealed: bool = False


@dataclass(frozen=True)
class Work:
    """What a party does."""

    party: str
    text: str


@dataclass(frozen=True)
class Part:
    """The beginning of the set-up, of an epoch, or of what happens between epochs."""

    text: str


Steps = tuple[Send | Work | Part, ...]

DRAWINGS: dict[str, tuple[str, Steps]] = {
    "conventional": (
        "conventional, minibatch: everybody is awaited",
        (
            Part("every epoch"),
            Send(SERVER, FAST, "model"),
            Send(SERVER, SLOW, "model"),
            Send(FAST, SERVER, "gradient"),
            Work(SERVER, "waits"),
            Send(SLOW, SERVER, "gradient"),
            Work(SERVER, "adds up, takes a step"),
        ),
    ),
    "drop-slowest": (
        "drop-slowest, deadline: what is late does not count",
        (
            Part("every epoch"),
            Send(SERVER, FAST, "model"),
            Send(SERVER, SLOW, "model"),
            Send(FAST, SERVER, "gradient"),
            Work(SERVER, "enough replies, or time is up: takes a step"),
            Send(SLOW, SERVER, "gradient, ignored"),
        ),
    ),
    "asynchronous": (
        "asynchronous: slow devices reply to old models",
        (
            Part("all the time"),
            Send(SERVER, FAST, "model 1"),
            Send(SERVER, SLOW, "model 1"),
            Send(FAST, SERVER, "gradient at model 1"),
            Work(SERVER, "K replies: takes a step"),
            Send(SERVER, FAST, "model 2"),
            Send(SLOW, SERVER, "gradient at model 1, weighs less"),
        ),
    ),
    "parity": (
        "parity: random combinations at the server stand for what is late",
        (
            Part("set-up"),
            Send(FAST, SERVER, "parity data"),
            Send(SLOW, SERVER, "parity data"),
            Part("every epoch"),
            Send(SERVER, FAST, "model"),
            Send(SERVER, SLOW, "model"),
            Send(FAST, SERVER, "gradient of its load"),
            Work(SERVER, "deadline: adds the gradient of parity data"),
        ),
    ),
    "coded-padded": (
        "coded-padded: padded data at the neighbours",
        (
            Part("set-up"),
            Send(SERVER, FAST, "seed of a pad", sealed=True),
            Send(SERVER, SLOW, "seed of a pad", sealed=True),
            Send(SLOW, OTHER, "padded data", sealed=True),
            Send(FAST, OTHER, "padded data", sealed=True),
            Part("every epoch"),
            Send(SERVER, OTHER, "model"),
            Send(OTHER, SERVER, "product with its coded sum", sealed=True),
            Work(SERVER, "enough replies: decodes, subtracts pads"),
        ),
    ),
    "hand-over": (
        "code-based, sealed, he: a slow device hands its encrypted data over and leaves",
        (
            Part("an epoch in which somebody is slow"),
            Send(SERVER, FAST, "model"),
            Send(SERVER, SLOW, "model"),
            Send(FAST, SERVER, "reply"),
            Send(SLOW, SERVER, "reply, more than Delta later"),
            Part("after it"),
            Send(SERVER, SLOW, "support, or seed of a pad", sealed=True),
            Send(SLOW, FAST, "its data, encrypted", sealed=True),
            Work(SLOW, "leaves"),
            Part("every later epoch"),
            Send(SERVER, FAST, "model"),
            Send(FAST, SERVER, "product with all it holds", sealed=True),
            Work(SERVER, "adds up, decodes the sum"),
        ),
    ),
    "sealed-coded": (
        "sealed-coded: the sealed sum of all data, coded, on the fastest devices",
        (
            Part("set-up"),
            Send(SERVER, SLOW, "seed of a pad", sealed=True),
            Send(SLOW, OTHER, "sealed piece of its data", sealed=True),
            Send(FAST, OTHER, "sealed piece of its data", sealed=True),
            Work(OTHER, "adds up, codes"),
            Send(OTHER, FAST, "coded block of the sum", sealed=True),
            Work(SLOW, "is done"),
            Part("every epoch"),
            Send(SERVER, FAST, "model"),
            Send(FAST, SERVER, "product with its block", sealed=True),
            Work(SERVER, "any K replies: decodes, subtracts pads"),
        ),
    ),
    "secagg": (
        "secagg: masks that cancel in the sum",
        (
            Part("every epoch"),
            Send(FAST, SERVER, "public keys"),
            Send(SLOW, SERVER, "public keys"),
            Send(SERVER, FAST, "keys of the others, model"),
            Send(FAST, SLOW, "shares of its secrets, by the server", sealed=True),
            Send(SLOW, FAST, "shares of its secrets, by the server", sealed=True),
            Send(FAST, SERVER, "masked reply", sealed=True),
            Send(SLOW, SERVER, "masked reply", sealed=True),
            Send(FAST, SERVER, "shares that open the sum"),
            Work(SERVER, "opens the sum, takes a step"),
        ),
    ),
    "one-shot": (
        "one-shot: Gram matrices are summed once",
        (
            Part("the only round"),
            Send(FAST, SERVER, "public keys, shares (as secagg)"),
            Send(SLOW, SERVER, "public keys, shares (as secagg)"),
            Send(FAST, SERVER, "masked Gram matrix and right-hand side", sealed=True),
            Send(SLOW, SERVER, "masked Gram matrix and right-hand side", sealed=True),
            Send(FAST, SERVER, "shares that open the sum"),
            Work(SERVER, "opens the sum, solves alone"),
        ),
    ),
}
"""Title and steps of each drawing."""


def words(name: str) -> str:
    """Return a drawing in words, for those who do not see it."""
    title, steps = DRAWINGS[name]
    told = []
    for step in steps:
        if isinstance(step, Part):
            told.append(f"{step.text}:")
        elif isinstance(step, Work):
            told.append(f"the {step.party} {step.text};")
        else:
            how = " (sealed)" if step.sealed else ""
            told.append(f"{step.sender} to {step.recipient}: {step.text}{how};")
    return f"{title}. " + " ".join(told)


def draw(name: str) -> str:
    """Return a drawing as SVG."""
    _, steps = DRAWINGS[name]
    used = [lane for lane in LANES if any(lane in vars(step).values() for step in steps)]
    place = {lane: _LEFT + number * (_WIDTH - 2 * _LEFT) / (len(used) - 1) for number, lane in enumerate(used)}
    height = _TOP + _STEP * (len(steps) + 1)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" role="img" '
        f'font-family="DejaVu Sans, Verdana, sans-serif" font-size="14">',
        f"<title>{escape(words(name))}</title>",
        f'<rect width="{_WIDTH}" height="{height}" fill="#ffffff"/>',
        f"<defs>{_head('clear', _CLEAR)}{_head('sealed', _SEALED)}</defs>",
    ]
    for lane, x in place.items():
        parts.append(f'<line x1="{x:g}" y1="{_TOP}" x2="{x:g}" y2="{height - 10}" stroke="#999999"/>')
        parts.append(_text(x, _TOP - 14, lane, weight="bold"))
    for number, step in enumerate(steps, 1):
        y = _TOP + _STEP * number - 8
        if isinstance(step, Part):
            parts.append(f'<rect x="0" y="{y - 20}" width="{_WIDTH}" height="28" fill="#eeeeee"/>')
            parts.append(_text(12, y, step.text, anchor="start", weight="bold"))
        elif isinstance(step, Work):
            parts.append(_boxed(place[step.party], y, step.text))
        else:
            parts.append(_arrow(place[step.sender], place[step.recipient], y, step))
    return "\n".join([*parts, "</svg>", ""])


def _head(name: str, colour: str) -> str:
    return (
        f'<marker id="{name}" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="8" markerHeight="8" orient="auto">'
        f'<path d="M0 0L10 5L0 10z" fill="{colour}"/></marker>'
    )


def _text(x: float, y: float, text: str, *, anchor: str = "middle", weight: str = "normal", ink: str = _INK) -> str:
    return f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}" font-weight="{weight}" fill="{ink}">{escape(text)}</text>'


def _boxed(x: float, y: float, text: str) -> str:
    wide = 8.0 * len(text) + 16
    left = min(max(x - wide / 2, 4), _WIDTH - wide - 4)
    box = f'<rect x="{left:g}" y="{y - 19}" width="{wide:g}" height="26" rx="5" fill="#ffffff" stroke="{_INK}"/>'
    return box + _text(left + wide / 2, y - 1, text)


def _arrow(begin: float, end: float, y: float, step: Send) -> str:
    kind, colour = ("sealed", _SEALED) if step.sealed else ("clear", _CLEAR)
    dashes = ' stroke-dasharray="7 4"' if step.sealed else ""
    line = (
        f'<line x1="{begin:g}" y1="{y}" x2="{end:g}" y2="{y}" stroke="{colour}" stroke-width="2"{dashes} '
        f'marker-end="url(#{kind})"/>'
    )
    wide = 7.8 * len(step.text) + 8
    middle = min(max((begin + end) / 2, wide / 2 + 4), _WIDTH - wide / 2 - 4)
    back = f'<rect x="{middle - wide / 2:g}" y="{y - 24}" width="{wide:g}" height="19" fill="#ffffff"/>'
    return line + back + _text(middle, y - 9, step.text, ink=colour)


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for name in DRAWINGS:
        (FOLDER / f"{name}.svg").write_text(draw(name), encoding="utf-8")
