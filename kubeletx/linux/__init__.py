"""Public: the parts of Linux that the agent and its plugins share. Import the module of the subject.

blank        proof that a block device is blank, and may be formatted
boot         boot ID of the running kernel
files        atomic, durable replacement of small files; private directories
inotify      changes in directories
json_files   `JsonFiles`: values in files that survive a crash, damage and other versions of the program
lean_imports structlog and aiohttp without what a daemon does not need
libc         system calls that Python lacks
listener     TCP listener with limits on connections
locks        file locks, and who holds them
mounts       mount tables
notify       messages to the service manager
processes    state, CPU time and memory of processes
programs     the one way to run a program: deadline, process group, bounded output
records      `SqliteRecords`: versioned records in an SQLite file; `RecordsFile` opens and shares the file
redaction    secrets in the text of programs

This package imports only `kubeletx.api`. A module that nothing uses is never imported.
"""
