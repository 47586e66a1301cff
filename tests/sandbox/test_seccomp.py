"""The filter of system calls, run by an interpreter: what it refuses, and that it lets ordinary programs work."""

from __future__ import annotations

import errno
import socket
import stat

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fakes.packet_filter import ALLOWED, KILLED, judged
from pigeon.sandbox.seccomp import ARCHITECTURES, filter_for

X86 = filter_for("x86_64") or b""
ARM = filter_for("aarch64") or b""
ARM_CODE = ARCHITECTURES["aarch64"].code
NUMBERS = st.integers(0, 500)
ARGUMENTS = st.lists(st.integers(0, 2**64 - 1), min_size=6, max_size=6)


def test_there_is_no_filter_for_a_processor_without_a_table() -> None:
    assert filter_for("riscv64") is None


@given(number=NUMBERS, arguments=ARGUMENTS)
def test_every_call_is_judged_on_both_processors(number: int, arguments: list[int]) -> None:
    assert judged(X86, number, arguments) != KILLED
    assert judged(ARM, number, arguments, ARM_CODE) != KILLED


@given(number=NUMBERS)
def test_a_program_for_another_processor_is_killed(number: int) -> None:
    assert judged(X86, number, architecture=0x40000003) == KILLED
    assert judged(ARM, number, architecture=0x40000028) == KILLED


@given(number=NUMBERS, arguments=ARGUMENTS)
def test_the_second_numbering_of_x86_does_not_lead_around_the_filter(number: int, arguments: list[int]) -> None:
    assert judged(X86, number | 0x40000000, arguments) == errno.ENOSYS


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
    assert judged(X86, number) == errno.EPERM
    assert judged(ARM, on_arm, architecture=ARM_CODE) == errno.EPERM


@pytest.mark.parametrize("number", [425, 435, 437])
def test_calls_with_an_older_form_look_as_if_the_kernel_had_none(number: int) -> None:
    assert judged(X86, number) == errno.ENOSYS


def test_processes_and_threads_are_made_and_namespaces_are_not() -> None:
    thread = 0x3D0F00
    assert judged(X86, 56, [17]) == ALLOWED
    assert judged(X86, 56, [thread]) == ALLOWED
    for bit in (0x20000, 0x2000000, 0x4000000, 0x8000000, 0x10000000, 0x20000000, 0x40000000):
        assert judged(X86, 56, [17 | bit]) == errno.EPERM
        assert judged(X86, 272, [bit]) == errno.EPERM
    assert judged(X86, 272, [0x400]) == ALLOWED


@given(family=st.integers(0, 60), protocol=st.integers(0, 30))
def test_sockets_are_those_of_the_internet_and_one_of_the_kernel(family: int, protocol: int) -> None:
    wanted = family in (2, 10) or (family == 16 and protocol == 0)
    assert judged(X86, 41, [family, 1, protocol]) == (ALLOWED if wanted else errno.EPERM)


def test_pairs_of_sockets_are_to_be_had() -> None:
    close_on_exec = 0x80000
    for kind in (socket.SOCK_STREAM, socket.SOCK_SEQPACKET):
        assert judged(X86, 53, [1, kind | close_on_exec]) == ALLOWED
        assert judged(ARM, 199, [1, kind], ARM_CODE) == ALLOWED
        assert judged(X86, 53, [40, kind]) == errno.EPERM


@given(kind=st.integers(0, 2**32 - 1).filter(lambda kind: kind & 0xF not in (1, 5)))
def test_a_pair_that_could_be_sent_from_to_any_name_is_not_made(kind: int) -> None:
    assert judged(X86, 53, [1, kind]) == errno.EPERM
    assert judged(ARM, 199, [1, kind], ARM_CODE) == errno.EPERM


def test_pipes_with_names_are_made_and_devices_are_not() -> None:
    assert judged(X86, 133, [0, stat.S_IFIFO | 0o600]) == ALLOWED
    assert judged(X86, 259, [0, 0, stat.S_IFREG]) == ALLOWED
    for kind in (stat.S_IFCHR, stat.S_IFBLK):
        assert judged(X86, 133, [0, kind | 0o600]) == errno.EPERM
        assert judged(X86, 259, [0, 0, kind]) == errno.EPERM


@given(mode=st.integers(0, 0o7777))
def test_a_file_never_runs_as_its_owner(mode: int) -> None:
    wanted = errno.EPERM if mode & stat.S_ISUID else ALLOWED
    for number, position in ((90, 1), (91, 1), (268, 2), (452, 2), (2, 2), (85, 1), (257, 3), (133, 1), (259, 2)):
        arguments = [0] * 6
        arguments[position] = mode
        assert judged(X86, number, arguments) == wanted


def test_text_is_not_put_into_a_terminal_whatever_stands_in_the_upper_half() -> None:
    for request in (0x5412, 0x541C):
        assert judged(X86, 16, [0, request]) == errno.EPERM
        assert judged(X86, 16, [0, request | 1 << 32]) == errno.EPERM
    assert judged(X86, 16, [0, 0x5401]) == ALLOWED


def test_limits_are_those_of_the_process_itself() -> None:
    assert judged(X86, 302, [0]) == ALLOWED
    assert judged(X86, 302, [1234]) == errno.EPERM
