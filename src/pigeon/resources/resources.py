"""The single entry point for everything the model gets besides the conversation, for one agent and one folder at a
time.

A session uses it to expand messages (`/skill:name`, `/template`), to list these commands and to build the system
prompt. It follows the session's current folder.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from pigeon.system.file_view import LOCAL_FILES, FileView
from pigeon.system.paths import absolute_path
from pigeon.wire.answers import SlashCommand

if TYPE_CHECKING:
    from pigeon.resources.instruction_files import LinkLimit
    from pigeon.resources.prompt_templates import Templates
    from pigeon.resources.roots import Kind, ResourceRoot
    from pigeon.resources.skills import Skills
    from pigeon.resources.system_prompt import DescribedTool
    from pigeon.wire.steering import Rule

LARGEST_PROMPT = 1_048_576
SKILL_PREFIX = "/skill:"


class ResourceOptions(Struct, frozen=True, kw_only=True):
    """The values of the command line and the settings; see the options of the same names."""

    skills: Sequence[str] = ()
    prompt_templates: Sequence[str] = ()
    no_skills: bool = False
    no_prompt_templates: bool = False
    no_context_files: bool = False
    system_prompt: str | None = None
    append_system_prompt: Sequence[str] = ()
    user_skills: Sequence[str] = ()
    project_skills: Sequence[str] = ()
    user_prompts: Sequence[str] = ()
    project_prompts: Sequence[str] = ()
    docs: str | None = None
    unattended: bool = False
    no_rules: bool = False


class Resources:
    """Skills, templates, context files and the system prompt; everything is read when first needed.

    Relative paths of options begin at `base`. `report` is called with errors in files, `expansion_failed` with the path
    of a skill that a message uses and that cannot be read, and the reason. `project_view` shows the machine that the
    project is on.
    """

    def __init__(  # noqa: PLR0913 - each is one thing that the prompt depends on
        self,
        agent_dir: str,
        cwd: str,
        trusted: bool,
        options: ResourceOptions,
        *,
        home: str,
        base: str,
        report: Callable[[str], None],
        expansion_failed: Callable[[str, str], None],
        project_view: Callable[[], FileView] = lambda: LOCAL_FILES,
    ) -> None:
        self._project_view = project_view
        self._agent_dir = agent_dir
        self._home = home
        self._base = base
        self._options = options
        self._tell = report
        self._expansion_failed = expansion_failed
        self._told: set[str] = set()
        self._added: tuple[list[str], list[str]] = ([], [])
        self.use_folder(cwd, trusted)

    def use_folder(self, cwd: str, trusted: bool, harmless: bool = False) -> None:
        """Switch to this folder and forget what was read for another one.

        In a `harmless` folder nothing required trust: its context files count as approved, nothing else is used.
        """
        self._cwd = cwd
        self._trusted_place = self._project_view().real_path(cwd) if trusted else None
        self._approved = trusted or harmless
        self.reload()

    def _trusts_project(self) -> bool:
        """True for a trusted project; False if a link has replaced the trusted folder, because it leads to another
        project."""
        return self._trusted_place is not None and self._project_view().real_path(self._cwd) == self._trusted_place

    def read_project(self, cwd: str, trusted: bool) -> None:
        """Read everything that a project says, without using it: so that its files are fetched."""
        silent = Resources(
            self._agent_dir,
            cwd,
            trusted,
            self._options,
            home=self._home,
            base=self._base,
            report=lambda problem: None,
            expansion_failed=lambda path, reason: None,
            project_view=self._project_view,
        )
        silent.build_system_prompt(cwd, ())
        silent.list_commands()
        silent.read_rules(cwd)

    def reload(self) -> None:
        """Read everything again when it is next needed."""
        self._templates: Templates | None = None
        self._skills: Skills | None = None
        self._texts: _Texts | None = None
        self._prompt: tuple[object, str] | None = None

    def add_new_paths(self, skills: Sequence[str] = (), prompts: Sequence[str] = ()) -> bool:
        """Add places of the lowest rank, those of extensions; returns True if any is new."""
        before = sum(map(len, self._added))
        for known, more in zip(self._added, (skills, prompts), strict=True):
            known.extend(path for path in dict.fromkeys(more) if path not in known)
        self.reload()
        return sum(map(len, self._added)) > before

    def expand(self, text: str) -> str:
        """The text for the model in place of `/skill:name` or `/template`; other text is returned unchanged without
        reading anything."""
        if text.startswith(SKILL_PREFIX):
            text = self._all_skills().expand(text)
        return self._all_templates().expand(text) if text.startswith("/") else text

    def list_commands(self) -> list[SlashCommand]:
        """The commands with which a message may begin: templates, then skills."""
        return [*self._all_templates().list_commands(), *self._all_skills().list_commands()]

    def read_rules(self, cwd: str) -> list[Rule]:
        """The stream rules for this folder: the user's, and those of a trusted project."""
        if self._options.no_rules:
            return []
        from pigeon.resources.rule_files import read_rules, rule_folders

        trusted = cwd == self._cwd and self._trusts_project()
        return read_rules(rule_folders(self._agent_dir, cwd, trusted), self._tell, self._project_view())

    def build_system_prompt(self, cwd: str, tools: Sequence[DescribedTool], guidelines: Sequence[str] = ()) -> str:
        """The prompt for these tools, after switching to the folder; a folder that `use_folder` did not announce is not
        trusted."""
        if cwd != self._cwd:
            self.use_folder(cwd, trusted=False)
        key = (tuple((name, snippet) for name, snippet, _ in tools), tuple(guidelines))
        if self._prompt is None or self._prompt[0] != key:
            self._prompt = (key, self._compose_prompt(tools, guidelines))
        return self._prompt[1]

    def build_agent_prompt(
        self, cwd: str, tools: Sequence[DescribedTool], guidelines: Sequence[str], prompt: str, role: str
    ) -> str:
        """The prompt of an agent that was started, in this folder or in a copy of it: its own instructions in place of
        the usual ones, unless they are empty, and its role."""
        from pigeon.resources.system_prompt import compose_system_prompt

        if self._texts is None:
            self._texts = self._read_prompt_texts()
        texts = self._texts
        return compose_system_prompt(
            cwd,
            tools,
            guidelines,
            prompt or texts.custom,
            [*texts.appended, role],
            texts.context,
            self._all_skills().render_listing(),
            None,
            unattended=self._options.unattended,
        )

    def _compose_prompt(self, tools: Sequence[DescribedTool], guidelines: Sequence[str]) -> str:
        from pigeon.resources.system_prompt import compose_system_prompt

        if self._texts is None:
            self._texts = self._read_prompt_texts()
        texts = self._texts
        skills = self._all_skills().render_listing()
        return compose_system_prompt(
            self._cwd,
            tools,
            guidelines,
            texts.custom,
            texts.appended,
            texts.context,
            skills,
            self._options.docs,
            unattended=self._options.unattended,
        )

    def _read_prompt_texts(self) -> _Texts:
        from pigeon.resources.context_files import read_context_files
        from pigeon.resources.system_prompt import context_section

        options = self._options
        given = options.system_prompt
        custom = self._find_prompt_file("SYSTEM.md") if given is None else self._read_if_file(given)
        appended = [self._read_if_file(text) for text in options.append_system_prompt]
        if not appended and (own := self._find_prompt_file("APPEND_SYSTEM.md")):
            appended = [own]
        files = (
            []
            if options.no_context_files
            else read_context_files(self._agent_dir, self._cwd, self._report_once, self._project_view())
        )
        return _Texts(custom or None, appended, context_section(files, self._approved))

    def _find_prompt_file(self, name: str) -> str | None:
        """The project's file before the user's; the two are never merged."""
        from pigeon.config.paths import project_dirs
        from pigeon.resources.instruction_files import limit_links

        folders = [*(project_dirs(self._cwd) if self._trusts_project() else ()), self._agent_dir]
        for folder in folders:
            path = os.path.join(folder, name)
            own = folder == self._agent_dir
            view = LOCAL_FILES if own else self._project_view()
            limit = None if own else limit_links(self._cwd, True, view)
            if view.lexists(path) and (text := self._read_prompt_file(path, limit, view)) is not None:
                return text
        return None

    def _read_if_file(self, value: str) -> str:
        path = absolute_path(value, self._base, self._home) if "\n" not in value and "\0" not in value else ""
        if not value or not os.path.exists(path) or os.path.isdir(path):
            return value
        text = self._read_prompt_file(path)
        return value if text is None else text

    def _read_prompt_file(self, path: str, limit: LinkLimit | None = None, view: FileView = LOCAL_FILES) -> str | None:
        from pigeon.resources.instruction_files import hold_instruction_file
        from pigeon.system.files import error_text

        try:
            with hold_instruction_file(path, limit, view) as held:
                return view.read_text(held, LARGEST_PROMPT).strip()
        except OSError as error:
            self._report_once(f"not used for the system prompt: {error_text(error, 'read', path)}")
            return None

    def _all_templates(self) -> Templates:
        from pigeon.resources.prompt_templates import Templates

        if self._templates is None:
            self._templates = Templates(lambda: self._roots("prompts"), self._report_once)
        return self._templates

    def _all_skills(self) -> Skills:
        from pigeon.resources.skills import Skills

        if self._skills is None:
            self._skills = Skills(lambda: self._roots("skills"), self._report_once, self._expansion_failed)
        return self._skills

    def _roots(self, kind: Kind) -> list[ResourceRoot]:
        from pigeon.resources.roots import RequestedPaths, ResourceFolders, collect_roots

        options = self._options
        is_skills = kind == "skills"
        requested = RequestedPaths(
            explicit=options.skills if is_skills else options.prompt_templates,
            only_explicit=options.no_skills if is_skills else options.no_prompt_templates,
            of_project=options.project_skills if is_skills else options.project_prompts,
            of_user=options.user_skills if is_skills else options.user_prompts,
            added=self._added[0] if is_skills else self._added[1],
        )
        folders = ResourceFolders(
            agent_dir=self._agent_dir,
            cwd=self._cwd,
            home=self._home,
            base=self._base,
            trusted=self._trusts_project(),
            view=self._project_view(),
        )
        return collect_roots(kind, folders, requested, self._report_once)

    def _report_once(self, problem: str) -> None:
        """Report each problem once, however often its file is read again."""
        if problem not in self._told:
            self._told.add(problem)
            self._tell(problem)


class _Texts(Struct, frozen=True):
    """The parts of the prompt that come from files, whatever the tools are."""

    custom: str | None
    appended: Sequence[str]
    context: str | None
