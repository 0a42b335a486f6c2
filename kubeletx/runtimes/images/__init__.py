"""Image stores (rule 6 of docs/architecture.md): presence of images, pulls, credentials, use, garbage collection.

Runtimes whose image services report the same store id share one `ImageStore`.
"""
