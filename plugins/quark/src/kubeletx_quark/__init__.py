"""Runtime plugin of kubeletx for containers of containerd that stand by frozen, as Quark's do.

plugin, config    the runtime kind ``quark``, and the settings in an endpoint's URL
runtime           `QuarkRuntime`: containerd's CRI, with the real states, and a thaw before each stop
standby           the calls freeze, hibernate and thaw
choice            which strategy a container has
strategy          what a strategy does: freezer_strategy, pause_strategy and signal_strategy
resting           which containers are frozen, and how; records: ids that survive the agent
freezers          finds and reads the freezers of all containers; freezer: that of one; cgroups: where it is
killed            processes that were killed while frozen
reclaim           moves the memory of a frozen container out of RAM
events            notes pauses that other programs make
kill_stop         stops containers by containerd's task service
"""
