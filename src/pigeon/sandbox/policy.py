"""What commands and file tools may do in the sandbox: one record, made in `app` and used by all.

`plan` turns it into what a command sees of the disk; the file tools check each file that they hold. Both use the same
lists, so that no tool can do what a command may not.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal

from msgspec import Struct

from pigeon.system.paths import fold_spelling

if TYPE_CHECKING:
    from pigeon.sandbox.survey import FolderSurvey

PolicyMode = Literal["read-only", "workspace"]

# In the home: keys, sessions of other programs, and input histories. A name that ends in `/*` means all that is in it.
SECRETS_IN_HOME = """
    .ssh .gnupg .aws .azure .kube .oci .bluemix .config/gcloud .config/doctl .config/hcloud .config/gh .config/glab-cli
    .config/hub .config/op .config/rclone .config/sops .config/git/credentials .config/github-copilot
    .docker .config/containers .netrc .npmrc .yarnrc.yml .pypirc .git-credentials .pgpass .my.cnf
    .s3cfg .boto .databrickscfg .authinfo .authinfo.gpg .vault-token .terraform.d .terraformrc .cargo/credentials
    .cargo/credentials.toml .gem/credentials .composer/auth.json
    .config/composer/auth.json .cache/huggingface/token .huggingface .config/fly .fly .password-store .1password
    .local/share/keyrings .local/share/kwalletd .pki .mozilla .thunderbird .config/google-chrome .config/chromium
    .config/BraveSoftware .config/microsoft-edge .config/vivaldi .config/opera .config/Signal .config/Slack
    .config/discord snap/firefox snap/chromium .var/app/org.mozilla.firefox .var/app/com.google.Chrome
    .bash_history .zsh_history .histfile .local/share/fish/fish_history .python_history .node_repl_history
    .psql_history .mysql_history .sqlite_history .irb_history .rediscli_history .lesshst .viminfo
    .codex .claude .claude.json .gemini .local/share/opencode
    .Xauthority .ICEauthority Library/Keychains Library/Cookies Library/Safari Library/Mail Library/Messages
    Library/Application\\040Support/Google Library/Application\\040Support/Firefox
"""
SECRETS_OF_SYSTEM = """
    /etc/shadow /etc/shadow- /etc/gshadow /etc/gshadow- /etc/ssl/private /etc/sudoers /etc/sudoers.d
    /etc/ssh/ssh_host_rsa_key /etc/ssh/ssh_host_ecdsa_key /etc/ssh/ssh_host_ed25519_key /etc/krb5.keytab
    /etc/kubernetes /etc/rancher /etc/wireguard /etc/NetworkManager/system-connections /etc/docker/key.json
    /run/secrets /run/credentials /var/run/secrets /run/user /var/lib/sss /var/spool/cron /var/spool/at
    /var/lib/docker /var/lib/containers /var/lib/containerd /var/lib/kubelet /var/lib/rancher /var/lib/lxc
    /var/lib/systemd/credential.secret /var/lib/NetworkManager /var/lib/private
"""
# Variables that move secrets out of the home, and those that name a folder in which only some files are secret.
SECRETS_BY_VARIABLES = """
    AWS_SHARED_CREDENTIALS_FILE AWS_CONFIG_FILE AWS_WEB_IDENTITY_TOKEN_FILE GOOGLE_APPLICATION_CREDENTIALS
    CLOUDSDK_CONFIG AZURE_CONFIG_DIR KUBECONFIG DOCKER_CONFIG GNUPGHOME PASSWORD_STORE_DIR NETRC PGPASSFILE
    NPM_CONFIG_USERCONFIG npm_config_userconfig GH_CONFIG_DIR GLAB_CONFIG_DIR HISTFILE PIP_CONFIG_FILE BOTO_CONFIG
    TF_CLI_CONFIG_FILE HF_TOKEN_PATH RCLONE_CONFIG XAUTHORITY
"""
FOLDERS_BY_VARIABLES = {
    "CARGO_HOME": ("credentials", "credentials.toml"),
    "HF_HOME": ("token",),
    "CODEX_HOME": ("auth.json",),
    "CLAUDE_CONFIG_DIR": (".credentials.json", ".claude.json"),
    "PI_CODING_AGENT_DIR": ("auth.json",),
}
# The kernel's limit: a path with more links than this leads nowhere.
_MOST_LINKS = 40
AGENT_FAMILY = (".pigeon", ".pi", ".omp", ".xcsh")
# In the agent's folder.
SECRETS_OF_AGENT = ("auth.json", "models.json", "models.yml", "models.yaml", "agent.db", "mcp.json", "serve.token")
# In those of related agents.
SECRETS_OF_FAMILY = ("auth.json", "models.yml", "models.yaml", "agent.db")
# Files at the top of the working folder that other programs take instructions from. The first must not be created.
NEVER_MADE = (".pigeon", ".pi", ".omp", ".agents", ".mcp.json")
KEPT_AS_THEY_ARE = (
    *NEVER_MADE,
    *(".xcsh", ".claude", ".codex", ".gemini", ".vscode", ".idea", ".envrc"),
)


def secret_places(
    homes: Sequence[str], agent_dir: str, variables: Mapping[str, str] = MappingProxyType({})
) -> tuple[str, ...]:
    """The places of secrets for these homes and this agent, existing or not, including those that variables name."""
    found = [os.path.join(agent_dir, name) for name in SECRETS_OF_AGENT]
    for home in homes:
        found += [os.path.join(home, name.replace("\\040", " ")) for name in SECRETS_IN_HOME.split()]
        found += [os.path.join(home, family, "agent", name) for family in AGENT_FAMILY for name in SECRETS_OF_FAMILY]
    found += _find_secrets_by_variables(variables, homes)
    return tuple(dict.fromkeys([*found, *SECRETS_OF_SYSTEM.split()]))


def private_folders(homes: Sequence[str], agent_dir: str) -> tuple[str, ...]:
    """The real paths of agents' folders: ours, and those of related agents in these homes."""
    named = [agent_dir, *(os.path.join(home, family, "agent") for home in homes for family in AGENT_FAMILY)]
    return tuple(dict.fromkeys(os.path.realpath(path) for path in named))


def _find_secrets_by_variables(variables: Mapping[str, str], homes: Sequence[str]) -> Iterator[str]:
    """The places of secrets that variables name, except for folders that contain a home, and devices."""
    config = tuple(name.removeprefix(".config/") for name in SECRETS_IN_HOME.split() if name.startswith(".config/"))
    folders = {**dict.fromkeys(SECRETS_BY_VARIABLES.split(), ("",)), **FOLDERS_BY_VARIABLES, "XDG_CONFIG_HOME": config}
    for name, files in folders.items():
        for folder in filter(os.path.isabs, variables.get(name, "").split(os.pathsep)):
            for path in (os.path.normpath(os.path.join(folder, file)) for file in files):
                if not path.startswith(("/dev/", "/proc/")) and not any(is_inside(home, path) for home in homes):
                    yield path


class SandboxPolicy(Struct, frozen=True, kw_only=True):
    """The permitted access. All paths are absolute; `root` and `writable` are real ones.

    `scratch` is a folder of this agent alone: commands write `tmp` in it and nothing else. `own` are Pigeon's own
    files, which are protected even inside writable folders. `survey` knows the contents of the writable folders. Of the
    `private` folders, those of agents, only the folders in them are seen, no file: files there are replaced while
    commands run, and a mount on a file does not outlive that. `pass_variables` are those that commands see although
    they look like secrets. A `sealed` one is for commands that see keys: nothing that they write outlives them.
    """

    mode: PolicyMode
    network: bool
    host_shell_outside: bool
    root: str
    writable: tuple[str, ...]
    scratch: str
    hidden: tuple[str, ...]
    survey: FolderSurvey
    private: tuple[str, ...] = ()
    own: tuple[str, ...] = ()
    pass_variables: tuple[str, ...] = ()
    sealed: bool = False

    @property
    def temporary_folder(self) -> str:
        """The folder for temporary files of commands; if sealed, one that each has for itself."""
        return "/dev/shm" if self.sealed else os.path.join(self.scratch, "tmp")

    @property
    def empty_file(self) -> str:
        """The file that a command sees in place of one that it must not read."""
        return os.path.join(self.scratch, "empty")

    @property
    def roots(self) -> tuple[str, ...]:
        """The writable folders, the temporary one last; empty if sealed."""
        if self.sealed:
            return ()
        extra = (*((self.root,) if self.mode == "workspace" else ()), *self.writable)
        return (*dict.fromkeys(extra), self.temporary_folder)

    def refusal_reason(self, place: str, writes: bool, kept: Sequence[str] = ()) -> str | None:
        """Why a tool may not read or write the file at a real path; None if it may.

        `kept` are protected places inside the roots, as `plan` finds them on the disk.
        """
        if self.is_private(place) or any(is_inside(place, secret) for secret in self.iterate_secret_paths()):
            return f"the sandbox hides {place}, because secrets are kept there"
        if self.is_device_or_process_path(place):
            return "commands in the sandbox have a /dev and a /proc of their own; a bash command can read those"
        if not writes:
            return None
        if not any(is_exactly_inside(place, root) for root in self.roots):
            where = "no folder but the temporary one" if self.mode == "read-only" else f"only {self.root}"
            more = f" and {', '.join(self.writable)}" if self.writable else ""
            return f'the sandbox ("{self.mode}") lets {where}{more} be written'
        keeper = next((path for path in (*kept, *self.own) if is_inside(place, path)), None)
        return None if keeper is None else f"the sandbox keeps {keeper} as it is"

    def is_device_or_process_path(self, place: str) -> bool:
        """Whether a real path is in `/dev` or `/proc`, of which commands see their own instance."""
        return any(is_inside(place, top) for top in ("/dev", "/proc")) and not any(
            is_exactly_inside(place, root) for root in self.roots
        )

    def can_commands_redirect(self, path: str) -> bool:
        """Whether commands could redirect a path, because a part of it is where they may write."""
        return any(is_inside(way, root) for way in resolve_link_steps(path) for root in self.roots)

    def is_private(self, place: str) -> bool:
        """Whether a real path is a file directly in a private folder."""
        above = normalize_spelling(os.path.dirname(place))
        return any(above == normalize_spelling(folder) for folder in self.private) and not os.path.isdir(place)

    def iterate_secret_paths(self) -> Iterator[str]:
        """The places of secrets, as named and with links resolved."""
        for secret in self.hidden:
            yield secret
            if os.path.lexists(secret):
                yield os.path.realpath(secret)


class Unprotectable(OSError):
    """Something that must be protected cannot be; the text gives the reason."""


def is_exactly_inside(path: str, folder: str) -> bool:
    """Whether a real path is a folder or inside it, compared exactly: used to allow."""
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def is_inside(path: str, folder: str) -> bool:
    """Whether a path may be a folder or inside it: used to deny.

    Case is ignored, because some file systems ignore it.
    """
    one, other = normalize_spelling(path), normalize_spelling(folder).rstrip("/")
    return one == other or one.startswith(f"{other}/")


def resolve_link_steps(path: str) -> list[str]:
    """The links that a path passes through, each with the real path of its folder, and the final target."""
    links: list[str] = []
    place, names = "/", path.split("/")[::-1]
    while names:
        name = names.pop()
        if name == "..":
            place = os.path.dirname(place)
        elif name not in ("", "."):
            step = os.path.join(place, name)
            if len(links) < _MOST_LINKS and os.path.islink(step):
                links.append(step)
                target = os.readlink(step)
                place = "/" if target.startswith("/") else place
                names += target.split("/")[::-1]
            else:
                place = step
    return [*links, place]


@lru_cache(maxsize=4096)
def normalize_spelling(path: str) -> str:
    """A path in a form that is the same for all its spellings."""
    return fold_spelling(path).casefold()
