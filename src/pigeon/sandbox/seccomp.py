"""The system call filter for commands in the sandbox, as a BPF program.

It covers what file names cannot express: which sockets are allowed, and that commands can create no namespaces, mounts
and devices, use no kernel keys and kernel programs, and inspect no other processes. `bubblewrap` gets it as a file,
`process/namespaces` loads it itself. It exists for the processors in `ARCHITECTURES`; on others there is no sandbox.
"""

from __future__ import annotations

import errno
import struct
from collections.abc import Iterator, Sequence
from functools import lru_cache

from msgspec import Struct

ALLOW = 0x7FFF0000
KILL = 0x80000000
ERROR = 0x00050000
_LOAD, _JUMP_EQUAL, _JUMP_SET, _JUMP_ABOVE, _AND, _RETURN = 0x20, 0x15, 0x45, 0x35, 0x54, 0x06
_NUMBER, _ARCHITECTURE, _ARGUMENTS = 0, 4, 16
_X32 = 0x40000000

_UNIX, _INET, _INET6, _NETLINK = 1, 2, 10, 16
_SOCKET_KIND, _STREAM, _PACKETS_IN_ORDER = 0xF, 1, 5
_NEW_NAMESPACES = 0x7E020080
_FILE_KIND, _CHARACTER, _BLOCK = 0xF000, 0x2000, 0x6000
_SET_USER_ID = 0o4000
# Injecting input into a terminal, and reading the selection of a console.
_TERMINAL_REQUESTS = (0x5412, 0x541C)

# Calls by their numbers on x86_64 and aarch64; None if a processor does not have the call.
_NUMBERS: dict[str, tuple[int | None, int | None]] = {
    "open": (2, None), "creat": (85, None), "openat": (257, 56), "openat2": (437, 437),
    "chmod": (90, None), "fchmod": (91, 52), "fchmodat": (268, 53), "fchmodat2": (452, 452),
    "mknod": (133, None), "mknodat": (259, 33), "ioctl": (16, 29), "prlimit64": (302, 261),
    "socket": (41, 198), "socketpair": (53, 199), "clone": (56, 220), "clone3": (435, 435), "unshare": (272, 97),
    "setns": (308, 268), "ptrace": (101, 117), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271),
    "process_madvise": (440, 440), "kcmp": (312, 272), "pidfd_getfd": (438, 438),
    "mount": (165, 40), "umount2": (166, 39), "pivot_root": (155, 41), "chroot": (161, 51), "move_mount": (429, 429),
    "open_tree": (428, 428), "open_tree_attr": (467, 467), "fsopen": (430, 430), "fsconfig": (431, 431),
    "fsmount": (432, 432), "fspick": (433, 433), "mount_setattr": (442, 442), "statmount": (457, 457),
    "listmount": (458, 458), "open_by_handle_at": (304, 265), "name_to_handle_at": (303, 264),
    "add_key": (248, 217), "request_key": (249, 218), "keyctl": (250, 219), "bpf": (321, 280),
    "perf_event_open": (298, 241), "io_uring_setup": (425, 425), "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427), "userfaultfd": (323, 282), "fanotify_init": (300, 262),
    "kexec_load": (246, 104), "kexec_file_load": (320, 294), "init_module": (175, 105), "finit_module": (313, 273),
    "delete_module": (176, 106), "create_module": (174, None), "swapon": (167, 224), "swapoff": (168, 225),
    "reboot": (169, 142), "sethostname": (170, 161), "setdomainname": (171, 162), "settimeofday": (164, 170),
    "clock_settime": (227, 112), "clock_adjtime": (305, 266), "adjtimex": (159, 171), "acct": (163, 89),
    "quotactl": (179, 60), "quotactl_fd": (443, 443), "nfsservctl": (180, 42), "lookup_dcookie": (212, 18),
    "iopl": (172, None), "ioperm": (173, None), "modify_ldt": (154, None), "vhangup": (153, 58), "syslog": (103, 116),
    "uselib": (134, None), "_sysctl": (156, None), "ustat": (136, None), "sysfs": (139, None),
}  # fmt: skip
_LOOKED_INTO = frozenset(
    {
        *("open", "creat", "openat", "chmod", "fchmod", "fchmodat", "fchmodat2", "mknod", "mknodat"),
        *("ioctl", "prlimit64", "socket", "socketpair", "clone", "unshare"),
    }
)
# Calls that programs try first and can do without: they must look unsupported.
_LOOK_ABSENT = frozenset(("openat2", "clone3", "io_uring_setup", "process_madvise", "statmount", "listmount"))


class Architecture(Struct, frozen=True):
    """The kernel's number for a processor, its column in the table, and whether it has a second numbering of calls."""

    code: int
    column: int
    has_x32: bool


ARCHITECTURES = {
    "x86_64": Architecture(0xC000003E, 0, True),
    "aarch64": Architecture(0xC00000B7, 1, False),
}


@lru_cache(maxsize=4)
def build_filter_for(machine: str) -> bytes | None:
    """The program for this processor in the kernel's format; None for an unknown processor."""
    architecture = ARCHITECTURES.get(machine)
    if architecture is None:
        return None
    return b"".join(struct.pack("=HBBI", *step) for step in _make_filter_steps(architecture))


# One instruction: its code, how many to skip if a test is true and if it is false, and its operand.
Step = tuple[int, int, int, int]


def _make_filter_steps(architecture: Architecture) -> Iterator[Step]:
    # Programs of another architecture use other call numbers: they are not run at all.
    yield from ((_LOAD, 0, 0, _ARCHITECTURE), (_JUMP_EQUAL, 1, 0, architecture.code), _return_action(KILL))
    yield (_LOAD, 0, 0, _NUMBER)
    if architecture.has_x32:
        yield from ((_JUMP_ABOVE, 0, 1, _X32), _return_action(ERROR | errno.ENOSYS))
    for name, numbers in _NUMBERS.items():
        number = numbers[architecture.column]
        if number is None:
            continue
        body = _make_call_steps(name)
        yield (_JUMP_EQUAL, 0, len(body), number)
        yield from body
    yield _return_action(ALLOW)


def _make_call_steps(name: str) -> Sequence[Step]:
    """The instructions for one call; every path through them ends the program."""
    refused = _return_action(ERROR | (errno.ENOSYS if name in _LOOK_ABSENT else errno.EPERM))
    if name not in _LOOKED_INTO:
        return [refused]
    if name in ("clone", "unshare"):
        return _refuse_if_any_bit(0, _NEW_NAMESPACES)
    if name in ("open", "creat", "openat", "chmod", "fchmod", "fchmodat", "fchmodat2"):
        position = {"open": 2, "openat": 3, "fchmodat": 2, "fchmodat2": 2}.get(name, 1)
        return _refuse_if_any_bit(position, _SET_USER_ID)
    if name in ("mknod", "mknodat"):
        devices = [(_JUMP_EQUAL, 1, 0, _CHARACTER), (_JUMP_EQUAL, 0, 1, _BLOCK), refused, _return_action(ALLOW)]
        mode = [_load_argument(1 if name == "mknod" else 2), (_JUMP_SET, 0, 1, _SET_USER_ID), refused]
        return [*mode, (_AND, 0, 0, _FILE_KIND), *devices]
    if name == "ioctl":
        one, other = _TERMINAL_REQUESTS
        return [_load_argument(1), (_JUMP_EQUAL, 1, 0, one), (_JUMP_EQUAL, 0, 1, other), refused, _return_action(ALLOW)]
    if name == "prlimit64":
        return [_load_argument(0), (_JUMP_EQUAL, 1, 0, 0), refused, _return_action(ALLOW)]
    if name == "socketpair":
        # A datagram socket could send to any named socket, in spite of its pair; these two kinds cannot.
        kinds = [(_JUMP_EQUAL, 2, 0, _STREAM), (_JUMP_EQUAL, 1, 0, _PACKETS_IN_ORDER), refused, _return_action(ALLOW)]
        family = [_load_argument(0), (_JUMP_EQUAL, 1, 0, _UNIX), refused]
        return [*family, _load_argument(1), (_AND, 0, 0, _SOCKET_KIND), *kinds]
    # Sockets of this machine's programs have names that filters cannot see, so only pairs are allowed. Queries about
    # the kernel's interfaces are allowed; other families lead to drivers or to the host machine.
    return [
        _load_argument(0),
        (_JUMP_EQUAL, 5, 0, _INET),
        (_JUMP_EQUAL, 4, 0, _INET6),
        (_JUMP_EQUAL, 0, 2, _NETLINK),
        _load_argument(2),
        (_JUMP_EQUAL, 1, 0, 0),
        refused,
        _return_action(ALLOW),
    ]


def _refuse_if_any_bit(position: int, bits: int) -> list[Step]:
    return [
        _load_argument(position),
        (_JUMP_SET, 0, 1, bits),
        _return_action(ERROR | errno.EPERM),
        _return_action(ALLOW),
    ]


def _load_argument(position: int) -> Step:
    """Load the lower half of an argument: all of these have 32 bits, and the kernel reads no more of them."""
    return (_LOAD, 0, 0, _ARGUMENTS + 8 * position)


def _return_action(action: int) -> Step:
    return (_RETURN, 0, 0, action)
