"""The damages of `make mutants`: small, whole, and not of the kind that nobody could notice."""

from __future__ import annotations

import ast
import textwrap

from stress.mutations import add_probes, mutations_of

SOURCE = textwrap.dedent('''
    """A module."""
    from __future__ import annotations

    LIMIT = 5


    async def read(file, log):
        """Read it."""
        try:
            if len(file.lines) < LIMIT and file.is_open:
                log.debug("read")
                return file.lines[:3]
        except (OSError, ValueError):
            return []
        finally:
            await file.aclose()
        if file.age_seconds < 3:
            file.count += 1
        return None


    class Reader:
        def __repr__(self):
            return f"Reader({self.name})"

        def is_new(self):
            return not self.lines
''').encode()


def test_every_damage_is_a_change_of_one_piece_that_python_accepts() -> None:
    found = list(mutations_of("src/pigeon/sdk/x.py", SOURCE))
    assert len({one.key for one in found}) == len(found)
    for one in found:
        damaged = one.apply(SOURCE)
        assert damaged != SOURCE
        assert ast.dump(ast.parse(damaged)) != ast.dump(ast.parse(SOURCE)), one
        assert one.package == "sdk"


def test_each_kind_of_damage_is_done_where_it_can_be() -> None:
    done = {(one.kind, one.before, one.after) for one in mutations_of("src/pigeon/sdk/x.py", SOURCE)}
    assert done == {
        ("limit", "len(file.lines) < LIMIT", "len(file.lines) <= LIMIT"),
        ("limit", "LIMIT", "(LIMIT + 1)"),
        ("limit", "3", "4"),
        ("condition", "len(file.lines) < LIMIT and file.is_open", "(not (len(file.lines) < LIMIT and file.is_open))"),
        ("condition", "len(file.lines) < LIMIT and file.is_open", "((len(file.lines) < LIMIT) or (file.is_open))"),
        ("condition", "len(file.lines) < LIMIT and file.is_open", "((file.is_open))"),
        ("condition", "len(file.lines) < LIMIT and file.is_open", "((len(file.lines) < LIMIT))"),
        ("condition", "file.age_seconds < 3", "(not (file.age_seconds < 3))"),
        ("condition", "not self.lines", "(bool(self.lines))"),
        ("return", "file.lines[:3]", "None"),
        ("return", "not self.lines", "not (not self.lines)"),
        ("handler", "return []", "raise"),
        ("handler", "return []", "pass"),
        ("handler", "(OSError, ValueError)", "(ValueError,)"),
        ("handler", "(OSError, ValueError)", "(OSError,)"),
        ("clean-up", "await file.aclose()", "pass"),
        ("statement", "file.count += 1", "pass"),
    }


def test_a_damage_to_a_handler_is_looked_for_where_it_handles_something() -> None:
    blocks = {one.block for one in mutations_of("src/pigeon/sdk/x.py", SOURCE) if one.kind == "handler"}
    assert len(blocks) == 1
    assert blocks.isdisjoint(one.block for one in mutations_of("src/pigeon/sdk/x.py", SOURCE) if one.kind != "handler")


def test_probes_are_at_the_beginning_of_every_block_and_change_nothing_else() -> None:
    names: list[str] = []

    def number_of(name: str) -> int:
        names.append(name)
        return len(names)

    probed = ast.parse(add_probes(SOURCE, number_of))
    calls = [node for node in ast.walk(probed) if isinstance(node, ast.Name) and node.id == "_reached"]
    assert len(calls) == len(names) == 7
    assert {name.partition("#")[0] for name in names} == {"read", "Reader.is_new"}
    assert ast.get_docstring(probed) == "A module."


def test_a_handler_that_returns_what_the_function_returns_anyway_is_not_emptied() -> None:
    text = "def f(x):\n    try:\n        return g(x)\n    except OSError:\n        return None\n"
    for more, damages in (("", {"raise"}), ("    g(2)\n", {"raise", "pass"})):
        found = mutations_of("src/pigeon/sdk/x.py", (text + more).encode())
        assert {one.after for one in found if one.kind == "handler"} == damages
