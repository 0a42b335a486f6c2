"""``kubeletx remedy``: a controller for the whole cluster that makes sick nodes safe, repairs them and brings them back.

The pure core decides (`thresholds`, `policy`, `automaton`, `plan`); everything else reads the cluster and acts. All state is in
the cluster: one `NodeFence` object per node. This package imports only `kubeletx.api`, `kubeletx.linux` and `kubeletx.kube`.
"""
