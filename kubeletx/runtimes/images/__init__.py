"""Images, per store (rule 6): presence, pulls, credentials, use, collection.

Runtimes whose image services report the same store id share one `ImageStore`.
"""
