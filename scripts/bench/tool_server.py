"""A tool server (MCP) with so many tools, each of which adds a line to a file: `python tool_server.py 100 FILE`."""

from __future__ import annotations

import json
import sys
from typing import Any


def answer(request: dict[str, Any], count: int, file: str) -> dict[str, Any]:
    method = request["method"]
    if method == "initialize":
        version = request["params"]["protocolVersion"]
        about = {"name": "bench", "version": "1"}
        return {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": about}
    if method == "tools/list":
        schema = {"type": "object", "properties": {"path": {"type": "string", "description": "A path"}}}
        return {
            "tools": [
                {"name": f"tool_{number}", "description": f"Does work number {number}", "inputSchema": schema}
                for number in range(count)
            ]
        }
    if method == "tools/call":
        with open(file, "a", encoding="utf-8") as proof:
            proof.write("called\n")
        return {"content": [{"type": "text", "text": "done"}]}
    return {"resources": []} if "resources" in method else {}


def main() -> None:
    for line in sys.stdin:
        request = json.loads(line)
        if "id" in request and "method" in request:
            result = answer(request, int(sys.argv[1]), sys.argv[2])
            sys.stdout.write(json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": result}) + "\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
