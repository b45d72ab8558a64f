"""Debian's kernels: which there are, and unpacking them into a cache. The machine's own apt configuration is read, never changed.

Debian's archive has older releases, backports and security updates beside the machine's own release. A private apt (its lists
and sources are in the cache) asks the mirror that the machine itself uses for the suites that have the kernels wanted.
"""
import os
import re
import shutil
import subprocess

# The suites with the kernels of Debian 11, 12 and 13, by the part of the archive that has them.
SUITES = {
    "main": "bookworm bookworm-backports bullseye trixie-backports",
    "security": "bookworm-security bullseye-security",
}
# A newer QEMU for Debian 12.
BACKPORTS = "bookworm-backports"
# Directories that no guest needs: most of the unpacked size.
LEFT_OUT = ("drivers/gpu", "drivers/media", "drivers/infiniband", "drivers/iio", "drivers/staging", "drivers/usb", "sound",
            "drivers/net/wireless", "drivers/scsi", "drivers/isdn", "fs/xfs", "fs/btrfs", "fs/ceph", "fs/nfs", "fs/smb")


class Missing(Exception):
    """Something that the checks need cannot be had; the reason."""


class Packages:
    """A private apt, whose state is in `cache`."""

    def __init__(self, cache, log):
        self.cache, self.log = cache, log
        self.root = os.path.join(cache, "apt")
        self.configuration = os.path.join(self.root, "apt.conf")
        self.updated = False

    def _apt(self, *command, timeout=120):
        environment = {**os.environ, "APT_CONFIG": self.configuration, "LC_ALL": "C", "DEBIAN_FRONTEND": "noninteractive"}
        done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              timeout=timeout, check=False, cwd=self.root)
        self.log.write(f"$ {' '.join(command)}\n{done.stdout}\n")
        return done

    def update(self):
        """Fetches the lists of the suites. A mirror that lacks a suite lacks its kernels; the others are there."""
        if self.updated:
            return
        self.updated = True
        for folder in ("lists/partial", "archives/partial", "sources.d"):
            os.makedirs(os.path.join(self.root, folder), exist_ok=True)
        with open(os.path.join(self.root, "sources.d", "kernels.sources"), "w", encoding="ascii") as file:
            file.write(sources())
        with open(self.configuration, "w", encoding="ascii") as file:
            file.write(f'Dir::State::Lists "{self.root}/lists";\nDir::Cache "{self.root}";\n'
                       f'Dir::Etc::SourceList "/dev/null";\nDir::Etc::SourceParts "{self.root}/sources.d";\n'
                       'Acquire::Languages "none";\nAcquire::IndexTargets::deb::DEP-11::DefaultEnabled "false";\nAPT::Architecture "amd64";\nAPT::Sandbox::User "root";\n'
                       'Acquire::http::Timeout "20";\nAcquire::Retries "1";\n')
        self._apt("apt-get", "update")

    def install_backport(self, package):
        """Installs a package of Debian 12's backports on this machine, with the sources of this private apt."""
        self.update()
        # Replace the release's versions of these packages, so that no package with an incompatible version is left.
        command = ("apt-get", "install", "-y", "--no-install-recommends", "-t", BACKPORTS, package)
        done = self._apt(*command, timeout=900)
        if done.returncode:
            raise Missing(f"the package {package} of {BACKPORTS} cannot be installed ({last_line(done.stdout)})")

    def newest(self, wanted):
        """The newest kernel that `wanted` names: the beginning of a version (`6.1`), or one whole (`6.1.0-50-amd64`)."""
        if wanted.endswith("-amd64"):
            return wanted
        self.update()
        names = ("linux-image-amd64", f"linux-image-{wanted}-amd64")
        text = self._apt("apt-cache", "show", *names).stdout
        best = None
        for record in text.split("\n\n"):
            fields = dict(re.findall(r"^([A-Za-z-]+): (.*)$", record, re.M))
            version, depends = fields.get("Version", ""), fields.get("Depends", "")
            image = re.search(r"\blinux-image-(\d[^\s,(]*-amd64)\b", depends)
            if image and version.startswith(wanted + ".") and (best is None or newer(version, best[0])):
                best = version, image[1]
        if best is None:
            suites = " ".join(SUITES.values())
            raise Missing(f"the mirror has no kernel {wanted} in the suites {suites}")
        return best[1]

    def unpack(self, version):
        """Makes boot/vmlinuz-VERSION and modules/VERSION below the cache; answers nothing when they are there already."""
        modules = os.path.join(self.cache, "modules", version)
        if os.path.exists(os.path.join(modules, "modules.dep")):
            return
        self.update()
        image = f"linux-image-{version}"
        depends = self._apt("apt-cache", "depends", image).stdout
        # Later kernels consist of several packages.
        parts = [part for part in (f"linux-binary-{version}", f"linux-modules-{version}") if part in depends]
        with_files = os.path.join(self.cache, "unpacked")
        shutil.rmtree(with_files, ignore_errors=True)
        for package in parts or [image]:
            done = self._apt("apt-get", "download", package, timeout=300)
            files = [name for name in os.listdir(self.root) if name.startswith(package + "_") and name.endswith(".deb")]
            if done.returncode or not files:
                raise Missing(f"the package {package} cannot be downloaded ({last_line(done.stdout)})")
            path = os.path.join(self.root, files[0])
            excluded = [f"--exclude=*/kernel/{folder}" for folder in LEFT_OUT]
            with subprocess.Popen(["dpkg-deb", "--fsys-tarfile", path], stdout=subprocess.PIPE) as archive:
                os.makedirs(with_files, exist_ok=True)
                subprocess.run(["tar", "-x", "-C", with_files, *excluded], stdin=archive.stdout, check=True)
            os.remove(path)
        self._keep(with_files, version)

    def _keep(self, unpacked, version):
        images = (f"boot/vmlinuz-{version}", f"usr/lib/modules/{version}/vmlinuz", f"lib/modules/{version}/vmlinuz")
        image = next((path for path in images if os.path.exists(os.path.join(unpacked, path))), None)
        tree = next((path for path in ("usr/lib/modules", "lib/modules")
                     if os.path.isdir(os.path.join(unpacked, path, version))), None)
        if not image or not tree:
            raise Missing(f"the package of {version} has no vmlinuz or no modules where they were expected")
        os.makedirs(os.path.join(self.cache, "boot"), exist_ok=True)
        os.makedirs(os.path.join(self.cache, "modules"), exist_ok=True)
        shutil.copy(os.path.join(unpacked, image), os.path.join(self.cache, "boot", f"vmlinuz-{version}"))
        modules = os.path.join(self.cache, "modules", version)
        shutil.rmtree(modules, ignore_errors=True)
        # depmod needs the directory layout of a root. The index that it writes marks the kernel as
        # complete.
        base = os.path.join(unpacked, "root")
        os.makedirs(os.path.join(base, "lib/modules"))
        os.rename(os.path.join(unpacked, tree, version), os.path.join(base, "lib/modules", version))
        subprocess.run(["/sbin/depmod", "-b", base, version], check=True, stdout=self.log, stderr=self.log)
        os.rename(os.path.join(base, "lib/modules", version), modules)
        shutil.rmtree(unpacked)


def newer(one, other):
    return subprocess.run(["dpkg", "--compare-versions", one, "gt", other], check=False).returncode == 0


def last_line(text):
    lines = [line for line in text.strip().splitlines() if line]
    return lines[-1] if lines else "no output"


def sources():
    """Sources with the mirror of the machine's own release, and the suites that have the kernels."""
    fields = "$(REPO_URI)|$(RELEASE)|$(COMPONENT)|$(SIGNED_BY)"
    done = subprocess.run(["apt-get", "indextargets", "--no-release-info", "--format", fields, "Created-By: Packages"],
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False)
    release = dict(re.findall(r'^(\w+)="?([^"\n]*)', open("/etc/os-release", encoding="utf-8").read(), re.M))
    codename = release.get("VERSION_CODENAME", "")
    found = {}
    for line in done.stdout.splitlines():
        uri, suite, component, key = (line.split("|") + [""] * 4)[:4]
        if component != "main":
            continue
        if suite in (codename, "stable", "oldstable") and release.get("ID") == "debian":
            found.setdefault("main", (uri, key))
        if suite.endswith("-security"):
            found.setdefault("security", (uri, key))
    if "main" not in found:
        raise Missing("apt's sources have no mirror of Debian's own release")
    keyring = "/usr/share/keyrings/debian-archive-keyring.gpg"
    stanzas = []
    for part, (uri, key) in found.items():
        key = key if key.startswith("/") else keyring
        stanzas.append(f"Types: deb\nURIs: {uri}\nSuites: {SUITES[part]}\nComponents: main\nSigned-By: {key}\n")
    return "\n".join(stanzas)
