"""`pigeon doctor`: what is set up and what is missing, a line each, with what to do about it.

A line is `ok`, a `note` about something that works as it is, or `broken`; the exit code is 1 if a line is broken.
"""

from __future__ import annotations

import asyncio
import os
import platform
import re
import sys
from collections.abc import Iterator
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, requires, version

from msgspec import Struct

from pigeon import __version__
from pigeon.app.models import registry_of
from pigeon.app.options import AgentOptions
from pigeon.app.sandbox import sandbox_of
from pigeon.config.layers import Layers
from pigeon.config.settings import Settings
from pigeon.frontends.call import CommandCall
from pigeon.frontends.printing import has_colours, painted, say, say_painted
from pigeon.providers.apis import find_api
from pigeon.providers.catalog.built_in import current_name
from pigeon.providers.default_model import default_of, first_usable
from pigeon.providers.errors import from_exception
from pigeon.providers.http.client import HttpClient
from pigeon.providers.http.recorders import HttpRequest
from pigeon.providers.registry import ModelRegistry, NoKey
from pigeon.sandbox.control import SandboxControl
from pigeon.secrets.redactor import Redactor
from pigeon.system.environment import DOCS_FOLDER, Environment
from pigeon.system.process.start import ProcessOwner
from pigeon.system.shell.shell import find_shell
from pigeon.transport import exit_codes
from pigeon.wire.base import Absent, or_else
from pigeon.wire.errors import StartupError
from pigeon.wire.model import Model

REACH_SECONDS = 8.0
NOT_IMPLEMENTED = 501  # a server that answers prompts and nothing else
COLOURS = {"ok": "green", "note": "yellow", "broken": "red"}
PACKAGE = "pigeon-agent"


class Finding(Struct, frozen=True):
    """One line: its subject, how it stands, what was found, and what to do about it."""

    subject: str
    state: str
    found: str
    advice: str = ""


def run_doctor(call: CommandCall) -> int:
    """Check everything and print it."""
    findings: list[Finding] = []
    for one in _Checks(call.environment, offline=call.has("offline")).all():
        findings.append(one)
        if not call.has("json"):
            _show(one)
            # The servers may take their time: what is known by now is read meanwhile.
            sys.stdout.flush()
    if call.has("json"):
        import json

        say(json.dumps([{name: getattr(one, name) for name in one.__struct_fields__} for one in findings], indent=2))
    broken = [one for one in findings if one.state == "broken"]
    if not call.has("json"):
        say("\nEverything works." if not broken else f"\n{len(broken)} broken: see what to do above.")
    return exit_codes.FAILED if broken else exit_codes.OK


def _show(one: Finding) -> None:
    """A line, and below it what to do."""
    state, subject = painted(one.state.ljust(6), COLOURS[one.state]), painted(one.subject.ljust(10), "bold")
    say_painted(f"{state}  {subject}  {painted(one.found, 'plain')}")
    if one.advice:
        say_painted(f"{' ' * 20}{painted('→ ' + one.advice, 'dim')}")


class _Checks:
    """The checks of one call, in the order in which they are shown."""

    def __init__(self, environment: Environment, offline: bool) -> None:
        self._environment = environment
        self._offline = offline
        self._folder = environment.agent_dir()
        self._problems: list[str] = []
        self._layers = Layers(self._folder, self._problems.append)
        self._redactor = Redactor()
        # Commands that print keys run behind the wall that the settings ask for.
        self._wall = sandbox_of(AgentOptions(), environment, self._folder, self._layers, ProcessOwner())
        self._wall.enclose_key_commands(environment.cwd or "/")
        self._registry = registry_of(
            self._folder, environment.variables, environment.cwd or "/", self._wall.processes, self._redactor
        )

    def all(self) -> Iterator[Finding]:
        """Every line, the servers' last: they may take their time."""
        yield from self._versions()
        yield from self._files()
        yield from self._keys()
        yield from self._shell()
        yield from self._terminal()
        try:
            yield from self._reached()
        finally:
            self._wall.close()

    def _versions(self) -> Iterator[Finding]:
        yield Finding("pigeon", "ok", f"{__version__}, Python {platform.python_version()}, {platform.platform()}")
        libraries = _libraries()
        missing = [name for name in libraries if not _version(name)]
        if missing:
            yield Finding("libraries", "broken", f"not installed: {', '.join(missing)}", "reinstall Pigeon")
        else:
            yield Finding("libraries", "ok", ", ".join(f"{name} {_version(name)}" for name in libraries))

    def _files(self) -> Iterator[Finding]:
        yield _folder("folder", self._folder, "set PIGEON_CODING_AGENT_DIR to a folder you can write to")
        own = self._layers.settings.session_dir
        if not isinstance(own, Absent):
            yield _folder("sessions", self._environment.absolute(own), "change it: pigeon config set sessionDir DIR")
        yield _folder("temporary", self._environment.temporary, "set TMPDIR to a folder you can write to")
        if self._environment.cwd:
            yield _folder("work", self._environment.cwd, "Pigeon can read files here but not change them")
        else:
            yield Finding("work", "broken", "the working directory does not exist any more", "change to another folder")
        wrong = [*self._layers.doubts, *self._problems]
        if not wrong and self._layers.user_permissions is not None:
            from pigeon.permissions.rules import parsed_rules

            parsed_rules(self._layers.user_permissions, "yolo", wrong)
        for problem in wrong:
            yield Finding("settings", "broken", problem, "fix it: pigeon config edit")
        if not wrong:
            yield _settings(os.path.join(self._folder, "settings.json"))
        for problem in self._registry.problems():
            yield Finding("models", "broken", problem, "fix the file")

    def _keys(self) -> Iterator[Finding]:
        having = [provider for provider in self._registry.providers() if self._registry.has_key(provider)]
        if not having:
            yield Finding(
                "keys",
                "broken",
                "no provider has a key",
                "set ANTHROPIC_API_KEY, OPENAI_API_KEY or GEMINI_API_KEY, or describe your own server in "
                f"{self._folder}/models.json; without a key: pigeon demo",
            )
            return
        shown = [f"{one} ({source})" if (source := self._registry.key_source(one)) != one else one for one in having]
        yield Finding("keys", "ok", ", ".join(shown))
        yield self._model()

    def _model(self) -> Finding:
        settings = self._layers.settings
        model = _default_model(settings, self._registry)
        if model is None:
            return Finding("model", "broken", "no model can be used", "choose one from `pigeon models` with --model")
        named = or_else(settings.default_model, model.id)
        if named != model.id:
            return Finding(
                "model",
                "note",
                f"{model.reference}, because there is no key for {named}, which the settings name",
                "set another: pigeon config set defaultModel ID",
            )
        return Finding("model", "ok", f"{model.reference}, unless --model names another")

    def _reached(self) -> list[Finding]:
        """One line for each provider that has a key."""
        models = [
            model
            for provider in self._registry.providers()
            if self._registry.has_key(provider) and (model := default_of(provider, self._registry)) is not None
        ]
        if self._offline:
            return [
                Finding("network", "note", "model servers were not contacted", "run without --offline to contact them")
            ]
        return asyncio.run(_ask_all(models, self._registry, self._environment, self._layers.settings, self._redactor))

    def _shell(self) -> Iterator[Finding]:
        settings, variables = self._layers.settings, self._environment.variables
        configured = or_else(settings.shell_path, None)
        shell = find_shell(configured, self._environment.home, variables.get("PATH", ""))
        if os.access(shell.path, os.X_OK) and os.path.isfile(shell.path):
            yield Finding("shell", "ok", shell.path)
        else:
            advice = "change it: pigeon config set shellPath /bin/bash" if configured else "install bash"
            yield Finding("shell", "broken", f"{shell.path} cannot be run", advice)
        yield self._sandbox()

    def _sandbox(self) -> Finding:
        """Whether a sandbox works here and what builds it, even if none is configured."""
        page = os.path.join(DOCS_FOLDER, "sandbox.md")
        options = AgentOptions(sandbox="read-only")
        setup = sandbox_of(options, self._environment, self._folder, self._layers, ProcessOwner())
        try:
            setup.enclose(self._environment.cwd or "/")
            asyncio.run(_proved(setup))
            state = setup.state()
            asked = or_else(self._layers.settings.sandbox, None)
            builder = "" if isinstance(state, Absent) else or_else(state.builder, "")
            found = f"available ({builder})"
            if asked is not None:
                return Finding("sandbox", "ok", found)
            return Finding(
                "sandbox", "ok", f"{found}, not in use; turn it on with: pigeon --sandbox workspace", f"see {page}"
            )
        except StartupError as error:
            return Finding("sandbox", "note", str(error).splitlines()[0], f"see {page}")
        finally:
            setup.close()

    def _terminal(self) -> Iterator[Finding]:
        variables = self._environment.variables
        if not sys.stdout.isatty():
            yield Finding("terminal", "note", "stdout is not a terminal", "the chat needs one; pigeon -p does not")
            return
        columns = f"{os.get_terminal_size().columns or 'unknown'} columns"
        colours = "colours" if has_colours(sys.stdout) else "no colours"
        encoding = (sys.stdout.encoding or "").lower()
        name = variables.get("TERM", "")
        if not name or name == "dumb":
            yield Finding("terminal", "note", f"TERM is {name or 'not set'}", "set TERM, for example to xterm-256color")
        else:
            yield Finding("terminal", "ok", f"{name}, {columns}, {colours}, {encoding}")


async def _proved(setup: SandboxControl) -> None:
    try:
        await setup.prove()
    finally:
        await setup.processes.kill_everything()


def _default_model(settings: Settings, registry: ModelRegistry) -> Model | None:
    provider, name = settings.default_provider, settings.default_model
    if not isinstance(provider, Absent) and not isinstance(name, Absent):
        found = registry.find(current_name(provider), name)
        if found is not None:
            return found
    return first_usable(registry)


def _settings(path: str) -> Finding:
    if os.path.exists(path):
        return Finding("settings", "ok", path)
    return Finding("settings", "ok", f"none, so the defaults apply ({path} does not exist)")


def _folder(subject: str, path: str, advice: str) -> Finding:
    """Whether a folder can be written, or made."""
    above = path
    while not os.path.lexists(above) and os.path.dirname(above) != above:
        above = os.path.dirname(above)
    if above != path and subject == "temporary":
        return Finding(subject, "broken", f"{path} does not exist", advice)
    if not os.path.isdir(above):
        return Finding(subject, "broken", f"{above} is not a folder", advice)
    if not os.access(above, os.W_OK | os.X_OK):
        return Finding(subject, "broken", f"{path} cannot be written", advice)
    others = os.stat(path).st_mode & 0o022 if above == path and subject == "folder" else 0
    if others:
        return Finding(subject, "note", f"{path} can be changed by other users", f"run: chmod go-w {path}")
    return Finding(subject, "ok", path if above == path else f"{path} (will be created when needed)")


async def _ask_all(
    models: list[Model], registry: ModelRegistry, environment: Environment, settings: Settings, redactor: Redactor
) -> list[Finding]:
    http = HttpClient(environment.variables, proxy=or_else(settings.http_proxy, ""))
    try:
        return list(await asyncio.gather(*(_ask(model, registry, http, redactor) for model in models)))
    finally:
        await http.aclose()


async def _ask(model: Model, registry: ModelRegistry, http: HttpClient, redactor: Redactor) -> Finding:
    """Ask a server for its list of models: it costs nothing, and shows whether the key is taken."""
    subject = model.provider
    try:
        access = await registry.access(model)
    except NoKey as error:
        return Finding(subject, "broken", str(error), "set another key")
    address = model.base_url.rstrip("/")
    api = find_api(model.api)
    headers = {**api.headers, **api.key_headers(access.key, access.bearer)} if access.key else {}
    for name, value in access.headers.items():
        if value is None:
            headers.pop(name.lower(), None)
        else:
            headers[name.lower()] = value
    if not address:
        return Finding(subject, "note", "its address depends on the request, so it was not contacted")
    try:
        async with asyncio.timeout(REACH_SECONDS):
            response = await http.send(HttpRequest(f"{address}{api.models_path(address)}", headers, b"", "GET"))
            status = response.status
            await response.drop()
    except TimeoutError:
        return Finding(subject, "broken", f"{address} did not answer within {REACH_SECONDS:g} s", _NETWORK)
    except Exception as error:  # the HTTP library has many, and each means that there is no way to the server
        why = redactor.mask_text(from_exception(error).message)
        return Finding(subject, "broken", f"{address} cannot be reached: {why}", _NETWORK)
    if status in (401, 403):
        return Finding(subject, "broken", f"{address} refuses the key (status {status})", "set a valid key")
    if status >= 500 and status != NOT_IMPLEMENTED:
        return Finding(subject, "broken", f"{address} is having problems (status {status})", "try again later")
    checked = "answers and accepts the key" if status < 300 else f"answers (status {status}; the key was not checked)"
    return Finding(subject, "ok", f"{address} {checked}")


_NETWORK = "check the address, the network and the proxy (HTTPS_PROXY)"


def _libraries() -> list[str]:
    """What Pigeon needs, as it was installed."""
    with suppress(PackageNotFoundError):
        needed = [one for one in requires(PACKAGE) or [] if "extra ==" not in one]
        return [found[0] for one in needed if (found := re.match(r"[\w.-]+", one))]
    return []


def _version(name: str) -> str:
    with suppress(PackageNotFoundError):
        return version(name)
    return ""
