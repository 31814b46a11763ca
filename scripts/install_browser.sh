#!/bin/sh
# Make sure that there is a Chromium for the tests of the page, with the system's own packages, where this user may
# install some. Those tests skip without one, so this never fails.

set -u

for name in chromium chromium-browser google-chrome google-chrome-stable; do
	command -v "$name" >/dev/null 2>&1 && exit 0
done
for application in Chromium "Google Chrome"; do
	[ -d "/Applications/$application.app" ] && exit 0
done

say_how() {
	echo "There is no Chromium, so the tests of the page are skipped: $1" >&2
	echo "  fix: install it with your system's packages, for example: sudo apt-get install chromium" >&2
	exit 0
}

as_root=
if [ "$(id -u)" -ne 0 ]; then
	if command -v sudo >/dev/null 2>&1 && sudo -n true 2>/dev/null; then
		as_root="sudo -n"
	else
		as_root=no
	fi
fi

install=
if [ "$(uname)" = Darwin ]; then
	command -v brew >/dev/null 2>&1 && install="brew install --quiet --cask chromium"
elif [ "$as_root" = no ]; then
	say_how "installing it needs the rights of root"
elif command -v apt-get >/dev/null 2>&1; then
	install="$as_root env DEBIAN_FRONTEND=noninteractive sh -c 'apt-get update && apt-get install -y --no-install-recommends chromium'"
elif command -v dnf >/dev/null 2>&1; then
	install="$as_root dnf install -y chromium"
elif command -v zypper >/dev/null 2>&1; then
	install="$as_root zypper --non-interactive install chromium"
elif command -v pacman >/dev/null 2>&1; then
	install="$as_root pacman -S --noconfirm chromium"
elif command -v apk >/dev/null 2>&1; then
	install="$as_root apk add chromium"
fi
[ -n "$install" ] || say_how "no package manager that is known here"

echo "Installing Chromium for the tests of the page"
log=$(mktemp)
trap 'rm -f "$log"' EXIT
if ! eval "$install" >"$log" 2>&1 </dev/null; then
	tail -n 3 "$log" >&2
	say_how "the package manager could not install it"
fi
