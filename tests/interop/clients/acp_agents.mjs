// The editor's side of the Agent Client Protocol, version 1, by the official SDK: an agent at work, and a plan.
//
//   node acp_agents.mjs SDK-FOLDER WORK-FOLDER COMMAND...
//
// Prints what happened as one JSON object; the test that starts it looks at that.
import { spawn } from "node:child_process";
import { join } from "node:path";
import { Readable, Writable } from "node:stream";
import { pathToFileURL } from "node:url";

const [sdk, work, ...command] = process.argv.slice(2);
const acp = await import(pathToFileURL(join(sdk, "dist/v1/unstable/acp.js")));
const child = spawn(command[0], command.slice(1), { stdio: ["pipe", "pipe", "inherit"], cwd: work });
const stream = acp.ndJsonStream(Writable.toWeb(child.stdin), Readable.toWeb(child.stdout));

const seen = { calls: [], modes: [], questions: [] };
const app = acp
  .client({ name: "interop" })
  .onNotification(acp.methods.client.session.update, ({ params: { update } }) => {
    if (update.sessionUpdate === "current_mode_update") seen.modes.push(update.currentModeId);
    if (update.sessionUpdate.startsWith("tool_call")) seen.calls.push(update);
  })
  .onRequest(acp.methods.client.session.requestPermission, ({ params }) => {
    seen.questions.push({ call: params.toolCall, options: params.options });
    return { outcome: { outcome: "selected", optionId: "Accept" } };
  });

const result = await app.connectWith(stream, async (agent) => {
  const { session } = acp.methods.agent;
  await agent.request(acp.methods.agent.initialize, {
    protocolVersion: acp.PROTOCOL_VERSION,
    clientCapabilities: {},
    clientInfo: { name: "interop", version: "1" },
  });
  const { sessionId, modes } = await agent.request(session.new, { cwd: work, mcpServers: [] });
  await agent.request(session.setMode, { sessionId, modeId: "plan" });
  const ended = await agent.request(session.prompt, { sessionId, prompt: [{ type: "text", text: "PLAN AND DO" }] });
  return { modes: modes.availableModes.map((mode) => mode.id), ended: ended.stopReason };
});
child.stdin.end();
await new Promise((done) => child.on("close", done));
console.log(JSON.stringify({ ...result, ...seen, modeUpdates: seen.modes, modes: result.modes }));
