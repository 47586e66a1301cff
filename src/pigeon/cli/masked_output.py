"""Keys are masked in everything that a command prints, also in its errors."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TextIO, cast

from pigeon.frontends.call import OutputKind
from pigeon.secrets.addresses import mask_addresses, mask_configuration
from pigeon.secrets.redactor import Labelled, RedactedText, Redactor
from pigeon.system.environment import Environment

if TYPE_CHECKING:
    from pigeon.mcp.server_config import ServerConfig


class OutputMasker:
    """Masks what a command prints. The keys of the user are read when something is printed for the first time."""

    def __init__(self, kind: OutputKind, environment: Environment) -> None:
        self._kind = kind
        self._keeps_links = kind == "links"
        self._environment = environment
        self._has_read_keys = False
        self.redactor = Redactor()

    def replace_streams(self) -> None:
        """Mask what is written to stdout and stderr from now on."""
        if self._kind == "fixed":
            return
        if sys.stderr is not None:
            sys.stderr = cast("TextIO", RedactedText(sys.stderr, self.mask_text))
        sys.stdout = cast("TextIO", RedactedText(sys.stdout, self.mask_text, required=True))

    @contextmanager
    def keep_links(self) -> Iterator[None]:
        """In this context only known keys are masked: what is printed has an address that a person must open."""
        before, self._keeps_links = self._keeps_links, True
        try:
            yield
        finally:
            self._keeps_links = before

    def mask_text(self, text: str) -> str:
        if not text.strip():
            return text
        self._read_keys()
        if not self._keeps_links:
            text = mask_configuration(text) if self._kind == "configuration" else mask_addresses(text)
        return self.redactor.mask_text(text)

    def _read_keys(self) -> None:
        if self._has_read_keys:
            return
        self._has_read_keys = True
        from pigeon.app.models import make_registry
        from pigeon.config.layers import Layers
        from pigeon.wire.base import value_or_default

        environment = self._environment
        folder = environment.agent_dir()
        make_registry(folder, environment.variables, environment.cwd or "/", None, self.redactor)
        self.redactor.add_proxy_source(value_or_default(Layers(folder, _ignore_problem).settings.http_proxy, ""))
        if self._kind == "configuration":
            self.redactor.learn_keys(self._find_keys_of_servers(folder))

    def _find_keys_of_servers(self, folder: str) -> Iterator[Labelled]:
        """What may be keys in the files of tool servers, as they are written there."""
        from pigeon.mcp.server_files import project_files, read_servers, user_file

        for path in (user_file(folder), *project_files(self._environment.cwd or "/")):
            for server in read_servers(path, "user", _ignore_problem):
                yield from _find_keys_of_server(server)


def _find_keys_of_server(server: ServerConfig) -> Iterator[Labelled]:
    yield "url", server.url
    yield "secret", server.oauth.client_secret or ""
    yield from server.env.items()
    yield from ((f"header {name}", value) for name, value in server.headers.items())
    for before, value in zip(("", *server.args), server.args, strict=False):
        # `--api-key KEY`, `--api-key=KEY`, `--header "Authorization: Bearer KEY"`
        yield before, value
        for sign in "" if "://" in value else "=:":
            name, found, rest = value.partition(sign)
            if found:
                yield name, rest.strip()


def _ignore_problem(problem: str) -> None:
    """The command itself reports what is wrong with a file."""
