// An interactive client that reads chunks and parses what is whole, as Bun's clients do. Without Bun, the three things
// of it that are needed are put together from Node's.
import { spawn } from "node:child_process";
import { Readable } from "node:stream";

const runtime = globalThis.Bun?.JSONL ? globalThis.Bun : {
  spawn([program, ...args]) {
    const child = spawn(program, args, { stdio: ["pipe", "pipe", "inherit"] });
    return { stdin: child.stdin, stdout: Readable.toWeb(child.stdout) };
  },
  JSONL: {
    parseChunk(text) {
      const end = text.lastIndexOf("\n") + 1;
      return { values: text.slice(0, end).split("\n").filter(Boolean).map((line) => JSON.parse(line)), read: end };
    },
  },
};

const agent = runtime.spawn([process.argv[2], "--mode", "rpc", "--no-session"], { stdin: "pipe", stdout: "pipe" });
agent.stdin.write(JSON.stringify({ type: "prompt", message: "Hello" }) + "\n");
agent.stdin.flush?.();
const decoder = new TextDecoder();
let rest = "";
for await (const chunk of agent.stdout) {
  rest += decoder.decode(chunk, { stream: true });
  const { values, read } = runtime.JSONL.parseChunk(rest);
  rest = rest.slice(read);
  for (const event of values) {
    const update = event.assistantMessageEvent;
    if (update?.type === "text_delta") process.stdout.write(update.delta);
  }
}
