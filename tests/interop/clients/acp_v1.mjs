// The editor's side of the Agent Client Protocol, version 1, by the official SDK: one whole editing conversation.
//
//   node acp_v1.mjs SDK-FOLDER WORK-FOLDER COMMAND...
//
// Prints what happened as one JSON object; the test that starts it looks at that.
import { spawn } from "node:child_process";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { Readable, Writable } from "node:stream";
import { pathToFileURL } from "node:url";

const [sdk, work, ...command] = process.argv.slice(2);
const acp = await import(pathToFileURL(join(sdk, "dist/v1/unstable/acp.js")));
const child = spawn(command[0], command.slice(1), { stdio: ["pipe", "pipe", "inherit"], cwd: work });
const stream = acp.ndJsonStream(Writable.toWeb(child.stdin), Readable.toWeb(child.stdout));

const seen = { updates: [], permissions: [], reads: [], writes: [], terminals: [], deeds: [] };
const buffers = new Map([[join(work, "open.txt"), "unsaved text\n"]]);
const terminals = new Map();

const app = acp
  .client({ name: "interop" })
  .onNotification(acp.methods.client.session.update, ({ params }) => seen.updates.push(params.update))
  .onRequest(acp.methods.client.session.requestPermission, ({ params }) => {
    seen.permissions.push({ title: params.toolCall.title, options: params.options.map((one) => one.kind) });
    const wanted = seen.permissions.length === 1 ? "reject_once" : "allow_once";
    const option = params.options.find((one) => one.kind === wanted);
    return { outcome: { outcome: "selected", optionId: option.optionId } };
  })
  .onRequest(acp.methods.client.fs.readTextFile, ({ params }) => {
    seen.reads.push(params.path);
    const text = buffers.get(params.path);
    if (text === undefined) throw acp.RequestError.resourceNotFound(params.path);
    return { content: text };
  })
  .onRequest(acp.methods.client.fs.writeTextFile, ({ params }) => {
    seen.writes.push(params.path);
    buffers.set(params.path, params.content);
    return {};
  })
  .onRequest(acp.methods.client.terminal.create, ({ params }) => {
    const id = `term-${terminals.size + 1}`;
    const env = { ...process.env, ...Object.fromEntries((params.env ?? []).map((one) => [one.name, one.value])) };
    const shell = spawn(params.command, params.args ?? [], { cwd: params.cwd, env });
    const terminal = { shell, output: "", exit: null };
    const add = (data) => (terminal.output += data.toString());
    shell.stdout.on("data", add);
    shell.stderr.on("data", add);
    terminal.ended = new Promise((done) =>
      shell.on("close", (exitCode, signal) => done((terminal.exit = { exitCode, signal })))
    );
    terminals.set(id, terminal);
    seen.terminals.push(params.args);
    return { terminalId: id };
  })
  .onRequest(acp.methods.client.terminal.output, ({ params }) => {
    const { output, exit } = terminals.get(params.terminalId);
    return { output, truncated: false, exitStatus: exit };
  })
  .onRequest(acp.methods.client.terminal.waitForExit, ({ params }) => terminals.get(params.terminalId).ended)
  .onRequest(acp.methods.client.terminal.kill, ({ params }) => {
    seen.deeds.push("kill");
    terminals.get(params.terminalId).shell.kill("SIGKILL");
    return {};
  })
  .onRequest(acp.methods.client.terminal.release, ({ params }) => {
    seen.deeds.push("release");
    terminals.get(params.terminalId).shell.kill("SIGKILL");
    return {};
  });

const text = (words) => [{ type: "text", text: words }];
const result = await app.connectWith(stream, async (agent) => {
  const { session } = acp.methods.agent;
  const capabilities = { fs: { readTextFile: true, writeTextFile: true }, terminal: true };
  const offered = await agent.request(acp.methods.agent.initialize, {
    protocolVersion: acp.PROTOCOL_VERSION,
    clientCapabilities: capabilities,
    clientInfo: { name: "interop", version: "1" },
  });
  const { sessionId } = await agent.request(session.new, { cwd: work, mcpServers: [] });
  await agent.request(session.setMode, { sessionId, modeId: "always-ask" });
  const config = await agent.request(session.setConfigOption, { sessionId, configId: "thought_level", value: "low" });
  const edited = await agent.request(session.prompt, { sessionId, prompt: text("edit it") });
  const running = agent.request(session.prompt, { sessionId, prompt: text("run forever") });
  while (!seen.terminals.some((args) => args.join(" ").includes("sleep"))) await new Promise((go) => setTimeout(go, 20));
  await agent.notify(session.cancel, { sessionId });
  const cancelled = await running;
  const listed = await agent.request(session.list, { cwd: work });
  const fork = await agent.request(session.fork, { sessionId, cwd: work });
  await agent.request(session.close, { sessionId });
  const before = seen.updates.length;
  await agent.request(session.load, { sessionId, cwd: work, mcpServers: [] });
  const replayed = seen.updates.slice(before).map((one) => one.sessionUpdate);
  await agent.request(session.delete, { sessionId: fork.sessionId });
  let unknown = null;
  await agent.request(session.prompt, { sessionId: "none", prompt: text("x") }).catch((error) => (unknown = error.code));
  return {
    version: offered.protocolVersion,
    options: config.configOptions.map((one) => one.id),
    edited: edited.stopReason,
    cancelled: cancelled.stopReason,
    listed: listed.sessions.map((one) => one.sessionId === sessionId),
    replayed,
    unknown,
  };
});
child.stdin.end();
const code = await new Promise((done) => child.on("close", done));
const kinds = [...new Set(seen.updates.map((one) => one.sessionUpdate))].sort();
const contents = seen.updates.flatMap((one) => (one.content?.length ? one.content.map((item) => item.type) : []));
console.log(
  JSON.stringify({ ...result, ...seen, updates: undefined, kinds, contents: [...new Set(contents)].sort(), code,
    buffers: Object.fromEntries(buffers) })
);
