// An interactive client with Node's own line reader. It prints text and the names of tools, and Ctrl+C stops the run.
const { spawn } = require("child_process");
const { createInterface } = require("readline");

const agent = spawn(process.argv[2], ["--mode", "rpc", "--no-session"]);
const send = (command) => agent.stdin.write(JSON.stringify(command) + "\n");

createInterface({ input: agent.stdout }).on("line", (line) => {
  const event = JSON.parse(line);
  if (event.type === "message_update" && event.assistantMessageEvent.type === "text_delta") {
    process.stdout.write(event.assistantMessageEvent.delta);
  } else if (event.type === "tool_execution_start") {
    process.stdout.write(`<${event.toolName}>`);
  }
});
process.on("SIGINT", () => send({ type: "abort" }));
send({ type: "prompt", message: "Hello" });
