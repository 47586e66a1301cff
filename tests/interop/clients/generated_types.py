"""What a program does with the models that were generated: reads every line, and gives it back as it was."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from protocol import AgentLine, Event, GetStateResponse, HostLine, MessageUpdate, Response, SuccessResponse, TextDelta
from pydantic import ValidationError


def session_of(line: AgentLine) -> str | None:
    """The session, if the line says which it is."""
    record = line.root
    if isinstance(record, Response) and isinstance(record.root, SuccessResponse):
        answer = record.root.root
        return answer.data.session_id if isinstance(answer, GetStateResponse) else None
    return None


def text_of(line: AgentLine) -> str:
    """The text that the line adds to an answer."""
    if isinstance(line.root, Event) and isinstance(line.root.root, MessageUpdate):
        event = line.root.root.assistant_message_event.root
        return event.delta if isinstance(event, TextDelta) else ""
    return ""


def differing(lines: list[str], kind: type[AgentLine | HostLine]) -> list[str]:
    """The lines that are not the same after they were read and written."""
    found = []
    for line in lines:
        record = kind.model_validate_json(line)
        if record.model_dump(mode="json", by_alias=True, exclude_unset=True) != json.loads(line):
            found.append(line)
    return found


def refused(line: str) -> bool:
    """True if the models do not accept the line."""
    try:
        AgentLine.model_validate_json(line)
    except ValidationError:
        return True
    return False


if __name__ == "__main__":
    told, sent = (Path(name).read_text("utf-8").split("\n")[:-1] for name in sys.argv[1:])
    read = [AgentLine.model_validate_json(line) for line in told]
    seen = {
        "differing": [*differing(told, AgentLine), *differing(sent, HostLine)],
        "sessions": len({session for line in read if (session := session_of(line))}),
        "text": "".join(map(text_of, read)),
        "refused": refused('{"type":"garbage"}'),
    }
    sys.stdout.write(json.dumps(seen))
