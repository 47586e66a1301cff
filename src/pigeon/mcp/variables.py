"""Variables in the configuration of a tool server, filled in when it is connected.

    $NAME, ${NAME}, ${env:NAME}, $env:NAME   a variable of the environment; missing is an error of that server
    ${NAME:-text}                            the same, or the text if it is missing or empty
    ${input:ID}                              the answer of a person (VS Code)
    ${workspaceFolder}, ${cwd}, ${userHome}  folders (VS Code), and ${CLAUDE_PROJECT_DIR}
    $$                                       a dollar sign

A project's file gets no key of a model provider, even if the project is trusted: only the user's own file may use one.
The values count as well as the names, since a key may be in a variable of any name, in a file of variables or in parts.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping

from msgspec.structs import replace

from pigeon.mcp.server_config import InputQuestion, ServerConfig, WrongServer
from pigeon.system.files import read_text
from pigeon.system.paths import absolute_path

# Compiled when the first variable is met.
_REFERENCE = (
    r"\$(?:(\$)|\{(?:(env|input):)?([A-Za-z_][\w.-]*|/)(?::-((?:[^{}$]|\$(?!\{))*))?\}"
    r"|(?:env:)?([A-Za-z_][A-Za-z0-9_]*))"
)
# Forms that only other programs can fill in: ${config:x}, ${command:x}, ${file:x}.
_FOREIGN = r"(?<!\$)\$\{(?!env:|input:)[A-Za-z]+:(?!-)[^}]*\}"
_INPUT = r"\$\{input:([\w.-]+)\}"
LARGEST_ENV_FILE = 1024 * 1024


class Surroundings:
    """The sources of values: variables, folders, and the answers of a person so far.

    `is_secret` returns whether a variable holds a key of a model provider, `has_provider_key` whether a text contains
    one.
    """

    def __init__(
        self,
        variables: Mapping[str, str],
        cwd: str,
        home: str,
        answers: Mapping[str, str],
        is_secret: Callable[[str], bool],
        has_provider_key: Callable[[str], bool],
    ) -> None:
        self._variables = variables
        self._cwd = cwd
        self._home = home
        self._answers = answers
        self._is_secret = is_secret
        self._has_provider_key = has_provider_key
        self._folders = {
            "workspaceFolder": cwd,
            "workspaceRoot": cwd,
            "cwd": cwd,
            "userHome": home,
            "workspaceFolderBasename": os.path.basename(cwd),
            "CLAUDE_PROJECT_DIR": cwd,
            "pathSeparator": os.sep,
            "/": os.sep,
        }

    def fill_in_config(self, config: ServerConfig) -> ServerConfig:
        """The server with all variables filled in; raises `WrongServer` that names what is missing."""
        text = self._fill_leniently if config.literal else self._make_strict_filler(config)
        env = {name: text(value, f"env.{name}") for name, value in config.env.items()}
        if config.env_file is not None:
            path = absolute_path(text(config.env_file, "envFile"), self._cwd, self._home)
            env = {**_read_env_file(path), **env}
        url = text(config.url, "url")
        if url and not re.match(r"https?://[^/]", url):
            raise WrongServer("url must begin with http:// or https://")
        oauth = config.oauth
        id, secret = oauth.client_id, oauth.client_secret
        filled = replace(
            config,
            command=text(config.command, "command"),
            args=tuple(text(value, f"args[{index}]") for index, value in enumerate(config.args)),
            env=env,
            cwd=absolute_path(text(config.cwd, "cwd") if config.cwd else self._cwd, self._cwd, self._home),
            url=url,
            headers={name: text(value, f"headers.{name}") for name, value in config.headers.items()},
            oauth=replace(
                oauth,
                client_id=None if id is None else text(id, "oauth.clientId"),
                client_secret=None if secret is None else text(secret, "oauth.clientSecret"),
            ),
        )
        if config.source == "project":
            self._refuse_provider_keys(filled)
        return filled

    def _refuse_provider_keys(self, filled: ServerConfig) -> None:
        """Raise `WrongServer` if any value contains a key of a model provider, wherever it came from."""
        oauth = filled.oauth
        values = {f"env.{name}": value for name, value in filled.env.items()}
        values |= {f"headers.{name}": value for name, value in filled.headers.items()}
        values |= {f"args[{index}]": value for index, value in enumerate(filled.args)}
        values |= {"command": filled.command, "cwd": filled.cwd or "", "url": filled.url}
        values |= {"oauth.clientId": oauth.client_id or "", "oauth.clientSecret": oauth.client_secret or ""}
        for field, value in values.items():
            if value and self._has_provider_key(value):
                raise WrongServer(
                    f"{field} contains a key of a model provider: files of projects cannot use it. If this server "
                    "should get it, put the server into your own mcp.json"
                )

    def find_needed_questions(self, config: ServerConfig) -> dict[str, InputQuestion]:
        """The questions to a person before `fill_in_config`, by id."""
        texts = [config.command, *config.args, *config.env.values(), config.url, *config.headers.values()]
        oauth = config.oauth
        texts += [one for one in (config.env_file, config.cwd, oauth.client_id, oauth.client_secret) if one is not None]
        wanted = {found for text in texts for found in re.findall(_INPUT, text)}
        return {id: config.inputs[id] for id in sorted(wanted) if id in config.inputs and id not in self._answers}

    def _make_strict_filler(self, config: ServerConfig) -> Callable[[str, str], str]:
        guarded = config.source == "project"

        def fill_in_text(value: str, field: str) -> str:
            if "$" not in value:
                return value
            foreign = re.search(_FOREIGN, value)
            if foreign is not None:
                raise WrongServer(f"{field} has {foreign[0][:80]}, which Pigeon cannot fill in")
            return re.sub(_REFERENCE, lambda found: self._find_value(found, field, guarded, config), value)

        return fill_in_text

    def _fill_leniently(self, value: str, field: str) -> str:
        """Fill in only variables that exist: other text of a host is literal."""

        def fill_in_variable(found: re.Match[str]) -> str:
            name = found[3] or found[5]
            return self._variables.get(name, found[0]) if name and found[2] != "input" else found[0]

        return re.sub(_REFERENCE, fill_in_variable, value) if "$" in value else value

    def _find_value(self, found: re.Match[str], field: str, guarded: bool, config: ServerConfig) -> str:
        if found[1]:
            return "$"
        name, default = found[3] or found[5], found[4]
        if found[2] == "input":
            if name not in self._answers and name not in config.inputs:
                raise WrongServer(f"{field} needs the input {name}, which inputs does not have")
            if name not in self._answers:
                raise WrongServer(f"{field} needs the input {name}, which was not answered")
            return self._answers[name]
        if found[2] is None and found[3] in self._folders and name not in self._variables:
            return self._folders[name]
        if guarded and self._is_secret(name):
            raise WrongServer(
                f"{field} names the variable {name}, which holds a key of a model provider: files of projects cannot "
                "use it. If this server should get it, put the server into your own mcp.json"
            )
        value = self._variables.get(name)
        if value:
            return value
        if default is not None:
            return default
        if value is None:
            raise WrongServer(f"{field} names the variable {name}, which is not set")
        return value


def _read_env_file(path: str) -> dict[str, str]:
    try:
        text = read_text(path, LARGEST_ENV_FILE)
    except OSError as error:
        raise WrongServer(f"envFile {path} cannot be read: {error.strerror or error}") from None
    found: dict[str, str] = {}
    for line in text.splitlines():
        name, equals, value = line.strip().removeprefix("export ").partition("=")
        if equals and not name.startswith("#") and name.strip():
            value = value.strip()
            quoted = len(value) > 1 and value[0] == value[-1] and value[0] in "'\""
            found[name.strip()] = value[1:-1] if quoted else value
    return found
