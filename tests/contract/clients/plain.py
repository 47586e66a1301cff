"""The smallest useful client: start the program by its name, say one thing, print the answer as it grows, and leave."""

import json
import subprocess
import sys

agent = subprocess.Popen(
    [sys.argv[1], "--mode", "rpc", "--no-session"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
)
agent.stdin.write(json.dumps({"type": "prompt", "message": "Hello!"}) + "\n")
agent.stdin.flush()
for line in agent.stdout:
    event = json.loads(line)
    update = event.get("assistantMessageEvent", {})
    if update.get("type") == "text_delta":
        sys.stdout.write(update["delta"])
        sys.stdout.flush()
    if event["type"] == "agent_end":
        break
sys.stdout.write("\n")
