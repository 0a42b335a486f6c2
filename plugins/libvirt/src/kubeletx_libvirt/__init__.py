"""Virtual machines as pods, through libvirt.

Each machine is one unit of a pod (as a container is) and one libvirt domain. The unit's id is the domain's
UUID.
"""
