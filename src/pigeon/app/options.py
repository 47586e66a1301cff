"""The options of an agent. `pigeon.app.build` reads them; the command line, the library and the servers create them.

Every field has a default, so that a caller names only what it cares about. Paths may be relative or begin with `~`:
they are resolved by the `Environment` that `build` gets with the options.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field
from msgspec.structs import replace

from pigeon.wire.steering import Limits

if TYPE_CHECKING:
    from pigeon.dialects.base import Dialect
    from pigeon.store.protocol import SessionStore
    from pigeon.wire.agents import AgentType
    from pigeon.wire.choices import ApprovalMode, ToolOffer
    from pigeon.wire.commands import InterruptMode
    from pigeon.workspaces.workspace import Workspace


# Options that apply to a single conversation, so they cannot be given to all agents of a program.
OF_ONE_SESSION = (
    *("session", "session_id", "resume", "continue_newest", "fork"),
    *("no_session", "name", "cwd", "session_dir", "record", "workspace"),
)


LEASE_SECONDS = 10.0


class AgentOptions(Struct, frozen=True, kw_only=True):
    """The options of one agent. Nothing here is checked before `build`, which raises `StartupError`."""

    # Folders: where to work, and where settings, models, keys and sessions are.
    cwd: str | None = None
    # Where the files are and commands run, as a URL or an object; `None` is this machine.
    workspace: str | Workspace | None = None

    # An image: a container of it is started for this agent, with its folder, by this engine or by the first that there
    # is.
    container: str | None = None
    container_engine: str | None = None
    agent_dir: str | None = None

    # The model to begin with, the patterns that `cycle_model` goes through, and a key for the model's provider.
    provider: str | None = None
    model: str | None = None
    models: tuple[str, ...] = ()
    api_key: str | None = None
    thinking: str | None = None

    # The conversation to begin with: at most one of the first five. An empty `resume` asks a person. `store` is an
    # address, as of `--store`, or a store; a conversation in one has a lease, of this `node` for so many seconds.
    session: str | None = None
    session_id: str | None = None
    resume: str | None = None
    continue_newest: bool = False
    fork: str | None = None
    no_session: bool = False
    session_dir: str | None = None
    store: str | SessionStore | None = None
    node: str | None = None
    lease_seconds: float | str = LEASE_SECONDS
    name: str | None = None

    # Tools by name or pattern, or changes (`+name`, `-name`); `None` leaves the choice to the session and the settings.
    tools: tuple[str, ...] | None = None
    exclude_tools: tuple[str, ...] = ()
    no_tools: bool = False
    no_builtin_tools: bool = False

    # What the front end or the host shows: a new session has the tools for it, unless the settings name all tools.
    offers: tuple[ToolOffer, ...] = ()

    # The tool servers of files to use, by name; `None` for all.
    tool_servers: tuple[str, ...] | None = None

    # The program's own types of agents, which come before those of files.
    agents: tuple[AgentType, ...] = ()

    # Extensions, and the options that only they know: name and value, or true for a switch.
    extensions: tuple[str, ...] = ()
    no_extensions: bool = False
    flags: Mapping[str, bool | str] = {}

    # What the model is told. A prompt may be a text or the path of a file.
    skills: tuple[str, ...] = ()
    no_skills: bool = False
    prompt_templates: tuple[str, ...] = ()
    no_prompt_templates: bool = False
    no_context_files: bool = False
    no_rules: bool = False
    system_prompt: str | None = None
    append_system_prompt: tuple[str, ...] = ()

    # Whether the project's own files may be used: yes, no, or (`None`) as the user decided earlier.
    trust_project: bool | None = None

    # Calls to ask about or to deny for the host: rules as JSON, as a file path or parsed, and an approval mode.
    permissions: str | Mapping[str, Any] | None = None
    approval_mode: ApprovalMode = "yolo"

    # What commands may do behind a wall: `off`, `read-only` or `workspace`; `None` leaves that to the settings.
    sandbox: str | None = None
    sandbox_network: bool = False

    # How much a conversation may use; each limit takes precedence over that of the settings.
    limits: Limits = field(default_factory=Limits)

    # Whether a host or a person follows the runs, and could stop a model that repeats itself.
    is_watched: bool = True

    # Whether there is no person to ask: then questions are denied at once, and the prompt states that.
    unattended: bool = False

    # Whether a person answers questions: then a question about permission waits for them, unless the setting limits it.
    attended: bool = False

    # Whether the model verifies its work before a run ends; `None` does so for unattended agents. The settings decide.
    finish_gate: bool | None = None

    # A file to record all exchanges with model servers in.
    record: str | None = None

    # Whether a run that the death of a process has interrupted is continued when its session is opened.
    continue_runs: bool = False

    # Whether a run is finished when the host goes away.
    drain: bool = False

    # Whether several clients may show a question or work on a call: then each of them learns that it has ended.
    several_clients: bool = False

    # Differences between dialects: the interrupt mode unless the settings name one, the treatment of broken images, and
    # whether queued messages follow a failed run at once.
    interrupt_mode: InterruptMode = "immediate"
    keep_unreadable_images: bool = True
    continues_after_failure: bool = False

    @property
    def model_reference(self) -> str:
        """The requested model, with its provider if that was given separately; or the provider alone."""
        return "/".join(filter(None, (self.provider, self.model)))

    def for_dialect(self, dialect: type[Dialect] | Dialect) -> AgentOptions:
        """The same for a host that speaks this dialect."""
        return replace(
            self,
            offers=tuple(dict.fromkeys((*self.offers, *dialect.default_offers))),
            interrupt_mode=dialect.default_interrupt_mode,
            keep_unreadable_images=dialect.keeps_unreadable_images,
            continues_after_failure=dialect.continues_after_failure,
        )
