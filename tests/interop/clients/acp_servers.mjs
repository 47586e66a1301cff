// An editor that hands over a tool server, by the official SDK of the Agent Client Protocol.
//
//   node acp_servers.mjs SDK-FOLDER VERSION SERVER-AS-JSON WORK-FOLDER COMMAND...
//
// The server is given with each way of opening a session, and a tool of it is called in each. Prints what happened as
// one JSON object; the test that starts it looks at that.
import { spawn } from "node:child_process";
import { join } from "node:path";
import { Readable, Writable } from "node:stream";
import { pathToFileURL } from "node:url";

const [sdk, version, server, work, ...command] = process.argv.slice(2);
const acp = await import(pathToFileURL(join(sdk, `dist/v${version}/unstable/acp.js`)));
const child = spawn(command[0], command.slice(1), { stdio: ["pipe", "pipe", "inherit"], cwd: work });
const stream = acp.ndJsonStream(Writable.toWeb(child.stdin), Readable.toWeb(child.stdout));
const seen = { updates: [], questions: [] };

const app = acp
  .client({ name: "interop" })
  .onNotification(acp.methods.client.session.update, ({ params }) => seen.updates.push(params.update))
  .onRequest(acp.methods.client.session.requestPermission, ({ params }) => {
    seen.questions.push(params.title ?? params.toolCall.title);
    const option = params.options.find((one) => one.kind === "allow_once");
    return { outcome: { outcome: "selected", optionId: option.optionId } };
  });

const result = await app.connectWith(stream, async (agent) => {
  const { session } = acp.methods.agent;
  const about = { name: "interop", version: "1" };
  await agent.request(acp.methods.agent.initialize, {
    protocolVersion: acp.PROTOCOL_VERSION,
    ...(version === "1" ? { clientInfo: about, clientCapabilities: {} } : { info: about, capabilities: {} }),
  });
  const place = { cwd: work, mcpServers: [JSON.parse(server)] };
  const ended = (one) => one.sessionUpdate === "state_update" && one.state === "idle";
  const talked = async (sessionId) => {
    const start = seen.updates.length;
    await agent.request(session.prompt, { sessionId, prompt: [{ type: "text", text: "how many" }] });
    const end = Date.now() + 60_000;
    while (version === "2" && !seen.updates.slice(start).some(ended)) {
      if (Date.now() > end) throw new Error("the run did not end");
      await new Promise((go) => setTimeout(go, 10));
    }
    const mine = seen.updates.slice(start);
    const text = mine.filter((one) => one.sessionUpdate === "agent_message_chunk").map((one) => one.content.text);
    const raw = mine.map((one) => one.rawOutput).find((one) => one?.structuredContent);
    return { said: text.join(""), raw: raw?.structuredContent };
  };
  const { sessionId } = await agent.request(session.new, place);
  const ways = { new: await talked(sessionId) };
  await agent.request(session.close, { sessionId });
  if (version === "1") {
    await agent.request(session.load, { sessionId, ...place });
    ways.load = await talked(sessionId);
    await agent.request(session.close, { sessionId });
  }
  await agent.request(session.resume, { sessionId, ...place });
  ways.resume = await talked(sessionId);
  const fork = await agent.request(session.fork, { sessionId, ...place });
  ways.fork = await talked(fork.sessionId);
  return ways;
});
child.stdin.end();
const code = await new Promise((done) => child.on("close", done));
console.log(JSON.stringify({ ways: result, questions: seen.questions, code }));
