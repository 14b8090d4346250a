"""Whole rollouts on a device: policy, skills, exploration and market in one kernel.

Read shape, sizes, program, packing, skills, tables, scenario_tables, passes, play, windows.
"""

from opencl.rollout.play import Rollout
from opencl.rollout.program import (
    RolloutProgram,
    Variant,
    collection_variant,
    policy_files,
    rollout_program,
)
from opencl.rollout.shape import Shape
from opencl.rollout.skills import PolicySkills
from opencl.rollout.trajectories import Launch, Trajectories, Walked
from opencl.rollout.windows import Windows

__all__ = [
    "Launch",
    "PolicySkills",
    "Rollout",
    "RolloutProgram",
    "Shape",
    "Trajectories",
    "Variant",
    "Walked",
    "Windows",
    "collection_variant",
    "policy_files",
    "rollout_program",
]
