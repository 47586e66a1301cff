"""`--verbose` and `--trace FILE`: what one process does, printed on stderr and written to a file.

A trace is a file of JSON lines that only its owner can read. It has every line of the protocol (`in` and `out`) and
every exchange with a model server (`request`, `response`, `received`, `failed`, `dropped`), each with the time. Keys
are masked, and the size of a trace is limited. It is for people; `--record` keeps what is needed to play a run again.
"""

from __future__ import annotations

import codecs
import os
import stat
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from pigeon.app.build import BuiltAgent
from pigeon.frontends.printing import print_to_stderr
from pigeon.providers.http.recorders import HttpRequest, mask_headers
from pigeon.secrets.redactor import Redactor
from pigeon.system import clock
from pigeon.system.environment import Environment
from pigeon.system.private_log import PrivateLog
from pigeon.wire import codec
from pigeon.wire.base import value_or_default
from pigeon.wire.errors import BadRecord
from pigeon.wire.events import AutoRetryStart, CompactionStart, MessageEnd, Outbound, ToolExecutionEnd
from pigeon.wire.messages import AssistantMessage

LARGEST_TRACE = 256 * 1024 * 1024
LONGEST_ENTRY = 4 * 1024 * 1024


class TraceFile:
    """The file of one trace, which replaces an earlier one. A disk failure ends the trace and nothing else."""

    def __init__(self, path: str, largest: int = LARGEST_TRACE) -> None:
        self._log = PrivateLog(
            path, "--trace", lambda problem: print_to_stderr(f"Warning: {problem}"), largest, _encode_trace_full_entry
        )

    def write_entry(self, kind: str, **fields: Any) -> None:
        self._log.write(_encode_entry(kind, **fields))


def _encode_entry(kind: str, **fields: Any) -> bytes:
    return codec.encode({"at": clock.to_iso(clock.now_ms()), "kind": kind, **fields})


def _encode_trace_full_entry() -> bytes:
    return _encode_entry("full")


class Observer:
    """Writes traces and verbose lines about one agent."""

    def __init__(self, trace: TraceFile | None, verbose: bool, redactor: Redactor) -> None:
        self._trace = trace
        self._verbose = verbose
        self._redactor = redactor
        self._began: dict[int, float] = {}
        self._sizes: dict[int, int] = {}
        self._bodies: dict[int, _MaskedBody] = {}
        self._count = 0

    @property
    def line_tracer(self) -> Callable[[str, bytes], None] | None:
        """The function to call with `in` or `out` and each line of the protocol, or None without a trace."""
        return None if self._trace is None else self._trace_line

    def _trace_line(self, direction: str, line: bytes) -> None:
        if self._trace is not None and line.strip():
            self._trace.write_entry(direction, line=_to_readable(self._redactor.mask(line)))

    # Exchanges with model servers

    def on_request_start(self, request: HttpRequest) -> int:
        self._count += 1
        number = self._count
        self._began[number] = time.monotonic()
        self._sizes[number] = 0
        url = self._redactor.mask_text(request.url)
        self._print_verbose(f"{request.method} {url} ({_size_text(len(request.body))})")
        if self._trace is not None:
            self._bodies[number] = _MaskedBody(self._redactor)
            body = _to_readable(self._redactor.mask(request.body))
            headers = self._masked_headers(request.headers)
            self._trace.write_entry(
                "request", exchange=number, method=request.method, url=url, headers=headers, body=body
            )
        return number

    def on_response_started(self, number: int, status: int, headers: Mapping[str, str]) -> None:
        self._print_verbose(f"answered with status {status} after {self._elapsed_text(number)}")
        if self._trace is not None:
            self._trace.write_entry("response", exchange=number, status=status, headers=self._masked_headers(headers))

    def on_body_piece(self, number: int, piece: bytes | None) -> None:
        """A piece of the body; None at its end."""
        self._sizes[number] = self._sizes.get(number, 0) + len(piece or b"")
        if piece is None:
            self._print_verbose(
                f"the answer is complete after {self._elapsed_text(number)} ({_size_text(self._sizes[number])})"
            )
        if self._trace is not None and number in self._bodies:
            text = self._bodies[number].feed(piece)
            if text:
                self._trace.write_entry("received", exchange=number, text=text)

    def on_exchange_failed(self, number: int, error: Exception) -> None:
        """There is no response, or it broke off."""
        text = self._redactor.mask_text(f"{type(error).__name__}: {error}")
        self._print_verbose(f"no answer after {self._elapsed_text(number)}: {text}")
        if self._trace is not None:
            self._trace.write_entry("failed", exchange=number, error=text)

    def on_response_dropped(self, number: int) -> None:
        """The agent has dropped the response."""
        self._print_verbose(
            f"the answer was dropped after {self._elapsed_text(number)} ({_size_text(self._sizes.get(number, 0))})"
        )
        if self._trace is not None:
            self._trace.write_entry("dropped", exchange=number)

    def on_client_closed(self) -> None:
        """Does nothing: the end of an agent need not be recorded."""

    # The agent itself

    def on_agent_built(self, agent: BuiltAgent, seconds: float, agent_dir: str, reads_context: bool) -> None:
        """Called when the agent is built; from here on its events are observed."""
        if not self._verbose:
            return
        session = agent.session
        model = session.models.model
        self._print_verbose(f"settings, keys and sessions are in {agent_dir}")
        self._print_verbose(f"works in {session.journal.cwd}, session {session.journal.file or 'not kept on disk'}")
        chosen = f"{model.reference}, thinking {session.models.level}" if model else "none"
        self._print_verbose(f"model: {chosen}; ready after {seconds:.2f} s")
        if reads_context:
            from pigeon.resources.context_files import read_context_files

            # `_start_printing_opened_files` cannot see these: it does not know the folder in which a name is opened.
            view = session.dependencies.workspace.current_view()
            for file in read_context_files(agent_dir, session.journal.cwd, lambda problem: None, view):
                self._print_verbose(f"reads {file.path}")
        session.bus.add_announcer(self._on_event)

    def _on_event(self, event: Outbound) -> None:
        if isinstance(event, MessageEnd) and isinstance(event.message, AssistantMessage):
            answer = event.message
            used = f"{answer.usage.total_tokens} tokens, ${answer.usage.cost.total:.4f}"
            why = f": {value_or_default(answer.error_message, '')}" if answer.stop_reason == "error" else ""
            self._print_verbose(f"answer of {answer.provider}/{answer.model}: {answer.stop_reason}{why} ({used})")
        elif isinstance(event, AutoRetryStart):
            self._print_verbose(f"retry {event.attempt} of {event.max_attempts} in {event.delay_ms / 1000:g} s")
        elif isinstance(event, CompactionStart):
            self._print_verbose("compaction: older messages are being summarized")
        elif isinstance(event, ToolExecutionEnd):
            took = f" after {value_or_default(event.duration_ms, 0) / 1000:.2f} s"
            self._print_verbose(f"tool {event.tool_name}: {'failed' if event.is_error else 'done'}{took}")

    def _print_verbose(self, text: str) -> None:
        if self._verbose:
            print_to_stderr(f"pigeon: {text}")

    def _elapsed_text(self, number: int) -> str:
        return f"{time.monotonic() - self._began.get(number, time.monotonic()):.2f} s"

    def _masked_headers(self, headers: Mapping[str, str]) -> dict[str, str]:
        return mask_headers(headers, self._redactor.mask_text)


class _MaskedBody:
    """The body of a response as text without keys; its pieces may end within a key or a character."""

    def __init__(self, redactor: Redactor) -> None:
        self._mask = redactor.make_stream_masker()
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def feed(self, piece: bytes | None) -> str:
        """What can be shown so far; None ends the body."""
        return self._decoder.decode(self._mask(piece or b"", piece is None), piece is None)


def make_observer(trace: str | None, verbose: bool, environment: Environment, redactor: Redactor) -> Observer:
    """The observer for these options; raises `StartupError` if the trace cannot be written."""
    if verbose:
        _start_printing_opened_files()
    file = None if trace is None else TraceFile(environment.absolute_path(trace))
    return Observer(file, verbose, redactor)


def _start_printing_opened_files() -> None:
    """Report each file that this process opens from here on, once; files of Python and of libraries are left out."""
    seen: set[str] = set()
    left_out = tuple({sys.prefix, sys.base_prefix, sys.exec_prefix, os.path.dirname(os.path.dirname(__file__))})
    left_out += ("/proc/", "/sys/", "/dev/", "/usr/lib", "/usr/share")

    def on_audit_event(name: str, arguments: tuple[Any, ...]) -> None:
        if name != "open" or not isinstance(arguments[0], str):
            return
        path, flags = arguments[0], arguments[2]
        if path in seen or not path.startswith("/") or path.startswith(left_out) or flags & os.O_DIRECTORY:
            return
        seen.add(path)
        # An exception here would make the opening itself fail.
        with suppress(Exception):
            if stat.S_ISREG(os.stat(path).st_mode):
                print_to_stderr(f"pigeon: {'writes' if flags & (os.O_WRONLY | os.O_RDWR) else 'reads'} {path}")

    sys.addaudithook(on_audit_event)


def _to_readable(data: bytes) -> Any:
    """A line or a body as JSON if it is JSON of a reasonable size, else as text."""
    if len(data) > LONGEST_ENTRY:
        return data[:LONGEST_ENTRY].decode("utf-8", "replace") + f"… ({len(data)} bytes)"
    try:
        return codec.decode(data)
    except BadRecord:
        return data.decode("utf-8", "replace")


def _size_text(count: int) -> str:
    return f"{count / 1000:.1f} KB" if count >= 1000 else f"{count} bytes"
