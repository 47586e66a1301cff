"""`pigeon doctor`: what is set up and what is missing, one line each, with advice.

A line is `ok`, a `note` about something that works as it is, or `broken`; the exit code is 1 if a line is broken.
"""

from __future__ import annotations

import asyncio
import os
import platform
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, requires, version

from msgspec import Struct

from pigeon import __version__
from pigeon.app.models import make_registry, resolve_model_options
from pigeon.app.options import AgentOptions
from pigeon.app.sandbox import make_sandbox
from pigeon.config.layers import Layers
from pigeon.config.models_file import find_models_file
from pigeon.config.paths import project_dirs
from pigeon.config.settings import Settings
from pigeon.frontends.call import CommandCall
from pigeon.frontends.printing import colour_text, has_colours, print_coloured, print_line
from pigeon.providers.apis import find_api
from pigeon.providers.default_model import default_model_of
from pigeon.providers.errors import from_exception
from pigeon.providers.explanations import explain_failure
from pigeon.providers.http.client import HttpClient
from pigeon.providers.http.recorders import HttpRequest
from pigeon.providers.registry import ModelRegistry, NoKey
from pigeon.sandbox.control import SandboxControl
from pigeon.secrets.redactor import Redactor
from pigeon.system.environment import DOCS_FOLDER, Environment
from pigeon.system.extras import EXTRAS, PACKAGE, find_missing_module, make_install_command
from pigeon.system.process.start import ProcessOwner
from pigeon.system.shell.shell import find_shell
from pigeon.transport import exit_codes
from pigeon.trust.decision import initial_decision
from pigeon.trust.trust_file import saved_decision
from pigeon.wire.base import Absent, value_or_default
from pigeon.wire.errors import StartupError
from pigeon.wire.model import Model

REACH_SECONDS = 8.0
NOT_IMPLEMENTED = 501  # a server that answers prompts and nothing else
COLOURS = {"ok": "green", "note": "yellow", "broken": "red"}


class Finding(Struct, frozen=True):
    """One line: its subject, its status, the finding, and advice."""

    subject: str
    state: str
    found: str
    advice: str = ""


def run_doctor(call: CommandCall) -> int:
    """Check everything and print it."""
    findings: list[Finding] = []
    for one in diagnose_all(CheckedSetup(call.environment, call.redactor, offline=call.has_option("offline"))):
        findings.append(one)
        if not call.has_option("json"):
            _print_finding(one)
            # The servers may take their time: the lines so far can be read meanwhile.
            sys.stdout.flush()
    if call.has_option("json"):
        import json

        print_line(
            json.dumps([{name: getattr(one, name) for name in one.__struct_fields__} for one in findings], indent=2)
        )
    broken = [one for one in findings if one.state == "broken"]
    if not call.has_option("json"):
        print_line("\nEverything works." if not broken else f"\n{len(broken)} broken: see what to do above.")
    return exit_codes.FAILED if broken else exit_codes.OK


def _print_finding(one: Finding) -> None:
    """Print a line, with the advice below it."""
    state, subject = colour_text(one.state.ljust(6), COLOURS[one.state]), colour_text(one.subject.ljust(10), "bold")
    print_coloured(f"{state}  {subject}  {colour_text(one.found, 'plain')}")
    if one.advice:
        print_coloured(f"{' ' * 20}{colour_text('→ ' + one.advice, 'dim')}")


class CheckedSetup:
    """The state that the checks of one call share."""

    def __init__(self, environment: Environment, redactor: Redactor, offline: bool) -> None:
        self.environment = environment
        self.offline = offline
        self.folder = environment.agent_dir()
        self.problems: list[str] = []
        self.layers = Layers(self.folder, self.problems.append)
        if environment.cwd and self._is_trusted(environment.cwd):
            self.layers.load_project_settings(project_dirs(environment.cwd))
        self.redactor = redactor
        # Commands that print keys run behind the configured wall.
        self.wall = make_sandbox(AgentOptions(), environment, self.folder, self.layers, ProcessOwner())
        self.wall.enclose_key_commands(environment.cwd or "/")
        self.registry = make_registry(
            self.folder, environment.variables, environment.cwd or "/", self.wall.processes, self.redactor
        )

    def _is_trusted(self, cwd: str) -> bool:
        saved, problem = saved_decision(self.folder, cwd)
        if problem:
            self.problems.append(problem)
        default = self.layers.settings.default_project_trust
        return initial_decision(saved=saved, default=default).trusted is True

    def providers_with_keys(self) -> list[str]:
        return [provider for provider in self.registry.providers() if self.registry.has_key(provider)]


def _describe_system() -> str:
    """The system as it names itself; `platform.platform` would run a program that it finds through PATH."""
    system = os.uname()
    return " ".join((system.sysname, system.release, system.machine))


def diagnose_pigeon(here: CheckedSetup) -> Iterator[Finding]:
    yield Finding("pigeon", "ok", f"{__version__}, Python {platform.python_version()}, {_describe_system()}")


def diagnose_libraries(here: CheckedSetup) -> Iterator[Finding]:
    libraries = _list_required_libraries()
    missing = [name for name in libraries if not _version_of(name)]
    if missing:
        yield Finding("libraries", "broken", f"not installed: {', '.join(missing)}", "reinstall Pigeon")
    else:
        yield Finding("libraries", "ok", ", ".join(f"{name} {_version_of(name)}" for name in libraries))


def diagnose_extras(here: CheckedSetup) -> Iterator[Finding]:
    """What is installed besides the base; none of it is needed by every user."""
    missing = [extra for extra in EXTRAS if find_missing_module(extra) is not None]
    here_are = ", ".join(extra for extra in EXTRAS if extra not in missing) or "none"
    if not missing:
        yield Finding("extras", "ok", here_are)
    else:
        found = f"{here_are}; not installed: {', '.join(missing)}"
        yield Finding("extras", "ok", found, f"for {missing[0]}: {make_install_command(missing[0])}")


def diagnose_folders(here: CheckedSetup) -> Iterator[Finding]:
    yield _check_folder("folder", here.folder, "set PIGEON_CODING_AGENT_DIR to a folder you can write to")
    environment, sessions = here.environment, here.layers.settings.session_dir
    if not isinstance(sessions, Absent):
        advice = "change it: pigeon config set sessionDir DIR"
        yield _check_folder("sessions", environment.absolute_path(sessions), advice)
    yield _check_folder("temporary", environment.temporary_folder, "set TMPDIR to a folder you can write to")
    if environment.cwd:
        yield _check_folder("work", environment.cwd, "Pigeon can read files here but not change them")
    else:
        yield Finding("work", "broken", "the working directory does not exist any more", "change to another folder")


def diagnose_settings(here: CheckedSetup) -> Iterator[Finding]:
    wrong = [*here.layers.doubts, *here.problems]
    if not wrong and here.layers.user_permissions is not None:
        from pigeon.permissions.rules import parse_rules

        parse_rules(here.layers.user_permissions, "yolo", wrong)
    *theirs, own = here.layers.user_files
    for problem in wrong:
        is_theirs = problem.startswith(tuple(theirs))
        yield Finding("settings", "broken", problem, "fix the file" if is_theirs else "fix it: pigeon config edit")
    if not wrong:
        files = [*theirs, *([own] if os.path.exists(own) else [])]
        none = f"none, so the defaults apply ({own} does not exist)"
        yield Finding("settings", "ok", ", ".join(files) or none)


def diagnose_models_file(here: CheckedSetup) -> Iterator[Finding]:
    for problem in here.registry.find_problems():
        yield Finding("models", "broken", problem, "fix the file")


def diagnose_keys(here: CheckedSetup) -> Iterator[Finding]:
    having = here.providers_with_keys()
    if not having:
        yield Finding(
            "keys",
            "broken",
            "no provider has a key",
            "set ANTHROPIC_API_KEY, OPENAI_API_KEY or GEMINI_API_KEY, or describe your own server in "
            f"{find_models_file(here.folder)}; without a key: pigeon demo",
        )
        return
    shown = [f"{one} ({source})" if (source := here.registry.key_source(one)) != one else one for one in having]
    yield Finding("keys", "ok", ", ".join(shown))


def diagnose_default_model(here: CheckedSetup) -> Iterator[Finding]:
    problems: list[str] = []
    chosen = resolve_model_options(AgentOptions(), here.environment, here.layers, here.registry, problems.append)
    if chosen.problem:
        yield Finding("model", "broken", chosen.problem)
        return
    for problem in problems:
        yield Finding("model", "note", problem)
    if chosen.model is not None:
        yield Finding("model", "ok", f"{chosen.model.reference}, unless --model names another")
    elif here.providers_with_keys():
        yield Finding("model", "broken", "no model can be used", "choose one from `pigeon models` with --model")


def diagnose_shell(here: CheckedSetup) -> Iterator[Finding]:
    configured = value_or_default(here.layers.settings.shell_path, None)
    environment = here.environment
    shell = find_shell(configured, environment.home, environment.variables.get("PATH", ""))
    if os.access(shell.path, os.X_OK) and os.path.isfile(shell.path):
        yield Finding("shell", "ok", shell.path)
    else:
        advice = "change it: pigeon config set shellPath /bin/bash" if configured else "install bash"
        yield Finding("shell", "broken", f"{shell.path} cannot be run", advice)


def diagnose_sandbox(here: CheckedSetup) -> Iterator[Finding]:
    """Whether a sandbox works here and what builds it, even if none is configured."""
    page = os.path.join(DOCS_FOLDER, "sandbox.md")
    options = AgentOptions(sandbox="read-only")
    setup = make_sandbox(options, here.environment, here.folder, here.layers, ProcessOwner())
    try:
        setup.enclose_commands(here.environment.cwd or "/")
        asyncio.run(_prove_sandbox(setup))
        state = setup.state()
        builder = "" if isinstance(state, Absent) else value_or_default(state.builder, "")
        found = f"available ({builder})"
        if value_or_default(here.layers.settings.sandbox, None) is not None:
            yield Finding("sandbox", "ok", found)
        else:
            advice = f"{found}, not in use; turn it on with: pigeon --sandbox workspace"
            yield Finding("sandbox", "ok", advice, f"see {page}")
    except StartupError as error:
        yield Finding("sandbox", "note", str(error).splitlines()[0], f"see {page}")
    finally:
        setup.close()


def diagnose_terminal(here: CheckedSetup) -> Iterator[Finding]:
    if not sys.stdout.isatty():
        yield Finding("terminal", "note", "stdout is not a terminal", "the chat needs one; pigeon -p does not")
        return
    columns = f"{os.get_terminal_size().columns or 'unknown'} columns"
    colours = "colours" if has_colours(sys.stdout) else "no colours"
    encoding = (sys.stdout.encoding or "").lower()
    name = here.environment.variables.get("TERM", "")
    if not name or name == "dumb":
        yield Finding("terminal", "note", f"TERM is {name or 'not set'}", "set TERM, for example to xterm-256color")
    else:
        yield Finding("terminal", "ok", f"{name}, {columns}, {colours}, {encoding}")


def diagnose_model_servers(here: CheckedSetup) -> Iterator[Finding]:
    if here.offline:
        yield Finding("network", "note", "model servers were not contacted", "run without --offline to contact them")
        return
    models = [
        model
        for provider in here.providers_with_keys()
        if (model := default_model_of(provider, here.registry)) is not None
    ]
    yield from asyncio.run(_check_servers(models, here.registry, here.environment, here.layers.settings, here.redactor))


# Every check in the order of the lines; the servers last, because they may take a while.
DIAGNOSES: tuple[Callable[[CheckedSetup], Iterator[Finding]], ...] = (
    diagnose_pigeon,
    diagnose_libraries,
    diagnose_extras,
    diagnose_folders,
    diagnose_settings,
    diagnose_models_file,
    diagnose_keys,
    diagnose_default_model,
    diagnose_shell,
    diagnose_sandbox,
    diagnose_terminal,
    diagnose_model_servers,
)


def diagnose_all(here: CheckedSetup) -> Iterator[Finding]:
    """The lines of every check in turn; releases the wall of key commands at the end."""
    try:
        for diagnose in DIAGNOSES:
            yield from diagnose(here)
    finally:
        here.wall.close()


async def _prove_sandbox(setup: SandboxControl) -> None:
    try:
        await setup.find_working_wall()
    finally:
        await setup.processes.kill_everything()


def _check_folder(subject: str, path: str, advice: str) -> Finding:
    """Whether a folder can be written, or created."""
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


async def _check_servers(
    models: list[Model], registry: ModelRegistry, environment: Environment, settings: Settings, redactor: Redactor
) -> list[Finding]:
    http = HttpClient(environment.variables, proxy=value_or_default(settings.http_proxy, ""))
    try:
        return list(await asyncio.gather(*(_check_server(model, registry, http, redactor) for model in models)))
    finally:
        await http.aclose()


async def _check_server(model: Model, registry: ModelRegistry, http: HttpClient, redactor: Redactor) -> Finding:
    """Request a server's list of models, which costs nothing and shows whether the key is accepted."""
    subject = model.provider
    try:
        access = await registry.resolve_access(model)
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
    except Exception as error:  # the HTTP library has many, and each means that the server cannot be reached
        failure = from_exception(error)
        explanation = redactor.mask_text(explain_failure(failure, subject, model.id))
        if explanation:
            return Finding(subject, "broken", f"{address}: {explanation}")
        why = redactor.mask_text(failure.message)
        return Finding(subject, "broken", f"{address} cannot be reached: {why}", _NETWORK)
    if status in (401, 403):
        origin = registry.describe_key_origin(subject)
        return Finding(
            subject, "broken", f"{address} refuses the API key {origin.where} (status {status})", origin.remedy
        )
    if status >= 500 and status != NOT_IMPLEMENTED:
        return Finding(subject, "broken", f"{address} is having problems (status {status})", "try again later")
    checked = "answers and accepts the key" if status < 300 else f"answers (status {status}; the key was not checked)"
    return Finding(subject, "ok", f"{address} {checked}")


_NETWORK = "check the address, the network and the proxy (HTTPS_PROXY)"


def _list_required_libraries() -> list[str]:
    """The names of Pigeon's dependencies on this system, without its extras."""
    with suppress(PackageNotFoundError):
        lines = [one.partition(";") for one in requires(PACKAGE) or []]
        here = ("", f"sys_platform == '{sys.platform}'")
        needed = [name for name, _, marker in lines if marker.strip().replace('"', "'") in here]
        return [found[0] for one in needed if (found := re.match(r"[\w.-]+", one))]
    return []


def _version_of(name: str) -> str:
    with suppress(PackageNotFoundError):
        return version(name)
    return ""
