// Clients that start `node <program>` start this, and it starts the program that PIGEON_PROGRAM names.
const { spawn } = require("child_process");

const child = spawn(process.env.PIGEON_PROGRAM, process.argv.slice(2), { stdio: "inherit" });
for (const signal of ["SIGTERM", "SIGINT", "SIGHUP"]) process.on(signal, () => child.kill(signal));
child.on("exit", (code) => process.exit(code ?? 1));
