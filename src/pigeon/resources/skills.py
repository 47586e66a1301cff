"""Skills after the Agent Skills standard: instructions in a folder that the model reads when a task needs them.

The system prompt lists them by name and description (`Skills.listing`), a message that begins with `/skill:name` is
replaced by one (`Skills.expand`), and `get_commands` names all. Their files are searched below the roots of
`resources/roots.py`, with limits on depth and number of folders and without what ignore files leave out.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence

from msgspec import Struct

from pigeon.resources.front_matter import read_front_matter, text_of_key
from pigeon.resources.instruction_files import hold_instruction_file, limit_links_of_root
from pigeon.resources.roots import ResourceRoot
from pigeon.system.file_view import FolderEntry
from pigeon.system.files import error_text
from pigeon.system.ignore_files import IgnoreLines, read_ignore_file
from pigeon.wire.answers import SlashCommand

FILE = "SKILL.md"
MOST_FOLDERS = 2_000
DEEPEST = 12
LONGEST_NAME = 64
LONGEST_DESCRIPTION = 1024
LEAD = (
    "Each skill below is a file of instructions for one kind of task. When a task fits a description, read the whole "
    "file at its location before you begin. Relative paths in a skill are meant from the folder that its file is in."
)
_NAME = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")
_CALL = re.compile(r"/skill:(\S+)(?:\s+(.*))?", re.DOTALL)
_SKIPPED = ("node_modules",)
_IGNORE_FILES = (".gitignore", ".ignore", ".fdignore")
_Ignoring = tuple[str, IgnoreLines]


def find_skill_files(root: ResourceRoot, report: Callable[[str], None]) -> list[str]:
    """The files in a fixed order; a folder with `SKILL.md` is one skill, whatever else is in it."""
    if root.view.is_file(root.path):
        return [root.path]
    return _SkillSearch(root, report).find_files()


class _SkillSearch:
    def __init__(self, root: ResourceRoot, report: Callable[[str], None]) -> None:
        self._root = root
        self._report = report
        self._seen: set[str] = set()
        self._files: list[str] = []

    def find_files(self) -> list[str]:
        self._search_folder(self._root.path, 0, [])
        if len(self._seen) > MOST_FOLDERS:
            self._report(f"{self._root.path} has more than {MOST_FOLDERS} folders: not all were searched for skills")
        return self._files

    def _search_folder(self, folder: str, depth: int, ignoring: list[_Ignoring]) -> None:
        if depth > DEEPEST or len(self._seen) > MOST_FOLDERS:
            return
        view = self._root.view
        true_name = view.real_path(folder)
        if true_name in self._seen:
            return
        self._seen.add(true_name)
        own = os.path.join(folder, FILE)
        if view.lexists(own):
            self._files.append(own)
            return
        try:
            listed = view.list_folder(folder)
        except FileNotFoundError:
            return
        except OSError as error:
            self._report(f"{folder} cannot be searched for skills: {error.strerror}")
            return
        here = [(folder.rstrip("/"), read_ignore_file(os.path.join(folder, name), view)) for name in _IGNORE_FILES]
        self._visit_entries(folder, listed, depth, [*ignoring, *here])

    def _visit_entries(self, folder: str, listed: list[FolderEntry], depth: int, ignoring: list[_Ignoring]) -> None:
        loose = (depth == 0) == (self._root.loose == "at the top")
        for entry in listed:
            path = os.path.join(folder, entry.name)
            if entry.name.startswith(".") or entry.name in _SKIPPED or _is_ignored(path, entry.is_folder, ignoring):
                continue
            if entry.is_folder:
                self._search_folder(path, depth + 1, ignoring)
            elif loose and entry.name.endswith(".md"):
                self._files.append(path)


def _is_ignored(path: str, is_folder: bool, ignoring: list[_Ignoring]) -> bool:
    """The verdict of the last file that matches the path; `ignoring` has the files of the folders above it."""
    verdicts = (lines.verdict(path[len(folder) + 1 :], is_folder) for folder, lines in reversed(ignoring))
    return next((verdict for verdict in verdicts if verdict is not None), False)


class Skill(Struct, frozen=True):
    """One skill; its body is read when it is used."""

    name: str
    description: str
    path: str
    root: ResourceRoot
    hidden: bool

    @property
    def folder(self) -> str:
        """The folder where relative paths in the skill begin."""
        return os.path.dirname(self.path)


class Skills:
    """The skills of some places; the first of a name wins. Read when first needed."""

    def __init__(
        self,
        roots: Callable[[], Sequence[ResourceRoot]],
        report: Callable[[str], None],
        failed: Callable[[str, str], None],
    ) -> None:
        self._roots = roots
        self._report = report
        self._failed = failed
        self._loaded: dict[str, Skill] | None = None

    def expand(self, text: str) -> str:
        """`/skill:name arguments` as the skill's text and the arguments; any other text unchanged."""
        found = _CALL.fullmatch(text)
        skill = self.skills_by_name().get(found[1]) if found else None
        if found is None or skill is None:
            return text
        try:
            body = read_front_matter(_read_skill_text(skill.path, skill.root)).body.strip()
        except OSError as error:
            self._failed(skill.path, error_text(error, "read", skill.path))
            return text
        said = (
            f'<skill name="{skill.name}" location="{skill.path}">\n'
            f"References are relative to {skill.folder}.\n\n{body}\n</skill>"
        )
        arguments = (found[2] or "").strip()
        return f"{said}\n\n{arguments}" if arguments else said

    def list_commands(self) -> list[SlashCommand]:
        return [
            skill.root.to_command("skill", f"skill:{skill.name}", skill.description, skill.path)
            for skill in self.skills_by_name().values()
        ]

    def render_listing(self) -> str | None:
        """The list of skills for the system prompt; None if there is none."""
        rows = [_render_row(skill) for skill in self.skills_by_name().values() if not skill.hidden]
        return "\n".join([LEAD, "", "<available_skills>", *rows, "</available_skills>"]) if rows else None

    def skills_by_name(self) -> dict[str, Skill]:
        if self._loaded is None:
            self._loaded = self._load()
        return self._loaded

    def _load(self) -> dict[str, Skill]:
        skills: dict[str, Skill] = {}
        files: set[str] = set()
        for root in self._roots():
            for path in find_skill_files(root, self._report):
                true_name = root.view.real_path(path)
                if true_name in files or not root.is_selected(path):
                    continue
                files.add(true_name)
                skill = _read_skill(path, root, self._report)
                if skill is None:
                    continue
                first = skills.setdefault(skill.name, skill)
                if first is not skill and first.root.base_dir == root.base_dir:
                    self._report(f'{path}: skill "{skill.name}" is hidden by the one of that name in {first.path}')
        return skills


def _read_skill_text(path: str, root: ResourceRoot) -> str:
    with hold_instruction_file(path, limit_links_of_root(root), root.view) as held:
        return root.view.read_text(held)


def _read_skill(path: str, root: ResourceRoot, report: Callable[[str], None]) -> Skill | None:
    loose = os.path.basename(path) != FILE
    try:
        parts = read_front_matter(_read_skill_text(path, root))
    except OSError as error:
        report(f"skill not loaded: {error_text(error, 'read', path)}")
        return None
    description = text_of_key(parts.head, "description")
    if not description:
        if parts.problem or not loose:
            report(f"{path}: skill not loaded, {parts.problem or 'its front matter needs a description'}")
        return None
    usual = os.path.basename(path).removesuffix(".md") if loose else os.path.basename(os.path.dirname(path))
    skill = Skill(
        name=text_of_key(parts.head, "name") or usual,
        description=description,
        path=path,
        root=root,
        hidden=parts.head.get("disable-model-invocation") in (True, "true"),
    )
    for fault in faults_of(skill):
        report(f"{path}: {fault}")
    return skill


def faults_of(skill: Skill) -> list[str]:
    """Deviations from the standard; the skill is used all the same."""
    faults = []
    if len(skill.name) > LONGEST_NAME:
        faults.append(f"the name of a skill has at most {LONGEST_NAME} characters, this one {len(skill.name)}")
    if not _NAME.fullmatch(skill.name):
        faults.append(f'skill name "{skill.name[:80]}": use a-z, 0-9 and single hyphens between them, none at the ends')
    if len(skill.description) > LONGEST_DESCRIPTION:
        faults.append(
            f"the description of a skill has at most {LONGEST_DESCRIPTION} characters, this one "
            f"{len(skill.description)}"
        )
    return faults


def _render_row(skill: Skill) -> str:
    description = skill.description[:LONGEST_DESCRIPTION]
    return (
        f"<skill><name>{_escape_xml(skill.name)}</name><description>{_escape_xml(description)}</description>"
        f"<location>{_escape_xml(skill.path)}</location></skill>"
    )


def _escape_xml(text: str) -> str:
    for sign, name in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"), ('"', "&quot;"), ("'", "&apos;")):
        text = text.replace(sign, name)
    return text
