"""C++ kernels for CPUs: a C ABI library (`library`), called in place through ctypes.

Each operation has its reference's name and arguments, plus `out` where it returns a tensor.
"""
