// A whole conversation through the client that pi itself ships. What it saw is printed as one JSON object.
const [module, settings] = process.argv.slice(2);
const { RpcClient } = await import(module);
const client = new RpcClient(JSON.parse(settings));
const seen = {};
const events = [];
const write = (record) => client.process.stdin.write(JSON.stringify(record) + "\n");
const next = (wanted) =>
  new Promise((resolve) => {
    const stop = client.onEvent((event) => {
      if (!wanted(event)) return;
      stop();
      resolve(event);
    });
  });
const delta = (event) => event.assistantMessageEvent?.type === "text_delta";
const text = (run) => run.filter(delta).map((event) => event.assistantMessageEvent.delta).join("");

await client.start();
client.onEvent((event) => events.push(event));
seen.state = await client.getState();
seen.models = (await client.getAvailableModels()).map((model) => `${model.provider}/${model.id}`);
seen.commands = (await client.getCommands()).map((command) => command.name);

const first = await client.promptAndWait("use a tool", undefined, 20000);
seen.first = first.map((event) => event.type);
seen.firstText = text(first);
seen.toolResult = first.find((event) => event.type === "tool_execution_end").result.content[0].text.trim();

const begun = next(delta);
await client.prompt("talk for ever");
await begun;
const idle = client.waitForIdle(20000);
await client.abort();
await idle;
seen.aborted = (await client.getMessages()).at(-1).stopReason;

seen.model = (await client.setModel("fake", "fake-2")).id;
seen.second = text(await client.promptAndWait("again", undefined, 20000));
seen.failure = await client.setModel("no", "such").catch((error) => error.message);

const question = next((event) => event.type === "extension_ui_request" && event.method === "confirm");
await client.prompt("/ask confirm");
const asked = await question;
const notice = next((event) => event.type === "extension_ui_request" && event.method === "notify");
write({ type: "extension_ui_response", id: asked.id, confirmed: true });
seen.dialog = (await notice).message;

const parameters = { type: "object", properties: { message: { type: "string" } }, required: ["message"] };
const tools = [{ name: "echo_host", description: "Echo from the host", parameters }];
seen.hostTools = (await client.send({ type: "set_host_tools", tools })).data.toolNames;
next((event) => event.type === "host_tool_call").then((call) => {
  const result = { content: [{ type: "text", text: `host says ${call.arguments.message}` }] };
  write({ type: "host_tool_result", id: call.id, result });
});
seen.third = text(await client.promptAndWait("use the host", undefined, 20000));
seen.hostResult = events.findLast((event) => event.type === "tool_execution_end").result.content[0].text;

seen.bash = (await client.bash("echo from bash")).output.trim();
seen.lastText = await client.getLastAssistantText();
seen.stats = await client.getSessionStats();
seen.forkable = (await client.getForkMessages()).map((message) => message.text);
await client.setThinkingLevel("low");
await client.setSessionName("interop");
const after = await client.getState();
seen.after = [after.model.id, after.thinkingLevel, after.sessionName];
seen.fork = await client.fork((await client.getForkMessages())[1].entryId);
seen.newSession = await client.newSession();
seen.empty = await client.getMessages();
const started = Date.now();
await client.stop();
seen.stopMs = Date.now() - started;
seen.stderr = client.getStderr();
process.stdout.write(JSON.stringify(seen));
