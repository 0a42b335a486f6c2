"""Runtime plugin of kubeletx for containers of containerd that stand by frozen, as Quark's do."""
