"""Attempts to get out of a sandbox by files: to write what is outside, and to read what is hidden."""

from __future__ import annotations

import os
import shutil
import stat
from pathlib import Path

from fakes.escapes import Targets, attempt, shell


@attempt
def write_into_the_home(t: Targets) -> object:
    return (Path(t["home"]) / "new").write_text("x")


@attempt
def change_a_start_file_of_the_shell(t: Targets) -> object:
    with open(Path(t["home"]) / ".bashrc", "a") as file:
        return file.write("evil")


@attempt
def make_an_environment_file_in_the_home(t: Targets) -> object:
    return (Path(t["home"]) / ".envrc").write_text("export LD_PRELOAD=/evil.so")


@attempt
def write_beside_the_working_folder(t: Targets) -> object:
    return (Path(t["folder"]).parent / "beside").write_text("x")


@attempt
def write_into_the_shared_temporary_folder(t: Targets) -> object:
    return Path(f"/tmp/{t['name']}.tmp").write_text("x")


@attempt
def read_a_private_key(t: Targets) -> object:
    return "PRIVATE" in (Path(t["home"]) / ".ssh" / "id_rsa").read_text()


@attempt
def list_the_private_keys(t: Targets) -> object:
    return os.listdir(Path(t["home"]) / ".ssh")


@attempt
def read_a_private_key_by_the_root_of_the_first_process(t: Targets) -> object:
    return "PRIVATE" in Path(f"/proc/{t['victim']}/root{t['home']}/.ssh/id_rsa").read_text()


@attempt
def read_keys_of_the_cloud(t: Targets) -> object:
    return "PRIVATE" in (Path(t["home"]) / ".aws" / "credentials").read_text()


@attempt
def read_a_token_in_a_file(t: Targets) -> object:
    return "PRIVATE" in (Path(t["home"]) / ".npmrc").read_text()


@attempt
def read_keys_of_the_agent(t: Targets) -> object:
    return "PRIVATE" in (Path(t["home"]) / ".pigeon" / "agent" / "auth.json").read_text()


@attempt
def read_what_was_typed(t: Targets) -> object:
    return "PRIVATE" in (Path(t["home"]) / ".bash_history").read_text()


@attempt
def change_settings_of_the_agent(t: Targets) -> object:
    return (Path(t["home"]) / ".pigeon" / "agent" / "settings.json").write_text("{}")


@attempt
def plant_a_hook(t: Targets) -> object:
    return (Path(t["folder"]) / ".git" / "hooks" / "pre-commit").write_text("x")


@attempt
def change_the_configuration_of_git(t: Targets) -> object:
    with open(Path(t["folder"]) / ".git" / "config", "a") as file:
        return file.write("[core]\n fsmonitor = evil\n")


@attempt
def replace_the_configuration_of_git(t: Targets) -> object:
    git = Path(t["folder"]) / ".git"
    (git / "config.new").write_text("[core]\n")
    os.rename(git / "config.new", git / "config")
    return True


@attempt
def configure_git_by_git(t: Targets) -> object:
    return shell(f"git -C {t['folder']} config core.fsmonitor evil")


@attempt
def rename_the_hooks(t: Targets) -> object:
    git = Path(t["folder"]) / ".git"
    os.rename(git / "hooks", git / "hooks.old")
    os.rename(git / "hooks.old", git / "hooks")
    return True


@attempt
def put_another_folder_in_the_place_of_git(t: Targets) -> object:
    git = Path(t["folder"]) / ".git"
    os.rename(git, git.with_name("old"))
    os.rename(git.with_name("old"), git)
    return True


@attempt
def put_a_link_in_the_place_of_the_hooks(t: Targets) -> object:
    hooks = Path(t["folder"]) / ".git" / "hooks"
    shutil.rmtree(hooks)
    os.symlink("/tmp", hooks)
    os.unlink(hooks)
    os.mkdir(hooks)
    return True


@attempt
def plant_a_hook_in_a_submodule(t: Targets) -> object:
    return (Path(t["folder"]) / ".git" / "modules" / "part" / "hooks" / "post-checkout").write_text("x")


@attempt
def change_a_file_that_a_hook_is_a_link_to(t: Targets) -> object:
    return (Path(t["folder"]) / "scripts" / "pre-push").write_text("evil")


@attempt
def make_a_file_that_a_hook_is_a_link_to(t: Targets) -> object:
    scripts = Path(t["folder"]) / "scripts" / "later"
    scripts.mkdir()
    return (scripts / "pre-merge-commit").write_text("evil")


@attempt
def rename_the_folder_of_what_a_hook_is_a_link_to(t: Targets) -> object:
    scripts = Path(t["folder"]) / "scripts"
    os.rename(scripts, scripts.with_name("old-scripts"))
    os.rename(scripts.with_name("old-scripts"), scripts)
    return True


@attempt
def change_an_extension_that_a_folder_of_the_agent_has_a_link_to(t: Targets) -> object:
    return (Path(t["folder"]) / "a" / "extension.py").write_text("evil")


@attempt
def rename_the_data_of_submodules(t: Targets) -> object:
    modules = Path(t["folder"]) / ".git" / "modules"
    os.rename(modules, modules.with_name("modules.old"))
    os.rename(modules.with_name("modules.old"), modules)
    return True


@attempt
def plant_a_hook_in_a_repository_below(t: Targets) -> object:
    return (Path(t["folder"]) / "nested" / ".git" / "hooks" / "pre-commit").write_text("x")


@attempt
def plant_a_hook_in_a_repository_far_below(t: Targets) -> object:
    return (Path(t["folder"]) / "a" / "b" / "deep" / ".git" / "hooks" / "pre-commit").write_text("x")


@attempt
def change_the_configuration_of_a_repository_far_below(t: Targets) -> object:
    return shell(f"git -C {t['folder']}/a/b/deep config core.fsmonitor evil")


@attempt
def change_a_file_that_the_configuration_of_git_includes(t: Targets) -> object:
    return (Path(t["folder"]) / "a" / "b" / "deep" / "shared").write_text("[core] fsmonitor = evil\n")


@attempt
def change_a_program_that_the_configuration_of_git_names(t: Targets) -> object:
    return (Path(t["folder"]) / "a" / "b" / "deep" / "filter").write_text("#!/bin/sh\nevil\n")


@attempt
def make_hooks_where_the_users_configuration_looks_for_them(t: Targets) -> object:
    hooks = Path(t["folder"]) / "git-hooks"
    hooks.mkdir(exist_ok=True)
    return (hooks / "pre-commit").write_text("x")


@attempt
def lead_a_submodule_to_other_data(t: Targets) -> object:
    return (Path(t["folder"]) / "part" / ".git").write_text("gitdir: ../evil\n")


@attempt
def put_another_folder_in_the_place_of_one_above_a_repository(t: Targets) -> object:
    above = Path(t["folder"]) / "a"
    os.rename(above, above.with_name("old-a"))
    os.rename(above.with_name("old-a"), above)
    return True


@attempt
def make_an_extension_for_the_agent_far_below(t: Targets) -> object:
    os.makedirs(Path(t["folder"]) / "a" / "b" / "deep" / ".pigeon" / "extensions")
    return True


@attempt
def make_skills_for_the_agent(t: Targets) -> object:
    os.makedirs(Path(t["folder"]) / ".agents" / "skills")
    return True


@attempt
def read_keys_of_another_agent(t: Targets) -> object:
    return "PRIVATE" in (Path(t["home"]) / ".codex" / "auth.json").read_text()


@attempt
def list_the_files_of_the_agent(t: Targets) -> object:
    return "auth.json" in os.listdir(Path(t["home"]) / ".pigeon" / "agent")


@attempt
def make_a_folder_of_the_agent(t: Targets) -> object:
    os.makedirs(Path(t["folder"]) / ".pigeon" / "extensions")
    return True


@attempt
def change_a_folder_of_another_agent(t: Targets) -> object:
    return (Path(t["folder"]) / ".pi" / "settings.json").write_text("{}")


@attempt
def rename_a_folder_of_another_agent(t: Targets) -> object:
    folder = Path(t["folder"])
    os.rename(folder / ".pi", folder / "pi.old")
    os.rename(folder / "pi.old", folder / ".pi")
    return True


@attempt
def name_tool_servers_for_the_agent(t: Targets) -> object:
    return (Path(t["folder"]) / ".mcp.json").write_text("{}")


@attempt
def write_through_a_link_that_leads_out(t: Targets) -> object:
    return (Path(t["folder"]) / "link-to-home" / "through-a-link").write_text("x")


@attempt
def write_through_a_link_that_was_just_made(t: Targets) -> object:
    os.symlink(Path(t["home"]) / "by-link", Path(t["folder"]) / "made-link")
    return (Path(t["folder"]) / "made-link").write_text("x")


@attempt
def link_a_file_into_the_folder_and_write_it(t: Targets) -> object:
    own = Path(t["folder"]) / "linked"
    os.link(Path(t["home"]) / "document", own)
    return own.write_text("changed")


@attempt
def link_a_file_out_of_the_folder(t: Targets) -> object:
    os.link(Path(t["folder"]) / "file", Path(t["home"]) / "linked-out")
    return True


@attempt
def rename_a_file_out_of_the_folder(t: Targets) -> object:
    (Path(t["folder"]) / "leaving").write_text("x")
    os.rename(Path(t["folder"]) / "leaving", Path(t["home"]) / "left")
    return True


@attempt
def delete_a_file_of_the_user(t: Targets) -> object:
    os.unlink(Path(t["home"]) / "to-delete")
    return True


@attempt
def change_permissions_of_a_file_of_the_user(t: Targets) -> object:
    os.chmod(Path(t["home"]) / "document", 0o777)
    return True


@attempt
def change_the_time_of_a_file_of_the_user(t: Targets) -> object:
    os.utime(Path(t["home"]) / "document", (1, 1))
    return True


@attempt
def open_a_file_of_the_user_by_a_descriptor_of_its_folder(t: Targets) -> object:
    folder = os.open(t["home"], os.O_PATH)
    descriptor = os.open("by-descriptor", os.O_CREAT | os.O_WRONLY, 0o600, dir_fd=folder)
    return os.write(descriptor, b"x")


@attempt
def make_a_program_that_runs_as_its_owner(t: Targets) -> object:
    program = Path(t["folder"]) / "as-owner"
    program.write_text("x")
    os.chmod(program, 0o4755)
    return program.stat().st_mode & stat.S_ISUID


@attempt
def make_a_program_that_runs_as_its_owner_at_once(t: Targets) -> object:
    path = os.path.join(t["folder"], "as-owner-at-once")
    os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o4755))
    return os.stat(path).st_mode & stat.S_ISUID


@attempt
def make_an_extension_that_settings_name(t: Targets) -> object:
    (Path(t["folder"]) / "not-yet").mkdir()
    return (Path(t["folder"]) / "not-yet" / "extension.py").write_text("evil")


@attempt
def change_what_the_agent_runs_from(t: Targets) -> object:
    return (Path(t["folder"]) / "own" / "module.py").write_text("evil")
