"""The filter of system calls, run by an interpreter: what it refuses, and that it lets ordinary programs work."""

from __future__ import annotations

import errno
import socket
import stat
import struct
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pigeon.sandbox.seccomp import ARCHITECTURES, build_filter_for

ALLOWED = "allowed"
KILLED = "killed"
X86 = build_filter_for("x86_64") or b""
ARM = build_filter_for("aarch64") or b""
ARM_CODE = ARCHITECTURES["aarch64"].code
NUMBERS = st.integers(0, 500)
ARGUMENTS = st.lists(st.integers(0, 2**64 - 1), min_size=6, max_size=6)


def run_filter(program: bytes, number: int, arguments: Sequence[int] = (), architecture: int = 0xC000003E) -> str | int:
    """Run the filter as the kernel does: `ALLOWED`, `KILLED`, or the number of the error that it fails with."""
    given = [*arguments, *[0] * (6 - len(arguments))]
    data = struct.pack("=iIQ6Q", number, architecture, 0, *(value & 0xFFFFFFFFFFFFFFFF for value in given))
    steps = [struct.unpack_from("=HBBI", program, at) for at in range(0, len(program), 8)]
    loaded = position = 0
    while True:
        code, if_true, if_false, operand = steps[position]
        position += 1
        if code == 0x20:
            loaded = struct.unpack_from("=I", data, operand)[0]
        elif code == 0x54:
            loaded &= operand
        elif code == 0x06:
            return _meaning(operand)
        else:
            holds = {0x15: loaded == operand, 0x45: bool(loaded & operand), 0x35: loaded >= operand}[code]
            position += if_true if holds else if_false


def _meaning(action: int) -> str | int:
    if action & 0xFFFF0000 == 0x00050000:
        return action & 0xFFFF
    return {0x7FFF0000: ALLOWED, 0x80000000: KILLED}[action]


def test_there_is_no_filter_for_a_processor_without_a_table() -> None:
    assert build_filter_for("riscv64") is None


@given(number=NUMBERS, arguments=ARGUMENTS)
def test_every_call_is_judged_on_both_processors(number: int, arguments: list[int]) -> None:
    assert run_filter(X86, number, arguments) != KILLED
    assert run_filter(ARM, number, arguments, ARM_CODE) != KILLED


@given(number=NUMBERS)
def test_a_program_for_another_processor_is_killed(number: int) -> None:
    assert run_filter(X86, number, architecture=0x40000003) == KILLED
    assert run_filter(ARM, number, architecture=0x40000028) == KILLED


@given(number=NUMBERS, arguments=ARGUMENTS)
def test_the_second_numbering_of_x86_does_not_lead_around_the_filter(number: int, arguments: list[int]) -> None:
    assert run_filter(X86, number | 0x40000000, arguments) == errno.ENOSYS


@pytest.mark.parametrize(
    ("name", "number", "on_arm"),
    [
        ("ptrace", 101, 117),
        ("mount", 165, 40),
        ("setns", 308, 268),
        ("keyctl", 250, 219),
        ("bpf", 321, 280),
        ("open_by_handle_at", 304, 265),
        ("process_vm_readv", 310, 270),
        ("pidfd_getfd", 438, 438),
        ("move_mount", 429, 429),
        ("userfaultfd", 323, 282),
        ("init_module", 175, 105),
        ("reboot", 169, 142),
    ],
)
def test_calls_that_no_command_needs_fail(name: str, number: int, on_arm: int) -> None:
    assert run_filter(X86, number) == errno.EPERM
    assert run_filter(ARM, on_arm, architecture=ARM_CODE) == errno.EPERM


@pytest.mark.parametrize("number", [425, 435, 437])
def test_calls_with_an_older_form_look_as_if_the_kernel_had_none(number: int) -> None:
    assert run_filter(X86, number) == errno.ENOSYS


def test_processes_and_threads_are_made_and_namespaces_are_not() -> None:
    thread = 0x3D0F00
    assert run_filter(X86, 56, [17]) == ALLOWED
    assert run_filter(X86, 56, [thread]) == ALLOWED
    for bit in (0x20000, 0x2000000, 0x4000000, 0x8000000, 0x10000000, 0x20000000, 0x40000000):
        assert run_filter(X86, 56, [17 | bit]) == errno.EPERM
        assert run_filter(X86, 272, [bit]) == errno.EPERM
    assert run_filter(X86, 272, [0x400]) == ALLOWED


@given(family=st.integers(0, 60), protocol=st.integers(0, 30))
def test_sockets_are_those_of_the_internet_and_one_of_the_kernel(family: int, protocol: int) -> None:
    wanted = family in (2, 10) or (family == 16 and protocol == 0)
    assert run_filter(X86, 41, [family, 1, protocol]) == (ALLOWED if wanted else errno.EPERM)


def test_pairs_of_sockets_are_to_be_had() -> None:
    close_on_exec = 0x80000
    for kind in (socket.SOCK_STREAM, socket.SOCK_SEQPACKET):
        assert run_filter(X86, 53, [1, kind | close_on_exec]) == ALLOWED
        assert run_filter(ARM, 199, [1, kind], ARM_CODE) == ALLOWED
        assert run_filter(X86, 53, [40, kind]) == errno.EPERM


@given(kind=st.integers(0, 2**32 - 1).filter(lambda kind: kind & 0xF not in (1, 5)))
def test_a_pair_that_could_be_sent_from_to_any_name_is_not_made(kind: int) -> None:
    assert run_filter(X86, 53, [1, kind]) == errno.EPERM
    assert run_filter(ARM, 199, [1, kind], ARM_CODE) == errno.EPERM


def test_pipes_with_names_are_made_and_devices_are_not() -> None:
    assert run_filter(X86, 133, [0, stat.S_IFIFO | 0o600]) == ALLOWED
    assert run_filter(X86, 259, [0, 0, stat.S_IFREG]) == ALLOWED
    for kind in (stat.S_IFCHR, stat.S_IFBLK):
        assert run_filter(X86, 133, [0, kind | 0o600]) == errno.EPERM
        assert run_filter(X86, 259, [0, 0, kind]) == errno.EPERM


@given(mode=st.integers(0, 0o7777))
def test_a_file_never_runs_as_its_owner(mode: int) -> None:
    wanted = errno.EPERM if mode & stat.S_ISUID else ALLOWED
    for number, position in ((90, 1), (91, 1), (268, 2), (452, 2), (2, 2), (85, 1), (257, 3), (133, 1), (259, 2)):
        arguments = [0] * 6
        arguments[position] = mode
        assert run_filter(X86, number, arguments) == wanted


def test_text_is_not_put_into_a_terminal_whatever_stands_in_the_upper_half() -> None:
    for request in (0x5412, 0x541C):
        assert run_filter(X86, 16, [0, request]) == errno.EPERM
        assert run_filter(X86, 16, [0, request | 1 << 32]) == errno.EPERM
    assert run_filter(X86, 16, [0, 0x5401]) == ALLOWED


def test_limits_are_those_of_the_process_itself() -> None:
    assert run_filter(X86, 302, [0]) == ALLOWED
    assert run_filter(X86, 302, [1234]) == errno.EPERM
