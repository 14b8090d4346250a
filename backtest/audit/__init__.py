"""The reward audit: does the reward rank scripted policies by what they are worth?

Reading order: policies, synthetic and windows (what is run), scores, order (what is required),
run (the two audits) and report (rows and summary).
"""
