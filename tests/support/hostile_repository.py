"""A repository in which everything that git can run is a canary: it notes that it ran, and what variables it saw.

`python hostile_repository.py FOLDER LOG` makes one of a folder, as an agent would that has a shell.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

# Keys of git's configuration whose value is a program, or names one; `*` stands for a name that attributes, remotes or
# addresses pick.
PROGRAM_KEYS = (
    *("alias.*.command", "gc.recentObjectsHook"),
    *("core.alternateRefsCommand", "core.askPass", "core.editor", "core.fsmonitor", "core.gitProxy", "core.pager"),
    *("core.sshCommand", "credential.helper", "credential.*.helper", "diff.external", "diff.*.command"),
    *("diff.*.textconv", "diff.tool", "diff.guitool", "difftool.*.cmd", "difftool.*.path", "filter.*.clean"),
    *("filter.*.process", "filter.*.smudge", "gpg.program", "gpg.*.program", "gpg.ssh.defaultKeyCommand"),
    *(
        "guitool.*.cmd",
        "hook.*.command",
        "help.browser",
        "imap.tunnel",
        "instaweb.browser",
        "instaweb.httpd",
        "interactive.diffFilter",
        "man.*.cmd",
    ),
    *("man.*.path", "browser.*.cmd", "browser.*.path", "merge.*.driver", "merge.tool", "merge.guitool"),
    *("mergetool.*.cmd", "mergetool.*.path", "pager.*", "receive.procReceiveRefs", "remote.*.receivepack"),
    *("remote.*.uploadpack", "remote.*.vcs", "sendemail.ccCmd", "sendemail.headerCmd", "sendemail.sendmailCmd"),
    *("sendemail.smtpServer", "sendemail.toCmd", "sequence.editor", "sequencer.editor", "submodule.*.update"),
    *("trailer.*.cmd", "trailer.*.command", "uploadpack.packObjectsHook", "web.browser"),
)
# Commands that an alias, or a setting of the pager, may stand for.
COMMANDS = (
    "add",
    "config",
    "diff",
    "init",
    "log",
    "ls-files",
    "read-tree",
    "rev-parse",
    "show",
    "status",
    "update-index",
)
HOOKS = (
    *("applypatch-msg", "commit-msg", "fsmonitor-watchman", "post-applypatch", "post-checkout", "post-commit"),
    *("post-index-change", "post-merge", "post-rewrite", "pre-applypatch", "pre-auto-gc", "pre-commit"),
    *("pre-merge-commit", "pre-push", "pre-rebase", "prepare-commit-msg", "proc-receive", "push-to-checkout"),
    *("reference-transaction", "sendemail-validate", "update", "post-update", "pre-receive", "post-receive"),
)
ATTRIBUTES = "* filter=evil diff=evil merge=evil ident working-tree-encoding=UTF-8\n"
_PERSON = ("-c", "user.name=Nobody", "-c", "user.email=nobody@example.org", "-c", "core.hooksPath=/dev/null")


class Canaries:
    """Programs that append their name and variables to `log`."""

    def __init__(self, folder: Path, log: Path) -> None:
        self._folder = folder
        self._log = log
        folder.mkdir(parents=True, exist_ok=True)

    def make(self, name: str) -> str:
        """The path of a new canary."""
        path = self._folder / name.replace("*", "any").replace("/", "-")
        path.write_text(f"#!/bin/sh\n{{ echo 'RAN {name}'; env; }} >> '{self._log}'\nexit 1\n")
        path.chmod(0o755)
        return str(path)


def make_hostile(folder: Path, log: Path) -> None:
    """Make a folder a repository, unless it is one, in which each part of git's configuration is hostile."""
    canaries = Canaries(folder / ".canaries", log)
    if not (folder / ".git").exists():
        _git(folder, "init", "-q")
    (folder / "kept.txt").write_text("kept\n")
    # What is nested is made first: later, git would run its canaries.
    nested = folder / "nested"
    nested.mkdir()
    _git(nested, "init", "-q")
    (nested / "file.txt").write_text("one\n")
    _git(nested, "add", "file.txt")
    _git(nested, "commit", "-q", "-m", "nested")
    (folder / ".gitattributes").write_text(ATTRIBUTES)
    (folder / ".gitmodules").write_text(
        f'[submodule "nested"]\n\tpath = nested\n\turl = ext::{canaries.make("submodule-url")}\n'
        f"\tupdate = !{canaries.make('submodule-update')}\n"
    )
    for repository in (nested, folder):
        _make_configuration_hostile(repository, canaries)
    (nested / "file.txt").write_text("two\n")
    (folder / "kept.txt").write_text("changed\n")
    (folder / "new.txt").write_text("new\n")


def _make_configuration_hostile(repository: Path, canaries: Canaries) -> None:
    """Write `.git/config`, a file that it includes, attributes, hooks, and objects to be fetched from a program."""
    inside = repository / ".git"
    included = inside / "included"
    lines = [
        *("[core]", "\trepositoryformatversion = 1", f"\thooksPath = {inside}/hooks"),
        *("[extensions]", "\tpartialClone = evil"),
        *('[remote "evil"]', f"\turl = ext::{canaries.make('remote-url')}", "\tpromisor = true"),
        *("[protocol]", "\tallow = always", '[protocol "ext"]', "\tallow = always"),
        *("[include]", f"\tpath = {included}", f'[includeIf "gitdir:{inside}"]', f"\tpath = {included}"),
        *('[hook "evil"]', *(f"\tevent = {name}" for name in HOOKS)),
    ]
    lines += ["[alias]", *(f"\t{name} = !{canaries.make(f'alias-{name}')}" for name in COMMANDS)]
    lines += ["[pager]", *(f"\t{name} = {canaries.make(f'pager-{name}')}" for name in COMMANDS)]
    configuration = inside / "config"
    configuration.write_text(configuration.read_text() + "\n".join(lines) + "\n")
    written = []
    for key in PROGRAM_KEYS:
        section, _, name = key.rpartition(".")
        group, _, which = section.partition(".")
        head = f'[{group} "{which.replace("*", "evil")}"]' if which else f"[{group}]"
        written += [head, f"\t{name.replace('*', 'evil')} = {canaries.make(key)}"]
    included.write_text("\n".join(written) + "\n")
    (inside / "info").mkdir(exist_ok=True)
    (inside / "info" / "attributes").write_text(ATTRIBUTES)
    (inside / "hooks").mkdir(exist_ok=True)
    for name in HOOKS:
        hook = inside / "hooks" / name
        hook.unlink(missing_ok=True)
        hook.symlink_to(canaries.make(f"hook-{name}"))


def _git(folder: Path, *arguments: str) -> None:
    subprocess.run(["git", *_PERSON, *arguments], cwd=folder, check=True, capture_output=True, env=os.environ)


if __name__ == "__main__":
    make_hostile(Path(sys.argv[1]), Path(sys.argv[2]))
