"""Hidden files: what no command may read. Keys, tokens and passwords, what was typed or said elsewhere, and localspec's own files.

The lists name what programs are known to keep; below the home folder, files whose names say so are hidden as well, so that a
program that no list knows has not to be named.
"""

import os
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from localspec.storage.paths import config_dir, data_dir

# Below the home folder; `*` stands for any letters. With XDG_CONFIG_HOME and its kin, also where those lead.
_LOGINS = (
    ".ssh", ".gnupg", ".pki", ".putty", ".password-store", ".gopass", ".lastpass", ".netrc", "_netrc", ".authinfo*", ".age",
    ".Xauthority", ".ICEauthority", ".config/sops", ".config/age", ".config/gopass", ".config/op", ".config/Bitwarden*", ".config/keybase",
    ".config/KeePass*", ".config/keepassxc", ".local/share/keyrings", ".local/share/kwallet*", ".local/share/gopass", "Library/Keychains",
)  # fmt: skip
_CLOUDS = (
    ".aws", ".azure", ".oci", ".aliyun", ".bluemix", ".ibmcloud", ".kube", ".helm", ".talos", ".minikube", ".docker", ".boto", ".gsutil",
    ".s3cfg", ".mc", ".rclone.conf", ".vault-token", ".terraformrc", ".terraform.d", ".pulumi", ".fly", ".vercel", ".netlify", ".wrangler",
    ".cf", ".databrickscfg", ".databricks", ".snowsql", ".snowflake", ".cloudflared", ".ngrok*", ".config/gcloud", ".config/doctl",
    ".config/hcloud", ".config/scw", ".config/linode-cli", ".config/rclone", ".config/helm", ".config/argocd", ".config/containers",
    ".config/ngrok", ".config/netlify", ".config/.wrangler", ".config/configstore", ".local/share/com.vercel.cli", ".local/share/heroku",
)  # fmt: skip
_PACKAGES = (
    ".pypirc", ".pip", ".config/pip", "Library/Application Support/pip", ".config/uv", ".local/share/uv/credentials", ".config/pypoetry/auth.toml",
    ".config/pdm", ".condarc", ".conda/.condarc", ".hex/hex.config", ".config/binstar", ".continuum",
    ".config/anaconda", ".npmrc", ".yarnrc*", ".config/pnpm", ".bunfig.toml", ".config/jsr", ".cargo/credentials*", ".gem/credentials",
    ".local/share/gem/credentials", ".bundle/config", ".composer/auth.json", ".config/composer/auth.json", ".m2/settings*.xml",
    ".gradle/gradle.properties", ".ivy2/.credentials", ".sbt/.credentials", ".sbt/*/credentials*", ".nuget/NuGet", ".config/NuGet",
    ".pub-cache/credentials.json", ".config/dart", ".julia/servers", ".config/gh", ".config/glab-cli",
    ".config/hub", ".config/tea", ".git-credentials", ".config/git/credentials", ".cache/git/credential", ".gitcookies", ".hgrc", ".subversion/auth",
)  # fmt: skip
_AGENTS = (
    ".claude*", ".codex", ".gemini", ".qwen", ".aider*", ".continue", ".cursor", ".windsurf", ".codeium", ".copilot", ".cline", ".roo",
    ".kiro", ".factory", ".vibe", ".crush", ".pi", ".amp", ".openhands", ".openai", ".anthropic", ".ollama/id_*", ".ollama/history", ".lmstudio/conversations", ".config/claude*",
    ".config/codex", ".config/Claude", ".config/opencode", ".local/share/opencode", ".local/state/opencode", ".config/goose",
    ".local/share/goose", ".local/state/goose", ".config/crush", ".local/share/crush", ".config/gptme", ".local/share/gptme",
    ".config/github-copilot", ".config/amp", ".local/share/amp", ".config/io.datasette.llm", ".config/aichat", ".config/fabric",
    ".config/mods", ".cache/huggingface/token", ".cache/huggingface/stored_tokens", ".huggingface", ".kaggle", ".config/kaggle",
    ".config/wandb", ".jupyter", ".local/share/jupyter/runtime", ".config/Code*", ".config/VSCodium", ".config/Cursor", ".config/JetBrains",
    ".config/replicate", ".modal.toml", ".comet.config", ".lightning",
)  # fmt: skip
_DATABASES = (
    ".pgpass", ".pg_service.conf", ".my.cnf", ".mylogin.cnf", ".rediscli_auth", ".mongorc.js", ".mongodb", ".config/mycli", ".config/pgcli",
    ".local/share/DBeaverData", ".config/filezilla", ".filezilla", ".config/remmina", ".local/share/remmina",
)  # fmt: skip
_SAID = (
    ".*_history", ".*_history-*", ".histfile", ".zhistory", ".lesshst", ".viminfo", ".local/share/fish/fish_history", ".config/nushell/history*",
    ".local/share/atuin", ".config/atuin", ".ipython/profile_*/history*",
    ".mozilla", ".librewolf", ".thunderbird", ".config/google-chrome*", ".config/chromium", ".config/BraveSoftware", ".config/microsoft-edge*",
    ".config/vivaldi*", ".config/opera*", ".cache/mozilla", ".cache/google-chrome*", ".cache/chromium", ".var/app", "snap/firefox", "snap/chromium", "snap/thunderbird",
    ".config/Signal", ".config/discord", ".config/Slack", ".config/Element", ".local/share/TelegramDesktop", ".irssi", ".weechat",
    ".config/weechat", ".msmtprc", ".config/msmtp", ".mbsyncrc", ".config/isyncrc", ".offlineimaprc", ".fetchmailrc", ".esmtprc", ".muttrc",
    ".mutt", ".config/mutt", ".config/neomutt", "Library/Cookies", "Library/Safari", "Library/Mail", "Library/Messages",
    "Library/Application Support/Google/Chrome", "Library/Application Support/Firefox",
)  # fmt: skip
_OF_THE_MACHINE = (
    "/etc/shadow*", "/etc/gshadow*", "/etc/security/opasswd", "/etc/sudoers", "/etc/sudoers.d", "/etc/ssh/ssh_host_*_key", "/etc/ssl/private",
    "/etc/pki/tls/private", "/etc/letsencrypt", "/etc/krb5.keytab", "/etc/wireguard", "/etc/openvpn", "/etc/NetworkManager/system-connections",
    "/etc/pip.conf", "/etc/docker", "/run/secrets", "/var/run/secrets", "/run/credentials", "/tmp/krb5cc*",  # noqa: S108 - Kerberos' own
)  # fmt: skip
# Variables that name a file or a folder of these kinds, wherever it is.
_VARIABLES = (
    "NETRC", "GNUPGHOME", "PASSWORD_STORE_DIR", "XAUTHORITY", "KRB5CCNAME", "SOPS_AGE_KEY_FILE", "AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE",
    "AZURE_CONFIG_DIR", "CLOUDSDK_CONFIG", "GOOGLE_APPLICATION_CREDENTIALS", "BOTO_CONFIG", "KUBECONFIG", "DOCKER_CONFIG", "REGISTRY_AUTH_FILE",
    "RCLONE_CONFIG", "TF_CLI_CONFIG_FILE", "PIP_CONFIG_FILE", "UV_CONFIG_FILE", "NPM_CONFIG_USERCONFIG",
    "BUNDLE_USER_CONFIG", "GH_CONFIG_DIR", "GLAB_CONFIG_DIR", "PGPASSFILE", "PGSERVICEFILE", "HISTFILE",
    "CLAUDE_CONFIG_DIR", "CODEX_HOME", "OPENCODE_CONFIG", "OPENCODE_CONFIG_DIR", "LLM_USER_PATH",
    "HF_TOKEN_PATH", "HF_STORED_TOKENS_PATH", "KAGGLE_CONFIG_DIR", "WANDB_CONFIG_DIR",
)  # fmt: skip
_BASES = {
    "XDG_CONFIG_HOME": ".config",
    "XDG_DATA_HOME": ".local/share",
    "XDG_STATE_HOME": ".local/state",
    "XDG_CACHE_HOME": ".cache",
    "CARGO_HOME": ".cargo",
    "HF_HOME": ".cache/huggingface",
}
_NAME = re.compile(
    r"(.*[._-])?(credentials?|auth|(access|api|refresh)?[_-]?(tokens?|keys?)|secrets?|passwords?|cookies)([._-](json|jsonc|toml|ya?ml|ini|conf|cfg|txt|db|sqlite|xml|properties|enc))?"
    r"|.*\.(pem|p12|pfx|jks|keystore|kdbx|keytab|ppk)|id_(rsa|dsa|ecdsa|ed25519)[\w-]*",
    re.IGNORECASE,
)
_NAMED_IN = (".*", ".config/*", ".local/share/*", ".local/state/*")


def hidden_paths() -> list[str]:
    """Return what no command may read, as far as it is there."""
    found = {data_dir(), config_dir(), *_listed(), *_named()}
    return sorted({os.path.realpath(each) for each in found if os.path.exists(each)})  # noqa: PTH110 - where it may not be seen, `Path` raises


def _listed() -> Iterator[Path]:
    """Yield what the lists name."""
    below = (*_LOGINS, *_CLOUDS, *_PACKAGES, *_AGENTS, *_DATABASES, *_SAID)
    for each in below:
        yield from _matching(Path.home(), each)
    for variable, usual in _BASES.items():
        if base := os.environ.get(variable):
            for each in below:
                if each.startswith(f"{usual}/"):
                    yield from _matching(Path(base), each.removeprefix(f"{usual}/"))
    for each in _OF_THE_MACHINE:
        yield from _matching(Path("/"), each[1:])
    for variable in _VARIABLES:
        for each in os.environ.get(variable, "").removeprefix("FILE:").split(os.pathsep):
            path = Path(each)
            if path.is_absolute() and not Path.home().is_relative_to(path) and each != os.devnull:
                yield path


def _matching(folder: Path, pattern: str) -> Iterator[Path]:
    if "*" not in pattern:
        yield folder / pattern
        return
    with suppress(OSError):
        yield from folder.glob(pattern)


def _named() -> Iterator[Path]:
    """Yield files of programs' own folders in the home folder whose names say that they hold a key."""
    for folders in _NAMED_IN:
        for folder in _matching(Path.home(), folders):
            with suppress(OSError):
                for each in os.scandir(folder):
                    if _NAME.fullmatch(each.name) and each.is_file(follow_symlinks=False):
                        yield Path(each.path)
