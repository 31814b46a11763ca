"""Commands that a safety profile lets pass, and the lists that change its mind."""

from typing import Any

import pytest
from amplifier_module_tool_bash.safety import SafetyConfig, SafetyProfile, SafetyResult, SafetyValidator

HARMLESS = [
    "echo 'use sudo'", "git commit -m \"rm -rf /\"", "cmd 2>/dev/null", "ls ~/dev/x", "echo \"$X\"", "ls $(pwd)",
    "sudoku", "rm -rf /tmp/x", "rm -rf build", "rm -rf /home//me/build", "rm -rf ./x/*", "rm -r /",
    "rm -f /etc", "command -v sudo", "which sudo", "cat /etc/passwd", "grep sudo f", "case x in *) echo a;; esac",
    "case $x in\n a|b) ls;;\n *) pwd;;\nesac", "[[ $a == b && $c == d ]]", "[[ $a =~ ^(x|y)$ ]]", "[ -f x ]",
    "((x++))", "echo $(($x + 1))", "for i in $(seq 3); do echo $i; done", "for ((i=0;i<3;i++)); do echo $i; done",
    "while read -r l; do echo \"$l\"; done < f", "cat <<EOF\nsudo x\n$HOME\nEOF", "cat <<'EOF'\n$(sudo x)\nEOF",
    "a=(sudo x)", "f() { echo; }; f", "echo {a,b}", "ls *.py", "bash script.sh", "bash -c 'ls'",
    "sh -c 'echo \"$1\"' _ x", "find . -name '*.py' -exec grep x {} +", "xargs grep sudo", "timeout 5 grep sudo f",
    "trap 'rm -f \"$T\"' EXIT", "trap \"rm -f $T\" EXIT", "echo a >&2", "x 2>&1", "echo > /dev/null",
    "echo >/dev/stderr", "echo >/dev/fd/3", "# sudo x", "echo a # sudo x", "rm -rf '$HOME'", "rm -rf '~'",
    "rm -rf \"$BUILD\"", "chmod 777 /tmp/x", "chown -R me ./x", "dd if=a of=b", "make | tee log",
    "python -c 'import os; x()'", "yes | bash install.sh", "ssh host 'sudo x'", "A=1 ls", "time ls",
    "git log --format='%h | %s'", "awk '{print $1}' f | sort", "test -x /usr/bin/sudo", "echo \"it's; sudo\"",
    "if [ -n \"$x\" ]; then ls; fi", "(cd x && make)", "{ ls; }", "! ls", "cd ~ && ls", "~/bin/x", "./run.sh",
    "$'ls'", "a\\ b", "printf '%s\\n' \"$(date)\"", "arr[0]=1", "declare -a x=(1 2)", "echo $'it\\'s; $x'",
    "bash <<'EOF'\nls\nEOF", "bash <<EOF\necho \"a\\nb\"\nEOF", "diff <(ls a) <(ls b)", "echo ${x/sudo/y}",
    "env | sort", "nohup ./server &", "pytest -q; echo $?", "ls;", "sleep 1 & wait", "export A=b",
    "rm -rf $TMPDIR/x", "rm -rf /var/tmp/x", "rm -rf /opt/app/build", "git push", "echo passwd",
    "mkdir -p a/{b,c}", "sed -i 's/a|b/c/' f", "curl u > x.sh", "cat x | grep bash", "echo bash | cat",
    "ls | xargs -n1 basename", "foo bash", "bash run.sh <(sort x)", "hash -r", "mapfile -t lines < f",
    "compgen -A function", "env -S 'ls -l'", "bash --norc --posix x.sh", "find . -exec ls {} + -exec wc {} \\;",
    "time make -j4", "timeout $T make", "X=<(ls) cat x", "nice -n 5 make", "exec 3>f", "ls !(x)",
]  # fmt: skip


def test_the_strict_profile_lets_the_harmless_pass() -> None:
    for command in HARMLESS:
        assert SafetyValidator("strict").validate(command) == SafetyResult(allowed=True), command


@pytest.mark.parametrize("command", ["", "  \n\t"])
def test_nothing_is_allowed(command: str) -> None:
    assert SafetyValidator().validate(command).allowed


def test_an_unknown_profile_is_an_error() -> None:
    with pytest.raises(
        ValueError, match=r"Unknown profile 'x'\. Valid profiles: strict, standard, permissive, unrestrict"
    ):
        SafetyValidator("x")


def test_a_profile_can_be_given_by_name_or_as_itself() -> None:
    assert SafetyValidator(SafetyProfile.STANDARD).profile == SafetyValidator("standard").profile == "standard"


# --- allow lists

ALLOWED = {
    "exactly": ("sudo ls", "sudo ls", True),
    "in any case": ("SUDO ls", "sudo LS", True),
    "by a star": ("sudo apt *", "sudo apt install x", True),
    "only as a whole": ("sudo ls", "sudo ls /root", False),
    "not as a part": ("ls", "sudo ls", False),
    "not with a second command": ("sudo apt *", "sudo apt x; sudo rm y", False),
    "not with a command on the next line": ("sudo apt *", "sudo apt x\nsudo rm y", False),
    "not in the background": ("sudo apt *", "sudo apt x & sudo rm y", False),
    "not with a pipe": ("sudo apt *", "sudo apt x | sudo tee y", False),
    "not with a substitution": ("sudo apt *", "sudo apt $(sudo rm y)", False),
    "not with a substitution in quotes": ("sudo apt *", 'sudo apt "$(sudo rm y)"', False),
    "not with backticks": ("sudo apt *", "sudo apt `sudo rm y`", False),
    "not with a process": ("sudo cat *", "sudo cat <(sudo rm y)", False),
    "with an operator that is quoted": ("sudo echo *", "sudo echo 'a; b | c & d'", True),
    "with an operator that the pattern has": ("sudo apt * | tee *", "sudo apt x | tee log", True),
    "not with one behind misleading quotes": ("sudo apt *", "sudo apt \"${x#'\"'}\"; sudo rm y; echo '\"}'", False),
    "not with another than the pattern has": ("sudo apt * | tee *", "sudo apt x | tee log; sudo y", False),
}


@pytest.mark.parametrize("key", ["allowed_commands", "safety_overrides"])
@pytest.mark.parametrize("profile", ["standard", "permissive", "strict"])
def test_what_is_listed_is_allowed(profile: str, key: str) -> None:
    for name, (pattern, command, is_covered) in ALLOWED.items():
        lists: dict[str, Any] = {key: [pattern] if key == "allowed_commands" else {"allow": [pattern]}}

        verdict = SafetyValidator(profile, SafetyConfig(**lists)).validate(command)

        assert verdict.allowed is ((is_covered and profile == "standard") or profile == "permissive"), name


# --- deny lists

DENIED = {
    "exactly": ("git push", "git push", True),
    "in any case": ("git PUSH", "GIT push", True),
    "as a part": ("git push", "cd x && git push origin", True),
    "by a star": ("git push *", "git push origin", True),
    "by a star in a later command": ("git push *", "ls; git push origin", True),
    "by a star in a script": ("git push *", "bash -c 'git push origin'", True),
    "by a star behind a wrapper": ("git push *", "env A=1 timeout 5 git push origin", True),
    "however it is quoted": ("git push", "git 'push'", True),
    "however it is spaced": ("git push", "git   push", True),
    "not by a star for less": ("git push *", "git pushx", False),
    "not for another": ("git push", "git pull", False),
    "not by an empty entry": ("", "git pull", False),
}


@pytest.mark.parametrize("key", ["denied_commands", "safety_overrides"])
@pytest.mark.parametrize("profile", ["strict", "standard", "permissive", "unrestricted"])
def test_what_is_listed_is_denied(profile: str, key: str) -> None:
    for name, (pattern, command, is_listed) in DENIED.items():
        lists: dict[str, Any] = {key: [pattern] if key == "denied_commands" else {"block": [pattern]}}

        verdict = SafetyValidator(profile, SafetyConfig(**lists)).validate(command)

        is_denied = is_listed and profile != "unrestricted"
        assert (verdict.allowed, verdict.matched_pattern) == (not is_denied, pattern if is_denied else None), name


def test_what_is_allowed_wins_over_what_is_denied_where_overrides_count() -> None:
    config = SafetyConfig(allowed_commands=["git push"], denied_commands=["git *"])

    verdicts = [SafetyValidator(profile, config).validate("git push").allowed for profile in ("standard", "strict")]

    assert verdicts == [True, False]


async def test_a_denied_command_is_not_run_and_says_why(shell: Any, started: Any) -> None:
    result = await shell.run("sleep 60 & sudo x")

    assert result.error["code"] == "command_denied"
    assert result.error["matched_pattern"] == "sudo"
    first, hint = result.error["message"].split("\n")
    assert first.startswith("Command denied for safety: ")
    assert hint.startswith("  Hint: ")
    assert (result.output, started.pids()) == (result.error["message"], [])


async def test_the_configured_lists_reach_the_tool(mount_shell: Any) -> None:
    shell = await mount_shell(
        safety_profile="standard",
        denied_commands=["touch"],
        safety_overrides={"allow": ["su --version"], "block": ["mv *"]},
    )

    codes = [(await shell.run(command)).error for command in ("touch x", "mv a b")]
    assert [error["code"] for error in codes] == ["command_denied"] * 2
    assert (await shell.run("su --version")).success
