"""Runtime plugin of kubeletx for containers of containerd that stand by frozen, as Quark's do.

plugin, config    the runtime kind ``quark``, and the settings in an endpoint's URL
runtime           `QuarkRuntime`: containerd's CRI, with the real states, and a thaw before each stop
standby           the calls freeze, hibernate and thaw, and what a strategy does
choice            which strategy a container has
pause_strategy, signal_strategy, freezers
                  the strategies; freezers also finds and reads the freezers of all containers
resting           which containers are frozen, and how; records: ids that survive the agent
freezer           the freezer of one container; cgroups: where it is
killed            processes that were killed while frozen
reclaim           moves the memory of a frozen container out of RAM
"""
