"""Where the tools of an agent work: its folder, its shell, and the environment variables that commands see.

Commands see neither the keys that the redactor knows nor the variables that keys come from. They are told which session
and model they run for; both are looked up when a command starts.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING

from pigeon.config.settings import Settings
from pigeon.sandbox.control import SandboxControl
from pigeon.secrets.redactor import Redactor
from pigeon.session.context.transcript import Transcript
from pigeon.session.history.journal import Journal
from pigeon.session.history.session_folders import SessionFolders
from pigeon.session.model_choice import ModelChoice
from pigeon.system.environment import Environment
from pigeon.system.process.variables import ProgramEnvironment, tool_environment
from pigeon.system.shell.artifacts import Artifacts
from pigeon.system.shell.shell import Workplace, find_shell
from pigeon.tools.bash import BashTool
from pigeon.wire.base import value_or_default
from pigeon.workspaces.agent_workspace import AgentWorkspace

if TYPE_CHECKING:
    from pigeon.workspaces.command_process import WorkspaceCommands


def temporary_outputs_folder(environment: Environment) -> str:
    """Where long outputs are kept that belong to no session file: a folder of the agent's own."""
    return os.path.join(environment.temporary_folder, f"pigeon-{environment.ids.folder_id()}")


def outputs_folder(journal: Journal, environment: Environment) -> str:
    """Where the long outputs of a conversation are kept."""
    return SessionFolders.outputs_folder_of(journal.file) if journal.file else temporary_outputs_folder(environment)


class Workplaces:
    """Makes the workplace of an agent, and another one when it moves to another folder."""

    def __init__(
        self,
        environment: Environment,
        settings: Settings,
        sandbox: SandboxControl,
        transcript: Transcript,
        models: ModelChoice,
        redactor: Redactor,
        workspace: AgentWorkspace,
    ) -> None:
        self._environment = environment
        self._settings = settings
        self._sandbox = sandbox
        self._transcript = transcript
        self._models = models
        self._redactor = redactor
        self.workspace = workspace
        self._temporary = temporary_outputs_folder(environment)
        self._outputs = Artifacts(self.find_saved_outputs_folder, self._temporary)

    def make_workplace(self, cwd: str) -> Workplace:
        settings, environment = self._settings, self._environment
        shell = find_shell(
            value_or_default(settings.shell_path, None),
            environment.home,
            environment.variables.get("PATH", os.defpath),
            value_or_default(settings.shell_command_prefix, ""),
        )
        return Workplace(
            cwd,
            shell,
            self._make_command_variables,
            self._outputs,
            self._sandbox.processes,
            BashTool.name,
            self._redactor,
            # How the output of a command comes in pieces depends on the time.
            at_once=environment.reproducible,
            host_is_outside=self._is_host_shell_outside,
            outside_environment=self._outside_variables,
            elsewhere=self._find_commands_elsewhere(),
        )

    def _find_commands_elsewhere(self) -> WorkspaceCommands | None:
        chosen = self.workspace.chosen
        if chosen is None or not self.workspace.runs_commands:
            return None
        from pigeon.workspaces.command_process import WorkspaceCommands

        return WorkspaceCommands(chosen)

    def find_output_folders(self) -> list[str]:
        """Where long outputs of commands may be, on this machine."""
        saved = self.find_saved_outputs_folder()
        return [self._temporary] if saved is None else [saved, self._temporary]

    def find_saved_outputs_folder(self) -> str | None:
        """Where the long outputs of a conversation are that is on disk."""
        journal = self._transcript.journal
        return SessionFolders.outputs_folder_of(journal.file) if journal.file and journal.is_saved else None

    def _is_host_shell_outside(self) -> bool:
        policy = self._sandbox.policy
        return policy is not None and policy.host_shell_outside

    def _make_command_variables(self) -> ProgramEnvironment:
        policy = self._sandbox.policy
        if policy is None:
            return self._outside_variables()
        from pigeon.secrets.shapes import is_secret_variable

        shown = policy.pass_variables
        return self._outside_variables(lambda name, value: name not in shown and is_secret_variable(name, value))

    def _outside_variables(
        self, conceals: Callable[[str, str], bool] = lambda name, value: False
    ) -> ProgramEnvironment:
        self._redactor.learn_from_sources()
        return tool_environment(
            self._environment.variables,
            keep_provider_keys=self._settings.keep_provider_keys,
            also_secret=self._redactor.list_key_variables(),
            shows_key=self._redactor.has_key,
            conceals=conceals,
            session=self._session_variables(),
        )

    def _session_variables(self) -> dict[str, str]:
        """What a command may know of the session it runs in."""
        journal, model = self._transcript.journal, self._models.model
        known = {
            "PI_SESSION_ID": journal.session_id,
            "PI_SESSION_FILE": journal.file or "",
            "PI_PROVIDER": model.provider if model else "",
            "PI_MODEL": model.id if model else "",
            "PI_REASONING_LEVEL": self._models.level,
        }
        return {name: value for name, value in known.items() if value}
