"""The subcommands of ``kubeletx plugin``, for authors and operators of plugins."""
