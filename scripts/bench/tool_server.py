"""A tool server (MCP) with any number of tools, which no row calls: `python tool_server.py 100`."""

from __future__ import annotations

import json
import sys
from typing import Any


def answer(request: dict[str, Any], count: int) -> dict[str, Any]:
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
    return {"resources": []} if "resources" in method else {}


def main() -> None:
    for line in sys.stdin:
        request = json.loads(line)
        if "id" in request and "method" in request:
            result = answer(request, int(sys.argv[1]))
            sys.stdout.write(json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": result}) + "\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
