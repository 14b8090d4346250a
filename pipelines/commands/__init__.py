"""The commands of `skillwalk`, one small file a group; heavy imports wait inside functions."""
