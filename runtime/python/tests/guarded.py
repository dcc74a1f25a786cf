# SPDX-License-Identifier: Apache-2.0
"""Arrays and tensors of any layout between inaccessible pages, so that an access beyond either end faults."""
import ctypes
import mmap

import numpy as np

PAGE = mmap.PAGESIZE
PROT_NONE, PROT_READ, PROT_WRITE = 0, 1, 2
FAILED = 2 ** (8 * ctypes.sizeof(ctypes.c_void_p)) - 1

_c = ctypes.CDLL(None, use_errno=True)
_c.mmap.restype = ctypes.c_void_p
_c.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
_c.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
_c.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]


def bytes_at(address, size):
    return (ctypes.c_ubyte * size).from_address(address)


class Memory:
    """Bytes between two guard pages, at the end of the first or at the beginning of the second."""

    def __init__(self, size, at_the_left):
        inside = max(-(-size // PAGE), 1) * PAGE
        self._size = inside + 2 * PAGE
        self._begin = _c.mmap(None, self._size, PROT_NONE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1, 0)
        if self._begin == FAILED or _c.mprotect(self._begin + PAGE, inside, PROT_READ | PROT_WRITE):
            raise MemoryError(f"no {self._size} bytes between guard pages")
        address = self._begin + PAGE + (0 if at_the_left else inside - size)
        self.bytes = np.frombuffer(bytes_at(address, size), np.uint8) if size else np.empty(0, np.uint8)

    def free(self):
        self.bytes = None
        _c.munmap(self._begin, self._size)


LAYOUTS = ("contiguous", "permuted", "padded", "stepped", "expanded", "overlapping", "offset")


def strides_of(layout, shape, random):
    """Returns strides in elements; with `flipped`, negative ones."""
    order = list(range(len(shape)))
    if layout == "permuted":
        random.shuffle(order)
    strides, step = [0] * len(shape), 2 if layout == "stepped" else 1
    for i in reversed(order):
        strides[i] = step
        step *= max(shape[i], 1) + (random.choice((0, 1, 3)) if layout == "padded" else 0)
    for i in range(len(shape)):
        if layout in ("expanded", "overlapping") and random.random() < 0.5:
            strides[i] = 0 if layout == "expanded" else random.choice((1, 2, 3))
        if layout == "flipped" and random.random() < 0.5:
            strides[i] = -strides[i]
    return strides


class Block:
    """A view of guarded memory. `flat` is the whole memory, and `array` the view. bf16 is stored as integers."""

    def __init__(self, shape, strides, item, at_the_left, before=0):
        ends = [(size - 1) * stride for size, stride in zip(shape, strides)]
        lowest = sum(min(end, 0) for end in ends)
        count = 0 if 0 in shape else sum(max(end, 0) for end in ends) - lowest + 1 + before
        self.memory = Memory(count * np.dtype(item).itemsize, at_the_left)
        self.flat = self.memory.bytes.view(item)
        self.shape, self.strides, self.offset = tuple(shape), tuple(strides), (before - lowest) if count else 0
        self.array = self._view_of(self.flat)
        self.before = None

    def _view_of(self, flat):
        if flat.size == 0:
            return flat[:0].reshape(self.shape)
        step = flat.itemsize
        return np.lib.stride_tricks.as_strided(flat[self.offset:], self.shape, [s * step for s in self.strides])

    def keep(self):
        self.before = self.flat.copy()

    def was_changed(self, is_output):
        """True if anything was written other than the elements of an output."""
        same = self.flat.view(np.uint8) == self.before.view(np.uint8)
        if is_output and self.flat.size:
            seen = np.zeros(self.flat.size, bool)
            Block._view_of(_Like(self), seen)[...] = True
            same |= np.repeat(seen, self.flat.itemsize)
        return not same.all()

    def free(self):
        self.array = self.flat = None
        self.memory.free()


class _Like:
    def __init__(self, block):
        self.shape, self.strides, self.offset = block.shape, block.strides, block.offset
