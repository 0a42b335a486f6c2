"""The subcommands of ``kubeletx vm``, for virtual machines."""
