"""`pigeon sessions`: the conversations on disk, as a person looks after them."""

from __future__ import annotations

import json
import re
import sys
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence

from pigeon.app.options import AgentOptions
from pigeon.app.pages import export_session_page, export_trajectory
from pigeon.app.sessions import make_repository
from pigeon.app.stores import find_store_address
from pigeon.config.layers import Layers
from pigeon.frontends.call import CommandCall
from pigeon.frontends.printing import format_table, print_line, print_to_stderr
from pigeon.secrets.redactor import Redactor
from pigeon.session.history.listing import header_of, title_of
from pigeon.session.history.reading import LoadedSession, load_session
from pigeon.session.history.repository import SessionRepository
from pigeon.session.history.trash import SessionTrash, TrashedSession
from pigeon.session.history.views import clean_name, session_name_of, stats_of
from pigeon.store.addresses import FILES
from pigeon.system.environment import Environment
from pigeon.transport import exit_codes
from pigeon.wire import codec
from pigeon.wire.answers import SessionRow
from pigeon.wire.content import TextContent, ToolCall, text_of
from pigeon.wire.entries import CompactionEntry, MessageEntry, SessionInfo
from pigeon.wire.errors import Refusal, StartupError, UsageError
from pigeon.wire.messages import AssistantMessage, Message, ToolResultMessage, UserMessage

MOST_LISTED = 50
LONGEST_RESULT = 400
ID_SHOWN = 8
EXPORT_FORMATS = ("html", "atif")


def run_sessions(call: CommandCall) -> int:
    """Run one of the actions; raises `StartupError` for a missing session."""
    from pigeon.cli.commands.stored_sessions import copy_sessions, run_stored_sessions

    address = find_store_address(call.options.get("store"), call.environment)
    if call.action == "copy":
        return copy_sessions(call)
    in_files = address is None or address.startswith(FILES)
    if call.action == "checkpoints":
        from pigeon.cli.commands.checkpoints import run_checkpoints

        return run_checkpoints(call, _Sessions(call).repository if in_files else None)
    if not in_files:
        return run_stored_sessions(call)
    sessions = _Sessions(call)
    actions: dict[str, Callable[[], int]] = {
        "list": sessions.print_newest,
        "search": sessions.search,
        "show": sessions.show,
        "export": sessions.export,
        "rename": sessions.rename,
        "delete": sessions.delete,
        "undelete": sessions.undelete,
        "trash": sessions.print_trash,
    }
    try:
        return actions[call.action]()
    except Refusal as refusal:
        raise StartupError(str(refusal)) from None


def find_session_file(call: CommandCall, reference: str) -> str:
    """The file of a session that a command names by a path, an id or its beginning; raises `StartupError`."""
    return _Sessions(call).find_file(reference)


class _Sessions:
    """The actions of one call of `pigeon sessions`."""

    def __init__(self, call: CommandCall) -> None:
        self._call = call
        self._environment = call.environment
        agent_dir = call.environment.agent_dir()
        self.repository = _make_repository(
            call.environment, agent_dir, call.options.get("session_dir"), call.options.get("store")
        )
        self._trash = SessionTrash(self.repository.store, call.environment.now)

    def print_newest(self) -> int:
        rows = self._read_rows(parse_limit(self._call.options.get("limit")))
        if not rows and not self._call.has_option("json"):
            elsewhere = "" if self._call.has_option("all") else " `pigeon sessions --all` lists those of other folders."
            print_to_stderr(
                f"There are no sessions {'yet' if self._call.has_option('all') else 'in this folder'}.{elsewhere}"
            )
            return exit_codes.OK
        self._print_rows(rows)
        return exit_codes.OK

    def search(self) -> int:
        wanted = " ".join(self._call.words).casefold()
        found = [row for row in self._read_rows(sys.maxsize) if wanted in _read_texts(row.reference).casefold()]
        if not found and not self._call.has_option("json"):
            elsewhere = "" if self._call.has_option("all") else " To search all folders, add --all."
            print_to_stderr(f'No session contains "{" ".join(self._call.words)}".{elsewhere}')
            return exit_codes.FAILED
        self._print_rows(found[: parse_limit(self._call.options.get("limit"))])
        return exit_codes.OK

    def show(self) -> int:
        path = self.find_file(self._call.words[0])
        print_conversation(self._call, _load_existing(path), path)
        return exit_codes.OK

    def export(self) -> int:
        export_file(self._call, self.find_file(self._call.words[0]))
        return exit_codes.OK

    def rename(self) -> int:
        name = clean_name(" ".join(self._call.words[1:]))
        path = self.find_file(self._call.words[0])
        journal = self.repository.open(path, self._environment.cwd)
        try:
            if journal.is_read_only:
                raise StartupError(
                    f"Another process is writing this session: {path}. Close it first, or rename it there"
                )
            journal.append(SessionInfo, name=name)
            journal.sync()
        finally:
            journal.close()
        print_line(f"{_short_id(path)} is now called {name}")
        return exit_codes.OK

    def delete(self) -> int:
        path = self.find_file(self._call.words[0])
        gone = self._trash.move_to_trash(path)
        print_line(f"Deleted {title_of(gone.row)} ({gone.row.id})")
        print_line(f"Undo: pigeon sessions undelete {gone.row.id}")
        return exit_codes.OK

    def undelete(self) -> int:
        back = self._trash.restore_session(self._call.word_at(0))
        print_line(f"Brought back {title_of(back.row)} ({back.row.id})")
        return exit_codes.OK

    def print_trash(self) -> int:
        gone, unreadable = self._trash.list_sessions(), self._trash.list_unreadable()
        for folder in unreadable:
            print_to_stderr(f"Warning: {folder} cannot be read; move its session back by hand")
        if self._call.has_option("json"):
            print_line(json.dumps([_trashed_record(one) for one in gone], indent=2))
        elif gone:
            ids = _shorten_ids([one.row.id for one in gone], ())
            titles = [(one.deleted[:16].replace("T", " "), title_of(one.row)) for one in gone]
            rows = [(id, *title) for id, title in zip(ids, titles, strict=True)]
            print_line(format_table([("id", "deleted", "session"), *rows]))
            print_line(f"\nThey are in {self._trash.folder}and stay there until you delete them.")
        elif not unreadable:
            print_to_stderr("The trash is empty.")
        return exit_codes.OK

    def _read_rows(self, most: int) -> list[SessionRow]:
        return self.repository.store.list_sessions(self._list_searched_folders(), None, most)[0]

    def _list_searched_folders(self) -> list[str]:
        return self.repository.folders() if self._call.has_option("all") else [self.repository.folder]

    def _known_ids(self) -> Iterator[str]:
        """The ids of all sessions that a reference may mean, from the names of their files."""
        for folder in self._list_searched_folders():
            for path in self.repository.store.list_files(folder):
                yield self.repository.store.id_in_name(path)

    def _print_rows(self, rows: list[SessionRow]) -> None:
        print_rows(self._call, rows, self._known_ids())

    def find_file(self, reference: str) -> str:
        """The file of a session: a path, an id or its beginning, of any folder."""
        if not reference.strip():
            raise UsageError("The ID of the session is empty. `pigeon sessions` lists the ids")
        if self.repository.store.is_file_reference(reference):
            path = self._environment.absolute_path(reference)
            if header_of(path) is None:
                raise StartupError(f"There is no session in {path}")
            return path
        found = self.repository.store.resolve(reference, self.repository.folder)
        if found is None:
            raise StartupError(f"There is no session {reference}. `pigeon sessions --all` lists them")
        return found[0]


def _make_repository(
    environment: Environment, agent_dir: str, session_dir: str | None, store: str | None
) -> SessionRepository:
    layers = Layers(agent_dir, lambda problem: print_to_stderr(f"Warning: {problem}"))
    options = AgentOptions(session_dir=session_dir, store=store)
    return make_repository(
        options, environment, layers.settings, agent_dir, environment.cwd or "/", print_to_stderr, Redactor().mask
    )


def parse_limit(asked: str | None) -> int:
    """The value of `--limit`; raises `UsageError`."""
    if asked is None:
        return MOST_LISTED
    if not re.fullmatch("0*[1-9][0-9]{0,17}", asked):
        raise UsageError(f'--limit must be a whole number of at least 1; got "{asked}"')
    return int(asked)


def _load_existing(path: str) -> LoadedSession:
    loaded = load_session(path)
    if loaded is None:
        raise StartupError(f"There is nothing in {path} yet")
    return loaded


def print_rows(call: CommandCall, rows: Sequence[SessionRow], known: Iterable[str]) -> None:
    """A list of sessions; ids are as short as they are unique among those that are `known`."""
    if call.has_option("json"):
        print_line(json.dumps([codec.to_plain(row) for row in rows], indent=2))
        return
    lines = []
    for id, row in zip(_shorten_ids([row.id for row in rows], known), rows, strict=True):
        folder = (_abbreviate_home(row.cwd, call.environment.home),) if call.has_option("all") else ()
        lines.append((id, row.modified[:16].replace("T", " "), *folder, title_of(row)))
    heads = ("id", "changed (UTC)", *(("folder",) if call.has_option("all") else ()), "session")
    print_line(format_table([heads, *lines]))


def print_conversation(call: CommandCall, loaded: LoadedSession, path: str | None) -> None:
    """A conversation as text, or its lines as JSON."""
    if call.has_option("json"):
        print_line(json.dumps([loaded.header, *(line.to_plain() for line in loaded.lines)], indent=2))
        return
    stats = stats_of(str(loaded.header.get("id", "")), path, loaded.lines)
    name = session_name_of(loaded.lines)
    if name:
        print_line(name)
    print_line(f"{loaded.header.get('id')}  {str(loaded.header.get('timestamp', ''))[:16].replace('T', ' ')}")
    print_line(f"{loaded.header.get('cwd', '')}  {stats.total_messages} messages, ${stats.cost:.4f}")
    for line in loaded.lines:
        entry = line.entry
        if isinstance(entry, MessageEntry):
            _show_message(entry.message)
        elif isinstance(entry, CompactionEntry):
            print_line(f"\n[older messages were summarized]\n{entry.summary.strip()}")


def export_file(call: CommandCall, path: str) -> None:
    """Write a session file in the format that the call asks for."""
    asked, environment = call.word_at(1), call.environment
    form, leaf = call.options.get("format") or "html", call.options.get("leaf") or ""
    if form not in EXPORT_FORMATS:
        raise UsageError(f'--format must be one of {", ".join(EXPORT_FORMATS)}; got "{form}"')
    if leaf and form != "atif":
        raise UsageError("--leaf needs --format atif; a page has all branches")
    if form == "atif":
        print_line(f"Exported to: {export_trajectory(environment, path, asked, leaf)}")
    else:
        print_line(f"Exported to: {export_session_page(environment, path, asked, by_title=True)}")


def _shorten_ids(ids: Sequence[str], known: Iterable[str]) -> Iterator[str]:
    """The shortest unique beginnings of ids; ids from the same minute begin alike."""
    ordered = sorted({*ids, *known})
    for id in ids:
        at = bisect_left(ordered, id)
        beside = [*ordered[max(0, at - 1) : at], *ordered[at + 1 : at + 2]]
        lengths = range(ID_SHOWN, len(id))
        yield next((id[:most] for most in lengths if not any(one.startswith(id[:most]) for one in beside)), id)


def _read_texts(path: str) -> str:
    """All texts of a session, and its name; empty if the file cannot be read."""
    try:
        loaded = load_session(path)
    except Refusal:
        return ""
    if loaded is None:
        return ""
    texts = [session_name_of(loaded.lines) or ""]
    for line in loaded.lines:
        entry = line.entry
        if isinstance(entry, MessageEntry) and isinstance(entry.message, UserMessage | AssistantMessage):
            texts.append(text_of(entry.message.content))
    return "\n".join(texts)


def _show_message(message: Message) -> None:
    if isinstance(message, UserMessage):
        print_line("\n" + "\n".join(f"> {line}" for line in text_of(message.content).strip().splitlines()))
    elif isinstance(message, AssistantMessage):
        for block in message.content:
            if isinstance(block, TextContent) and block.text.strip():
                print_line(f"\n{block.text.strip()}")
            elif isinstance(block, ToolCall):
                print_line(f"\n[{block.name}] {json.dumps(block.arguments, ensure_ascii=False)}")
    elif isinstance(message, ToolResultMessage):
        text = text_of(message.content).strip()
        print_line(f"{text[:LONGEST_RESULT]}{' …' if len(text) > LONGEST_RESULT else ''}")


def _short_id(path: str) -> str:
    header = header_of(path)
    return str(header["id"])[:ID_SHOWN] if header else path


def _abbreviate_home(path: str, home: str) -> str:
    return f"~{path[len(home) :]}" if path == home or path.startswith(f"{home}/") else path


def _trashed_record(one: TrashedSession) -> dict[str, object]:
    return {"deleted": one.deleted, "from": one.path, **codec.to_plain(one.row)}
