"""The one entry to everything the model is told besides the conversation, for one process and one folder at a time."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from pigeon.resources.expansion import Expander

if TYPE_CHECKING:
    from pigeon.resources.places import Kind, Root
    from pigeon.resources.prompt_templates import Templates
    from pigeon.resources.skills import Skills

LARGEST_PROMPT = 1_048_576


class ResourceOptions(Struct, frozen=True, kw_only=True):
    """What the command line and the settings say; see the options of the same names."""

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


class Resources:
    """Skills, templates, context files and the system prompt; nothing is read before it is asked for."""

    def __init__(
        self,
        agent_dir: str,
        cwd: str,
        trusted: bool,
        options: ResourceOptions | None = None,
        *,
        home: str | None = None,
        report: Callable[[str], None] = lambda problem: None,
        expansion_failed: Callable[[str, str], None] = lambda path, reason: None,
    ) -> None:
        self._agent_dir = agent_dir
        self._home = home
        self._options = ResourceOptions() if options is None else options
        self._tell = report
        self._expansion_failed = expansion_failed
        self._problems: list[str] = []
        self._added: tuple[list[str], list[str]] = ([], [])
        self.move_to(cwd, trusted)

    def move_to(self, cwd: str, trusted: bool) -> None:
        """Work in this folder from here on; what was read for another one is forgotten."""
        self._cwd = cwd
        self._trusted = trusted
        self.reload()

    def reload(self) -> None:
        """Read everything again when it is next needed."""
        self._templates: Templates | None = None
        self._skills: Skills | None = None
        self._texts: _Texts | None = None
        self._prompt: tuple[object, str] | None = None

    def add_paths(self, skills: Sequence[str] = (), prompts: Sequence[str] = ()) -> None:
        """Further places, with the lowest rank: those that extensions bring."""
        for known, more in zip(self._added, (skills, prompts), strict=True):
            known.extend(path for path in dict.fromkeys(more) if path not in known)
        self.reload()

    def problems(self) -> list[str]:
        """What was wrong with files that have been read so far."""
        return list(self._problems)

    def expander(self) -> Expander:
        """Turns `/skill:name` and `/template` into text; stays right when the folder changes."""
        return Expander(self._all_templates, self._all_skills)

    def system_prompt(self, cwd: str, tools: Sequence[tuple[str, str]], guidelines: Sequence[str] = ()) -> str:
        """The prompt for this folder and these tools; a folder that nobody announced is not trusted."""
        if cwd != self._cwd:
            self.move_to(cwd, trusted=False)
        key = (tuple(tools), tuple(guidelines))
        if self._prompt is None or self._prompt[0] != key:
            self._prompt = (key, self._compose(tools, guidelines))
        return self._prompt[1]

    def _compose(self, tools: Sequence[tuple[str, str]], guidelines: Sequence[str]) -> str:
        from pigeon.resources.system_prompt import system_prompt

        if self._texts is None:
            self._texts = self._read_texts()
        texts = self._texts
        skills = self._all_skills().listing()
        docs = self._options.docs
        return system_prompt(self._cwd, tools, guidelines, texts.custom, texts.appended, texts.context, skills, docs)

    def _read_texts(self) -> _Texts:
        from pigeon.resources.context_files import context_files
        from pigeon.resources.system_prompt import context_section

        options = self._options
        given = options.system_prompt
        custom = self._found("SYSTEM.md") if given is None else self._text_or_file(given)
        appended = [self._text_or_file(text) for text in options.append_system_prompt]
        if not appended and (own := self._found("APPEND_SYSTEM.md")):
            appended = [own]
        files = [] if options.no_context_files else context_files(self._agent_dir, self._cwd, self._report)
        return _Texts(custom or None, appended, context_section(files, self._trusted))

    def _found(self, name: str) -> str | None:
        """The project's file before the user's; the two are never mixed."""
        from pigeon.config.paths import project_dirs

        folders = [*(project_dirs(self._cwd) if self._trusted else ()), self._agent_dir]
        for path in (os.path.join(folder, name) for folder in folders):
            if os.path.isfile(path) and (text := self._read(path)) is not None:
                return text
        return None

    def _text_or_file(self, value: str) -> str:
        path = os.path.abspath(os.path.expanduser(value)) if "\n" not in value and "\0" not in value else ""
        if not value or not os.path.isfile(path):
            return value
        text = self._read(path)
        return value if text is None else text

    def _read(self, path: str) -> str | None:
        from pigeon.resources.texts import read_text, why

        try:
            return read_text(path, LARGEST_PROMPT).strip()
        except OSError as error:
            self._report(f"not used for the system prompt: {why(error, path)}")
            return None

    def _all_templates(self) -> Templates:
        from pigeon.resources.prompt_templates import Templates

        if self._templates is None:
            self._templates = Templates(lambda: self._roots("prompts"), self._report)
        return self._templates

    def _all_skills(self) -> Skills:
        from pigeon.resources.skills import Skills

        if self._skills is None:
            self._skills = Skills(lambda: self._roots("skills"), self._report, self._expansion_failed)
        return self._skills

    def _roots(self, kind: Kind) -> list[Root]:
        from pigeon.resources.places import Surroundings, Wishes, roots_of

        options = self._options
        is_skills = kind == "skills"
        wishes = Wishes(
            explicit=options.skills if is_skills else options.prompt_templates,
            only_explicit=options.no_skills if is_skills else options.no_prompt_templates,
            of_project=options.project_skills if is_skills else options.project_prompts,
            of_user=options.user_skills if is_skills else options.user_prompts,
            added=self._added[0] if is_skills else self._added[1],
        )
        home = os.path.expanduser("~") if self._home is None else self._home
        around = Surroundings(agent_dir=self._agent_dir, cwd=self._cwd, home=home, trusted=self._trusted)
        return roots_of(kind, around, wishes, self._report)

    def _report(self, problem: str) -> None:
        if problem not in self._problems:
            self._problems.append(problem)
            self._tell(problem)


class _Texts(Struct, frozen=True):
    """The parts of the prompt that come from files, whatever the tools are."""

    custom: str | None
    appended: Sequence[str]
    context: str | None
