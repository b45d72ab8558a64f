#!/bin/sh
# deb.sh ROOT VERSION OUTPUT [ARCH]: makes a Debian package of what `make install DESTDIR=ROOT PREFIX=/usr` has installed below ROOT.
# The program in ROOT is run to print its man pages and completion scripts; one for another architecture is run in Debian's
# emulator (qemu-user-static).
set -eu
root=$1 version=$2 output=$3
here=$(dirname "$0")
arch=${4:-$(dpkg --print-architecture)}
program=$root/usr/bin/lanyard

[ -x "$program" ] || { echo "deb.sh: $program: no program there: run make install first" >&2; exit 1; }
case $arch in
    "$(dpkg --print-architecture)") run= strip=strip ;;
    arm64) run=qemu-aarch64-static strip=aarch64-linux-gnu-strip ;;
    *) echo "deb.sh: $arch: a package can be made for this machine's architecture, or for arm64" >&2; exit 1 ;;
esac
for binary in "$program" "$root/usr/lib/lanyard/lanyard-sshd"; do
    [ ! -e "$binary" ] || "$strip" --strip-unneeded "$binary" || echo "deb.sh: $binary keeps its symbols" >&2
done

install -d -m 755 "$root/usr/share/bash-completion/completions" "$root/usr/share/zsh/vendor-completions" \
    "$root/usr/share/fish/vendor_completions.d" "$root/usr/share/man/man1" "$root/usr/share/doc/lanyard"
$run "$program" completion bash >"$root/usr/share/bash-completion/completions/lanyard"
$run "$program" completion zsh >"$root/usr/share/zsh/vendor-completions/_lanyard"
$run "$program" completion fish >"$root/usr/share/fish/vendor_completions.d/lanyard.fish"
$run "$program" man "$root/usr/share/man/man1"
gzip -9n "$root"/usr/share/man/man1/*.1
install -m 644 "$here/copyright" "$root/usr/share/doc/lanyard/copyright"
printf 'lanyard (%s) unstable; urgency=medium\n\n  * See the log of the repository.\n' "$version" |
    gzip -9n >"$root/usr/share/doc/lanyard/changelog.gz"
chmod 644 "$root"/usr/share/doc/lanyard/* "$root"/usr/share/man/man1/*

install -d -m 755 "$root/DEBIAN"
for script in postinst prerm postrm; do install -m 755 "$here/debian/$script" "$root/DEBIAN/$script"; done
# As dpkg-gencontrol counts: KiB of each file, rounded up, and 1 for each other object. `du` would count this file system's blocks.
size=$(find "$root" -mindepth 1 -path "$root/DEBIAN" -prune -o -printf '%y %s\n' |
    awk '{ kib += $1 == "f" ? int(($2 + 1023) / 1024) : 1 } END { print kib }')
sed -e "s/@VERSION@/$version/" -e "s/@ARCH@/$arch/" -e "s/@SIZE@/$size/" "$here/debian/control.in" >"$root/DEBIAN/control"
(cd "$root" && find usr -type f -exec md5sum {} + >DEBIAN/md5sums)
dpkg-deb --root-owner-group --build "$root" "$output/lanyard_${version}_$arch.deb"
