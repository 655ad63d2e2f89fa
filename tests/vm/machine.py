"""A virtual machine for tests: QEMU without KVM, Debian's kernel, the binary under test, busybox, and nothing else.

The machine boots from an initramfs that is made here, runs a list of shell commands, one after the other, and powers
off. What each wrote and how it ended comes back over the serial console. It needs no root, no network and no disk.
"""

import glob
import lzma
import os
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import threading
import time

# Beyond what the commands of a boot wait on purpose.
BOOT_TIMEOUT_S = 900
PACKAGES = {"kernel": "linux-image-amd64", "busybox": "busybox-static"}
MARK = "@@larder"


class Unavailable(Exception):
    """What the machine needs cannot be had here; the reason."""


def run(*command, **options):
    done = subprocess.run(command, capture_output=True, text=True, **options)
    if done.returncode:
        raise Unavailable(f"`{' '.join(command)}` failed: {(done.stderr.strip() or 'no message').splitlines()[-1]}")
    return done.stdout


# Machines begin side by side, and what they need is unpacked once.
UNPACKING = threading.RLock()


def unpacked(package, cache):
    """The folder with the files of a Debian package, downloaded and unpacked once; it is not installed."""
    with UNPACKING:
        return unpack(package, cache)


def unpack(package, cache):
    folder = os.path.join(cache, package)
    if not os.path.exists(os.path.join(folder, "complete")):
        if not shutil.which("apt-get") or not shutil.which("dpkg"):
            raise Unavailable(f"there is neither {package} nor apt-get here")
        shutil.rmtree(folder, ignore_errors=True)
        os.makedirs(folder)
        name = package
        if package == PACKAGES["kernel"]:
            # The package is empty and depends on the newest kernel.
            found = re.search(r"Depends: (linux-image-[\w.+-]+)", run("apt-cache", "depends", package))
            if not found:
                raise Unavailable(f"{package} names no kernel")
            name = found.group(1)
        run("apt-get", "download", name, cwd=folder)
        run("dpkg", "-x", glob.glob(os.path.join(folder, "*.deb"))[0], folder)
        open(os.path.join(folder, "complete"), "w", encoding="utf-8").close()
    return folder


def vmlinux(folder, cache):
    """The kernel as an ELF file, which QEMU starts without a BIOS: the payload of a bzImage."""
    images = glob.glob(os.path.join(folder, "boot", "vmlinuz-*"))
    if not images:
        raise Unavailable("the kernel's package has no image")
    with open(images[0], "rb") as file:
        image = file.read()
    sectors = image[0x1f1] or 4
    offset, length = struct.unpack_from("<II", image, 0x248)
    start = (sectors + 1) * 512 + offset
    try:
        elf = lzma.LZMADecompressor(lzma.FORMAT_XZ).decompress(image[start:start + length])
    except lzma.LZMAError as error:
        raise Unavailable(f"the kernel is not packed with xz: {error}") from error
    path = os.path.join(cache, "vmlinux")
    # Another machine may boot from it at this moment.
    with tempfile.NamedTemporaryFile(dir=cache, delete=False) as file:
        file.write(elf)
    os.replace(file.name, path)
    return path


def module_files(folder, names):
    """The files of modules and of those that they need, in the order in which they are loaded."""
    found = {os.path.basename(path).split(".ko")[0].replace("-", "_"): path
             for path in glob.glob(os.path.join(folder, "lib/modules/*/kernel/**/*.ko"), recursive=True)}
    order = []

    def add(name):
        path = found.get(name.replace("-", "_"))
        if path is None:
            raise Unavailable(f"the kernel has no module {name}")
        if path in order:
            return
        with open(path, "rb") as file:
            depends = re.search(rb"\0depends=([^\0]*)\0", file.read())
        for other in depends.group(1).decode().split(",") if depends else []:
            if other:
                add(other)
        order.append(path)

    for name in names:
        add(name)
    return order


def shared_libraries(binary):
    listed = run("ldd", binary)
    if "not found" in listed:
        raise Unavailable(f"{binary} needs libraries that are not here")
    return re.findall(r"(/\S+) \(0x", listed)


def stripped(program, cache):
    """A program without its symbols."""
    with tempfile.NamedTemporaryFile(dir=cache, delete=False) as file:
        run("strip", "-o", file.name, program)
    path = os.path.join(cache, "stripped-" + os.path.basename(program))
    os.replace(file.name, path)
    return path


def initramfs(path, files, folders, links=()):
    """Writes a cpio archive (newc) with `files` ({path inside: (mode, bytes)}), `folders` and `links`."""
    with open(path, "wb") as out:
        def entry(name, mode, data, number):
            header = [number, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(name) + 1, 0]
            out.write(b"070701" + b"".join(b"%08X" % field for field in header))
            out.write(name.encode() + b"\0")
            out.write(b"\0" * (-out.tell() % 4))
            out.write(data)
            out.write(b"\0" * (-out.tell() % 4))

        number = 1
        for name in folders:
            entry(name, 0o040755, b"", number)
            number += 1
        for name, target in links:
            entry(name, 0o120777, target.encode(), number)
            number += 1
        for name, (mode, data) in files.items():
            entry(name, 0o100000 | mode, data, number)
            number += 1
        entry("TRAILER!!!", 0, b"", 0)


def init_script(modules, parameters, commands):
    lines = ["#!/bin/busybox sh", "/bin/busybox --install -s /bin", "export PATH=/bin",
             "mount -t proc proc /proc", "mount -t sysfs sys /sys", "mount -t devtmpfs dev /dev",
             "echo 1 > /proc/sys/kernel/printk"]
    for path in modules:
        name = os.path.basename(path)
        lines.append(f"insmod /modules/{name} {parameters.get(name.split('.')[0], '')}")
    for number, command in enumerate(commands):
        lines += [f"echo '{MARK} begin {number}'", f"( {command} ) 2>/tmp/errors", "code=$?",
                  f"echo; echo '{MARK} errors {number}'; cat /tmp/errors",
                  f"echo; echo '{MARK} end {number} '$code"]
    return "\n".join([*lines, "poweroff -f", ""]).encode()


class Machine:
    """A machine that is ready to boot, as `name`. With `larder` on the path it runs `commands`; `modules` are names of
    modules with their parameters, `disks` image files at SATA ports with their serial numbers, `virtio` image files as
    virtio's disks with their cache modes, `programs` paths of this machine's programs that are to be there as well (or
    pairs of the path there and here), `texts` the texts of further files by their paths, `waits_s` how long the
    commands wait on purpose, in seconds."""

    def __init__(self, name, binary, modules, commands, cache, disks=(), programs=(), texts=None, memory_mb=1024,
                 waits_s=0, virtio=()):
        qemu = shutil.which("qemu-system-x86_64")
        if not qemu:
            raise Unavailable("qemu-system-x86_64 is not installed (Debian: qemu-system-x86)")
        kernel = unpacked(PACKAGES["kernel"], cache)
        self.name, self.commands, self.timeout_s = name, commands, BOOT_TIMEOUT_S + waits_s
        self.archive, self.console = (os.path.join(cache, f"{name}.{kind}") for kind in ("initramfs", "console"))
        with UNPACKING:
            self.pack(binary, module_files(kernel, modules), modules, cache, programs, texts or {})
        self.qemu = [qemu, "-M", "pc", "-accel", "tcg,thread=single", "-cpu", "qemu64", "-m", str(memory_mb),
                     "-no-reboot", "-display", "none", "-nodefaults", "-serial", "stdio",
                     "-kernel", vmlinux(kernel, cache), "-initrd", self.archive,
                     # On a busy machine the check of the timer fails, and the kernel gives up.
                     "-append", "console=ttyS0 quiet panic=-1 no_timer_check rdinit=/init"]
        for number, (image, serial) in enumerate(disks):
            self.qemu += ["-device", "ahci,id=ahci"] if number == 0 else []
            self.qemu += ["-drive", f"file={image},format=raw,if=none,id=disk{number}",
                          "-device", f"ide-hd,drive=disk{number},bus=ahci.{number},serial={serial}"]
        for number, (image, mode) in enumerate(virtio):
            self.qemu += ["-drive", f"file={image},format=raw,if=none,id=virtio{number},cache={mode}",
                          "-device", f"virtio-blk-pci,drive=virtio{number}"]

    def pack(self, binary, loaded, modules, cache, programs, texts):
        """Writes the initramfs."""
        busybox = os.path.join(unpacked(PACKAGES["busybox"], cache), "bin/busybox")
        programs = [pair if isinstance(pair, tuple) else (pair, pair) for pair in [("bin/larder", binary), *programs]]
        copies = {"bin/busybox": busybox,
                  **{there.lstrip("/"): stripped(here, cache) for there, here in programs},
                  **{lib.lstrip("/"): lib for _, here in programs for lib in shared_libraries(here)},
                  **{f"modules/{os.path.basename(path)}": path for path in loaded}}
        files = {}
        for there, source in copies.items():
            with open(source, "rb") as file:
                files[there] = (0o755, file.read())
        for there, text in texts.items():
            files[there] = (0o644, text.encode())
        folders = {"bin", "proc", "sys", "dev", "tmp", "modules", "mnt"}
        for there in files:
            parts = there.split("/")[:-1]
            folders |= {"/".join(parts[:depth + 1]) for depth in range(len(parts))}
        files["init"] = (0o755, init_script(loaded, modules, self.commands))
        initramfs(self.archive, files, sorted(folders), [("bin/sh", "busybox")])

    def start(self):
        """Switches it on; its process. What it writes is in the file `console`."""
        with open(self.console, "w", encoding="utf-8") as out:
            return subprocess.Popen(self.qemu, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT)

    def written(self):
        with open(self.console, encoding="utf-8", errors="replace") as console:
            return console.read().replace("\r", "")

    def results(self):
        """Runs all commands and powers off; of each (exit code, output, errors)."""
        started = time.monotonic()
        qemu = self.start()
        try:
            qemu.wait(self.timeout_s)
        finally:
            qemu.kill()
            qemu.wait()
            print(f"machine {self.name}: {time.monotonic() - started:.0f} s", flush=True)
        return results(self.written(), len(self.commands))


def images(folder, serials, size_bytes):
    """Empty disks with these serial numbers."""
    disks = []
    for number, serial in enumerate(serials):
        disks.append((os.path.join(folder, f"disk{number}"), serial))
        with open(disks[-1][0], "wb") as file:
            file.truncate(size_bytes)
    return disks


def boot(*what, **further):
    """Boots a [`Machine`]; of each command (exit code, output, errors)."""
    return Machine(*what, **further).results()


def results(text, count):
    """Takes apart what was written to the console by `count` commands."""
    found = []
    for number in range(count):
        one = re.search(rf"{MARK} begin {number}\n(.*?)\n{MARK} errors {number}\n(.*?)\n{MARK} end {number} (\d+)",
                        text, re.S)
        if not one:
            print(text[-4000:], file=sys.stderr)
            raise RuntimeError(f"the machine did not come to the end of command {number}")
        found.append((int(one.group(3)), one.group(1).strip(), one.group(2).strip()))
    return found
