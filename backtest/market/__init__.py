"""The market: what a decision earns, and the reward. `step` defines it; a kernel repeats it."""
