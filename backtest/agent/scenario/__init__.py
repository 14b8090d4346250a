"""The scenario network: a frozen forecaster of scenarios, and an actor that queries them.

Everything here needs torch, except `paths`; kernels read `backtest.agent.scenario_weights`.
"""
