"""Dagster assets and checks: glue of a few lines around plain functions."""
