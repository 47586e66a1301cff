"""The sandbox that options and settings request, connected with the extensions and trusted folders that it needs to
know."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from pigeon.app.options import AgentOptions
from pigeon.config.layers import Layers
from pigeon.extensions.runtime.discovery import find_extension_paths
from pigeon.sandbox.control import AskedSandbox, SandboxControl
from pigeon.system.environment import Environment
from pigeon.system.process.start import ProcessOwner
from pigeon.trust.trust_file import record_trusted_contents


def make_sandbox(
    options: AgentOptions,
    environment: Environment,
    agent_dir: str,
    layers: Layers,
    processes: ProcessOwner,
    report: Callable[[str], None] = lambda problem: None,
) -> SandboxControl:
    """The sandbox of an agent, before anything is enclosed; raises `StartupError` for invalid options."""
    named = [environment.absolute_path(path) for path in options.extensions]
    return SandboxControl(
        AskedSandbox(options.sandbox, options.sandbox_network or None),
        environment,
        agent_dir,
        layers,
        processes,
        find_extensions=partial(find_extension_paths, named, agent_dir, environment.home),
        on_writable=partial(record_trusted_contents, agent_dir),
        report=report,
    )
