"""Safe work on files that containers can change.

Links never lead out of a volume, fsGroup is applied, and all files of a volume are replaced in one step.
"""
