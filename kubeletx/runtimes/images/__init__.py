"""Images of each store (rule 6 of docs/architecture.md): presence, pulls, credentials, use, collection.

Runtimes whose image services report the same store id share one `ImageStore`.
"""
