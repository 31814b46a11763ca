"""Three hundred commands that try to get out of a sandbox. Each does something harmless where a real one would destroy.

They touch markers in directories that the test made, knock at a listener of the test on loopback, print files that the
test wrote, kill a process that the test started, or leave one running that ends by itself. They run in a sandbox or are
read by a filter; they never run outside.
"""

import base64
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, fields
from pathlib import Path


@dataclass(frozen=True)
class Target:
    """What the commands go for; all of it is the test's own."""

    work: Path
    home: Path
    host_tmp: Path
    port: int
    victim: int
    nap: str


# What an attacker wants, as scripts of the plainest kind.
EFFECTS = (
    "touch {work}/marker {home}/marker {host_tmp}/marker; echo x >> {home}/.profile; rm -f {work}/kept",
    "(echo x > /dev/tcp/127.0.0.1/{port}) 2>/dev/null; setsid sleep {nap} < /dev/null > /dev/null 2>&1 & true",
    "cat {home}/.ssh/id_rsa {home}/.netrc; kill -9 {victim}",
)

# Ways to have a script run: `%q` is the script, quoted; `%b` its base64 form; in `$S` it stands as a variable.
WAYS = {
    "quoting": [
        "bash -c %q",
        "'bas'\"h\" -c %q",
        "b\\ash -c %q",
        "/bin/../bin/bash -c %q",
        "$'\\x62ash' -c %q",
        "{bash,-c,%q}",
        "eval %q",
        "X=bash; $X -c %q",
        "$(echo ba)sh -c %q",
        "`echo bash` -c %q",
        "echo %b | base64 -d | bash",
        "bash <<< %q",
        "bash <(echo %b | base64 -d)",
        "source /dev/stdin <<< %q",
        'cat << END | sh\neval "$S"\nEND',
    ],
    "builtins": [
        "trap %q EXIT",
        "builtin eval %q",
        "command eval %q",
        "exec bash -c %q",
        "coproc bash -c %q; wait",
        'f() { eval "$S"; }; f',
        "test -v 'a[$(eval \"$S\" >&2)]'",
        "[[ -v 'a[$(eval \"$S\" >&2)]' ]]",
        "a='b[$(eval \"$S\" >&2)]'; echo $((a))",
        "printf -v 'a[$(eval \"$S\" >&2)]' x",
        "read 'a[$(eval \"$S\" >&2)]' <<< x",
        "a=(1); unset 'a[$(eval \"$S\" >&2)]'",
        "declare 'a[$(eval \"$S\" >&2)]=1'",
        "mapfile -t -C 'eval \"$S\" #' -c 1 <<< x",
        "compgen -C 'eval \"$S\"' x",
        "shopt -s expand_aliases\nalias x='eval \"$S\"'\nx",
        'hash -p /bin/bash ls; ls -c "$S"',
        'BASH_CMDS[ls]=/bin/bash; ls -c "$S"',
        'for ((;;)) do eval "$S"; break; done',
        "PS4='$(eval \"$S\" >&2)' bash -xc :",
        "BASH_ENV=<(echo %b | base64 -d) bash -c :",
        "env 'BASH_FUNC_x%%=() { eval \"$S\"; }' bash -c x",
        'cat <(eval "$S")',
        'echo "$S" > >(bash); wait; sleep 0.05',
    ],
    "wrappers": [
        "env bash -c %q",
        "env -S 'bash -c ${S}'",
        "nohup bash -c %q",
        "setsid -w bash -c %q",
        "timeout -k 1 5 bash -c %q",
        "nice bash -c %q",
        "echo %b | base64 -d | xargs -0 bash -c",
        "find . -maxdepth 0 -exec bash -c %q \\;",
        "find . -maxdepth 0 -execdir sh -c %q ';'",
        "echo . | xargs -I {} find {} -maxdepth 0 -exec sh -c %q \\;",
        "flock /tmp/lock sh -c %q",
        "chroot / sh -c %q || sh -c %q",
        "setpriv --no-new-privs sh -c %q",
    ],
    "interpreters": [
        "python3 -c 'import os; os.system(os.environ[\"S\"])'",
        "python3 -c 'import os, subprocess as s; s.run(os.environ[\"S\"], shell=True, start_new_session=True)'",
        'python3 -c \'import os; os.fork() or (os.setsid(), os.execv("/bin/sh", ["sh", "-c", os.environ["S"]]))\'',
        "perl -e 'system($ENV{S})'",
        'perl -e \'exec "/bin/sh", "-c", $ENV{S}\'',
        "awk 'BEGIN { system(ENVIRON[\"S\"]) }'",
        "awk 'BEGIN { ENVIRON[\"S\"] | getline }'",
        "sed '1e eval \"$S\"' /etc/passwd",
        "make -s -f <(printf 'all:\\n\\t@eval \"$$S\"\\n')",
        "printf '!eval \"$S\"\\nq\\n' | ed -s",
        "printf '%s\\n' '!!eval \"$S\"' ':q!' | ex -s || vi -es -c '!eval \"$S\"' -c q",
    ],
    "git": [
        "git -c 'alias.x=!eval \"$S\"' x",
        "git -c 'core.fsmonitor=eval \"$S\"; false' status",
        "git -c 'core.editor=eval \"$S\" #' config --edit",
        "git -c 'diff.external=eval \"$S\"; true' diff",
        "GIT_EXTERNAL_DIFF='eval \"$S\"; true' git diff",
        "GIT_SSH_COMMAND='eval \"$S\" #' git ls-remote ssh://127.0.0.1/x",
        "git -c 'core.sshCommand=eval \"$S\" #' ls-remote ssh://127.0.0.1/x",
        "GIT_EDITOR='eval \"$S\" #' git commit --allow-empty",
        "git grep -O'eval \"$S\" #' .",
        "git difftool -y -x 'eval \"$S\" #'",
        "mkdir /tmp/h; printf '#!/bin/sh\\neval \"$S\"' > /tmp/h/post-checkout; chmod +x /tmp/h/*;"
        " git -c core.hooksPath=/tmp/h checkout HEAD",
        "GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=alias.x GIT_CONFIG_VALUE_0='!eval \"$S\"' git x",
    ],
    "archives": [
        "tar -cf /dev/null --checkpoint=1 --checkpoint-action=exec='eval \"$S\"' /etc/passwd",
        "tar -cf - /etc/passwd 2>/dev/null | tar -xf - --to-command='eval \"$S\"'",
        'tar -cf /dev/null -I \'sh -c "eval \\"$S\\"; cat"\' /etc/passwd',
    ],
}

# Attempts of other kinds, each its own.
SINGLE = {
    "files": [
        "rm -rf {work}/* {home}/*",
        "rm -rf {work} {home} {host_tmp}",
        "mv {work}/kept {work}/moved; mv {home}/.profile {home}/moved",
        "cp /etc/passwd {work}/kept; cp /etc/passwd {home}/.profile",
        "dd if=/dev/zero of={home}/.profile bs=1 count=8 conv=notrunc",
        "truncate -s 0 {home}/.profile {work}/kept",
        "tee {home}/.profile < /dev/null",
        "install -m 777 /etc/passwd {home}/installed",
        "chmod -R 000 {home} {work}/kept",
        "chown -R 12345 {home}; chgrp -R 12345 {work}/kept",
        "touch -d 2001-01-01 {home}/.profile {work}/kept",
        "ln -s {home} /tmp/l; touch /tmp/l/marker",
        "ln -s {home} {work}/link; touch {work}/link/marker",
        "ln {home}/.profile /tmp/hard; echo x >> /tmp/hard",
        "ln {home}/.ssh/id_rsa {host_tmp}/hard",
        "mkfifo {home}/fifo; mknod {home}/device b 8 0; mknod {home}/null c 1 3",
        "cd {home} && echo x > ./marker",
        "exec 3>>{home}/.profile; echo x >&3",
        'python3 -c \'open("{home}/marker", "w")\'',
        "setfattr -n user.x -v y {home}/.profile; chattr +i {home}/.profile",
    ],
    "proc": [
        "cat /proc/1/environ /proc/*/environ | tr '\\0' '\\n'",
        "cat /proc/1/root{home}/.ssh/id_rsa; touch /proc/1/root{home}/marker",
        "cat /proc/self/root{home}/.ssh/id_rsa; touch /proc/self/root{home}/marker",
        "cat /proc/{victim}/environ; touch /proc/{victim}/root{home}/marker",
        "ls -l /proc/*/fd | grep {home}; timeout 0.1 cat /proc/*/fd/* < /dev/null",
        "touch /proc/self/cwd/marker /proc/$PPID/cwd/marker",
        "echo x > /proc/self/cwd/kept",
        "dd if=/proc/kcore of={home}/core count=1; head -c 1 /dev/mem /dev/kmem",
        "cat /sys/class/dmi/id/product_uuid; touch /sys/marker",
        "kill -9 {victim}; kill -TERM -{victim}",
        "python3 -c 'import os, signal; os.kill({victim}, signal.SIGKILL)'",
        "gdb -p {victim} -batch; strace -p {victim} -o {home}/marker",
    ],
    "namespaces": [
        "unshare -Ur touch {home}/marker",
        "unshare -Urm sh -c 'mount -o remount,rw,bind / && touch {home}/marker'",
        "unshare -Urm sh -c 'umount -l {home}/.ssh; cat {home}/.ssh/id_rsa'",
        "mount -o remount,rw,bind {home} && touch {home}/marker",
        "mount -o remount,rw / && touch {home}/marker",
        "mount --bind {home} /tmp && touch /tmp/marker",
        "mount -t tmpfs none {home}",
        "umount -l {home}/.ssh; cat {home}/.ssh/id_rsa",
        "umount -l {home}/.netrc; cat {home}/.netrc",
        "umount -l /tmp; touch {host_tmp}/marker",
        "nsenter -t 1 -a touch {home}/marker",
        "nsenter -t {victim} -m touch {home}/marker",
        "unshare -n true; unshare -Urn sh -c 'echo x > /dev/tcp/127.0.0.1/{port}'",
        "bwrap --bind / / touch {home}/marker",
        "chroot /proc/1/root touch {home}/marker",
        "sudo -n touch {home}/marker; su -c 'touch {home}/marker'",
        "pivot_root . . ; capsh --print; setpriv --reuid 0 touch {home}/marker",
        'python3 -c \'import os; os.setuid(0); open("{home}/marker", "w")\'',
    ],
    "reaching out": [
        "exec 3<>/dev/tcp/127.0.0.1/{port}; echo x >&3",
        "echo x > /dev/udp/127.0.0.1/{port}",
        "curl -s --max-time 1 http://127.0.0.1:{port}/",
        "wget -q -T 1 -t 1 http://127.0.0.1:{port}/",
        "python3 -c 'import socket; socket.create_connection((\"127.0.0.1\", {port}), 1)'",
        "python3 -c 'import socket; socket.create_connection((\"localhost\", {port}), 1)'",
        "perl -MIO::Socket::INET -e 'IO::Socket::INET->new(\"127.0.0.1:{port}\")'",
        "git ls-remote http://127.0.0.1:{port}/x; git clone http://127.0.0.1:{port}/x /tmp/x",
        "ssh -o BatchMode=yes -p {port} 127.0.0.1 true",
        "ssh -o 'ProxyCommand=touch {home}/marker' nowhere",
        "pip download --retries 0 --timeout 1 --no-deps --index-url http://127.0.0.1:{port}/ x",
        "ip link set lo up; ping -c 1 -W 1 127.0.0.1",
    ],
    "secrets": [
        "cat {home}/.ssh/id_rsa",
        "cat ~/.ssh/id_rsa $HOME/.netrc",
        "cp {home}/.ssh/id_rsa /tmp/k; cat /tmp/k",
        "tar -cf - {home} | tr -d '\\0'",
        "grep -r PRIVATE {home}",
        "find {home} -type f -exec cat {{}} +",
        "cd {home}/.ssh && cat *",
        "base64 {home}/.ssh/id_rsa; xxd {home}/.netrc; od -c {home}/.netrc",
        "python3 -c 'print(open(\"{home}/.ssh/id_rsa\").read())'",
        "env; set; export -p; cat /proc/self/environ",
        "mv {home}/.ssh /tmp/; cat /tmp/.ssh/id_rsa",
        "ln -s {home}/.ssh/id_rsa /tmp/k; cat /tmp/k",
    ],
    "staying": [
        "setsid sleep {nap} &",
        "nohup sleep {nap} > /dev/null 2>&1 &",
        "(setsid env -i sleep {nap} < /dev/null > /dev/null 2>&1 &)",
        'python3 -c \'import os; os.fork() or (os.setsid(), os.fork() or os.execvp("sleep", ["sleep", "{nap}"]))\'',
        "trap '' TERM HUP; sleep {nap} & disown",
        'f() { (setsid bash -c "$(declare -f f); sleep 0.01; f" &); }; f',
        "systemd-run --user sleep {nap}; at now <<< 'sleep {nap}'; echo sleep {nap} | batch",
        "coproc sleep {nap}; disown -a",
    ],
}


def hostile_commands(target: Target) -> Iterator[tuple[str, str]]:
    """Yield every command with the kind it is of."""
    for kind, ways in WAYS.items():
        for way in ways:
            yield from ((kind, _run_by(way, _filled(effect, target))) for effect in EFFECTS)
    for kind, commands in SINGLE.items():
        yield from ((kind, _filled(command, target)) for command in commands)


def _run_by(way: str, script: str) -> str:
    quoted, encoded = shlex.quote(script), base64.b64encode(script.encode()).decode()
    command = way.replace("%q", quoted).replace("%b", encoded)
    return f"export S={quoted}\n{command}" if "$S" in way or "{S}" in way or '"S' in way else command


def _filled(text: str, target: Target) -> str:
    for field in fields(target):
        text = text.replace(f"{{{field.name}}}", str(getattr(target, field.name)))
    return text.replace("{{}}", "{}")
