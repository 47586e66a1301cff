"""JSON values of every kind for property tests, each made from two draws: `st.recursive` needs dozens for one value.

An example that fails is reduced to the smallest size at which its seed still fails.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from math import isfinite
from random import Random
from typing import Any

from hypothesis import strategies as st

Texts = Callable[[Random], str]
INTEGERS = [0, 1, -1, 2**31, 2**53 + 1, -(2**53) - 1, 2**63, 2**64, -(2**63) - 1, 10**30]
FLOATS = [0.0, -0.0, 0.1, 1.5, 1e16, 1e-7, 5e-324, 1.7976931348623157e308]


def letters(special: str, most: int = 8, surrogates: bool = False) -> Texts:
    """Texts in which every second sign is one of these and the others any of Unicode, halves of pairs only if asked."""

    def made(chance: Random) -> str:
        signs = "".join(
            chance.choice(special) if chance.random() < 0.5 else _sign(chance, surrogates)
            for _ in range(chance.randint(0, most))
        )
        # Two halves side by side are one sign to every reader.
        return signs.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass") if surrogates else signs

    return made


def words(*some: str) -> Texts:
    """One of these texts."""
    return lambda chance: chance.choice(some)


def _sign(chance: Random, surrogates: bool) -> str:
    code = chance.randrange(chance.choice((0x80, 0x800, 0x10000, 0x110000)))
    return "\ufffd" if 0xD800 <= code < 0xE000 and not surrogates else chr(code)


ANY_TEXT = letters('"\\/ \n\u2028a')


def json_values(
    texts: Texts = ANY_TEXT, keys: Texts | None = None, size: int = 12, scalars: Sequence[Any] = ()
) -> st.SearchStrategy[Any]:
    """Scalars, lists and objects of at most so many values; `scalars` are mixed in with those of every kind."""
    names = keys or texts
    return st.builds(
        lambda most, seed: _value(Random(seed), most, texts, names, scalars),
        st.integers(1, size),
        st.integers(0, 2**32 - 1),
    )


def json_objects(
    texts: Texts = ANY_TEXT, keys: Texts | None = None, size: int = 12, scalars: Sequence[Any] = ()
) -> st.SearchStrategy[dict[str, Any]]:
    """Objects of at most so many values."""
    names = keys or texts
    return st.builds(
        lambda most, seed: _object(Random(seed), most, texts, names, scalars),
        st.integers(0, size),
        st.integers(0, 2**32 - 1),
    )


def _value(chance: Random, size: int, texts: Texts, keys: Texts, scalars: Sequence[Any]) -> Any:
    kind = chance.randrange(3)
    if size < 2 or kind == 0:
        return _scalar(chance, texts, scalars)
    if kind == 1:
        return [_value(chance, share, texts, keys, scalars) for share in _shares(chance, size - 1)]
    return _object(chance, size - 1, texts, keys, scalars)


def _object(chance: Random, size: int, texts: Texts, keys: Texts, scalars: Sequence[Any]) -> dict[str, Any]:
    return {keys(chance): _value(chance, share, texts, keys, scalars) for share in _shares(chance, size)}


def _shares(chance: Random, size: int) -> list[int]:
    """How many values each member may be made of, together at most so many."""
    shares = []
    while size > 0 and chance.random() < 0.8:
        shares.append(chance.randint(1, size))
        size -= shares[-1]
    return shares


def _scalar(chance: Random, texts: Texts, scalars: Sequence[Any]) -> Any:
    kind = chance.randrange(6 if scalars else 5)
    if kind < 2:
        return texts(chance)
    if kind == 2:
        return chance.choice((None, True, False))
    if kind == 3:
        return chance.choice(INTEGERS) if chance.random() < 0.5 else chance.randint(-1000, 1000)
    return _float(chance) if kind == 4 else chance.choice(scalars)


def _float(chance: Random) -> float:
    if chance.random() < 0.5:
        return chance.choice(FLOATS)
    (value,) = struct.unpack("d", chance.randbytes(8))
    return float(value) if isfinite(value) else 0.5
