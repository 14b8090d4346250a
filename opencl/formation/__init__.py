"""The stages after the base policy, on a device: collect, evaluate, choose on validation.

Read actor, collection, evaluation, validation, rows; `opencl.skills` runs them on a lake.
"""
