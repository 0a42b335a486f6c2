"""FlexVolume drivers for kubeletx (`host`), and a driver of its own with the storage agent behind it.

host/         calls executable FlexVolume drivers for pods of kubeletx: a `kubeletx.api.VolumeDriver`
driver/       the executable driver kubeletx.io/storage: one file
agent/        the storage agent, a process of its own: installs that driver; attaches, formats, mounts and unmounts for it
backends/     kinds of storage: loop, directory, fuse, nfs, rbd, nbd
attachments/  records of who has which volume attached; exclusive access, fencing, stale records
cleanup/      removal of the volumes of a storage cluster that is being deleted
device        looks at a device, formats it if it is blank, checks and enlarges its file system, for both programs
mounts        mounts of one volume, for both programs
programs      what these two need of the program that uses them
commands      programs that the agent and its backends run, with a lock for each volume
"""
