"""Safe work on files that containers can change: no link is followed, owners are set, and all files of a
volume are replaced in one step.
"""
