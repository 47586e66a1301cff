"""The entry point: decide the mode, and import only what that mode needs."""

from __future__ import annotations

import gc
import os
import sys
from contextlib import suppress

from pigeon import __version__

SPOKEN_PI_VERSION = "0.87.1"


def main() -> None:
    """Run the program and leave with its exit code."""
    # What a start makes stays: looking for garbage in it only costs time. Whoever serves switches it on again.
    gc.disable()
    arguments = sys.argv[1:]
    if arguments in (["--version"], ["-v"]):
        _leave(_print_version())
    if arguments[:1] == ["schema"]:
        _leave(_print_schema())
    from pigeon.wire.errors import StartupError

    try:
        code = _run(arguments)
    except BrokenPipeError:
        os._exit(1)
    except StartupError as error:
        print(f"Error: {error}", file=sys.stderr)  # noqa: T201
        code = 1
    _leave(code)


def _run(arguments: list[str]) -> int:
    from pigeon.cli.args import parse, parser
    from pigeon.wire.errors import StartupError

    options = parse(arguments)
    if options.version:
        return _print_version()
    if options.help:
        print(parser().format_help())  # noqa: T201
        return 0
    if options.list_models is not None:
        from pigeon.cli.list_models import run_list_models

        return run_list_models(options)
    if options.export:
        from pigeon.app.export_page import run_export

        return run_export(options.export)
    if options.mode == "json":
        from pigeon.cli.json_mode import run_json

        return run_json(options)
    if options.mode in ("rpc", "rpc-ui"):
        from pigeon.cli.rpc_mode import run_rpc

        return run_rpc(options)
    raise StartupError("Say how to talk: --mode rpc for a host, --mode json for one prompt (see pigeon --help)")


def _print_version() -> int:
    """Called by pi's name, clients check the protocol's version; otherwise our own."""
    called = os.path.basename(sys.argv[0])
    print(SPOKEN_PI_VERSION if called == "pi" else __version__)  # noqa: T201
    return 0


def _print_schema() -> int:
    import json

    from pigeon.wire.schema import protocol_schema

    print(json.dumps(protocol_schema(), indent=2))  # noqa: T201
    return 0


def _leave(code: int) -> None:
    """End now: threads that are stuck in somebody's code must not keep us."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError, AttributeError):
            stream.flush()
    os._exit(code)


if __name__ == "__main__":
    main()
