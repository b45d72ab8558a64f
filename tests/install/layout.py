"""Changes the number of the layout in a pinned plane, which is the first word of the map `ly_meta` (`Meta` in crates/ebpf/src/tables.rs)."""
import ctypes
import mmap
import os
import platform

# bpf(2): the number of the system call, and of its command BPF_OBJ_GET.
SYS_BPF = {"x86_64": 321, "aarch64": 280}
BPF_OBJ_GET = 7


class Attributes(ctypes.Structure):
    """The arguments of BPF_OBJ_GET."""
    _fields_ = [("pathname", ctypes.c_uint64), ("bpf_fd", ctypes.c_uint32), ("file_flags", ctypes.c_uint32)]


def change(pins):
    """Adds one to the number of the layout of the plane whose pins are in this directory."""
    libc = ctypes.CDLL(None, use_errno=True)
    path = ctypes.create_string_buffer(os.path.join(pins, "maps/ly_meta").encode())
    attributes = Attributes(ctypes.addressof(path), 0, 0)
    descriptor = libc.syscall(SYS_BPF[platform.machine()], BPF_OBJ_GET, ctypes.byref(attributes), ctypes.sizeof(attributes))
    if descriptor < 0:
        raise RuntimeError(f"{pins}/maps/ly_meta: {os.strerror(ctypes.get_errno())}")
    try:
        with mmap.mmap(descriptor, mmap.PAGESIZE) as page:
            number = int.from_bytes(page[:4], "little")
            page[:4] = (number + 1).to_bytes(4, "little")
    finally:
        os.close(descriptor)
