// Calls every method of a client that pi or oh-my-pi ships. Prints which methods were never called, and what failed.
const [module, settings, ...internals] = process.argv.slice(2);
const { RpcClient } = await import(module);
const { customTools, ...options } = JSON.parse(settings);
const tool = {
  name: "echo_host",
  description: "Echo from the host",
  parameters: { type: "object", properties: { message: { type: "string" } }, required: ["message"] },
  execute: async (args) => `host says ${args.message}`,
};
const real = new RpcClient(customTools ? { ...options, customTools: [tool] } : options);
const called = new Set();
const failed = {};
const refused = {};
const methods = Object.getOwnPropertyNames(RpcClient.prototype).filter((name) => name !== "constructor");

// One call: absent methods are passed over, a failure is kept under the name of its method.
const call = async (name, ...args) => {
  if (typeof real[name] !== "function") return undefined;
  called.add(name);
  try {
    return await real[name](...args);
  } catch (error) {
    failed[name] = String(error.message ?? error);
    return undefined;
  }
};
// A call that must be refused, and quickly.
const refuse = async (name, ...args) => {
  if (typeof real[name] !== "function") return;
  called.add(name);
  const began = Date.now();
  refused[name] = await real[name](...args).then(
    (answer) => `not refused: ${JSON.stringify(answer)}`,
    (error) => (Date.now() - began < 5000 ? String(error.message ?? error) : "only after a long time"),
  );
};
const next = (wanted) =>
  new Promise((resolve) => {
    const stop = real.onEvent((event) => {
      if (!wanted(event)) return;
      stop();
      resolve(event);
    });
  });
const heard = {};
const listen = (name, key) => {
  if (typeof real[name] !== "function") return;
  called.add(name);
  heard[key] = 0;
  real[name](() => (heard[key] += 1));
};
const has = (name) => typeof real[name] === "function";

listen("onAvailableCommandsUpdate", "commands");
await call("start");
for (const [name, key] of [["onEvent", "events"], ["onSessionEvent", "session"], ["onPromptResult", "results"],
  ["onSessionSettled", "settled"], ["onSubagentLifecycle", "lifecycle"], ["onSubagentProgress", "progress"],
  ["onSubagentEvent", "subagent"]]) listen(name, key);
await call("getState");
await call("getAvailableModels");
await call("getAvailableThinkingLevels");
await call("getCommands");
await call("getAvailableCommands");
await call("setCustomTools", [tool]);
const run = await call("promptAndWait", "one", undefined, 20000);

// While a run lasts.
const begun = next((event) => event.assistantMessageEvent?.type === "text_delta");
await call("prompt", "two");
await begun;
await call("steer", "sooner");
await call("followUp", "later");
await call("clearQueue");
const idle = call("waitForIdle", 20000);
await call("abort");
await idle;
await call("newSession");
const collected = call("collectEvents", 20000);
await call("prompt", "three ".repeat(400));
const events = await collected;
await call("waitForSettled", 20000);
await call("promptAndWait", "and on ".repeat(40), undefined, 20000);
if (has("abortAndPrompt")) {
  const again = call("waitForIdle", 20000);
  await call("abortAndPrompt", "four");
  await again;
  await call("waitForSettled", 20000);
}

// What is there to be read.
await call("getSessionStats");
await call("getLastAssistantText");
const messages = await call("getMessages");
const page = await call("getMessagesPage", { limit: 1 });
await call("getEntries");
await call("getTree");
const forkable = (await call("getForkMessages")) ?? (await call("getBranchMessages"));
const exported = await call("exportHtml", `${options.cwd}/page.html`);

// What is there to be set.
await call("setModel", "fake", "fake-2");
await call("cycleModel");
await call("setThinkingLevel", "low");
await call("cycleThinkingLevel");
await call("setSteeringMode", "all");
await call("setFollowUpMode", "all");
await call("setAutoCompaction", false);
await call("setAutoRetry", false);
await call("abortRetry");
await call("setSessionName", "every method");
await call("setEventFilter", ["agent_end"]);
await call("setEventFilter", null);
await call("setSubagentSubscription", "events");
await call("getSubagents");
await call("getLoginProviders");
await call("setFastMode", false);
const bash = await call("bash", "echo from bash");
const running = call("bash", "sleep 60");
await call("abortBash");
const stopped = await running;
const compacted = await call("compact", "briefly");

// What has no meaning here.
await refuse("getSubagentMessages", { subagentId: "none" });
await refuse("login", "nowhere");
await refuse("handoff");

// Other conversations.
const { sessionFile } = await call("getState");
await call("clone");
await call("fork", forkable.at(-1).entryId);
await call("branch", forkable.at(-1).entryId);
await call("switchSession", sessionFile);
await call("openSession", options.cwd);

await call("newSession", sessionFile);
const stderr = real.getStderr();
called.add("getStderr");
await call("stop");

process.stdout.write(
  JSON.stringify({
    failed,
    refused,
    heard,
    stderr,
    uncalled: methods.filter((name) => !called.has(name) && !internals.includes(name) && !name.startsWith("#")),
    run: run?.at(-1)?.type,
    collected: events?.at(-1)?.type,
    messages: messages?.length,
    page: page?.messages?.length,
    exported: exported?.path,
    bash: bash?.output?.trim(),
    stopped: stopped?.cancelled,
    compacted: compacted?.summary,
  }),
);
process.exit(0);
