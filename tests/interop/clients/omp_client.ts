// A whole conversation through the client that oh-my-pi ships. What it saw is printed as one JSON object.
const [module, program, settings] = process.argv.slice(2);
const { RpcClient } = await import(module);
const seen: Record<string, unknown> = {};
const events: any[] = [];
const parameters = { type: "object", properties: { message: { type: "string" } }, required: ["message"] };
const client = new RpcClient({
  ...JSON.parse(settings),
  command: [program, "--mode", "rpc"],
  customTools: [
    {
      name: "echo_host",
      description: "Echo from the host",
      parameters,
      execute: async (args: { message: string }) => `host says ${args.message}`,
    },
  ],
});
const next = (wanted: (event: any) => boolean) =>
  new Promise<any>((resolve) => {
    const stop = client.onEvent((event: any) => {
      if (!wanted(event)) return;
      stop();
      resolve(event);
    });
  });
const delta = (event: any) => event.assistantMessageEvent?.type === "text_delta";
const text = (run: any[]) => run.filter(delta).map((event) => event.assistantMessageEvent.delta).join("");

await client.start();
client.onEvent((event: any) => events.push(event));
seen.state = await client.getState();
seen.models = (await client.getAvailableModels()).map((model: any) => `${model.provider}/${model.id}`);
seen.commands = (await client.getAvailableCommands()).map((command: any) => command.name);

const first = await client.promptAndWait("use a tool", undefined, 20000);
seen.first = first.map((event: any) => event.type);
seen.firstText = text(first);

const begun = next(delta);
await client.prompt("talk for ever");
await begun;
const idle = client.waitForIdle(20000);
await client.abort();
await idle;
seen.aborted = (await client.getMessages()).at(-1).stopReason;

seen.model = (await client.setModel("fake", "fake-2")).id;
seen.second = text(await client.promptAndWait("again", undefined, 20000));
seen.third = text(await client.promptAndWait("use the host", undefined, 20000));
seen.hostResult = events.findLast((event) => event.type === "tool_execution_end").result.content[0].text;
seen.retried = text(await client.promptAndWait("try hard", undefined, 20000));
seen.bash = (await client.bash("echo from bash")).output.trim();
seen.lastText = await client.getLastAssistantText();
seen.stats = (await client.getSessionStats()).userMessages;
const messages = await client.getBranchMessages();
seen.branch = await client.branch(messages[1].entryId);
seen.newSession = await client.newSession();
await client.stop();
seen.stderr = client.getStderr();
process.stdout.write(JSON.stringify(seen));
