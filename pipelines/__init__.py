"""The wiring: definitions, partitions, jobs, schedules, command line."""
