#!/usr/bin/env python3
"""Runs a command in a process that the kernel gives no AMX: a seccomp filter refuses arch_prctl(ARCH_REQ_XCOMP_PERM).
usage: without_amx.py COMMAND...; exits with 77 where the CPU has no AMX or the filter cannot be set."""
import ctypes
import os
import struct
import sys

SKIPPED = 77
ARCH_PRCTL, REQUEST, TILE_DATA = 158, 0x1023, 18  # of x86-64; ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
SET_NO_NEW_PRIVS, SET_SECCOMP, MODE_FILTER = 38, 22, 2
ALLOW, REFUSE = 0x7FFF0000, 0x00050000 | 1  # with EPERM


class Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("code", ctypes.c_void_p)]


def cpu_has_amx():
    with open("/proc/cpuinfo") as file:
        return any(line.startswith("flags") and " amx_bf16" in line for line in file)


def refuse_amx():
    """The filter, for this process and those it becomes or starts. OSError if the kernel refuses it."""
    libc = ctypes.CDLL(None, use_errno=True)

    def call(number, *arguments):
        if libc.prctl(number, *map(ctypes.c_ulong, arguments)) != 0:
            raise OSError(ctypes.get_errno(), f"prctl({number})")

    load, if_equal, answer = 0x20, 0x15, 0x06
    lines = [(load, 0, 0, 0),                  # the number of the call
             (if_equal, 0, 3, ARCH_PRCTL),     # another: three lines on
             (load, 0, 0, 16),                 # the lower half of the first argument
             (if_equal, 0, 1, REQUEST),
             (answer, 0, 0, REFUSE),
             (answer, 0, 0, ALLOW)]
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *line) for line in lines))
    program = Program(len(lines), ctypes.cast(code, ctypes.c_void_p))
    call(SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    call(SET_SECCOMP, MODE_FILTER, ctypes.addressof(program), 0, 0)
    if libc.syscall(ARCH_PRCTL, REQUEST, TILE_DATA) == 0:
        raise OSError(0, "the filter is set, and AMX is given all the same")


def main():
    if not cpu_has_amx():
        print("skipped: this CPU has no AMX")
        return SKIPPED
    try:
        refuse_amx()
    except OSError as error:
        print(f"skipped: no seccomp filter here: {error}")
        return SKIPPED
    return os.execv(sys.argv[1], sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
