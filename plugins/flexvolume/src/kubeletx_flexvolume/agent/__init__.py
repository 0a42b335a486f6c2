"""The storage agent: the process behind the driver kubeletx.io/storage."""
