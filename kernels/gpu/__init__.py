"""Each operation of `kernels.reference` in Triton, under the same file name.

What a kernel computes is said by its reference; here stand layouts, tiles and launches. Launchers
take device tensors, allocate what they return, and never wait for the device. Modules import
without Triton (`triton_types`), and a launch then says that it is missing.
"""
