"""An interpreter of the kernel's packet filter, as far as filters of system calls use it."""

from __future__ import annotations

import struct
from collections.abc import Sequence

ALLOWED = "allowed"
KILLED = "killed"


def judged(program: bytes, number: int, arguments: Sequence[int] = (), architecture: int = 0xC000003E) -> str | int:
    """What a filter says of a call: `ALLOWED`, `KILLED`, or the number of the error that it fails with."""
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
