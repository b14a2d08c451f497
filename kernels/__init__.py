"""Computation: the decoder's description, and back ends that execute it.

`spec` says what a model computes, `backend` is the seam that every back end implements,
`reference` is plain torch and the definition of each operation, `cpu` is C++ and `gpu` Triton.
Operations have the same file name in all three.
"""
