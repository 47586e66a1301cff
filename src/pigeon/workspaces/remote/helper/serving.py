"""The helper's loop: it serves one connection after another, and ends with everything that it started.

    Pigeon ==== frames over stdin and stdout ==== helper --- forks ---+--- reaper --- command --- what that starts
                                                                     +--- reaper --- ...

The helper is one loop without threads. It ends itself, and all that it started, `QUIET` seconds after it last heard
from Pigeon. Until then a new connection can take over: a second helper passes its stdin and stdout to the first one
through an abstract socket, which is no file. Frames are numbered and kept until the other side has them, so nothing
that was under way notices.
"""

from __future__ import annotations

import array
import contextlib
import errno
import json
import os
import select
import signal
import socket
import struct
import sys
import time

from pigeon.workspaces.remote.helper.commands import (
    IS_LINUX,
    PR_SET_CHILD_SUBREAPER,
    PR_SET_DUMPABLE,
    RemoteCommand,
    call_prctl,
    kill_below,
)
from pigeon.workspaces.remote.helper.files import (
    Held,
    Refused,
    decode_bytes,
    describe_held,
    describe_missing,
    describe_path,
    describe_stat,
    encode_bytes,
    list_entries,
    open_regular,
    replace_file,
    write_all,
)
from pigeon.workspaces.remote.helper.searching import find_program, run_search

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any, NoReturn

    Record = dict[str, Any]

# Sequence number (0 for what is not repeated), last number received, length of the record, length of the body.
HEADER = struct.Struct(">IIII")
LONGEST_RECORD = 8 << 20
LONGEST_BODY = 1 << 20
CHUNK = 256 * 1024
MOST_UNRECEIVED = 2 << 20
CONFIRM_EVERY = 256 * 1024
LARGEST_WRITE = 256 << 20
QUIET = 9.5
TAKEOVER_WITHIN = 5.0


class Frames:
    """What was sent to Pigeon and not yet received by it, and how far its own frames have come."""

    def __init__(self) -> None:
        self.received = 0
        self.sent = 0
        self.unreceived: list[tuple[int, bytes]] = []
        self.size = 0
        self.unconfirmed = 0

    def make(self, record: Record, body: bytes) -> bytes:
        """A frame that is kept until it was received."""
        self.sent += 1
        frame = self.pack(self.sent, record, body)
        self.unreceived.append((self.sent, frame))
        self.size += len(frame)
        return frame

    def pack(self, number: int, record: Record, body: bytes = b"") -> bytes:
        text = json.dumps(record, separators=(",", ":")).encode()
        self.unconfirmed = 0
        return HEADER.pack(number, self.received, len(text), len(body)) + text + body

    def accept(self, number: int, size: int) -> bool:
        if number != self.received + 1:
            return False
        self.received = number
        self.unconfirmed += size
        return True

    def confirm(self, received: int) -> None:
        while self.unreceived and self.unreceived[0][0] <= received:
            self.size -= len(self.unreceived[0][1])
            del self.unreceived[0]


class Helper:
    """Everything that goes on for one Pigeon."""

    def __init__(self, nonce: str) -> None:
        self.nonce = nonce
        self.secret = ""
        self.poll = select.poll()
        self.handlers: dict[int, Callable[[int], None]] = {}
        self.commands: dict[int, RemoteCommand] = {}
        self.reading: dict[int, Iterator[None]] = {}
        self.parts: dict[int, list[bytes]] = {}
        self.heard = time.monotonic()
        # The connection: its descriptors, what has arrived of a frame, what waits to be written.
        self.input, self.output = -1, -1
        self.arrived = bytearray()
        self.leaving: list[bytes] = []
        self.frames = Frames()
        self.listener: socket.socket | None = None
        self.messenger: socket.socket | None = None

    # --- the loop

    def serve(self) -> None:
        while True:
            now = time.monotonic()
            if now - self.heard > QUIET:
                self.end()
            for descriptor, events in self.poll.poll(self._find_pause(now)):
                handler = self.handlers.get(descriptor)
                if handler is not None:
                    handler(events)
            now = time.monotonic()
            for command in list(self.commands.values()):
                command.tick(now)
            self._read_on()

    def _find_pause(self, now: float) -> int:
        if self.reading and not self.is_congested():
            return 0
        waits = any(command.quiet_since is not None and command.output >= 0 for command in self.commands.values())
        return 20 if waits else max(0, int((self.heard + QUIET - now) * 1000)) + 1

    def watch(self, descriptor: int, handler: Callable[[int], None], events: int = select.POLLIN) -> None:
        self.handlers[descriptor] = handler
        self.poll.register(descriptor, events)

    def unwatch(self, descriptor: int) -> None:
        if self.handlers.pop(descriptor, None) is not None:
            with contextlib.suppress(KeyError):
                self.poll.unregister(descriptor)

    def is_congested(self) -> bool:
        return self.frames.size > MOST_UNRECEIVED

    def reapers(self) -> list[int]:
        return [command.reaper for command in self.commands.values()]

    def forget_command(self, command: RemoteCommand) -> None:
        self.commands.pop(command.number, None)

    def end(self) -> NoReturn:
        """Kill everything and leave: Pigeon said so, or has not been heard of."""
        for command in self.commands.values():
            command.order(b"k")
        give_up_at = time.monotonic() + 5.0
        while time.monotonic() < give_up_at:
            try:
                pid, _ = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                break
            if pid == 0:
                if time.monotonic() > give_up_at - 3.0:
                    kill_below()
                time.sleep(0.005)
        os._exit(0)

    # --- the connection

    def connect(self, source: int, target: int, leaving: list[bytes]) -> None:
        self.disconnect()
        self.input, self.output = source, target
        self.arrived = bytearray()
        self.leaving = leaving
        self.heard = time.monotonic()
        for descriptor in (source, target):
            os.set_blocking(descriptor, False)
        self.watch(source, self.on_input)
        self._write()

    def disconnect(self) -> None:
        """The connection is cut; for a while another one can take its place."""
        if self.input < 0:
            return
        for descriptor in (self.input, self.output):
            self.unwatch(descriptor)
            os.close(descriptor)
        self.input = self.output = -1
        self.leaving = []
        if self.messenger is not None:
            self.messenger.close()
            self.messenger = None

    def on_input(self, events: int) -> None:
        try:
            data = os.read(self.input, CHUNK)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self.disconnect()
            return
        self.heard = time.monotonic()
        self.arrived += data
        while len(self.arrived) >= HEADER.size and self.input >= 0:
            number, received, record_size, body_size = HEADER.unpack_from(self.arrived)
            if record_size > LONGEST_RECORD or body_size > LONGEST_BODY:
                self.disconnect()
                return
            end = HEADER.size + record_size + body_size
            if len(self.arrived) < end:
                return
            record = json.loads(bytes(self.arrived[HEADER.size : HEADER.size + record_size]))
            body = bytes(self.arrived[HEADER.size + record_size : end])
            del self.arrived[:end]
            self._on_received(received)
            if number == 0:
                self._on_unnumbered(record)
            elif self.frames.accept(number, end):
                self._on_request(record, body)
        if self.frames.unconfirmed > CONFIRM_EVERY:
            self.send_unnumbered({"type": "received"})

    def send(self, record: Record, body: bytes = b"") -> None:
        """Send a frame that is repeated after a reconnection unless it has arrived."""
        self._leave(self.frames.make(record, body))

    def send_unnumbered(self, record: Record) -> None:
        self._leave(self.frames.pack(0, record))

    def _leave(self, frame: bytes) -> None:
        if self.output >= 0:
            self.leaving.append(frame)
            if len(self.leaving) == 1:
                self._write()

    def _write(self) -> None:
        while self.leaving:
            try:
                written = os.write(self.output, self.leaving[0])
            except BlockingIOError:
                self.watch(self.output, self.on_writable, select.POLLOUT)
                return
            except OSError:
                self.disconnect()
                return
            if written < len(self.leaving[0]):
                self.leaving[0] = self.leaving[0][written:]
            else:
                del self.leaving[0]

    def on_writable(self, events: int) -> None:
        self.unwatch(self.output)
        self._write()

    def _on_received(self, received: int) -> None:
        self.frames.confirm(received)
        if not self.is_congested():
            for command in list(self.commands.values()):
                command.resume()

    def _on_unnumbered(self, record: Record) -> None:
        kind = record["type"]
        if kind == "ping":
            self.send_unnumbered({"type": "pong", "sent": record.get("sent")})
        elif kind == "hello":
            self._on_hello(record)
        elif kind == "goodbye":
            self.end()

    # --- taking over

    def _on_hello(self, record: Record) -> None:
        self.secret = record["secret"]
        earlier = record.get("resume")
        if earlier is not None and self._pass_on(earlier):
            os._exit(0)
        self._listen()
        self.send_unnumbered({
            "type": "welcome",
            "resumed": False,
            "received": 0,
            "home": encode_bytes(os.fsencode(os.path.expanduser("~"))),
            "cwd": encode_bytes(find_working_folder()),
            "address": self.nonce if self.listener is not None else "",
            "shell": encode_bytes(os.fsencode(find_shell())),
            "ripgrep": find_program("rg") is not None,
            "python": ".".join(map(str, sys.version_info[:3])),
            "system": sys.platform,
        })  # fmt: skip

    def _pass_on(self, earlier: Record) -> bool:
        """Give this connection to an earlier helper and wait as long as that one has it; returns False if it is
        gone."""
        link = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        link.settimeout(TAKEOVER_WITHIN)
        try:
            link.connect("\0pigeon-" + earlier["address"])
            message = json.dumps({"secret": self.secret, "received": earlier["received"]}).encode()
            ends = array.array("i", [self.input, self.output])
            link.sendmsg([message], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, ends)])
            if link.recv(2) != b"ok":
                return False
            self.unwatch(self.input)
            link.settimeout(None)
            while link.recv(1):
                pass
        except TimeoutError:
            # It exists and does not answer: two helpers must not serve the same calls.
            os._exit(1)
        except OSError:
            return False
        finally:
            link.close()
        return True

    def _listen(self) -> None:
        if not IS_LINUX or self.listener is not None:
            return
        try:
            self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            self.listener.bind("\0pigeon-" + self.nonce)
            self.listener.listen(4)
        except OSError:
            self.listener = None
            return
        self.watch(self.listener.fileno(), self.on_takeover)

    def on_takeover(self, events: int) -> None:
        """Another helper has a connection for this one; it is let in if it has the same user and knows the secret."""
        assert self.listener is not None
        try:
            link = self.listener.accept()[0]
        except OSError:
            return
        link.settimeout(1.0)
        try:
            peer = struct.unpack("3i", link.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
            space = socket.CMSG_SPACE(2 * 4)
            message, ancillary, _, _ = link.recvmsg(4096, space)
            record = json.loads(message)
            ends = array.array("i")
            for level, kind, data in ancillary:
                if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                    ends.frombytes(data[: len(data) - len(data) % ends.itemsize])
            if peer[1] != os.getuid() or len(ends) != 2 or not is_same_text(record["secret"], self.secret):
                for descriptor in ends:
                    os.close(descriptor)
                link.close()
                return
            link.sendall(b"ok")
        except (OSError, ValueError, KeyError):
            link.close()
            return
        self.disconnect()
        self.messenger = link
        self._on_received(record["received"])
        welcome = self.frames.pack(0, {"type": "welcome", "resumed": True, "received": self.frames.received})
        self.connect(ends[0], ends[1], [welcome] + [frame for _, frame in self.frames.unreceived])

    # --- requests

    def _on_request(self, record: Record, body: bytes) -> None:
        number = record["id"]
        kind = record["type"]
        if kind in ("input", "credit", "kill", "terminate", "cancel"):
            self._on_order(kind, number, record, body)
            return
        if kind == "part":
            parts = self.parts.setdefault(number, [])
            if sum(map(len, parts)) <= LARGEST_WRITE:
                parts.append(body)
            return
        try:
            result = self._find_work(kind)(number, record, body)
        except Refused as error:
            self.fail(number, error, error.code)
        except OSError as error:
            self.fail(number, error)
        except (ValueError, RecursionError, MemoryError) as error:
            self.fail(number, OSError(errno.EINVAL, str(error)))
        else:
            if result is not None:
                self.send(dict(result, type="result", id=number))

    def _find_work(self, kind: str) -> Callable[[int, Record, bytes], Record | None]:
        work: dict[str, Callable[[int, Record, bytes], Record | None]] = {
            "run": self.do_run,
            "search": self.do_search,
            "read": self.do_read,
            "write": self.do_write,
            "list": self.do_list,
            "look": self.do_look,
        }
        return work[kind]

    def _on_order(self, kind: str, number: int, record: Record, body: bytes) -> None:
        command = self.commands.get(number)
        if kind == "cancel":
            self.reading.pop(number, None)
            self.parts.pop(number, None)
        elif command is None:
            return
        elif kind == "input":
            command.add_input(body, record.get("ends", False))
        elif kind == "credit":
            command.add_credit(record["bytes"])
        else:
            command.order(b"k" if kind == "kill" else b"t")

    def fail(self, number: int, error: OSError, code: str = "") -> None:
        name = errno.errorcode.get(error.errno or 0, "EIO")
        self.send({"type": "failed", "id": number, "error": name, "code": code, "text": error.strerror or str(error)})

    def do_run(self, number: int, record: Record, body: bytes) -> None:
        self.commands[number] = RemoteCommand(self, number, record, None)

    def do_search(self, number: int, record: Record, body: bytes) -> None:
        record = dict(record, cwd=encode_bytes(b"/"))
        self.commands[number] = RemoteCommand(self, number, record, lambda: run_search(record))

    def do_read(self, number: int, record: Record, body: bytes) -> None:
        held = Held(decode_bytes(record["path"]), record["held"])
        try:
            descriptor = open_regular(held)
        finally:
            held.close()
        reading = self._read(number, descriptor, record["start"], record.get("size"), record["atMost"])
        self.reading[number] = reading

    def _read(self, number: int, descriptor: int, start: int, size: int | None, at_most: int) -> Iterator[None]:
        """Send a part of a file, a piece at a time."""
        with open(descriptor, "rb", buffering=0) as file:
            left = at_most + 1 if size is None else size
            if size is None and os.fstat(descriptor).st_size - start > at_most:
                raise OSError(errno.EFBIG, os.strerror(errno.EFBIG))
            at = start
            while left > 0:
                part = os.pread(file.fileno(), min(CHUNK, left), at)
                if not part:
                    break
                left -= len(part)
                at += len(part)
                self.send({"type": "data", "id": number}, part)
                yield
            if size is None and left <= 0:
                raise OSError(errno.EFBIG, os.strerror(errno.EFBIG))
            found = os.fstat(file.fileno())
        self.send({"type": "result", "id": number, "stat": describe_stat(found, b"")})

    def _read_on(self) -> None:
        for number, reading in list(self.reading.items()):
            if self.is_congested():
                return
            try:
                next(reading)
            except StopIteration:
                self.reading.pop(number, None)
            except OSError as error:
                self.reading.pop(number, None)
                self.fail(number, error)

    def do_write(self, number: int, record: Record, body: bytes) -> Record:
        data = b"".join([*self.parts.pop(number, []), body])
        if len(data) > LARGEST_WRITE:
            raise OSError(errno.EFBIG, os.strerror(errno.EFBIG))
        path = decode_bytes(record["path"])
        held = Held(path, record["held"])
        try:
            replace_file(held, data, record.get("mode"), record.get("unchanged"))
            return {"stat": describe_stat(held.stat(), held.place)}
        finally:
            held.close()

    def do_list(self, number: int, record: Record, body: bytes) -> Record:
        held = Held(decode_bytes(record["path"]), record["held"])
        try:
            return {"entries": list_entries(held)}
        finally:
            held.close()

    def do_look(self, number: int, record: Record, body: bytes) -> Record:
        return {"seen": [look(wanted) for wanted in record["wanted"]]}


def look(wanted: Record) -> Record:
    """What there is to know about a path; never raises for what is on the disk."""
    path = decode_bytes(wanted["path"])
    seen: Record = {"error": ""}
    try:
        seen["stat"] = describe_held(path) if wanted["held"] else describe_path(path, False)
        follows = seen["stat"]["kind"] == "link" and not wanted["held"]
        seen["followed"] = describe_path(path, True) if follows else seen["stat"]
        kind, place = seen["followed"]["kind"], decode_bytes(seen["followed"]["place"])
        if (kind == "file" and wanted["content"]) or (kind == "folder" and wanted["entries"]):
            held = Held(place, True)
            try:
                if kind == "file":
                    seen["content"] = encode_bytes(read_beginning(held, wanted["content"]))
                else:
                    seen["entries"] = list_entries(held)
            finally:
                held.close()
    except OSError as error:
        seen["error"] = errno.errorcode.get(error.errno or 0, "EIO")
    except ValueError:
        seen["error"] = "EINVAL"
    seen.setdefault("stat", describe_missing(path))
    seen.setdefault("followed", seen["stat"])
    return seen


def read_beginning(held: Held, at_most: int) -> bytes:
    descriptor = open_regular(held)
    with open(descriptor, "rb", buffering=0) as file:
        parts, left = [], at_most
        while left > 0:
            part = file.read(min(left, CHUNK))
            if not part:
                break
            parts.append(part)
            left -= len(part)
        return b"".join(parts)


def find_working_folder() -> bytes:
    try:
        return os.getcwdb()
    except OSError:
        return b"/"


def find_shell() -> str:
    if os.path.exists("/bin/bash"):
        return "/bin/bash"
    return find_program("bash") or find_program("sh") or "/bin/sh"


def is_same_text(one: str, other: str) -> bool:
    import hmac

    return hmac.compare_digest(one.encode(), other.encode())


def main(nonce: str) -> None:
    """Say that the helper runs, and serve."""
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGPIPE, signal.SIGTTOU, signal.SIGTTIN, signal.SIGTSTP):
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    with contextlib.suppress(OSError):
        os.setsid()
    if IS_LINUX:
        call_prctl(PR_SET_CHILD_SUBREAPER, 1)
        call_prctl(PR_SET_DUMPABLE, 0)
    source, target = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(nothing, descriptor)
    os.close(nothing)
    helper = Helper(nonce)
    signal.signal(signal.SIGTERM, lambda number, frame: helper.end())
    write_all(target, f"pigeon-{nonce} python\n".encode())
    helper.connect(source, target, [])
    helper.serve()
