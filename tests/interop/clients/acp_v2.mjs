// The editor's side of the draft of version 2 of the Agent Client Protocol, by the official SDK.
//
//   node acp_v2.mjs SDK-FOLDER WORK-FOLDER COMMAND...
//
// Prints what happened as one JSON object; the test that starts it looks at that.
import { spawn } from "node:child_process";
import { join } from "node:path";
import { Readable, Writable } from "node:stream";
import { pathToFileURL } from "node:url";

const [sdk, work, ...command] = process.argv.slice(2);
const acp = await import(pathToFileURL(join(sdk, "dist/v2/unstable/acp.js")));
const child = spawn(command[0], command.slice(1), { stdio: ["pipe", "pipe", "inherit"], cwd: work });
const stream = acp.ndJsonStream(Writable.toWeb(child.stdin), Readable.toWeb(child.stdout));
const seen = { updates: [], permissions: [] };

const app = acp
  .client({ name: "interop" })
  .onNotification(acp.methods.client.session.update, ({ params }) => seen.updates.push(params.update))
  .onRequest(acp.methods.client.session.requestPermission, ({ params }) => {
    seen.permissions.push({ title: params.title, subject: params.subject.type });
    const wanted = seen.permissions.length === 1 ? "reject_once" : "allow_once";
    const option = params.options.find((one) => one.kind === wanted);
    return { outcome: { outcome: "selected", optionId: option.optionId } };
  });

const text = (words) => [{ type: "text", text: words }];
const until = async (holds) => {
  const end = Date.now() + 30_000;
  while (!seen.updates.some(holds)) {
    if (Date.now() > end) throw new Error(`never came: ${holds}; got ${JSON.stringify(seen.updates.slice(-5))}`);
    await new Promise((go) => setTimeout(go, 10));
  }
};
const idle = (reason) => (one) => one.sessionUpdate === "state_update" && one.state === "idle" && one.stopReason === reason;

const result = await app.connectWith(stream, async (agent) => {
  const { session } = acp.methods.agent;
  const offered = await agent.request(acp.methods.agent.initialize, {
    protocolVersion: acp.PROTOCOL_VERSION,
    info: { name: "interop", version: "1" },
    capabilities: {},
  });
  const { sessionId } = await agent.request(session.new, { cwd: work, mcpServers: [] });
  const config = await agent.request(session.setConfigOption, {
    sessionId, configId: "mode", type: "id", value: "always-ask",
  });
  const accepted = await agent.request(session.prompt, { sessionId, prompt: text("edit it") });
  await until(idle("end_turn"));
  await agent.request(session.prompt, { sessionId, prompt: text("run forever") });
  await until((one) => one.sessionUpdate === "terminal_output_chunk" && atob(one.data).includes("forever"));
  await agent.notify(session.cancel, { sessionId });
  await until(idle("cancelled"));
  const listed = await agent.request(session.list, { cwd: work });
  const fork = await agent.request(session.fork, { sessionId, cwd: work });
  await agent.request(session.close, { sessionId });
  const before = seen.updates.length;
  await agent.request(session.resume, { sessionId, cwd: work, replayFrom: { type: "start" } });
  const replayed = seen.updates.slice(before).map((one) => one.sessionUpdate);
  const sameId = seen.updates.slice(before).some((one) => one.messageId === accepted.messageId);
  await agent.request(session.delete, { sessionId: fork.sessionId });
  let unknown = null;
  await agent.request(session.prompt, { sessionId: "none", prompt: text("x") }).catch((error) => (unknown = error.code));
  return {
    version: offered.protocolVersion,
    options: config.configOptions.map((one) => one.configId),
    listed: listed.sessions.map((one) => one.sessionId === sessionId),
    replayed,
    sameId,
    unknown,
  };
});
child.stdin.end();
const code = await new Promise((done) => child.on("close", done));
const kinds = [...new Set(seen.updates.map((one) => one.sessionUpdate))].sort();
const contents = seen.updates.flatMap((one) => (Array.isArray(one.content) ? one.content.map((item) => item.type) : []));
console.log(JSON.stringify({ ...result, permissions: seen.permissions, kinds, contents: [...new Set(contents)].sort(), code }));
